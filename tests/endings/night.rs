//! One night of a cluster with one upgrade: what an administrator wrote, and what happens to it and when.
//!
//! The job starts at 22:00 and may start until 23:00. Undisturbed, the control plane is done at 22:08, the pools at 22:11, the
//! pool `night` (held from 22:45 to 23:30) at 22:48. The timeout is at 02:00, and at 04:07 it is looked at what was left. Then
//! what was wrong is mended, and another job, `later`, must find a cluster that it can upgrade.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use jiff::{SignedDuration, Timestamp, civil};
use kube::api::DynamicObject;
use openshift_upgrade_operator::{
    api::upgrade_job::EngineChoice,
    clock::Clock,
    simulator::{
        api::Entry,
        openshift::releases::image,
        scenario::{Scenario, Timeline},
        simulation::{self, Simulation},
    },
};
use serde_json::{Value, json};

use crate::peer;
use crate::simulated::{self, LABEL, NAMESPACE, hook, object};

pub const OLD: &str = "4.18.3";
pub const NEW: &str = "4.18.5";
/// What other people ask for, and what the later job upgrades to.
pub const NEWER: &str = "4.18.6";
/// The job made by hand.
pub const BY_HAND: &str = "night";
/// The job of the next day.
pub const LATER: &str = "later";
/// The UpgradeConfig.
pub const CONFIG: &str = "tuesdays";
/// Longer than anything else of the night, so that nothing of it is left in the morning.
const HOOK_DEADLINE: i64 = 5 * 3_600;

/// Every event that there is a hook for.
const EVENTS: [&str; 7] = [
    "Create",
    "Start",
    "UpgradeComplete",
    "MachineConfigPoolUnpause",
    "Success",
    "Failure",
    "Finish",
];

/// An instant of the night, by the clock in Zurich: those before noon are of the next day.
pub fn clock(text: &str) -> Timestamp {
    let time: civil::Time = text.parse().unwrap();
    let day = if time.hour() < 12 { 2 } else { 1 };
    let local = civil::date(2026, 12, day).to_datetime(time);
    local.in_tz("Europe/Zurich").unwrap().timestamp()
}

/// What there is of Argo Workflows.
#[derive(Clone, Copy)]
enum Argo {
    Absent,
    /// Its kind; nothing looks at workflows.
    Idle,
    AtWork,
}

/// A night in the making.
#[derive(Clone)]
pub struct Night {
    engine: EngineChoice,
    argo: Argo,
    hands_over: bool,
    is_pinned: bool,
    scenario: Value,
    events: Vec<Value>,
    manifests: Vec<DynamicObject>,
    /// Kinds that the API server has not: group and plural.
    lacks: Vec<(&'static str, &'static str)>,
    /// From when on the API server has no kind Workflow any more, and from when on it has it again.
    argo_removed: Option<(Timestamp, Option<Timestamp>)>,
    config: Value,
    job: Value,
    schedule: Value,
    later: bool,
    peer: Option<Peer>,
}

/// What openshift-upgrade-controller does before the operator is installed.
#[derive(Clone, Copy)]
struct Peer {
    /// The last that it writes.
    last: &'static str,
    /// When the operator is installed: by then it has been written.
    gone: Timestamp,
}

impl Night {
    /// With a job made by hand, named [`BY_HAND`].
    pub fn by_hand() -> Self {
        Self {
            engine: EngineChoice::Embedded,
            argo: Argo::Absent,
            hands_over: true,
            is_pinned: false,
            scenario: json!({
                "cluster": {
                    "version": OLD,
                    "operators": ["etcd"],
                    "pools": [
                        {"name": "master", "machines": 1}, {"name": "worker", "machines": 1}, {"name": "night", "machines": 1},
                    ],
                },
                "updates": {"releases": [{"version": NEW}, {"version": NEWER, "from": at("04:30")}]},
                "durations": {"retrieve": "1m", "controlPlane": "5m", "node": "2m"},
                "hookJobs": [],
            }),
            events: Vec::new(),
            manifests: vec![hook("tell", &EVENTS, HOOK_DEADLINE, &json!({}))],
            lacks: Vec::new(),
            argo_removed: None,
            config: json!({
                "upgradeTimeout": "4h",
                "preUpgradeHealthChecks": {"timeout": "30m"},
                "postUpgradeHealthChecks": {"timeout": "30m"},
                "machineConfigPools": [{
                    "matchLabels": {"name": "night-maintenance"},
                    "delayUpgrade": {"delayMin": "45m", "delayMax": "90m"},
                }],
            }),
            job: json!({
                "startAfter": at("22:00"), "startBefore": at("23:00"),
                "desiredVersion": {"version": NEW, "image": image(NEW)},
            }),
            schedule: json!({"cron": "0 22 * * 2", "location": "Europe/Zurich"}),
            later: false,
            peer: None,
        }
    }

