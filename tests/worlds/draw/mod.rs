//! A world: everything that one seed decides. It is data, made before anything runs.

mod cluster;
mod happenings;
mod resources;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp, ToSpan};
use openshift_upgrade_operator::simulator::api::Fault;
use serde_json::{Value, json};

use crate::{calendar::Schedule, rng::Rng};

/// The namespace that our operator serves.
pub const NAMESPACE: &str = "openshift-upgrade";

/// What can be left out of worlds by `WORLD_WITHOUT`, to find by hand which part matters.
pub const PARTS: [&str; 11] = [
    "hooks",
    "windows",
    "byhand",
    "overlays",
    "faults",
    "edits",
    "foreign",
    "deletions",
    "restarts",
    "offsets",
    "api",
];

/// Everything that happens in a world.
#[derive(Clone, Debug)]
pub struct World {
    pub start: Timestamp,
    pub end: Timestamp,
    pub seed: u64,
    /// A scenario file: the cluster, and what happens at given times.
    pub scenario: Value,
    /// What is there before our operator starts.
    pub objects: Vec<Value>,
    /// What is done to whichever job is there at the time.
    pub deeds: Vec<(Timestamp, Deed)>,
    /// Writes of our operator that go wrong, by number.
    pub api_faults: Vec<(u64, Fault)>,
}

/// Something that people do to a job.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// The first job in this phase is deleted.
    Delete(&'static str),
    /// Its `upgradeTimeout` is edited.
    Timeout(&'static str, i64),
    /// All its `delayMin` are edited.
    DelayMin(&'static str, i64),
}

/// A world in the making.
struct Sketch {
    seed: u64,
    start: Timestamp,
    end: Timestamp,
    without: BTreeSet<String>,
    /// When upgrades may be under way: what happens is interesting there.
    runs: Vec<Timestamp>,
    pools: Vec<cluster::Pool>,
    configs: Vec<String>,
    objects: Vec<Value>,
    events: Vec<Value>,
    deeds: Vec<(Timestamp, Deed)>,
}

impl World {
    /// The world of a seed, without these parts.
    pub fn of(seed: u64, without: &BTreeSet<String>) -> Self {
        let mut rng = Rng::of(seed, "time");
        // Three years with all their changes of clocks and weeks 53.
        let begin: Timestamp = "2025-12-28T00:00:00Z".parse().unwrap();
        let hours = rng.between(0, 3 * 365 * 24);
        let minutes = rng.between(0, 59);
        let start = begin + hours.hours() + minutes.minutes();
        let days = rng.pick(&[14, 14, 14, 14, 14, 14, 14, 14, 21, 21, 28, 42]);
        let mut sketch = Sketch {
            seed,
            start,
            end: start + (24 * days).hours(),
            without: without.clone(),
            runs: Vec::new(),
            pools: Vec::new(),
            configs: Vec::new(),
            objects: Vec::new(),
            events: Vec::new(),
            deeds: Vec::new(),
        };
        let mut scenario = sketch.cluster();
        sketch.configs();
        sketch.jobs_by_hand();
        scenario["hookJobs"] = sketch.hooks();
        sketch.windows();
        sketch.overlays();
        sketch.faults();
        sketch.edits();
        sketch.foreign_hands();
        sketch.deletions();
        sketch.restarts();
        let api_faults = sketch.api_faults();
        sketch
            .events
            .sort_by_key(|e| e["at"].as_str().unwrap().to_owned());
        scenario["events"] = sketch.events.into();
        sketch.deeds.sort_by_key(|(at, _)| *at);
        Self {
            start,
            end: sketch.end,
            seed,
            scenario,
            objects: sketch.objects,
            deeds: sketch.deeds,
            api_faults,
        }
    }

    /// When our operator is killed by an event, for how long, and how far its clock is off then.
    pub fn restarts(&self) -> Vec<(Timestamp, SignedDuration, SignedDuration)> {
        let all = self.scenario["events"].as_array().unwrap().iter();
        let restarts = all.filter_map(|e| Some((e, e.get("do")?.get("restartOperator")?)));
        restarts
            .map(|(event, restart)| {
                let seconds = |field: &str| {
                    let text = restart[field].as_str().unwrap();
                    let seconds: i64 = text.strip_suffix('s').unwrap().parse().unwrap();
                    SignedDuration::from_secs(seconds)
                };
                (time(&event["at"]), seconds("down"), seconds("clockOffset"))
            })
            .collect()
    }
}

/// A time in JSON.
pub fn time(value: &Value) -> Timestamp {
    let text = value.as_str();
    let text = text.unwrap_or_else(|| panic!("{value} is no time"));
    text.parse().unwrap()
}

impl Sketch {
    fn rng(&self, part: &str) -> Rng {
        Rng::of(self.seed, part)
    }

    fn has(&self, part: &str) -> bool {
        assert!(PARTS.contains(&part));
        !self.without.contains(part)
    }

    /// A time at which much is going on, mostly; never in the last hours, so that everything can come to rest.
    fn moment(&self, rng: &mut Rng) -> Timestamp {
        let last = self.end - 12.hours();
        let near = (!self.runs.is_empty() && rng.chance(75)).then(|| {
            let run = rng.pick(&self.runs);
            run + rng.between(-180, 400).minutes()
        });
        let anywhere = self.start
            + rng
                .between(10, (last.duration_since(self.start)).as_mins())
                .minutes();
        let chosen = near.filter(|t| *t > self.start && *t < last).unwrap_or(anywhere);
        // Seldom on the minute.
        chosen + rng.between(0, 59).seconds()
    }

    fn event(&mut self, at: Timestamp, what: &str, value: &Value) {
        self.events.push(json!({"at": at.to_string(), what: value}));
    }

    fn happens(&mut self, at: Timestamp, action: &Value) {
        self.event(at, "do", action);
    }

    /// The runs of a config matter from now on.
    fn expect_runs(&mut self, config: &Value) {
        let schedule = Schedule::of(&config["spec"]["schedule"]);
        let runs = schedule.runs(self.start, self.end - 12.hours());
        self.runs.extend(runs);
    }
}

/// A reference to one of our objects.
fn ours(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": kind, "namespace": NAMESPACE, "name": name,
    })
}

/// One of our objects.
fn object(kind: &str, name: &str, labels: &Value, spec: &Value) -> Value {
    json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": spec,
    })
}
