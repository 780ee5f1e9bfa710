//! A stand-in of openshift-upgrade-controller, as far as it leaves something behind: what it writes on its way through an
//! upgrade, and in which order (its code of June 2026, `controllers/upgradejob_controller.go`).
//!
//! It makes one write at a time, and is stopped for good after one of them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use openshift_upgrade_operator::{
    api::{
        UpgradeJob, UpgradeJobHook, annotations,
        conditions::{self, types},
        finalizers, labels,
        upgrade_job::{HookState, HookTracker, UpgradeJobStatus},
        upgrade_job_hook::HookEvent,
    },
    clock::Clock,
    hooks::{environment::Event, job as hook_job, select},
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
    pools,
};
use serde_json::{Value, json};

use crate::{night::BY_HAND, simulated::NAMESPACE};

/// How often it looks when there is nothing to write.
const LOOK: Duration = Duration::from_secs(10);

/// What it writes, as rows name it.
pub type Written = String;

/// Leads the job [`BY_HAND`] until it has written `last`.
pub async fn lead(client: &Client, clock: Clock, last: &str) {
    let mut all: Vec<Written> = Vec::new();
    while clock.now() < crate::night::clock("04:00") {
        let seen = Seen::now(client, clock.now()).await;
        let Some(write) = seen.next() else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let name = write.name();
        write.carry_out(client, &seen).await;
        if name == last {
            return;
        }
        all.push(name);
    }
    panic!("it never wrote {last}, but {all:#?}");
}

/// What it looks at.
struct Seen {
    now: Timestamp,
    job: UpgradeJob,
    hooks: Vec<UpgradeJobHook>,
    jobs: Vec<Job>,
    cluster: ClusterVersion,
    pools: Vec<MachineConfigPool>,
}

/// One write.
enum Write {
    Condition(&'static str, bool, &'static str),
    Tracker(Vec<HookTracker>),
    RunHook(Box<Job>),
    LetGo(String),
    Lock,
    Pause(String, bool),
    DesiredUpdate,
}

/// What a place of its way asks for: a write, patience, or to go on.
enum Way {
    Write(Write),
    Wait,
    On,
}

impl Seen {
    async fn now(client: &Client, now: Timestamp) -> Self {
        let ours = ListParams::default();
        let jobs: Api<UpgradeJob> = Api::namespaced(client.clone(), NAMESPACE);
        let hooks: Api<UpgradeJobHook> = Api::namespaced(client.clone(), NAMESPACE);
        let runs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
        let clusters: Api<ClusterVersion> = Api::all(client.clone());
        let pools: Api<MachineConfigPool> = Api::all(client.clone());
        Self {
            now,
            job: jobs.get(BY_HAND).await.unwrap(),
            hooks: hooks.list(&ours).await.unwrap().items,
            jobs: runs.list(&ours).await.unwrap().items,
            cluster: clusters.get("version").await.unwrap(),
            pools: pools.list(&ours).await.unwrap().items,
        }
    }

    fn status(&self) -> UpgradeJobStatus {
        self.job.status.clone().unwrap_or_default()
    }

    fn has(&self, type_: &str) -> Option<bool> {
        let status = self.status();
        conditions::get(&status.conditions, type_).map(|c| c.status == "True")
    }

    /// Its way, from the beginning each time.
    fn next(&self) -> Option<Write> {
        let way: [&dyn Fn() -> Way; 9] = [
            &|| self.track(),
            &|| self.hooks(HookEvent::Create, "", ""),
            &|| self.start(),
            &|| self.hooks(HookEvent::Start, "", "Started"),
            &|| self.lock(),
            &|| self.hold(),
            &|| self.check(types::PRE_HEALTH_CHECK_DONE),
            &|| self.upgrade(),
            &|| self.end(),
        ];
        for place in way {
            match place() {
                Way::Write(write) => return Some(write),
                Way::Wait => return None,
                Way::On => {}
            }
        }
        None
    }