    /// With a config that pins the job at 21:50.
    pub fn pinned() -> Self {
        Self {
            is_pinned: true,
            ..Self::by_hand()
        }
    }

    /// The engine of the operator, and Argo where it needs that.
    pub fn on(mut self, engine: EngineChoice) -> Self {
        self.engine = engine;
        if engine == EngineChoice::Argo {
            self.argo = Argo::AtWork;
        }
        self
    }

    /// The operator is to use Argo, which is not there.
    pub fn without_argo(mut self) -> Self {
        self.engine = EngineChoice::Argo;
        self
    }

    /// Nothing looks at workflows.
    pub fn with_idle_argo(mut self) -> Self {
        self.engine = EngineChoice::Argo;
        self.argo = Argo::Idle;
        self
    }

    /// The operator takes what engine there is: Argo, which is removed, and perhaps installed again; the operator's watches go on
    /// meanwhile. There are no hooks of Create, which would begin on it long before.
    pub fn argo_removed(mut self, when: &str, back: Option<&str>) -> Self {
        self = self.on(EngineChoice::Argo);
        self.engine = EngineChoice::Auto;
        self.manifests = vec![hook("tell", &EVENTS[1..], HOOK_DEADLINE, &json!({}))];
        self.argo_removed = Some((clock(when), back.map(clock)));
        self
    }

    /// The API server has no kind MachineConfigPool.
    pub fn without_kind_of_pools(mut self) -> Self {
        self.lacks
            .push(("machineconfiguration.openshift.io", "machineconfigpools"));
        self
    }

    /// The operator never goes on without the engine.
    pub fn without_hand_over(mut self) -> Self {
        self.hands_over = false;
        self
    }

    /// Another `config` of the job, as a merge patch.
    pub fn config(mut self, change: &Value) -> Self {
        json_patch::merge(&mut self.config, change);
        self
    }

    /// Another spec of the job made by hand.
    pub fn job(mut self, change: &Value) -> Self {
        json_patch::merge(&mut self.job, change);
        self
    }

    /// Another schedule of the config.
    pub fn schedule(mut self, change: &Value) -> Self {
        json_patch::merge(&mut self.schedule, change);
        self
    }

    /// Another scenario.
    pub fn scenario(mut self, change: &Value) -> Self {
        json_patch::merge(&mut self.scenario, change);
        self
    }

    /// A fault that lasts.
    pub fn fault(mut self, from: &str, until: &str, fault: &Value) -> Self {
        self.events
            .push(json!({"at": at(from), "until": at(until), "fault": fault}));
        self
    }

    /// A fault that lasts until it is mended in the morning.
    pub fn broken(self, from: &str, fault: &Value) -> Self {
        self.fault(from, "04:30", fault)
    }

    /// A critical alert that fires.
    pub fn alert(mut self, from: &str, until: &str, name: &str) -> Self {
        self.events
            .push(json!({"at": at(from), "until": at(until), "alert": {"alertname": name}}));
        self
    }

    /// Something that is done.
    pub fn does(mut self, when: &str, action: &Value) -> Self {
        self.events.push(json!({"at": at(when), "do": action}));
        self
    }

    /// The operator is away.
    pub fn operator_away(self, from: &str, down: &str) -> Self {
        self.does(from, &json!({"restartOperator": {"down": down}}))
    }

