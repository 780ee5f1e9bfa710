//! Decisions as status and Events.

use jiff::{Timestamp, ToSpan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{
    ConfigDecision, last_upgrade, record,
    runs::{Block, Decided, Next, Scene, Walk},
    unresolved,
};
use crate::{
    api::{
        UpgradeConfig, UpgradeJob, annotations,
        conditions::{self, reasons, types},
        upgrade_config::{NextPossibleSchedule, UpgradeConfigStatus},
    },
    lifecycle::Notice,
    outside::Hindrance,
    schedule::forecast::{self, Forecast, Verdict},
    text,
    world::World,
};

/// How many coming runs are shown.
const SHOWN: usize = 10;

/// The config and its status so far.
pub struct View<'a> {
    pub config: &'a UpgradeConfig,
    pub old: UpgradeConfigStatus,
    pub now: Timestamp,
    /// What keeps everything from being started.
    pub hindrance: Option<Hindrance>,
}

impl View<'_> {
    /// Nothing can be done before somebody mends the config.
    pub fn invalid(self, problems: &str) -> ConfigDecision {
        self.not_served(reasons::INVALID, problems)
    }

    /// Nothing can be done on this cluster.
    pub fn unsupported(self, why: &str) -> ConfigDecision {
        self.not_served(reasons::UNSUPPORTED_TOPOLOGY, why)
    }

    /// Something else holds all configs; nothing but that is said.
    pub fn held(self) -> ConfigDecision {
        let before = self.old.observed_generation;
        let mut draft = Draft::new(self);
        draft.status.observed_generation = before;
        draft.finish()
    }

    fn not_served(self, reason: &str, message: &str) -> ConfigDecision {
        let mut draft = Draft::new(self);
        if draft.condition(types::VALID, false, reason, message) {
            draft.notice(true, reason, format!("no upgrades are scheduled: {message}"));
        }
        draft.condition(
            types::SCHEDULED,
            false,
            reason,
            "no run is scheduled: see the condition Valid",
        );
        draft.condition(
            types::SUSPENDED,
            false,
            reason,
            "no run is scheduled: see the condition Valid",
        );
        draft.status.next_possible_schedules = Vec::new();
        draft.finish()
    }

    /// The config is served.
    pub fn valid(self, scene: &Scene<'_>, walk: &Walk<'_>, warnings: &[String]) -> ConfigDecision {
        let mut draft = Draft::new(self);
        let message = if warnings.is_empty() {
            "the config is valid".to_owned()
        } else {
            warnings.join("; ")
        };
        draft.condition(types::VALID, true, reasons::VALID, &message);
        draft.record(scene, walk);
        draft.show_next(scene, &walk.next);
        draft.announce(scene);
        draft.scheduled(scene, &walk.next);
        draft.suspended(scene);
        last_upgrade::tell(&mut draft.status, draft.config, scene.world, draft.now);
        draft.finish()
    }
}

struct Draft<'a> {
    config: &'a UpgradeConfig,
    now: Timestamp,
    status: UpgradeConfigStatus,
    create: Option<UpgradeJob>,
    notices: Vec<Notice>,
    wakes: Vec<Timestamp>,
}

impl<'a> Draft<'a> {
    fn new(view: View<'a>) -> Self {
        let View {
            config,
            old,
            now,
            hindrance,
        } = view;
        let observed_generation = config.metadata.generation;
        let mut draft = Self {
            config,
            now,
            status: UpgradeConfigStatus {
                observed_generation,
                ..old
            },
            create: None,
            notices: Vec::new(),
            wakes: Vec::new(),
        };
        // A status that an earlier version wrote may call a run missed whose job a person deleted. That is nothing to be mended,
        // see `record`, and an alert would fire for it.
        draft
            .status
            .conditions
            .retain(|c| c.type_ != types::RUN_MISSED || c.reason != reasons::JOB_DELETED);
        match hindrance {
            Some(by) => draft.hold(&by),
            None => draft.let_go(),
        }
        draft
    }

