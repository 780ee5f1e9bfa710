//! What became of a night: how the job ended, which hooks ran, what was left; and what must hold at every ending.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use openshift_upgrade_operator::{
    api::{
        UpgradeJob, annotations,
        conditions::{self, types},
        labels,
        upgrade_job::{HookState, JobPhase, PauseReason, StepPhase, UpgradeJobStatus},
    },
    openshift::{
        cluster_version::{ClusterVersion, Update},
        machine_config_pool::MachineConfigPool,
    },
    simulator::{api::Identity, openshift::releases::image},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    night::{CONFIG, LATER, Morning, NEW, NEWER, OLD, clock},
    simulated::NAMESPACE,
};

/// What an ending leaves of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Version that `spec.desiredUpdate` asks for.
    pub asks_for: Option<&'static str>,
    /// Newest version of the history, and `Partial` after it if it is not completed.
    pub has: &'static str,
    /// Pools that are paused, with the reason of the job's pause; `someone` = not by the job.
    pub paused: &'static [&'static str],
}

/// Nothing is left of the job.
pub const UNTOUCHED: Left = Left {
    asks_for: None,
    has: OLD,
    paused: &[],
};
/// The upgrade is through.
pub const DONE: Left = Left {
    asks_for: Some(NEW),
    has: NEW,
    paused: &[],
};
/// The control plane is through, or went on by itself; what was held is still held.
pub const HELD: Left = Left {
    paused: &["night: delay"],
    ..DONE
};

/// The control plane has not come to its end, and goes on.
pub const GOES_ON: Left = Left {
    has: "4.18.5 Partial",
    ..HELD
};

/// All that is to be seen of an ending.
#[derive(Debug, PartialEq, Eq)]
pub struct Ending {
    /// Condition and reason, such as `Failed/TimedOut`; and the reason of `Expired`, if it is true.
    pub as_: String,
    pub message: String,
    /// `<event>:<EVENT_reason>` of the Jobs of the hook `tell`, in the order of their creation; with the pool after the event.
    pub hooks: String,
    pub asks_for: Option<String>,
    pub has: String,
    pub paused: Vec<String>,
}

/// A change of one field.
struct Change {
    at: Timestamp,
    by_operator: bool,
    after: Option<Value>,
    /// All of the object after it.
    object: Value,
}

type Objects = BTreeMap<String, Value>;

fn get<T: DeserializeOwned>(objects: &Objects, key: &str) -> Option<T> {
    objects
        .get(key)
        .map(|o| serde_json::from_value(o.clone()).unwrap())
}

fn all<T: DeserializeOwned>(objects: &Objects, plural: &str) -> Vec<T> {
    let of = objects
        .iter()
        .filter(|(key, _)| key.split('/').next() == Some(plural));
    of.map(|(_, o)| serde_json::from_value(o.clone()).unwrap())
        .collect()
}

fn cluster(objects: &Objects) -> ClusterVersion {
    get(objects, "clusterversions//version").unwrap()
}

fn pools(objects: &Objects) -> Vec<MachineConfigPool> {
    all(objects, "machineconfigpools")
}

fn lock(objects: &Objects) -> Option<String> {
    cluster(objects)
        .annotations()
        .get(annotations::UPGRADE_JOB)
        .cloned()
}

impl Morning {
    /// The job of that name, or the only one that is not of the morning.
    pub fn job(&self) -> UpgradeJob {
        let jobs: Vec<UpgradeJob> = all(&self.objects, "upgradejobs");
        let named = jobs.iter().find(|j| j.name_any() == crate::night::BY_HAND);
        match (named, jobs.as_slice()) {
            (Some(job), _) | (None, [job]) => job.clone(),
            (None, _) => panic!(
                "which job? {:?}",
                jobs.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
            ),
        }
    }

    pub fn status(&self) -> UpgradeJobStatus {
        self.job().status.unwrap_or_default()
    }

    /// All versions of the objects of this kind, such as `upgradejobs`, with their times.
    fn versions(&self, plural: &str) -> impl Iterator<Item = (Timestamp, &Value)> {
        let of = self
            .journal
            .iter()
            .filter(move |e| e.kind.split('.').next() == Some(plural));
        of.filter_map(|e| Some((e.at, e.after.as_deref()?)))
    }

    /// Whether the message of a job had this part at any time.
    pub fn has_said(&self, part: &str) -> bool {
        self.versions("upgradejobs").any(|(_, job)| {
            let message = job["status"]["message"].as_str();
            message.is_some_and(|m| m.contains(part))
        })
    }

