//! Many cases at once, and what to say of those that fail.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    str::FromStr,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use openshift_upgrade_operator::{
    api::upgrade_job::EngineChoice,
    simulator::api::{Fault, Logged},
};

use crate::{
    play::{Case, Outcome, play},
    state,
    story::Story,
    verdict::{self, Undisturbed},
};

/// So many failed cases are looked into.
const MOST: usize = 6;

/// As in `CRASH`: `Succeeds/embedded/37:KillAfter,41:Conflict`.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}/", self.story, self.engine)?;
        for (i, (write, fault)) in self.faults.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{write}:{fault:?}")?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [story, engine, faults] = parts.as_slice() else {
            return Err(format!("{text:?} is not <story>/<engine>/<write>:<fault>[,…]"));
        };
        let story = Story::ALL.into_iter().find(|s| format!("{s:?}") == *story);
        let engines = [EngineChoice::Embedded, EngineChoice::Argo];
        let engine = engines.into_iter().find(|e| format!("{e:?}") == *engine);
        let faults = faults.split(',').filter(|f| !f.is_empty()).map(|text| {
            let (write, fault) = text.split_once(':')?;
            let fault = Fault::ALL.into_iter().find(|f| format!("{f:?}") == fault)?;
            Some((write.parse().ok()?, fault))
        });
        Ok(Self {
            story: story.ok_or("unknown story")?,
            engine: engine.ok_or("unknown engine")?,
            faults: faults.collect::<Option<_>>().ok_or("bad fault")?,
        })
    }
}

/// Plays a story undisturbed; it must end as it should.
pub fn undisturbed(story: Story, engine: EngineChoice) -> Undisturbed {
    let case = Case {
        story,
        engine,
        faults: Vec::new(),
    };
    let outcome = play(&case, true);
    let wrong = verdict::wrong(story, &outcome);
    assert!(wrong.is_empty(), "{case} without any fault: {wrong:#?}");
    let writes = outcome.log.iter().filter(|l| l.write.is_some()).map(describe);
    Undisturbed {
        state: state::comparable(&outcome.objects),
        seen: outcome.seen,
        writes: writes.collect(),
    }
}

/// Verb, kind and name of a write, and what it changes.
pub fn describe(logged: &Logged) -> String {
    let (method, path) = logged.line.split_once(' ').unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let group_and_rest = path.split_once("/namespaces/").map_or(path, |(_, rest)| rest);
    let place: Vec<&str> = group_and_rest.split('/').filter(|s| !s.is_empty()).collect();
    let place = place
        .iter()
        .rev()
        .take(3)
        .rev()
        .copied()
        .collect::<Vec<_>>()
        .join("/");
    let body: serde_json::Value = serde_json::from_str(&logged.body).unwrap_or_default();
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let about = body["reason"].as_str().unwrap_or_default();
    let dry = if logged.line.contains("dryRun") {
        " (dry run)"
    } else {
        ""
    };
    format!("{method} {place} {name} {about}{dry}")
        .trim_end()
        .to_owned()
}

/// What to play.
pub struct Sweep {
    pub story: Story,
    pub engine: EngineChoice,
    pub undisturbed: Undisturbed,
}

impl Sweep {
    pub fn new(story: Story, engine: EngineChoice) -> Self {
        let undisturbed = undisturbed(story, engine);
        Self {
            story,
            engine,
            undisturbed,
        }
    }

    pub fn writes(&self) -> u64 {
        u64::try_from(self.undisturbed.writes.len()).unwrap()
    }

    fn case(&self, faults: Vec<(u64, Fault)>) -> Case {
        Case {
            story: self.story,
            engine: self.engine,
            faults,
        }
    }

    /// What is wrong with a case.
    fn check(&self, case: &Case) -> Vec<String> {
        let outcome = play(case, false);
        let mut wrong = verdict::compared(self.story, &self.undisturbed, &outcome);
        wrong.extend(not_struck(case, &outcome));
        wrong
    }

    /// Plays all of them on all cores, and fails with every case that is wrong.
    pub fn play(&self, faults: Vec<Vec<(u64, Fault)>>) {
        let cases: Vec<Case> = faults.into_iter().map(|f| self.case(f)).collect();
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(Vec::new());
        let began = std::time::Instant::now();
        std::thread::scope(|scope| {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let wrong = self.check(case);
                        if wrong.is_empty() {
                            continue;
                        }
                        // To look for the one fault that matters takes many runs: not for each of a hundred.
                        let is_enough = failed.lock().unwrap().len() >= MOST;
                        let report = (!is_enough).then(|| self.report(&self.narrowed(case)));
                        failed.lock().unwrap().push(report);
                    }
                });
            }
        });
        let distinct: BTreeSet<_> = cases.iter().flat_map(|c| c.faults.iter().copied()).collect();
        println!(
            "{:?}/{:?}: {} writes, {} runs with {} different faults, {:.0?}",
            self.story,
            self.engine,
            self.writes(),
            cases.len(),
            distinct.len(),
            began.elapsed()
        );
        let failed: Vec<Option<String>> = failed.into_inner().unwrap();
        let reports: BTreeSet<String> = failed.iter().flatten().cloned().collect();
        let reports = Vec::from_iter(reports);
        assert!(
            failed.is_empty(),
            "{} of {} runs are wrong:\n{}",
            failed.len(),
            cases.len(),
            reports.join("\n")
        );
    }

    /// With as few of the faults as it takes.
    fn narrowed(&self, case: &Case) -> Case {
        for fault in &case.faults {
            let alone = self.case(vec![*fault]);
            if !self.check(&alone).is_empty() {
                return alone;
            }
        }
        let mut case = case.clone();
        for i in (0..case.faults.len()).rev() {
            let mut fewer = case.clone();
            fewer.faults.remove(i);
            if !fewer.faults.is_empty() && !self.check(&fewer).is_empty() {
                case = fewer;
            }
        }
        case
    }

    /// What is wrong with a case, and how to play it again.
    pub fn report(&self, case: &Case) -> String {
        let mut text = String::new();
        for (i, (write, fault)) in case.faults.iter().enumerate() {
            let index = usize::try_from(*write).unwrap() - 1;
            let what = self.undisturbed.writes.get(index).filter(|_| i == 0);
            // What comes after a fault is no longer what came in the undisturbed run.
            let what = what.map_or("as the replay shows it", String::as_str);
            let _ = writeln!(text, "write {write} ({what}) met {fault:?}");
        }
        for line in self.check(case) {
            let _ = writeln!(text, "    {line}");
        }
        let _ = writeln!(
            text,
            "  again: CRASH='{case}' cargo test --test crashes replay -- --nocapture"
        );
        text
    }
}

/// A first fault that did not strike is a bug of the test. What comes after it may come after the last write.
fn not_struck(case: &Case, outcome: &Outcome) -> Option<String> {
    let planned = case
        .faults
        .iter()
        .filter(|(write, _)| *write <= outcome.writes)
        .count();
    let planned = u64::try_from(planned.max(1).min(case.faults.len())).unwrap();
    (outcome.struck < planned).then(|| format!("{} of {planned} faults struck", outcome.struck))
}