    fn finish(self) -> ConfigDecision {
        // An instant that has passed would be looked at again and again without anything new.
        let soon = self.now.checked_add(1.second()).unwrap_or(self.now);
        ConfigDecision {
            create: self.create,
            delete_jobs: Vec::new(),
            status: self.status,
            notices: self.notices,
            wake_at: self.wakes.into_iter().min().map(|t| t.max(soon)),
        }
    }

    fn condition(&mut self, type_: &str, value: bool, reason: &str, message: &str) -> bool {
        let generation = self.config.metadata.generation;
        conditions::set(
            &mut self.status.conditions,
            type_,
            value,
            reason,
            message,
            generation,
            self.now,
        )
    }

    fn notice(&mut self, warning: bool, reason: &str, note: String) {
        self.notices.push(Notice {
            warning,
            reason: reason.to_owned(),
            note,
        });
    }

    fn hold(&mut self, by: &Hindrance) {
        if self.condition(types::HELD, true, by.reason, &by.message) {
            self.notice(true, by.reason, by.message.clone());
        }
    }

    fn let_go(&mut self) {
        if conditions::is_true(&self.status.conditions, types::HELD) {
            let message = "nothing keeps the operator from acting any more";
            self.condition(types::HELD, false, reasons::NOT_HELD, message);
        }
    }

    /// Runs that were decided: the newest is remembered, and what made no job is said.
    fn record(&mut self, scene: &Scene<'_>, walk: &Walk<'_>) {
        for (run, block) in record::mark_deleted(&mut self.status, scene) {
            // Whoever deletes a pinned job takes its run out: that is to be seen, and nothing that somebody has to mend.
            let note = format!("the run at {}: {}", time(scene, run), block.why);
            self.notice(true, block.reason, note);
        }
        record::add(&mut self.status, scene, walk);
        let mut suspended: Vec<(Timestamp, &Block)> = Vec::new();
        let mut missed: Vec<(Timestamp, &Block)> = Vec::new();
        for (run, how) in &walk.decided {
            match how {
                Decided::Created(_) => {}
                Decided::Suspended(block) => suspended.push((*run, block)),
                Decided::Missed(block) => missed.push((*run, block)),
            }
        }
        if let Some(note) = summary(scene, &suspended, "suspended") {
            let reason = suspended
                .last()
                .map_or(reasons::SUSPENSION_WINDOW, |(_, block)| block.reason);
            self.notice(false, reason, note);
        }
        if let (Some(note), Some((_, block))) = (summary(scene, &missed, "missed"), missed.last()) {
            self.condition(types::RUN_MISSED, true, block.reason, &note);
            self.notice(true, block.reason, note);
        }
        self.made_up_for(scene, walk);
    }

    /// A later run that has its job, or a job made by hand that has started, makes up for a run that was missed.
    fn made_up_for(&mut self, scene: &Scene<'_>, walk: &Walk<'_>) {
        let all = &self.status.conditions;
        let Some(said) = conditions::get(all, types::RUN_MISSED).filter(|c| c.status == "True") else {
            return;
        };
        let said_at = said.last_transition_time.0;
        let missed = record::newest_missed(&self.status);
        let created = walk.decided.iter().rev().find_map(|(run, how)| match how {
            Decided::Created(job) if missed.is_none_or(|missed| *run > missed) => Some((*run, *job)),
            Decided::Created(_) | Decided::Suspended(_) | Decided::Missed(_) => None,
        });
        let World { jobs, configs, .. } = scene.world;
        // A run that is not remembered any more was missed when that was said.
        let started = || unresolved::made_up_for_run(jobs, configs, self.config, missed.unwrap_or(said_at));
        let message = if let Some((run, job)) = created {
            format!(
                "the run at {} has UpgradeJob {}",
                time(scene, run),
                job.name_any()
            )
        } else if let Some(job) = started() {
            let start = time(scene, job.spec.start_after.0);
            format!("UpgradeJob {} has started since, at {start}", job.name_any())
        } else {
            return;
        };
        self.condition(types::RUN_MISSED, false, reasons::JOB_CREATED, &message);
    }

