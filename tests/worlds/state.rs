//! The objects of a world at a time, as the journal tells it, and what can be read from them. Written from the design and the
//! API, not from our operator's code.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use openshift_upgrade_operator::simulator::api::Entry;
use serde_json::Value;

use crate::{
    draw::{World, time},
    play::History,
};

pub const JOBS: &str = "upgradejobs.managedupgrade.appuio.io";
pub const CONFIGS: &str = "upgradeconfigs.managedupgrade.appuio.io";
pub const WINDOWS: &str = "upgradesuspensionwindows.managedupgrade.appuio.io";
pub const HOOK_JOBS: &str = "jobs.batch";
pub const EVENTS: &str = "events.events.k8s.io";
pub const POOLS: &str = "machineconfigpools.machineconfiguration.openshift.io";
const CLUSTER_VERSIONS: &str = "clusterversions.config.openshift.io";
const OPERATORS: &str = "clusteroperators.config.openshift.io";

/// All objects by kind and name.
#[derive(Default)]
pub struct State(BTreeMap<(String, String), Arc<Value>>);

/// Tells of each change, with the state before it. Returns the state at the end.
pub fn replay<'h>(history: &'h History, mut see: impl FnMut(&State, &'h Entry)) -> State {
    let mut state = State::default();
    for entry in &history.journal {
        see(&state, entry);
        let key = (entry.kind.clone(), entry.name.clone());
        match &entry.after {
            Some(object) => state.0.insert(key, Arc::clone(object)),
            None => state.0.remove(&key),
        };
    }
    state
}

impl State {
    pub fn get(&self, kind: &str, name: &str) -> Option<&Value> {
        let key = (kind.to_owned(), name.to_owned());
        self.0.get(&key).map(AsRef::as_ref)
    }

    /// The objects of a kind, by name.
    pub fn all(&self, kind: &str) -> impl Iterator<Item = (&str, &Value)> {
        let first = (kind.to_owned(), String::new());
        let kind = kind.to_owned();
        let range = self.0.range(first..).take_while(move |((k, _), _)| *k == kind);
        range.map(|((_, name), object)| (name.as_str(), object.as_ref()))
    }

    pub fn cluster_version(&self) -> &Value {
        self.get(CLUSTER_VERSIONS, "version").unwrap_or(&Value::Null)
    }

    /// The job that an annotation `<namespace>/<name>` names, if it is still that one.
    pub fn job_of(&self, owner: &Value) -> Option<&Value> {
        let annotations = &owner["metadata"]["annotations"];
        let (_, name) = annotations[OWNER].as_str()?.split_once('/')?;
        let job = self.get(JOBS, name)?;
        let uid = &annotations[OWNER_UID];
        (uid.is_null() || *uid == job["metadata"]["uid"]).then_some(job)
    }

    /// Whether unpausing this pool would, or soon could, reboot its nodes (design 5, *pending*).
    pub fn is_pending(&self, pool: &Value) -> bool {
        let moved = pool["spec"]["configuration"]["name"] != pool["status"]["configuration"]["name"];
        pool["status"]["machineCount"].as_i64().unwrap_or(0) > 0 && (moved || self.is_unsettled())
    }

    /// Whether pools may get a new configuration at any moment.
    pub fn is_unsettled(&self) -> bool {
        let cluster = self.cluster_version();
        let newest = &cluster["status"]["history"][0];
        if newest["state"] != "Completed" {
            return true;
        }
        let desired = &cluster["spec"]["desiredUpdate"];
        if !desired.is_null() && !is_release(desired, newest) {
            return true;
        }
        let operator = self.get(OPERATORS, "machine-config").unwrap_or(&Value::Null);
        let versions = operator["status"]["versions"].as_array();
        let own = versions.into_iter().flatten().find(|v| v["name"] == "operator");
        own.is_none_or(|v| v["version"] != newest["version"])
    }
}

/// Whether a `desiredUpdate` asks for this release.
pub fn is_release(desired: &Value, release: &Value) -> bool {
    let says = |field: &str| desired[field].as_str().filter(|t| !t.is_empty());
    match (says("version"), says("image")) {
        (Some(version), Some(image)) => release["version"] == version && release["image"] == image,
        (Some(version), None) => release["version"] == version,
        (None, Some(image)) => release["image"] == image,
        (None, None) => false,
    }
}

const OWNER: &str = "managedupgrade.appuio.io/upgrade-job";
const OWNER_UID: &str = "managedupgrade.appuio.io/upgrade-job-uid";

/// `<namespace>/<name>` of the job whose lock or pause this is.
pub fn owner(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][OWNER].as_str()
}

/// Why a pool is paused, `delay` or `failure`.
pub fn pause_reason(pool: &Value) -> Option<&str> {
    pool["metadata"]["annotations"]["managedupgrade.appuio.io/pause-reason"].as_str()
}

pub fn is_cluster_version(entry: &Entry) -> bool {
    entry.kind == CLUSTER_VERSIONS
}

pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub fn has_finalizer(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| !all.is_empty())
}

pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// A condition with status True.
pub fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let all = object["status"]["conditions"].as_array()?;
    all.iter().find(|c| c["type"] == type_ && c["status"] == "True")
}

/// A job, as far as its life goes.
#[derive(Clone, Copy)]
pub struct Job<'a>(pub &'a Value);

impl<'a> Job<'a> {
    pub fn has_started(self) -> bool {
        condition(self.0, "Started").is_some()
    }