    fn track(&self) -> Way {
        let known = self.status().hook_tracker;
        let mut all: Vec<HookTracker> = self.jobs.iter().map(tracked).collect();
        let ended = known.iter().filter(|t| t.status != HookState::Active);
        all.extend(
            ended
                .filter(|t| !self.jobs.iter().any(|j| tracked(j) == **t))
                .cloned(),
        );
        all.sort_by_key(|t| {
            format!(
                "{}{}{}",
                t.upgrade_job_hook,
                t.hook_event.as_str(),
                t.tracking_key
            )
        });
        if all != known {
            return Way::Write(Write::Tracker(all));
        }
        let is_held = |j: &&Job| j.finalizers().iter().any(|f| f == finalizers::HOOK_JOB);
        let mut ended = self
            .jobs
            .iter()
            .filter(|j| tracked(j).status != HookState::Active);
        let held = ended.find(is_held).map(|j| Write::LetGo(j.name_any()));
        held.map_or(Way::On, Way::Write)
    }

    /// Makes the Jobs of an event, and waits for them.
    fn hooks(&self, event: HookEvent, key: &str, reason: &str) -> Way {
        let mut waits = false;
        for hook in select::matching(&self.hooks, &self.job, event) {
            let name = hook.name_any();
            let tracker = self.status().hook_tracker;
            let is_this = |t: &&HookTracker| {
                t.upgrade_job_hook == name && t.hook_event == event && t.tracking_key == key
            };
            let Some(entry) = tracker.iter().find(is_this) else {
                let at = Event {
                    name: event,
                    time: self.now,
                    reason: reason.to_owned(),
                    message: String::new(),
                    pool: Some(key.to_owned()).filter(|k| !k.is_empty()),
                };
                let mut job = hook_job::build(hook, &at, &self.job, key, false, None).unwrap();
                let name = format!("{BY_HAND}-{name}-{}-hook", event.as_str()).to_lowercase();
                job.metadata.name = Some(name);
                return Way::Write(Write::RunHook(Box::new(job)));
            };
            waits |= entry.status == HookState::Active;
        }
        if waits { Way::Wait } else { Way::On }
    }

    fn start(&self) -> Way {
        match self.has(types::STARTED) {
            Some(_) => Way::On,
            None if self.now < self.job.spec.start_after.0 => Way::Wait,
            None => Way::Write(Write::Condition(types::STARTED, true, "Started")),
        }
    }

    fn lock(&self) -> Way {
        if self.cluster.annotations().contains_key(annotations::UPGRADE_JOB) {
            Way::On
        } else {
            Way::Write(Write::Lock)
        }
    }

    /// Goes by the clock alone.
    fn hold(&self) -> Way {
        let mut holds = false;
        for group in pools::held_groups(&self.job, &self.pools) {
            let is_held = self.now < group.not_before;
            holds |= is_held;
            for pool in pools::members(&self.job, group.index, &self.pools) {
                let name = pool.name_any();
                if pool.spec.paused == is_held {
                    continue;
                }
                if !is_held {
                    let hooks = self.hooks(HookEvent::MachineConfigPoolUnpause, &name, "DelayReached");
                    if !matches!(hooks, Way::On) {
                        return hooks;
                    }
                }
                return Way::Write(Write::Pause(name, is_held));
            }
        }
        self.tell(types::MACHINE_CONFIG_POOLS_PAUSED, holds, "DelaySet")
    }

    /// It finds nothing, ever.
    fn check(&self, type_: &'static str) -> Way {
        match self.has(type_) {
            None => Way::Write(Write::Condition(type_, false, "InProgress")),
            Some(false) => Way::Write(Write::Condition(type_, true, "Completed")),
            Some(true) => Way::On,
        }
    }

    fn upgrade(&self) -> Way {
        let wanted = self.job.spec.desired_version.clone().unwrap();
        let asked = self.cluster.spec.desired_update.as_ref();
        if asked.map(|u| Some(u.version.as_str())) != Some(wanted.version.as_deref()) {
            return Way::Write(Write::DesiredUpdate);
        }
        match self.has(types::UPGRADE_COMPLETED) {
            None => return Way::Write(Write::Condition(types::UPGRADE_COMPLETED, false, "InProgress")),
            Some(true) => return Way::On,
            Some(false) => {}
        }
        let newest = self.cluster.newest().unwrap();
        let done = newest.is_completed() && Some(&newest.version) == wanted.version.as_ref();
        let is_open = |p: &MachineConfigPool| is_updating(p) && !p.spec.paused;
        if done && !self.pools.iter().any(is_open) {
            Way::Write(Write::Condition(types::UPGRADE_COMPLETED, true, "Completed"))
        } else {
            Way::Wait
        }
    }