    /// The runs to come. One whose time has come and that may still get its job is the first of them, so that an edit is told
    /// from it: what it leaves out was none when its time came.
    fn show_next(&mut self, scene: &Scene<'_>, next: &Next) {
        let runs = scene.schedule.upcoming(self.now, SHOWN);
        self.wakes.extend(runs.first());
        self.status.next_possible_schedules = next
            .run()
            .filter(|run| *run <= self.now)
            .into_iter()
            .chain(runs)
            .take(SHOWN)
            .map(|run| {
                let Forecast { verdict, mut reason } = self.forecast(scene, run);
                if verdict == Verdict::WillRun
                    && let Some(change) = scene.channel_change(run)
                {
                    let separator = if reason.is_empty() { "" } else { "; " };
                    reason = format!(
                        "{reason}{separator}{}",
                        change.describe(scene.schedule.zone(), self.now)
                    );
                }
                NextPossibleSchedule {
                    time: Time(run),
                    verdict: Some(verdict.as_str().to_owned()),
                    reason: (!reason.is_empty()).then_some(reason),
                }
            })
            .collect();
    }

    /// A change of the channel between the choice of the next run's version and the run is said ahead.
    fn announce(&mut self, scene: &Scene<'_>) {
        let next = self.status.next_possible_schedules.first().map(|n| n.time.0);
        let change = next.and_then(|run| Some((run, scene.channel_change(run)?)));
        if let Some((run, change)) = change {
            let what = change.describe(scene.schedule.zone(), self.now);
            let message = format!("run at {}: {what}", time(scene, run));
            if self.condition(types::CHANNEL_CHANGE_AHEAD, true, reasons::OVERLAY_DUE, &message) {
                self.notice(true, reasons::OVERLAY_DUE, message);
            }
        } else if conditions::get(&self.status.conditions, types::CHANNEL_CHANGE_AHEAD).is_some() {
            let message =
                "no overlay changes the channel between the choice of the next run's version and the run";
            self.condition(
                types::CHANNEL_CHANGE_AHEAD,
                false,
                reasons::NO_CHANNEL_CHANGE,
                message,
            );
        }
    }

    fn forecast(&self, scene: &Scene<'_>, run: Timestamp) -> Forecast {
        let expected = forecast::forecast(self.config, &scene.world.windows, run, scene.schedule.zone());
        if expected.verdict != Verdict::WillRun {
            return expected;
        }
        if let Some(job) = scene.job_of(run) {
            return Forecast {
                reason: describe_job(job),
                ..expected
            };
        }
        let missed = |reason: String| Forecast {
            verdict: Verdict::Missed,
            reason,
        };
        let until = record::decided_until(&self.status).filter(|until| run <= *until);
        match (record::of(&self.status, run), until) {
            // Its job is there, and cannot be read.
            (Some(recent), _) if recent.verdict == reasons::JOB_CREATED => expected,
            (Some(recent), _) => missed(recent.reason.clone().unwrap_or_default()),
            (None, Some(until)) => missed(format!(
                "it makes no UpgradeJob: the runs until {} were decided before",
                time(scene, until)
            )),
            (None, None) => expected,
        }
    }

    fn scheduled(&mut self, scene: &Scene<'_>, next: &Next) {
        let (value, reason, message) = match next {
            Next::Never => {
                let message = scene.schedule.never(scene.now);
                let message =
                    message.unwrap_or_else(|| "the last run of the schedule is decided already".to_owned());
                if self.condition(types::SCHEDULED, false, reasons::NEVER_RUNS, &message) {
                    self.notice(true, reasons::NEVER_RUNS, message);
                }
                return;
            }
            Next::More => {
                self.wakes.push(self.now);
                (
                    false,
                    reasons::NOT_CREATED_IN_TIME,
                    "runs of the past are being recorded".to_owned(),
                )
            }
            Next::Later { run, pin } => {
                self.wakes.push(*pin);
                self.later(scene, *run, *pin)
            }
            Next::Blocked { run, limit, block } => {
                self.wakes.push(*limit);
                self.wakes.extend(block.until);
                let message = format!(
                    "run at {}: its UpgradeJob is not created yet: {}",
                    time(scene, *run),
                    block.why
                );
                (false, block.reason, message)
            }
            Next::Create { run, job } => {
                self.create = Some(job.as_ref().clone());
                let message = format!("run at {}: {}", time(scene, *run), describe_job(job));
                self.notice(false, reasons::JOB_CREATED, message.clone());
                (true, reasons::SCHEDULED, message)
            }
        };
        self.condition(types::SCHEDULED, value, reason, &message);
    }