    /// Succeeded (also as skipped) or Failed.
    pub fn outcome(self) -> Option<&'a Value> {
        condition(self.0, "Succeeded").or_else(|| condition(self.0, "Failed"))
    }

    pub fn is_running(self) -> bool {
        self.has_started() && self.outcome().is_none()
    }

    pub fn start_after(self) -> Timestamp {
        time(&self.0["spec"]["startAfter"])
    }

    pub fn start_before(self) -> Timestamp {
        time(&self.0["spec"]["startBefore"])
    }

    pub fn deadline(self) -> Timestamp {
        let timeout = self.0["spec"]["config"]["upgradeTimeout"].as_str();
        self.start_after() + timeout.map_or(SignedDuration::from_hours(12), duration)
    }

    /// From when until when this pool may be unpaused; `None` if the job does not hold it.
    pub fn hold(self, pool: &Value) -> Option<(Timestamp, Option<Timestamp>)> {
        let groups = self.0["spec"]["config"]["machineConfigPools"].as_array()?;
        let of_pool = |group: &&Value| {
            let least = group["delayUpgrade"]["delayMin"].as_str().map(duration);
            is_selected(&group["matchLabels"], pool) && least.is_some_and(|d| !d.is_zero())
        };
        let delay = &groups.iter().find(of_pool)?["delayUpgrade"];
        let least = self.start_after() + delay["delayMin"].as_str().map(duration).unwrap();
        let most = delay["delayMax"].as_str().map(duration).filter(|d| !d.is_zero());
        Some((least, most.map(|d| self.start_after() + d)))
    }
}

/// Worlds write label maps only.
fn is_selected(labels: &Value, pool: &Value) -> bool {
    let Some(labels) = labels.as_object() else {
        return false;
    };
    labels
        .iter()
        .all(|(key, value)| pool["metadata"]["labels"][key] == *value)
        && !is_of_control_plane(pool)
}

/// Pools that are never held (design 5).
pub fn is_of_control_plane(pool: &Value) -> bool {
    let labels = pool["metadata"]["labels"].as_object();
    name(pool) == "master"
        || labels.is_some_and(|l| {
            l.contains_key("operator.machineconfiguration.openshift.io/required-for-upgrade")
        })
}

/// Worlds write durations as `<number>h`, `<number>m` or `<number>s`; the API server keeps them as they are.
pub fn duration(text: &str) -> SignedDuration {
    let (number, unit) = text.split_at(text.len() - 1);
    let number: i64 = number
        .parse()
        .unwrap_or_else(|_| panic!("worlds have no such duration: {text}"));
    match unit {
        "h" => SignedDuration::from_hours(number),
        "m" => SignedDuration::from_mins(number),
        "s" => SignedDuration::from_secs(number),
        _ => panic!("worlds have no such duration: {text}"),
    }
}

/// The clocks of our operator, and when it could not work.
pub struct Clocks {
    offsets: Vec<(Timestamp, SignedDuration)>,
    away: Vec<(Timestamp, Timestamp)>,
    /// The API server is away at times that follow from the upgrade.
    slack: SignedDuration,
}

/// Started again, with its watches: no operator works at once.
const BOOT: SignedDuration = SignedDuration::from_mins(2);

impl Clocks {
    pub fn of(world: &World) -> Self {
        let mut offsets = Vec::new();
        let mut away = Vec::new();
        for (at, down, offset) in world.restarts() {
            offsets.push((at, offset));
            away.push((at, at + down + BOOT));
        }
        for event in world.scenario["events"].as_array().unwrap() {
            if event["fault"].get("apiServerAway").is_some() {
                let at = time(&event["at"]);
                away.push((at, at + duration(event["for"].as_str().unwrap()) + BOOT));
            }
        }
        away.sort_unstable();
        let sno = world.scenario["cluster"]["topology"] == "SingleReplica";
        let outage = world.scenario["apiServerAwayDuringUpdate"].as_str();
        let mut slack = SignedDuration::from_mins(3);
        slack += outage.map_or(SignedDuration::ZERO, duration);
        slack += SignedDuration::from_mins(if sno { 40 } else { 0 });
        Self { offsets, away, slack }
    }

    /// How far our operator's clock is ahead.
    fn offset(&self, at: Timestamp) -> SignedDuration {
        let mut before = self.offsets.iter().filter(|(since, _)| *since <= at);
        before
            .next_back()
            .map_or(SignedDuration::ZERO, |(_, offset)| *offset)
    }

    /// Whether our operator's clock is so wrong that nothing may be started (design 5, *Clocks*).
    pub fn is_wrong(&self, at: Timestamp) -> bool {
        self.offset(at).abs() > SignedDuration::from_secs(60)
    }

    /// The time that our operator goes by: its clock, or the API server's if that is far behind.
    pub fn of_operator(&self, at: Timestamp) -> Timestamp {
        if self.is_wrong(at) {
            at + self.offset(at).min(SignedDuration::ZERO)
        } else {
            at + self.offset(at)
        }
    }

    /// Whether our operator could know that it is too early for what is due at `t`.
    pub fn is_too_early(&self, at: Timestamp, t: Timestamp) -> bool {
        // The API server dates its answers in whole seconds.
        let blur = SignedDuration::from_secs(if self.is_wrong(at) { 5 } else { 0 });
        self.of_operator(at) + blur < t
    }

    /// When something must have happened that is due at this time of our operator's clock.
    pub fn latest(&self, due: Timestamp) -> Timestamp {
        let slowest = self.offsets.iter().map(|(_, offset)| -*offset).max();
        let mut until = due + slowest.unwrap_or_default().max(SignedDuration::ZERO);
        for (from, to) in &self.away {
            if *from <= until + self.slack {
                until = until.max(*to);
            }
        }
        until + self.slack
    }
}