    /// Somebody changes an object.
    pub fn patch(self, when: &str, (api, kind): (&str, &str), name: &str, merge: &Value) -> Self {
        let mut patch = json!({"apiVersion": api, "kind": kind, "name": name, "merge": merge});
        if !api.ends_with("openshift.io/v1") {
            patch["namespace"] = json!(NAMESPACE);
        }
        self.does(when, &json!({"patch": patch}))
    }

    /// Somebody deletes an object.
    pub fn delete(self, when: &str, (api, kind): (&str, &str), name: &str) -> Self {
        let delete = json!({"apiVersion": api, "kind": kind, "name": name, "namespace": NAMESPACE});
        self.does(when, &json!({"delete": delete}))
    }

    /// Somebody creates an object, or changes it.
    pub fn apply(self, when: &str, object: &DynamicObject) -> Self {
        self.does(when, &json!({"apply": object}))
    }

    /// Somebody asks for another release.
    pub fn someone_asks_for(self, when: &str, version: &str) -> Self {
        self.desired(when, &json!({"version": version, "image": image(version)}))
    }

    /// Somebody writes `spec.desiredUpdate`.
    pub fn desired(self, when: &str, update: &Value) -> Self {
        self.patch(
            when,
            CLUSTER_VERSION,
            "version",
            &json!({"spec": {"desiredUpdate": update}}),
        )
    }

    /// An object that is there from the beginning.
    pub fn with(mut self, object: DynamicObject) -> Self {
        self.manifests.push(object);
        self
    }

    /// A hook besides the one that tells.
    pub fn hook(self, name: &str, event: &str, policy: &str) -> Self {
        self.with(hook(
            name,
            &[event],
            HOOK_DEADLINE,
            &json!({"failurePolicy": policy}),
        ))
    }

    /// How the Jobs of a hook end, and when.
    pub fn hook_jobs(mut self, hook: &str, outcome: &str, duration: &str) -> Self {
        let rule = json!({"hook": hook, "outcome": outcome, "duration": duration});
        self.scenario["hookJobs"].as_array_mut().unwrap().push(rule);
        self
    }

    /// The night begins under openshift-upgrade-controller, which is stopped after it has written `last`; the operator is there
    /// from then on, or from `from` if that is later.
    pub fn led_by_peer(mut self, last: &'static str, from: &str) -> Self {
        let gone = clock(from);
        self.peer = Some(Peer { last, gone });
        self
    }

    /// In the morning another job upgrades.
    pub fn and_later_job(mut self) -> Self {
        self.later = true;
        self
    }

    fn manifests(&self) -> Vec<DynamicObject> {
        let labels = json!({LABEL.0: LABEL.1});
        let mut all = self.manifests.clone();
        all.push(if self.is_pinned {
            let template = json!({"metadata": {"labels": labels}, "spec": {"config": self.config}});
            let mut config = object(
                "UpgradeConfig",
                CONFIG,
                &json!({"schedule": self.schedule, "pinVersionWindow": "10m", "jobTemplate": template}),
            );
            config.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
            config
        } else {
            job_of(BY_HAND, &self.job, &self.config, true)
        });
        all
    }

    fn timeline(&self) -> Arc<Timeline> {
        let mut scenario = self.scenario.clone();
        let mut events = self.events.clone();
        if self.later {
            events.push(json!({"at": at("05:00"), "do": {"apply": later()}}));
        }
        scenario["events"] = json!(events);
        let scenario = Scenario::parse(Path::new("night.yaml"), &scenario.to_string()).unwrap();
        Arc::new(Timeline::new(scenario, clock("21:40"), clock("07:07"), 1).unwrap())
    }

    /// Plays it.
    pub fn play(&self) -> Morning {
        simulation::run(self.played()).unwrap()
    }