    fn later(&self, scene: &Scene<'_>, run: Timestamp, pin: Timestamp) -> (bool, &'static str, String) {
        let Forecast { verdict, reason } =
            forecast::forecast(self.config, &scene.world.windows, run, scene.schedule.zone());
        let (value, word, rest) = match verdict {
            Verdict::WillRun | Verdict::Missed if pin < run => {
                let rest = format!(", its UpgradeJob is created at {}", time(scene, pin));
                (true, reasons::SCHEDULED, rest)
            }
            Verdict::WillRun | Verdict::Missed => (true, reasons::SCHEDULED, String::new()),
            Verdict::Suspended => (
                false,
                reasons::SUSPENSION_WINDOW,
                format!(" is suspended: {reason}"),
            ),
            Verdict::ScheduleSuspended => (
                false,
                reasons::SCHEDULE_SUSPENDED,
                format!(" is suspended: {reason}"),
            ),
        };
        let pinned = scene.unfinished().next().map_or_else(String::new, |job| {
            let start = time(scene, job.spec.start_after.0);
            format!("; run at {start}: {}", describe_job(job))
        });
        (
            value,
            word,
            format!("next run at {}{rest}{pinned}", time(scene, run)),
        )
    }

    /// Whether the next run that is shown is suspended.
    fn suspended(&mut self, scene: &Scene<'_>) {
        let next = self.status.next_possible_schedules.first();
        let why = next.and_then(|n| n.reason.clone()).unwrap_or_default();
        let verdict = next.and_then(|n| n.verdict.as_deref());
        let (value, reason, message) = if verdict == Some(Verdict::ScheduleSuspended.as_str()) {
            (true, reasons::SCHEDULE_SUSPENDED, why)
        } else if verdict == Some(Verdict::Suspended.as_str()) {
            (true, reasons::SUSPENSION_WINDOW, why)
        } else {
            let before = record::newest_suspended(&self.status).map_or_else(String::new, |(run, why)| {
                format!("; the run at {} was suspended: {why}", time(scene, run))
            });
            let message = format!("nothing suspends the next run{before}");
            (false, reasons::NOT_SUSPENDED, message)
        };
        self.condition(types::SUSPENDED, value, reason, &message);
    }
}

fn time(scene: &Scene<'_>, t: Timestamp) -> String {
    text::time(t, scene.schedule.zone())
}

/// Runs that made no job, in one sentence: the newest, and how many there were before it.
fn summary(scene: &Scene<'_>, runs: &[(Timestamp, &Block)], what: &str) -> Option<String> {
    let ((run, block), before) = runs.split_last()?;
    let and = match before.len() {
        0 => String::new(),
        1 => " and the one before it".to_owned(),
        n => format!(" and the {n} before it"),
    };
    let verb = if before.is_empty() { "was" } else { "were" };
    Some(format!(
        "the run at {}{and} {verb} {what}: {}",
        time(scene, *run),
        block.why
    ))
}

/// A job for people: its name, its version, and what was said about the choice.
fn describe_job(job: &UpgradeJob) -> String {
    let version = job
        .spec
        .desired_version
        .as_ref()
        .and_then(|v| v.version.as_deref());
    let to = version.map_or_else(|| "without an update".to_owned(), |v| format!("to {v}"));
    match job.annotations().get(annotations::VERSION_CHOICE) {
        Some(why) => format!("UpgradeJob {} {to} ({why})", job.name_any()),
        None => format!("UpgradeJob {} {to}", job.name_any()),
    }
}