    /// It ends when no pool is behind; that is not its business here.
    fn end(&self) -> Way {
        for way in [
            self.check(types::POST_HEALTH_CHECK_DONE),
            self.hooks(HookEvent::UpgradeComplete, "", "Completed"),
        ] {
            if !matches!(way, Way::On) {
                return way;
            }
        }
        let updating = || self.pools.iter().filter(|p| is_updating(p));
        let is_paused = updating().any(|p| p.spec.paused) && updating().all(|p| p.spec.paused);
        match self.tell(types::PAUSED, is_paused, "DelaySet") {
            Way::On => Way::Wait,
            way @ (Way::Write(_) | Way::Wait) => way,
        }
    }

    fn tell(&self, type_: &'static str, value: bool, reason: &'static str) -> Way {
        if self.has(type_) == Some(value) {
            Way::On
        } else {
            Way::Write(Write::Condition(type_, value, reason))
        }
    }
}

fn is_updating(pool: &MachineConfigPool) -> bool {
    let state = pool.state();
    pool.spec.configuration.name != state.configuration.name
        || state.updated_machine_count != state.machine_count
}

fn tracked(job: &Job) -> HookTracker {
    let label = |key: &str| job.labels().get(key).cloned().unwrap_or_default();
    let is = |type_: &str| {
        let all = job.status.iter().flat_map(|s| s.conditions.iter().flatten());
        all.into_iter().any(|c| c.type_ == type_ && c.status == "True")
    };
    let status = match (is("Failed"), is("Complete")) {
        (true, _) => HookState::Failed,
        (false, true) => HookState::Complete,
        (false, false) => HookState::Active,
    };
    HookTracker {
        hook_event: serde_json::from_value(json!(label(labels::HOOK_EVENT))).unwrap(),
        tracking_key: label(labels::HOOK_TRACKING_KEY),
        upgrade_job_hook: label(labels::HOOK),
        status,
        message: String::new(),
        workflow_step: None,
    }
}

impl Write {
    fn name(&self) -> Written {
        match self {
            Self::Condition(type_, value, _) => format!("{type_}={value}"),
            Self::Tracker(_) => "hookTracker".to_owned(),
            Self::RunHook(job) => job.name_any(),
            Self::LetGo(job) => format!("{job} let go"),
            Self::Lock => "lock".to_owned(),
            Self::Pause(pool, paused) => format!("{pool} paused={paused}"),
            Self::DesiredUpdate => "desiredUpdate".to_owned(),
        }
    }

    async fn carry_out(self, client: &Client, seen: &Seen) {
        let upgrade_jobs: Api<UpgradeJob> = Api::namespaced(client.clone(), NAMESPACE);
        let clusters: Api<ClusterVersion> = Api::all(client.clone());
        let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
        let (params, key) = (PatchParams::default(), format!("{NAMESPACE}/{BY_HAND}"));
        let mark = json!({annotations::UPGRADE_JOB: key});
        match self {
            Self::Condition(type_, value, reason) => {
                let mut all = seen.status().conditions;
                conditions::set(&mut all, type_, value, reason, "of the peer", None, seen.now);
                write_status(&upgrade_jobs, &json!({"conditions": all})).await;
            }
            Self::Tracker(all) => write_status(&upgrade_jobs, &json!({"hookTracker": all})).await,
            Self::RunHook(job) => drop(jobs.create(&PostParams::default(), &job).await.unwrap()),
            Self::LetGo(job) => {
                let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                jobs.patch(&job, &params, &patch).await.unwrap();
            }
            Self::Lock => {
                let patch = Patch::Merge(json!({"metadata": {"annotations": mark}}));
                clusters.patch("version", &params, &patch).await.unwrap();
            }
            Self::Pause(pool, paused) => {
                let pools: Api<MachineConfigPool> = Api::all(client.clone());
                let patch = json!({"metadata": {"annotations": mark}, "spec": {"paused": paused}});
                pools.patch(&pool, &params, &Patch::Merge(patch)).await.unwrap();
            }
            Self::DesiredUpdate => {
                let desired = &seen.job.spec.desired_version;
                let patch = Patch::Merge(json!({"spec": {"desiredUpdate": desired}}));
                clusters.patch("version", &params, &patch).await.unwrap();
            }
        }
    }
}

async fn write_status(api: &Api<UpgradeJob>, change: &Value) {
    let patch = Patch::Merge(json!({"status": change}));
    api.patch_status(BY_HAND, &PatchParams::default(), &patch)
        .await
        .unwrap();
}