    /// When a job first took the lock.
    pub fn locked_at(&self) -> Option<Timestamp> {
        let mut all = self.versions("clusterversions");
        let locked =
            all.find(|(_, cluster)| !cluster["metadata"]["annotations"][annotations::UPGRADE_JOB].is_null());
        locked.map(|(at, _)| at)
    }

    /// Jobs of hooks as they were created: hook, and `<event>[ <pool>]:<EVENT_reason>`.
    pub fn hook_jobs(&self) -> Vec<(String, String)> {
        let is_new = |kind: &str, before: bool| kind == "jobs.batch" && !before;
        let new = self
            .journal
            .iter()
            .filter(|e| is_new(&e.kind, e.before.is_some()));
        new.filter_map(|e| e.after.as_deref())
            .map(|object| {
                let label = |key: &str| object["metadata"]["labels"][key].as_str().unwrap_or_default();
                let mut text = label(labels::HOOK_EVENT).to_owned();
                let pool = label(labels::HOOK_TRACKING_KEY);
                if !pool.is_empty() {
                    text = format!("{text} {pool}");
                }
                let env = &object["spec"]["template"]["spec"]["containers"][0]["env"];
                let reason = env
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|e| e["name"] == "EVENT_reason");
                let reason = reason.and_then(|e| e["value"].as_str()).unwrap_or_default();
                let reason: String = serde_json::from_str(reason).unwrap_or_default();
                if !reason.is_empty() {
                    text = format!("{text}:{reason}");
                }
                (label(labels::HOOK).to_owned(), text)
            })
            .collect()
    }

    /// The values that `spec.desiredUpdate` took, by version.
    pub fn asked_for(&self) -> Vec<Option<String>> {
        let all = self.changes(
            "clusterversions.config.openshift.io",
            "/spec/desiredUpdate/version",
        );
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        all.into_iter().map(|c| c.after.as_ref().map(text)).collect()
    }

    /// Events about the config, without repetition: reason and text.
    pub fn told_about_the_config(&self) -> Vec<String> {
        let events = self
            .journal
            .iter()
            .filter(|e| e.kind == "events.events.k8s.io" && e.before.is_none());
        let about = events.filter_map(|e| e.after.as_deref());
        let about = about.filter(|e| e["regarding"]["kind"] == "UpgradeConfig");
        let text = |e: &Value, field: &str| e[field].as_str().unwrap_or_default().to_owned();
        let mut told: Vec<String> = about
            .map(|e| self.readable(&format!("{}: {}", text(e, "reason"), text(e, "note"))))
            .collect();
        told.dedup();
        told
    }

    /// Without what is long, or depends on UIDs: images follow from the version, names of Jobs from their hook.
    fn readable(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for version in [OLD, "4.18.4", NEW, NEWER] {
            let image = image(version);
            let digest = image.rsplit('@').next().unwrap_or_default();
            text = text.replace(&image, &format!("image-of-{version}"));
            text = text.replace(digest, &format!("digest-of-{version}"));
        }
        for entry in &self.journal {
            let hook = entry
                .after
                .as_deref()
                .and_then(|o| o["metadata"]["labels"][labels::HOOK].as_str());
            match (entry.kind.as_str(), hook) {
                ("jobs.batch", Some(hook)) => text = text.replace(&entry.name, &format!("job-of-{hook}")),
                (kind, _) if kind.starts_with("upgradejobs.") && entry.name.starts_with(CONFIG) => {
                    text = text.replace(&entry.name, "job-of-the-config");
                }
                _ => {}
            }
        }
        text
    }

    /// How many jobs there are.
    pub fn jobs(&self) -> usize {
        all::<UpgradeJob>(&self.objects, "upgradejobs").len()
    }

    pub fn ending(&self) -> Ending {
        let status = self.status();
        let is = |type_| conditions::get(&status.conditions, type_).filter(|c| c.status == "True");
        let outcome = is(types::SUCCEEDED).or_else(|| is(types::FAILED));
        let mut as_ = outcome.map_or_else(
            || format!("{:?}", status.phase),
            |c| format!("{}/{}", c.type_, c.reason),
        );
        if let Some(expired) = is(types::EXPIRED) {
            as_ = format!("{as_} Expired/{}", expired.reason);
        }
        let tell = self.hook_jobs().into_iter().filter(|(hook, _)| hook == "tell");
        let cluster = cluster(&self.objects);
        let newest = cluster.newest().unwrap();
        let state = if newest.is_completed() { "" } else { " Partial" };
        Ending {
            as_,
            message: self.readable(outcome.map_or("", |c| c.message.as_str())),
            hooks: tell.map(|(_, event)| event).collect::<Vec<_>>().join(", "),
            asks_for: cluster
                .spec
                .desired_update
                .as_ref()
                .map(|u| u.asked_for().to_owned()),
            has: format!("{}{state}", newest.version),
            paused: self.paused(),
        }
    }

    fn paused(&self) -> Vec<String> {
        let job = self.job();
        let key = format!("{NAMESPACE}/{}", job.name_any());
        let paused = pools(&self.objects).into_iter().filter(|p| p.spec.paused);
        paused
            .map(|pool| {
                let of = |annotation: &str| pool.annotations().get(annotation).cloned();
                let is_ours = of(annotations::UPGRADE_JOB).as_ref() == Some(&key)
                    && of(annotations::UPGRADE_JOB_UID) == job.uid();
                let by = match of(annotations::PAUSE_REASON).filter(|_| is_ours) {
                    Some(reason) => reason,
                    None => "someone".to_owned(),
                };
                format!("{}: {by}", pool.name_any())
            })
            .collect()
    }

    /// What holds whatever the ending.
    pub fn assert_all_is_given_back(&self) {
        let (job, status) = (self.job(), self.status());
        assert_ne!(
            lock(&self.objects),
            Some(format!("{NAMESPACE}/{}", job.name_any())),
            "the lock is free"
        );
        assert_eq!(job.finalizers(), Vec::<String>::new(), "the finalizer is gone");
        assert!(status.finished_at.is_some(), "finishedAt");
        let outcome = [types::SUCCEEDED, types::FAILED].map(|t| conditions::is_true(&status.conditions, t));
        assert_ne!(outcome[0], outcome[1], "one outcome");
        assert_eq!(
            status.phase == Some(JobPhase::Failed),
            outcome[1],
            "{:?}",
            status.phase
        );
        let open: Vec<_> = status
            .steps
            .iter()
            .filter(|s| !s.phase.is_finished() && s.phase != StepPhase::Pending)
            .collect();
        assert!(open.is_empty(), "steps that go on: {open:#?}");
        self.assert_intent(&status);
        self.assert_no_reboot_out_of_time();
        self.assert_hooks_have_ended(&status);
        self.assert_pauses_are_on_record(&status);
        // One that nobody has looked at ends when somebody does.
        let is_stopped_unseen =
            |w: &Value| w["status"]["phase"].is_null() && w["spec"]["shutdown"] == "Terminate";
        for workflow in all::<Value>(&self.objects, "workflows")
            .iter()
            .filter(|w| !is_stopped_unseen(w))
        {
            let phase = workflow["status"]["phase"].as_str().unwrap_or_default();
            assert!(
                matches!(phase, "Succeeded" | "Failed"),
                "workflow {} is {phase}",
                workflow["metadata"]["name"]
            );
        }
    }

    /// What the operator asked for it asked for once, and took it back where that says so.
    fn assert_intent(&self, status: &UpgradeJobStatus) {
        let mut ours = self.changes(
            "clusterversions.config.openshift.io",
            "/spec/desiredUpdate/version",
        );
        ours.retain(|change| change.by_operator);
        let jobs = all::<UpgradeJob>(&self.objects, "upgradejobs").len();
        let set = ours.iter().filter(|c| c.after.is_some()).count();
        assert!(set <= jobs, "desiredUpdate was set {set} times");
        let taken_back = ours.iter().filter(|c| c.after.is_none()).count();
        let said = conditions::is_true(&status.conditions, types::INTENT_WITHDRAWN);
        assert_eq!(taken_back, usize::from(said), "IntentWithdrawn");
    }

    /// The operator unpauses the held pool in its time, or when nothing waits for it.
    fn assert_no_reboot_out_of_time(&self) {
        let all = self.changes(
            "machineconfigpools.machineconfiguration.openshift.io",
            "/spec/paused",
        );
        let is_unpaused = |c: &&Change| c.by_operator && c.after != Some(Value::Bool(true));
        for change in all.iter().filter(is_unpaused) {
            let pool: MachineConfigPool = serde_json::from_value(change.object.clone()).unwrap();
            let is_pending = pool.spec.configuration.name != pool.state().configuration.name;
            let in_time = (clock("22:45")..=clock("23:30")).contains(&change.at);
            assert!(
                !is_pending || in_time,
                "{} was unpaused at {}",
                pool.name_any(),
                change.at
            );
        }
    }

    /// The changes of one field of the objects of a kind.
    fn changes(&self, kind: &str, field: &str) -> Vec<Change> {
        let of = |object: Option<&Value>| object.and_then(|o| o.pointer(field)).cloned();
        let entries = self
            .journal
            .iter()
            .filter(|e| e.kind == kind && e.before.is_some());
        let changes = entries.map(|e| {
            let change = Change {
                at: e.at,
                by_operator: matches!(e.identity, Identity::Operator(_)),
                after: of(e.after.as_deref()),
                object: e.after.as_deref().cloned().unwrap_or_default(),
            };
            (of(e.before.as_deref()), change)
        });
        let real = changes.filter(|(before, change)| *before != change.after);
        real.map(|(_, change)| change).collect()
    }

    fn assert_hooks_have_ended(&self, status: &UpgradeJobStatus) {
        let active = status
            .hook_tracker
            .iter()
            .filter(|h| h.status == HookState::Active);
        assert_eq!(
            active.count(),
            0,
            "every hook has ended: {:#?}",
            status.hook_tracker
        );
        for job in all::<Job>(&self.objects, "jobs") {
            assert_eq!(
                job.finalizers(),
                Vec::<String>::new(),
                "of Job {}",
                job.name_any()
            );
        }
        let mut seen = self.hook_jobs();
        let made = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), made, "no hook ran twice: {:#?}", self.hook_jobs());
        assert_eq!(status.hook_tracker.len(), made, "every hook is tracked");
    }

    fn assert_pauses_are_on_record(&self, status: &UpgradeJobStatus) {
        let recorded: Vec<String> = status
            .paused_pools
            .iter()
            .map(|p| {
                let reason = match p.reason {
                    PauseReason::Delay => "delay",
                    PauseReason::Failure => "failure",
                };
                format!("{}: {reason}", p.name)
            })
            .collect();
        let ours: Vec<String> = self
            .paused()
            .into_iter()
            .filter(|p| !p.ends_with(": someone"))
            .collect();
        assert_eq!(recorded, ours, "status.pausedPools");
        let said =
            conditions::get(&status.conditions, types::POOLS_LEFT_PAUSED).filter(|c| c.status == "True");
        assert_eq!(said.is_some(), !ours.is_empty(), "condition PoolsLeftPaused");
        for pool in &status.paused_pools {
            let command = format!("oc patch machineconfigpool {} ", pool.name);
            assert!(
                said.unwrap().message.contains(&command),
                "{}",
                said.unwrap().message
            );
        }
        let key = format!("{NAMESPACE}/{}", self.job().name_any());
        for pool in pools(&self.objects).iter().filter(|p| !p.spec.paused) {
            let owner = pool.annotations().get(annotations::UPGRADE_JOB);
            assert_ne!(owner, Some(&key), "annotation of pool {}", pool.name_any());
        }
    }

    /// The job is gone, and so is what it took; a pool with something pending stays paused.
    pub fn assert_deleted_job_gave_back(&self, asks_for: Option<&str>, has: &str, held: bool) {
        assert_eq!(
            all::<UpgradeJob>(&self.objects, "upgradejobs").len(),
            0,
            "the job is gone"
        );
        assert_eq!(lock(&self.objects), None, "the lock is free");
        let cluster = cluster(&self.objects);
        assert_eq!(
            cluster.spec.desired_update.as_ref().map(Update::asked_for),
            asks_for
        );
        assert_eq!(cluster.newest().map(|n| n.version.as_str()), Some(has));
        let paused: Vec<String> = pools(&self.objects)
            .iter()
            .filter(|p| p.spec.paused)
            .map(ResourceExt::name_any)
            .collect();
        assert_eq!(paused, if held { vec!["night"] } else { Vec::new() });
        // What it owned goes with it.
        assert_eq!(all::<Job>(&self.objects, "jobs").len(), 0, "Jobs of hooks");
    }

    /// The next one finds a cluster that it can upgrade, and pools that it can take over.
    pub fn assert_later_job_succeeds(&self) {
        let Some(after) = &self.after else { return };
        let later: UpgradeJob = get(after, &format!("upgradejobs/{NAMESPACE}/{LATER}")).unwrap();
        let status = later.status.unwrap_or_default();
        let succeeded = conditions::get(&status.conditions, types::SUCCEEDED);
        assert_eq!(
            succeeded.map(|c| (c.status.as_str(), c.reason.as_str())),
            Some(("True", "Succeeded")),
            "the later job: {:?} {:#?}",
            status.message,
            status.steps
        );
        let cluster = cluster(after);
        assert_eq!(
            cluster.newest().map(|n| (n.version.as_str(), n.is_completed())),
            Some((NEWER, true))
        );
        assert_eq!(lock(after), None, "the lock is free");
        for pool in pools(after) {
            let name = pool.name_any();
            assert!(!pool.spec.paused, "{name} is paused");
            assert_eq!(
                pool.spec.configuration.name,
                pool.state().configuration.name,
                "{name} is updated"
            );
            assert_eq!(
                pool.annotations().get(annotations::UPGRADE_JOB),
                None,
                "owner of {name}"
            );
        }
    }
}
