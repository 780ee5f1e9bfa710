//! Plays a world, and keeps what happened in it.

use std::{cell::RefCell, collections::BTreeMap, path::Path, sync::Arc};

use jiff::{SignedDuration, Timestamp, ToSpan};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use openshift_upgrade_operator::{
    api::{UpgradeJob, upgrade_job::JobPhase},
    clock::Clock,
    schedule::Zones,
    settings::Settings,
    simulator::{
        api::{Entry, Identity, Logged},
        scenario::{Scenario, Timeline},
        simulation::{self, Simulation},
    },
};
use serde_json::{Value, json};

use crate::draw::{Deed, NAMESPACE, World};

/// What happened in a world.
#[derive(Clone)]
pub struct History {
    pub world: World,
    /// Every change of every object that matters here, in order.
    pub journal: Vec<Entry>,
    /// Every request, where it was to be kept.
    pub log: Vec<Logged>,
    /// Every object at the end, where requests were to be kept.
    pub dump: BTreeMap<String, Value>,
    /// At the end of each hour: requests and writes of our operator so far.
    pub traffic: Vec<(Timestamp, u64, u64)>,
    /// What must not be: events that could not be played, requests that the server does not know, panics.
    pub problems: Vec<String>,
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A task that panics ends silently: the panics of this thread are kept.
pub fn watch_for_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.with_borrow_mut(|all| all.push(panic.to_string()));
        default(panic);
    }));
}

/// Plays a world from its start to its end.
pub fn play(world: World, keep_log: bool) -> History {
    PANICS.take();
    simulation::run(playing(world, keep_log)).unwrap()
}

fn settings() -> Settings {
    Settings {
        // Texts alone are of no interest here, and most of the work.
        live_message_interval: SignedDuration::from_mins(10),
        ..Settings::new(NAMESPACE, Zones::bundled("UTC").unwrap())
    }
}

async fn playing(world: World, keep_log: bool) -> History {
    let text = world.scenario.to_string();
    let scenario = Scenario::parse(Path::new("world"), &text).unwrap_or_else(|error| {
        panic!("world {} is no scenario: {error}\n{text}", world.seed);
    });
    let timeline = Arc::new(Timeline::new(scenario, world.start, world.end, world.seed).unwrap());
    let mut simulation = Simulation::new(Clock::starting_at(world.start));
    simulation.server.keep_journal();
    if keep_log {
        simulation.server.keep_log();
    }
    for (write, fault) in &world.api_faults {
        simulation.server.plan(*write, *fault);
    }
    simulation.start_cluster(&timeline).await.unwrap();
    let mut problems = Vec::new();
    for value in &world.objects {
        let object: DynamicObject = serde_json::from_value(value.clone()).unwrap();
        let applied = simulation::apply(&simulation.server, &simulation.admin(), &object).await;
        problems.extend(applied.err().map(|error| error.to_string()));
    }
    simulation.start_operator(&settings());
    simulation.play(&timeline);

    let mut history = History {
        journal: Vec::new(),
        log: Vec::new(),
        dump: BTreeMap::new(),
        traffic: Vec::new(),
        problems,
        world,
    };
    let mut deeds = history.world.deeds.clone().into_iter().peekable();
    let mut hour = history.world.start;
    while hour < history.world.end {
        hour += 1.hour();
        while let Some((at, deed)) = deeds.next_if(|(at, _)| *at <= hour) {
            simulation.until(at).await;
            do_deed(&simulation, deed).await;
        }
        simulation.until(hour).await;
        let requests = simulation.server.counts().values().sum();
        history.traffic.push((hour, requests, simulation.server.writes()));
        let journal = simulation.server.take_journal();
        history.journal.extend(journal.into_iter().filter(matters));
    }
    if keep_log {
        history.log = simulation.server.log();
        history.dump = simulation.server.dump();
    }
    history.problems.extend(simulation.problems());
    let unknown = simulation.server.unknown_requests();
    history
        .problems
        .extend(unknown.iter().map(|line| format!("unknown request: {line}")));
    let last = simulation.clock.now();
    let alive = is_alive(&simulation).await;
    if !alive {
        let problem = format!("our operator does not react at {last}: did it end?");
        history.problems.push(problem);
    }
    history.problems.extend(PANICS.take());
    history
}

/// Nodes and their configurations change all the time, and say nothing here.
fn matters(entry: &Entry) -> bool {
    !matches!(
        entry.kind.as_str(),
        "nodes" | "machineconfigs.machineconfiguration.openshift.io" | "pods" | "configmaps"
    )
}

/// Whether our operator says what it thinks of something new.
async fn is_alive(simulation: &Simulation) -> bool {
    let hook = json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJobHook",
        "metadata": {"name": "probe", "namespace": NAMESPACE},
        "spec": {"events": ["Start"], "template": {"spec": {"template": {"spec": {
            "containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never",
        }}}}},
    });
    let object: DynamicObject = serde_json::from_value(hook).unwrap();
    simulation::apply(&simulation.server, &simulation.admin(), &object)
        .await
        .unwrap();
    simulation.until(simulation.clock.now() + 5.minutes()).await;
    let dump = simulation.server.dump();
    let probe = &dump[&format!("upgradejobhooks/{NAMESPACE}/probe")];
    probe["status"]["conditions"][0]["type"] == "Valid"
}

async fn do_deed(simulation: &Simulation, deed: Deed) {
    let api: Api<UpgradeJob> = Api::namespaced(simulation.admin(), NAMESPACE);
    let (Deed::Delete(phase) | Deed::Timeout(phase, _) | Deed::DelayMin(phase, _)) = deed;
    let jobs = api.list(&ListParams::default()).await.unwrap();
    let is_it = |j: &&UpgradeJob| format!("{:?}", phase_of(j)) == phase;
    let Some(job) = jobs.iter().find(is_it) else {
        return;
    };
    let name = job.name_any();
    let config = match deed {
        Deed::Delete(_) => {
            api.delete(&name, &DeleteParams::default()).await.unwrap();
            return;
        }
        Deed::Timeout(_, minutes) => json!({"upgradeTimeout": format!("{minutes}m")}),
        Deed::DelayMin(_, minutes) => {
            let mut groups = serde_json::to_value(&job.spec.config.machine_config_pools).unwrap();
            for group in groups.as_array_mut().unwrap() {
                if let Some(delay) = group.get_mut("delayUpgrade").and_then(Value::as_object_mut) {
                    delay.insert("delayMin".to_owned(), format!("{minutes}m").into());
                }
            }
            json!({"machineConfigPools": groups})
        }
    };
    let patch = json!({"spec": {"config": config}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

fn phase_of(job: &UpgradeJob) -> JobPhase {
    let phase = job.status.as_ref().and_then(|s| s.phase);
    phase.unwrap_or(JobPhase::Pending)
}

/// Whether a request was our operator's.
pub fn is_ours(identity: Identity) -> bool {
    matches!(identity, Identity::Operator(_))
}