    async fn played(&self) -> Morning {
        let timeline = self.timeline();
        let clock_ = Clock::starting_at(clock("21:40"));
        let mut simulation = match self.argo {
            Argo::Absent => Simulation::new(clock_),
            Argo::Idle => Simulation::with_idle_argo(clock_),
            Argo::AtWork => Simulation::with_argo(clock_),
        };
        simulation.start_cluster(&timeline).await.unwrap();
        let admin = simulation.admin();
        simulation.server.keep_journal();
        for object in self.manifests() {
            simulation::apply(&simulation.server, &admin, &object)
                .await
                .unwrap();
        }
        let mut settings = simulated::settings(self.engine);
        settings.engine_handover_after = settings.engine_handover_after.filter(|_| self.hands_over);
        if let Some(Peer { last, gone }) = self.peer {
            peer::lead(&admin, clock_, last).await;
            simulation.until(gone).await;
        }
        for (group, plural) in &self.lacks {
            simulation.server.hide_from_operators(group, plural);
        }
        simulation.start_operator(&settings);
        simulation.play(&timeline);
        if let Some((when, back)) = self.argo_removed {
            simulation.until(when).await;
            simulation.server.hide_from_operators("argoproj.io", "workflows");
            if let Some(back) = back {
                simulation.until(back).await;
                simulation.server.hide_nothing();
            }
        }
        simulation
            .until(clock("04:07") + SignedDuration::from_secs(13))
            .await;
        let objects = simulation.server.dump();
        let journal = simulation.server.take_journal();
        let mut after = None;
        if self.later {
            simulation
                .until(clock("06:47") + SignedDuration::from_secs(13))
                .await;
            after = Some(simulation.server.dump());
        }
        assert_eq!(simulation.problems(), Vec::<String>::new());
        assert_eq!(simulation.server.unknown_requests(), Vec::<String>::new());
        Morning {
            objects,
            journal,
            after,
        }
    }
}

/// What a night left.
pub struct Morning {
    /// Every object, by `<plural>/<namespace>/<name>`.
    pub objects: BTreeMap<String, Value>,
    /// Every change.
    pub journal: Vec<Entry>,
    /// Every object after the later job, if there was one.
    pub after: Option<BTreeMap<String, Value>>,
}

pub const CLUSTER_VERSION: (&str, &str) = ("config.openshift.io/v1", "ClusterVersion");
pub const POOL: (&str, &str) = ("machineconfiguration.openshift.io/v1", "MachineConfigPool");
pub const WORKFLOW: (&str, &str) = ("argoproj.io/v1alpha1", "Workflow");
pub const UPGRADE_JOB: (&str, &str) = ("managedupgrade.appuio.io/v1beta1", "UpgradeJob");
pub const UPGRADE_CONFIG: (&str, &str) = ("managedupgrade.appuio.io/v1beta1", "UpgradeConfig");
pub const HOOK: (&str, &str) = ("managedupgrade.appuio.io/v1beta1", "UpgradeJobHook");

/// [`clock`] for a manifest or a scenario.
pub fn at(text: &str) -> String {
    clock(text).to_string()
}

/// An UpgradeJob by hand.
pub fn job_of(name: &str, spec: &Value, config: &Value, has_hooks: bool) -> DynamicObject {
    let mut spec = spec.clone();
    spec["config"] = config.clone();
    let mut job = object("UpgradeJob", name, &spec);
    if has_hooks {
        job.metadata.labels = Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into());
    }
    job
}

/// It holds the pool for a minute, so that it takes over what was left paused.
fn later() -> DynamicObject {
    let spec = json!({
        "startAfter": at("05:05"), "startBefore": at("05:30"),
        "desiredVersion": {"version": NEWER, "image": image(NEWER)},
    });
    let hold = json!({"matchLabels": {"name": "night-maintenance"}, "delayUpgrade": {"delayMin": "1m"}});
    job_of(
        LATER,
        &spec,
        &json!({"upgradeTimeout": "90m", "machineConfigPools": [hold]}),
        false,
    )
}

/// A suspension window.
pub fn window(name: &str, from: &str, until: &str, selectors: &Value) -> DynamicObject {
    let mut spec = json!({"start": at(from), "end": at(until), "reason": "holidays"});
    json_patch::merge(&mut spec, selectors);
    object("UpgradeSuspensionWindow", name, &spec)
}
