//! Runs a rehearsal: the objects on a simulated cluster, from begin to end, and everything that is seen meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{
    StreamExt,
    stream::{BoxStream, select_all},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::events::v1, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::TypeMeta,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Recording;
use crate::{
    api::{
        self, GROUP, NodeForceDrain, UpgradeConfig, UpgradeJob, UpgradeJobHook, UpgradeSuspensionWindow,
        upgrade_job::JobPhase,
    },
    clock::Clock,
    openshift::{cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
    schedule::Schedule,
    settings::Settings,
    simulator::{
        driver,
        scenario::{Scenario, Timeline, timeline::TimelineError},
        simulation::{self, Simulation},
    },
};

/// Before the begin there is at least this much time for a run to be pinned.
const LEAD: SignedDuration = SignedDuration::from_hours(2);
/// After the end, jobs that have started may come to theirs for this long.
const AFTERMATH: SignedDuration = SignedDuration::from_hours(72);
/// So often it is told how far the rehearsal is.
const PROGRESS: SignedDuration = SignedDuration::from_hours(24);

/// What is rehearsed.
#[derive(Debug)]
pub struct Setup {
    /// Objects of the user, each with file and line.
    pub objects: Vec<(String, DynamicObject)>,
    /// The cluster, and what happens to it.
    pub scenario: Scenario,
    /// Begin: runs after it count.
    pub from: Timestamp,
    /// Length; begin plus length is a time of the calendar.
    pub length: SignedDuration,
    /// For everything random.
    pub seed: u64,
    /// The operator's settings.
    pub settings: Settings,
}

/// A rehearsal that could not be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scenario makes no sense at this time.
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    /// The simulation broke.
    #[error(transparent)]
    Simulation(#[from] simulation::Error),
    /// A bug of the simulated API server.
    #[error("the simulated API server does not know the request {0:?}: please report this")]
    UnknownRequest(String),
}

/// Rehearses. `progress` is told now and then how far it is.
pub fn run(setup: Setup, progress: impl FnMut(Timestamp)) -> Result<Recording, Error> {
    simulation::run(rehearse(setup, progress))?
}

async fn rehearse(setup: Setup, progress: impl FnMut(Timestamp)) -> Result<Recording, Error> {
    let Setup {
        objects,
        mut scenario,
        from,
        length,
        seed,
        settings,
    } = setup;
    let end = from.saturating_add(length).unwrap_or(Timestamp::MAX);
    let (pools, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(|(_, o)| is_of_cluster(o));
    scenario.add_pools(&parsed::<MachineConfigPool>(&pools));
    let timeline = Arc::new(Timeline::new(scenario, from, end, seed)?);
    let begin = from.saturating_sub(lead(&others)).unwrap_or(Timestamp::MIN);
    let mut simulation = Simulation::new(Clock::starting_at(begin));
    let recording = Recording::new(from, end, settings.zones.clone());
    let recorder = Recorder(Arc::new(Mutex::new(recording)));

    // Pools of the user's go first: the cluster takes them as they are, and gives them nodes.
    recorder.apply(&simulation, &settings, pools).await;
    simulation.start_cluster(&timeline).await?;
    recorder.apply(&simulation, &settings, others).await;
    leave_out_earlier_runs(&simulation, &settings, from).await?;
    let watching = tokio::spawn(recorder.clone().watch(simulation.admin(), simulation.clock));
    simulation.start_operator(&settings);
    simulation.play(&timeline);
    recorder.follow(&simulation, end, progress).await;
    watching.abort();
    for problem in timeline.warnings().into_iter().chain(simulation.problems()) {
        recorder.lock().warn(problem);
    }
    if let Some(request) = simulation.server.unknown_requests().into_iter().next() {
        return Err(Error::UnknownRequest(request));
    }
    Ok(recorder.lock().clone())
}

/// MachineConfigPools and the ClusterVersion of OpenShift: the cluster itself, and not what is done with it.
fn is_of_cluster(object: &DynamicObject) -> bool {
    let is = |types: &TypeMeta, group: &str, kind: &str| {
        types.kind == kind && types.api_version.split('/').next() == Some(group)
    };
    object.types.as_ref().is_some_and(|t| {
        is(t, "machineconfiguration.openshift.io", "MachineConfigPool")
            || is(t, "config.openshift.io", "ClusterVersion")
    })
}

/// What can be read as this kind; what cannot is refused later, when it is applied.
fn parsed<K: Resource<DynamicType = ()> + DeserializeOwned>(objects: &[(String, DynamicObject)]) -> Vec<K> {
    let is = |o: &DynamicObject| o.types.as_ref().is_some_and(|t| t.kind == K::kind(&()));
    let own = objects.iter().filter(|(_, o)| is(o));
    own.filter_map(|(_, o)| serde_json::from_value(serde_json::to_value(o).ok()?).ok())
        .collect()
}

/// How long before its begin the rehearsal starts, so that the first run can be pinned in time.
fn lead(objects: &[(String, DynamicObject)]) -> SignedDuration {
    let configs = parsed::<UpgradeConfig>(objects);
    let longest = configs.iter().map(|c| c.spec.pin_version_window()).max();
    longest.unwrap_or_default().saturating_add(LEAD)
}

/// The configs have been there for long: runs before the begin are none of the rehearsal's.
async fn leave_out_earlier_runs(
    simulation: &Simulation,
    settings: &Settings,
    from: Timestamp,
) -> Result<(), Error> {
    let api: Api<UpgradeConfig> = Api::namespaced(simulation.admin(), &settings.namespace);
    let failed = |source| {
        Error::Simulation(simulation::Error::Call {
            attempt: "prepare the UpgradeConfigs".to_owned(),
            source: Box::new(source),
        })
    };
    for config in api
        .list(&kube::api::ListParams::default())
        .await
        .map_err(failed)?
    {
        let Ok(parsed) = Schedule::parse(&config.spec.schedule, &settings.zones) else {
            continue;
        };
        let mut last = None;
        let mut reference = simulation.clock.now();
        while let Some(run) = parsed.schedule.next_after(reference).filter(|run| *run <= from) {
            (last, reference) = (Some(run), run);
        }
        if let Some(run) = last {
            let status = json!({"status": {"lastScheduledUpgrade": Time(run)}});
            let (name, params, patch) = (config.name_any(), PatchParams::default(), Patch::Merge(status));
            let write = api.patch_status(&name, &params, &patch);
            write.await.map_err(failed)?;
        }
    }
    Ok(())
}

/// What is wrong with an object that is not what its kind says: nobody could work with it.
fn unreadable(types: &TypeMeta, object: &DynamicObject) -> Option<String> {
    fn problem<K: DeserializeOwned>(object: &DynamicObject) -> Option<String> {
        let read = serde_json::to_value(object).and_then(serde_json::from_value::<K>);
        read.err().map(|error| error.to_string())
    }
    match (types.api_version.split('/').next(), types.kind.as_str()) {
        (Some(GROUP), "UpgradeConfig") => problem::<UpgradeConfig>(object),
        (Some(GROUP), "UpgradeJob") => problem::<UpgradeJob>(object),
        (Some(GROUP), "UpgradeJobHook") => problem::<UpgradeJobHook>(object),
        (Some(GROUP), "UpgradeSuspensionWindow") => problem::<UpgradeSuspensionWindow>(object),
        (Some(GROUP), "ClusterVersion") => problem::<api::cluster_version::ClusterVersion>(object),
        (Some(GROUP), "NodeForceDrain") => problem::<NodeForceDrain>(object),
        (Some("machineconfiguration.openshift.io"), "MachineConfigPool") => {
            problem::<MachineConfigPool>(object)
        }
        (Some("config.openshift.io"), "ClusterVersion") => problem::<ClusterVersion>(object),
        _ => None,
    }
}

/// What is to be said of an object that was not taken; `None` if its kind has nothing to do with upgrades.
fn refusal(types: &TypeMeta, error: &simulation::Error) -> Option<String> {
    let group = types.api_version.split_once('/').map_or("", |(group, _)| group);
    match error {
        simulation::Error::UnknownKind { .. } if group != GROUP => None,
        simulation::Error::UnknownKind { .. } => {
            Some(format!("there is no such kind in {}", types.api_version))
        }
        simulation::Error::Call { source, .. } => Some(match source.as_ref() {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        }),
        simulation::Error::Runtime(_) | simulation::Error::NotReady => Some(error.to_string()),
    }
}

/// Something that was seen.
enum Seen {
    Config(Box<UpgradeConfig>),
    ConfigGone(Box<UpgradeConfig>),
    Job(Box<UpgradeJob>),
    Event(Box<v1::Event>),
    Version(Box<ClusterVersion>),
    Pool(Box<MachineConfigPool>),
}

#[derive(Clone)]
struct Recorder(Arc<Mutex<Recording>>);

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the user's objects; what the API server does not take is recorded.
    async fn apply(
        &self,
        simulation: &Simulation,
        settings: &Settings,
        objects: Vec<(String, DynamicObject)>,
    ) {
        let client = simulation.admin();
        for (location, mut object) in objects {
            object
                .metadata
                .namespace
                .get_or_insert(settings.namespace.clone());
            let types = object.types.clone().unwrap_or_default();
            let name = format!("{} {}", types.kind, object.name_any());
            if let Some(problem) = unreadable(&types, &object) {
                self.lock().refused(location, name, problem);
                continue;
            }
            if let Err(error) = simulation::apply(&simulation.server, &client, &object).await {
                match refusal(&types, &error) {
                    Some(problem) => self.lock().refused(location, name, problem),
                    None => self.lock().left_out(types.kind),
                }
            }
        }
    }

    /// Lets time pass until the end, and until what has started by then has ended.
    async fn follow(&self, simulation: &Simulation, end: Timestamp, mut progress: impl FnMut(Timestamp)) {
        let latest = end.saturating_add(AFTERMATH).unwrap_or(Timestamp::MAX);
        while simulation.clock.now() < end {
            let now = simulation.clock.now();
            progress(now);
            simulation
                .until(now.saturating_add(PROGRESS).unwrap_or(end).min(end))
                .await;
        }
        while simulation.clock.now() < latest && self.is_under_way(end) {
            let now = simulation.clock.now();
            simulation
                .until(
                    now.saturating_add(SignedDuration::from_hours(1))
                        .unwrap_or(latest),
                )
                .await;
        }
        progress(end);
    }

    /// Whether a job that was due by then has not ended.
    fn is_under_way(&self, end: Timestamp) -> bool {
        self.lock().jobs().iter().any(|job| {
            job.start_after <= end
                && match job.phase {
                    JobPhase::Pending | JobPhase::Running | JobPhase::Paused => true,
                    JobPhase::Succeeded | JobPhase::Failed | JobPhase::Skipped => false,
                }
        })
    }

    /// Sees everything until dropped.
    async fn watch(self, client: kube::Client, clock: Clock) {
        let config = driver::watch_config(watcher::Config::default(), clock);
        let seen = |gone: bool, config: UpgradeConfig| {
            let config = Box::new(config);
            Some(if gone {
                Seen::ConfigGone(config)
            } else {
                Seen::Config(config)
            })
        };
        let present = |gone: bool, seen: Seen| (!gone).then_some(seen);
        let mut changes = select_all([
            changes(Api::all(client.clone()), config.clone(), seen),
            changes(Api::all(client.clone()), config.clone(), move |gone, o| {
                present(gone, Seen::Job(Box::new(o)))
            }),
            changes(Api::all(client.clone()), config.clone(), move |gone, o| {
                present(gone, Seen::Event(Box::new(o)))
            }),
            changes(Api::all(client.clone()), config.clone(), move |gone, o| {
                present(gone, Seen::Version(Box::new(o)))
            }),
            changes(Api::all(client), config, move |gone, o| {
                present(gone, Seen::Pool(Box::new(o)))
            }),
        ]);
        while let Some(change) = changes.next().await {
            self.see(change, clock.now());
        }
    }

    fn see(&self, seen: Seen, now: Timestamp) {
        let mut recording = self.lock();
        match seen {
            Seen::Config(config) => recording.see_config(&config, now),
            Seen::ConfigGone(config) => recording.config_gone(&config, now),
            Seen::Job(job) => recording.see_job(&job, now),
            Seen::Version(version) => recording.see_cluster_version(&version, now),
            Seen::Pool(pool) => recording.see_pool(&pool, now),
            Seen::Event(event) => {
                let text = |t: &Option<String>| t.clone().unwrap_or_default();
                if let Some(regarding) = &event.regarding {
                    recording.see_event(regarding, &text(&event.reason), &text(&event.note), now);
                }
            }
        }
    }
}

/// The changes of a kind; `seen` is told whether the object is gone.
fn changes<K>(
    api: Api<K>,
    config: watcher::Config,
    seen: impl Fn(bool, K) -> Option<Seen> + Send + 'static,
) -> BoxStream<'static, Seen>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    // In memory a watch does not fail, and one that ends begins anew.
    let events = watcher::watcher(api, config).filter_map(|event| std::future::ready(event.ok()));
    let seen = move |event| {
        std::future::ready(match event {
            Event::InitApply(object) | Event::Apply(object) => seen(false, object),
            Event::Delete(object) => seen(true, object),
            Event::Init | Event::InitDone => None,
        })
    };
    events.filter_map(seen).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Zones;

    fn settings() -> Settings {
        Settings::new("openshift-upgrade", Zones::bundled("UTC").unwrap())
    }

    fn example(from: &str, days: i64) -> Recording {
        with_events(from, days, "[]")
    }

    fn with_events(from: &str, days: i64, events: &str) -> Recording {
        let mut manifests = crate::cli::manifests::Manifests::default();
        let text = include_str!("../../../docs/examples/cluster-upgrade.yaml");
        manifests.add(std::path::Path::new("example.yaml"), text);
        let objects = manifests.objects.into_iter();
        let setup = Setup {
            objects: objects.map(|m| (m.location.to_string(), m.object)).collect(),
            scenario: Scenario::parse(std::path::Path::new("s.yaml"), &format!("events: {events}")).unwrap(),
            from: from.parse().unwrap(),
            length: SignedDuration::from_hours(24 * days),
            seed: 1,
            settings: settings(),
        };
        run(setup, |_| {}).unwrap()
    }

    /// W53 of 2026 and W01 of 2027 are both odd.
    #[test]
    fn every_run_of_the_example_is_an_upgrade() {
        let recording = example("2026-11-21T00:00:00Z", 50);
        let jobs = recording.jobs();
        let seen: Vec<String> = jobs
            .iter()
            .map(|j| format!("{} {:?}", j.start_after, j.phase))
            .collect();
        assert_eq!(
            seen,
            [
                "2026-12-01T21:00:00Z Succeeded",
                "2026-12-15T21:00:00Z Succeeded",
                "2026-12-29T21:00:00Z Succeeded",
                "2027-01-05T21:00:00Z Succeeded",
            ]
        );
        assert!(
            jobs.iter().all(|j| j.version.is_some()),
            "always an update to go to"
        );
        assert_eq!(recording.refusals(), []);
    }

    /// The example waits 30 minutes for a healthy cluster, and excludes alerts by name and by namespace.
    #[rstest::rstest]
    #[case::an_alert_that_resolves("alert: {alertname: KubeAPIDown}, for: 8m", JobPhase::Succeeded, 8)]
    #[case::an_alert_that_stays("alert: {alertname: KubeAPIDown}, for: 31m", JobPhase::Failed, 30)]
    #[case::an_excluded_name("alert: {alertname: KubePodCrashLooping}, for: 31m", JobPhase::Succeeded, 0)]
    #[case::an_excluded_namespace(
        "alert: {alertname: A, labels: {namespace: openshift-console}}, for: 31m",
        JobPhase::Succeeded,
        0
    )]
    #[case::a_query_with_a_result(
        "query: {query: 'up{job=~\"^argocd-.+$\",namespace=\"syn\"} != 1', result: [{value: 0}]}, for: 10m",
        JobPhase::Succeeded,
        10
    )]
    #[case::no_prometheus("fault: {prometheusAway: {}}, for: 5m", JobPhase::Succeeded, 5)]
    fn what_prometheus_says_holds_the_upgrade(
        #[case] event: &str,
        #[case] phase: JobPhase,
        #[case] minutes: i64,
    ) {
        let events = format!("[{{at: '2026-12-01T21:00:00Z', {event}}}]");
        let recording = with_events("2026-12-01T00:00:00Z", 1, &events);
        let jobs = recording.jobs();
        assert_eq!(jobs[0].phase, phase, "{:?}", jobs[0].message);
        let step = jobs[0]
            .steps
            .iter()
            .find(|s| s.name == "pre-health-check")
            .unwrap();
        let ended = step.finished_at.as_ref().unwrap().0;
        let waited = ended.duration_since(jobs[0].start_after);
        let expected = SignedDuration::from_mins(minutes);
        // Prometheus is asked every 30 seconds.
        assert!(
            (expected..expected + SignedDuration::from_secs(35)).contains(&waited),
            "waited {waited:#}"
        );
    }

    /// The pin of that run is four hours before the begin.
    #[test]
    fn a_run_that_was_pinned_before_the_begin_is_there() {
        let recording = example("2026-12-01T20:00:00Z", 1);
        assert_eq!(recording.jobs().len(), 1);
        assert_eq!(
            example("2026-12-01T21:00:00Z", 1).jobs().len(),
            0,
            "runs after the begin"
        );
    }
}
