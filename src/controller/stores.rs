//! The copies of everything that decisions rest on, and the snapshot made from them.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Node};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject},
    core::{DeserializeGuard, PartialObjectMeta, error_boundary::InvalidObject},
    runtime::watcher,
};
use tokio::{sync::Notify, task::JoinSet};

use super::{
    live,
    mirror::{self, Knowledge, Mirror, watch},
    node_force_drain::Counts,
    requests::Requests,
    standing::Standing,
};
use crate::{
    api::{
        NodeForceDrain, UpgradeConfig, UpgradeJob, UpgradeJobHook, UpgradeSuspensionWindow,
        cluster_version::ClusterVersion as ManagedClusterVersion, job_config::EngineChoice, labels, validity,
    },
    engine::{self, Engine, Installed, Workflow},
    hooks::task_run::{self, TaskRun},
    metrics::Family,
    openshift::{
        cluster_operator::ClusterOperator,
        cluster_version::{self, ClusterVersion},
        infrastructure::Infrastructure,
        machine::{self, MachineView},
        machine_config::{self, MachineConfig},
        machine_config_pool::MachineConfigPool,
        node::NodeView,
    },
    outside::Outside,
    settings::Settings,
    unreadable::{Kind, Unreadable},
    world::World,
};

/// So many deleted workflows of an engine are remembered. A job follows one at a time, and looks at once.
const DEPARTED_WORKFLOWS: usize = 16;
/// A copy that a watch is about to change is looked at so often.
const WATCH_LOOK: Duration = Duration::from_millis(50);

/// Of one of our kinds, with what does not parse.
type Ours<K> = Mirror<Result<K, Unreadable>>;

/// The copies of everything that decisions rest on.
#[derive(Clone, Default)]
pub struct Stores {
    pub(super) cluster_versions: Mirror<ClusterVersion>,
    operators: Mirror<ClusterOperator>,
    pub(super) pools: Mirror<MachineConfigPool>,
    rendered: Mirror<(String, String)>,
    nodes: Mirror<NodeView>,
    managed_versions: Ours<ManagedClusterVersion>,
    configs: Ours<UpgradeConfig>,
    jobs: Ours<UpgradeJob>,
    hooks: Ours<UpgradeJobHook>,
    windows: Ours<UpgradeSuspensionWindow>,
    hook_jobs: Mirror<Job>,
    pub(super) task_runs: Mirror<TaskRun>,
    force_drains: Ours<NodeForceDrain>,
    pub(super) forced: Counts,
    pub(super) requests: Requests,
    pub(super) standing: Standing,
    machines: Mirror<MachineView>,
    topology: Mirror<String>,
    argo: EngineObjects,
    tekton: EngineObjects,
}

/// The objects of an engine that belong to our jobs.
#[derive(Clone)]
struct EngineObjects {
    workflows: Mirror<DynamicObject>,
    /// Those of their steps, where the engine makes such.
    steps: Mirror<DynamicObject>,
}

impl Default for EngineObjects {
    fn default() -> Self {
        Self {
            workflows: Mirror::with_departed(DEPARTED_WORKFLOWS),
            steps: Mirror::default(),
        }
    }
}

impl EngineObjects {
    /// The mirrors of an engine with the kinds that they are of.
    fn kinds(&self, engine: &dyn Engine) -> Vec<(ApiResource, Mirror<DynamicObject>)> {
        let steps = engine.step_resource().map(|kind| (kind, self.steps.clone()));
        let workflows = (engine.resource(), self.workflows.clone());
        std::iter::once(workflows).chain(steps).collect()
    }

    /// A workflow of the engine with its steps.
    fn with_steps(&self, engine: &dyn Engine, object: DynamicObject) -> Workflow {
        let name = object.name_any();
        let of_workflow = |step: &DynamicObject| {
            let label = engine.step_label();
            label.is_some_and(|label| step.labels().get(label) == Some(&name))
        };
        let steps = self.steps.matching(of_workflow);
        Workflow { object, steps }
    }
}

/// One constructor for all watch configurations.
pub(super) fn watch_config(settings: &Settings) -> mirror::Config {
    let seconds = u32::try_from(settings.watch_timeout.as_secs()).unwrap_or(290);
    mirror::Config {
        // Whole pages are parsed before they are stripped, so small ones keep the peak low.
        watch: watcher::Config::default().timeout(seconds).page_size(50),
        absent_kind_poll: Duration::try_from(settings.absent_kind_poll).unwrap_or_default(),
        is_optional: false,
    }
}

/// The object, without the lists of who wrote which field: they are large, and nothing is decided by them.
fn without_managers<K: kube::Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// A stored object that does not parse must not stall the others.
pub(super) fn parsed<K: kube::Resource<DynamicType = ()>>(
    guard: DeserializeGuard<K>,
) -> Option<Result<K, Unreadable>> {
    match guard.0 {
        Ok(object) => Some(Ok(without_managers(object))),
        Err(InvalidObject { error, mut metadata }) => {
            metadata.managed_fields = None;
            let kind = Kind::of::<K>()?;
            Some(Err(Unreadable {
                kind,
                metadata,
                problem: error,
            }))
        }
    }
}

/// Said once a change, by the copies.
fn watched<K: kube::Resource<DynamicType = ()>>(guard: DeserializeGuard<K>) -> Option<Result<K, Unreadable>> {
    let parsed = parsed(guard);
    if let Some(Err(Unreadable {
        kind,
        metadata,
        problem,
    })) = &parsed
    {
        let name = metadata.name.as_deref().unwrap_or_default();
        tracing::error!(?kind, name, problem, "cannot read a stored object");
    }
    parsed
}

/// Those that parse; the others go to `unreadable`.
pub(super) fn readable<K>(
    all: impl IntoIterator<Item = Result<K, Unreadable>>,
    unreadable: &mut Vec<Unreadable>,
) -> Vec<K> {
    let mut read = Vec::new();
    for object in all {
        match object {
            Ok(object) => read.push(object),
            Err(object) => unreadable.push(object),
        }
    }
    read
}

impl Stores {
    /// Starts all watches in `tasks`; `changed` is notified after every change.
    pub fn start(
        &self,
        client: &Client,
        settings: &Settings,
        changed: &Arc<Notify>,
        tasks: &mut JoinSet<()>,
    ) {
        let stores = self;
        let namespace = &settings.namespace;
        let config = || watch_config(settings);
        let c = || client.clone();
        let n = || Arc::clone(changed);
        macro_rules! ours {
            ($kind:ty, $mirror:ident) => {
                let api = Api::<DeserializeGuard<$kind>>::namespaced(c(), namespace);
                tasks.spawn(watch(api, config(), stores.$mirror.clone(), n(), watched));
            };
        }
        ours!(ManagedClusterVersion, managed_versions);
        ours!(NodeForceDrain, force_drains);
        ours!(UpgradeConfig, configs);
        ours!(UpgradeJob, jobs);
        ours!(UpgradeJobHook, hooks);
        ours!(UpgradeSuspensionWindow, windows);

        let only_version = config().fields(&format!("metadata.name={}", cluster_version::NAME));
        tasks.spawn(watch(
            Api::all(c()),
            only_version,
            stores.cluster_versions.clone(),
            n(),
            |o| Some(without_managers(o)),
        ));
        tasks.spawn(watch(
            Api::all(c()),
            config(),
            stores.operators.clone(),
            n(),
            |o| Some(without_managers(o)),
        ));
        let pool = |o: MachineConfigPool| Some(o.with_times_of_pause());
        tasks.spawn(watch(Api::all(c()), config(), stores.pools.clone(), n(), pool));
        let rendered = |o: PartialObjectMeta<MachineConfig>| {
            let release = o.annotations().get(machine_config::RELEASE_VERSION)?.clone();
            Some((o.name_any(), release))
        };
        tasks.spawn(watch(
            Api::all(c()),
            config(),
            stores.rendered.clone(),
            n(),
            rendered,
        ));
        let topology = |o: Infrastructure| o.status.map(|s| s.control_plane_topology);
        tasks.spawn(watch(
            Api::all(c()),
            config(),
            stores.topology.clone(),
            n(),
            topology,
        ));
        let node = |o: Node| Some(NodeView::from(&o));
        tasks.spawn(watch(Api::all(c()), config(), stores.nodes.clone(), n(), node));
        let of_hooks = config().labels(labels::HOOK_JOB);
        let jobs = Api::namespaced(c(), namespace);
        tasks.spawn(watch(jobs, of_hooks, stores.hook_jobs.clone(), n(), |o| {
            Some(without_managers(o))
        }));
        self.start_optional(client, settings, changed, tasks);
    }

    /// Watches kinds that the operator can do without.
    fn start_optional(
        &self,
        client: &Client,
        settings: &Settings,
        changed: &Arc<Notify>,
        tasks: &mut JoinSet<()>,
    ) {
        let namespace = &settings.namespace;
        let config = || watch_config(settings).optional();
        let c = || client.clone();
        let n = || Arc::clone(changed);
        let machines = Api::namespaced_with(c(), machine::NAMESPACE, &machine::resource());
        let view = |o: DynamicObject| Some(MachineView::from(&o));
        tasks.spawn(watch(machines, config(), self.machines.clone(), n(), view));
        let of_hooks = config().labels(labels::HOOK_JOB);
        let task_runs = Api::namespaced_with(c(), namespace, &task_run::resource());
        let view = |o: DynamicObject| Some(TaskRun::from(o));
        tasks.spawn(watch(task_runs, of_hooks, self.task_runs.clone(), n(), view));
        for (kind, mirror) in self.engine_kinds() {
            let of_jobs = config().labels(labels::UPGRADE_JOB_UID);
            let api = Api::namespaced_with(c(), namespace, &kind);
            tasks.spawn(watch(api, of_jobs, mirror, n(), |o| Some(without_managers(o))));
        }
    }

    fn engine_objects(&self, engine: EngineChoice) -> Option<&EngineObjects> {
        match engine {
            EngineChoice::Argo => Some(&self.argo),
            EngineChoice::Tekton => Some(&self.tekton),
            EngineChoice::Embedded | EngineChoice::Auto => None,
        }
    }

    /// The kinds of an engine, with their mirrors; the operator itself needs none.
    fn kinds_of(&self, choice: EngineChoice) -> Vec<(ApiResource, Mirror<DynamicObject>)> {
        let engine = engine::of(choice).zip(self.engine_objects(choice));
        engine.map_or_else(Vec::new, |(engine, objects)| objects.kinds(engine))
    }

    /// All kinds of all engines, with their mirrors.
    fn engine_kinds(&self) -> Vec<(ApiResource, Mirror<DynamicObject>)> {
        let engines = [EngineChoice::Argo, EngineChoice::Tekton];
        engines
            .into_iter()
            .flat_map(|choice| self.kinds_of(choice))
            .collect()
    }

    /// Which engines there are: those whose kinds can all be watched.
    pub fn installed(&self) -> Installed {
        let is_known = |choice: EngineChoice| {
            let kinds = self.kinds_of(choice);
            !kinds.is_empty() && kinds.iter().all(|(_, mirror)| mirror.is_there())
        };
        Installed {
            argo: is_known(EngineChoice::Argo),
            tekton: is_known(EngineChoice::Tekton),
        }
    }

    /// Whether there may be MachineConfigPools to be read: unless the API server has said for long enough that it has no such
    /// kind, not to be told of them is an error. One that is starting says so for a moment.
    pub(super) fn may_have_pools(&self) -> bool {
        self.pools.knowledge() != Knowledge::NoSuchKind || self.pools.may_be_starting()
    }

    /// Whether there are TaskRuns to be read: a Tekton that was taken away must not keep everything else from being read.
    pub(super) fn has_task_runs(&self) -> bool {
        self.task_runs.is_there()
    }

    /// Whether it is too early to believe that an engine is not there: an API server that is starting says so for a moment, and
    /// a job that has begun on it would be torn from its workflow and its hooks.
    pub(super) fn may_be_starting(&self, engine: EngineChoice) -> bool {
        let kinds = self.kinds_of(engine);
        kinds.iter().any(|(_, mirror)| mirror.may_be_starting())
            || (engine == EngineChoice::Tekton && self.task_runs.may_be_starting())
    }

    /// Whether an engine was there, and it is too early to believe that it is not any more. No job begins on such a one.
    pub(super) fn may_be_gone(&self, engine: EngineChoice) -> bool {
        let kinds = self.kinds_of(engine);
        kinds.iter().any(|(_, mirror)| mirror.may_be_gone())
    }

    /// The same of any engine.
    pub(super) fn may_any_be_gone(&self) -> bool {
        self.engine_kinds().iter().any(|(_, mirror)| mirror.may_be_gone())
    }

    /// Notes that an engine was not found, for who has read one of its kinds. If it is there, that is known in a moment.
    pub(super) fn not_found(&self, engine: EngineChoice) {
        for (_, mirror) in self.kinds_of(engine) {
            mirror.not_found();
        }
    }

    /// The same of TaskRuns.
    pub(super) fn task_runs_not_found(&self) {
        self.task_runs.not_found();
    }

    /// Whether the API server has a kind of an engine not at this moment; then the engine may be gone from now on. Any other
    /// answer, or none, is no reason to wait: jobs do not depend on the life of their engine.
    pub(super) async fn misses(&self, client: &Client, namespace: &str, engine: EngineChoice) -> bool {
        for (kind, mirror) in self.kinds_of(engine) {
            let attempt = format!("see whether there are {}", kind.plural);
            let api = Api::namespaced_with(client.clone(), namespace, &kind);
            match live::is_there(attempt, &api).await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::info!(
                        kind = kind.kind,
                        "the API server does not have this kind any more; looking again until that is certain"
                    );
                    mirror.not_found();
                    return true;
                }
                Err(error) => tracing::warn!(%error, "not knowing better, the engine counts as there"),
            }
        }
        false
    }

    /// The first kind that is not known yet, or that must be there and is not; `None` when decisions can be made.
    pub fn not_ready(&self) -> Option<String> {
        let missing = self
            .needed()
            .into_iter()
            .filter(|(_, knowledge)| *knowledge == Knowledge::NoSuchKind);
        let missing = missing.map(|(kind, _)| format!("the CustomResourceDefinition of {kind} is missing"));
        missing.chain(self.not_listed()).next()
    }

    /// The first kind of which it is not known yet what there is, or that there is no such kind.
    pub(super) fn not_listed(&self) -> Option<String> {
        let optional = [
            ("ClusterOperator", self.operators.knowledge()),
            ("MachineConfigPool", self.pools.knowledge()),
            ("MachineConfig", self.rendered.knowledge()),
            ("Infrastructure", self.topology.knowledge()),
            ("TaskRun", self.task_runs.knowledge()),
            ("NodeForceDrain", self.force_drains.knowledge()),
        ];
        let of_engines = self.engine_kinds();
        let of_engines = of_engines
            .iter()
            .map(|(kind, mirror)| (kind.kind.as_str(), mirror.knowledge()));
        let mut all = self.needed().into_iter().chain(optional).chain(of_engines);
        all.find(|(_, knowledge)| *knowledge == Knowledge::Unknown)
            .map(|(kind, _)| format!("{kind} is not listed yet"))
    }

    /// What is known of the kinds without which nothing can be decided.
    fn needed(&self) -> Vec<(&'static str, Knowledge)> {
        let others = [
            (
                "ClusterVersion (config.openshift.io)",
                self.cluster_versions.knowledge(),
            ),
            ("Job", self.hook_jobs.knowledge()),
            ("Node", self.nodes.knowledge()),
        ];
        self.ours().into_iter().chain(others).collect()
    }

    /// Those of them that are ours.
    fn ours(&self) -> [(&'static str, Knowledge); 5] {
        [
            (
                "ClusterVersion (managedupgrade.appuio.io)",
                self.managed_versions.knowledge(),
            ),
            ("UpgradeConfig", self.configs.knowledge()),
            ("UpgradeJob", self.jobs.knowledge()),
            ("UpgradeJobHook", self.hooks.knowledge()),
            ("UpgradeSuspensionWindow", self.windows.knowledge()),
        ]
    }

    /// A snapshot of the cluster's objects; workflows are read one by one, see [`Stores::workflow`].
    pub fn world(&self) -> World {
        let mut unreadable = Vec::new();
        let managed_versions = readable(self.managed_versions.all(), &mut unreadable);
        let configs = readable(self.configs.all(), &mut unreadable);
        let jobs = readable(self.jobs.all(), &mut unreadable);
        let hooks = readable(self.hooks.all(), &mut unreadable);
        let windows = readable(self.windows.all(), &mut unreadable);
        readable(self.force_drains.all(), &mut unreadable);
        World {
            cluster_version: self.cluster_versions.get(cluster_version::NAME),
            operators: self.operators.all(),
            pools: self.pools.all(),
            rendered: self.rendered.all().into_iter().collect(),
            nodes: self.nodes.all(),
            managed_versions,
            configs,
            jobs,
            unreadable,
            hooks,
            windows,
            hook_jobs: self.hook_jobs.all(),
            hook_task_runs: self.task_runs.all(),
            control_plane_topology: self.topology.all().into_iter().next(),
            outside: Outside::default(),
        }
    }

    /// What `/metrics` tells at `now`, of them and of this process.
    ///
    /// Of the cluster nothing is told before what the series rest on is listed: a config without its jobs is one that never
    /// succeeded. Any other kind that cannot be listed hides nothing, or alerts that fire would end by it.
    pub fn metrics(&self, now: Timestamp) -> Vec<Family> {
        let empty = Self::default();
        let told = if self.is_told_of() { self } else { &empty };
        let world = told.world();
        let mut all = self.standing.metrics(self.not_ready().is_some());
        all.extend(validity::metrics(&world, &told.force_drains(), now));
        all.extend(world.metrics(now));
        all.extend(engine::metrics(self.installed()));
        all.extend(self.forced.metrics());
        all.extend(machine::metrics(told.machines.all()));
        all.extend(self.requests.metrics());
        all
    }

    /// Whether all is listed that the series about the cluster rest on.
    fn is_told_of(&self) -> bool {
        let ours = self.ours().into_iter().map(|(_, knowledge)| knowledge);
        let besides = [
            self.force_drains.knowledge(),
            self.cluster_versions.knowledge(),
            self.pools.knowledge(),
        ];
        ours.chain(besides)
            .all(|knowledge| knowledge != Knowledge::Unknown)
    }

    /// Empty, of a process that has asked and deleted something.
    #[cfg(test)]
    pub(crate) fn at_work() -> Self {
        let stores = Self::default();
        let uri = http::Uri::from_static("/api/v1/nodes");
        stores
            .requests
            .note(&http::Method::GET, &uri, http::StatusCode::OK);
        for stage in [
            crate::force_drain::Stage::Delete,
            crate::force_drain::Stage::Terminate,
        ] {
            stores
                .forced
                .add(stage, ["drain", "w-8", "shop"].map(str::to_owned));
        }
        stores
    }

    /// The NodeForceDrains that can be read.
    pub(super) fn force_drains(&self) -> Vec<NodeForceDrain> {
        readable(self.force_drains.all(), &mut Vec::new())
    }

    /// The workflows of an engine of which this holds, each with the engine.
    pub fn matching_workflows(
        &self,
        choice: EngineChoice,
        holds: impl Fn(&DynamicObject) -> bool,
    ) -> Vec<(&'static dyn Engine, Workflow)> {
        let engine = engine::of(choice).zip(self.engine_objects(choice));
        let Some((engine, objects)) = engine else {
            return Vec::new();
        };
        let found = objects.workflows.matching(holds).into_iter();
        found
            .map(|object| (engine, objects.with_steps(engine, object)))
            .collect()
    }

    /// What was last seen of a workflow of this name that was deleted.
    pub fn last_of_workflow(&self, engine: EngineChoice, name: &str) -> Option<Workflow> {
        let objects = self.engine_objects(engine)?;
        let object = objects.workflows.last_seen(name)?;
        Some(objects.with_steps(engine::of(engine)?, object))
    }

    /// The workflow of this name.
    pub fn workflow(&self, engine: EngineChoice, name: &str) -> Option<Workflow> {
        let objects = self.engine_objects(engine)?;
        let object = objects.workflows.get(name)?;
        Some(objects.with_steps(engine::of(engine)?, object))
    }

    /// Waits until the watch, too, shows that there is no workflow of this name; for as long as the caller has patience.
    pub async fn until_workflow_is_gone(&self, engine: EngineChoice, name: &str) {
        while self.workflow(engine, name).is_some() {
            tokio::time::sleep(WATCH_LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::metrics::told;

    /// Everything is listed but UpgradeJobs; there is one config.
    fn without_jobs() -> Stores {
        let stores = Stores::default();
        stores.cluster_versions.list([]);
        stores.operators.list([]);
        stores.pools.list([]);
        stores.rendered.list([]);
        stores.nodes.list([]);
        stores.managed_versions.list([]);
        stores.hooks.list([]);
        stores.windows.list([]);
        stores.hook_jobs.list([]);
        stores.task_runs.list([]);
        stores.force_drains.list([]);
        stores.topology.list([]);
        for (_, mirror) in stores.engine_kinds() {
            mirror.list([]);
        }
        let config: UpgradeConfig = serde_json::from_value(json!({
            "metadata": {"name": "weekly", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"schedule": {"cron": "0 22 * * 2"}, "jobTemplate": {"spec": {}}},
        }))
        .unwrap();
        stores.configs.list([("weekly".to_owned(), Ok(config))]);
        stores
    }

    fn is_told(stores: &Stores) -> bool {
        let lines = told(&stores.metrics("2026-11-24T21:30:00Z".parse().unwrap()));
        let created = "upgradeconfig_created_timestamp_seconds weekly 1767225600";
        lines.iter().any(|line| line == created)
    }

    /// Otherwise a start of the operator would look as if nothing had ever succeeded.
    #[test]
    fn nothing_is_told_of_the_cluster_before_it_is_listed() {
        let stores = without_jobs();
        assert_eq!(
            stores.not_listed(),
            Some("UpgradeJob is not listed yet".to_owned())
        );
        assert!(!is_told(&stores));
        stores.jobs.list([]);
        assert_eq!(stores.not_listed(), None);
        assert!(is_told(&stores));
    }

    /// Such as an engine whose conversion webhook is broken: it must not end the alerts about everything else.
    #[test]
    fn a_kind_beside_that_cannot_be_listed_hides_nothing() {
        let mut stores = without_jobs();
        stores.jobs.list([]);
        stores.task_runs = Mirror::default();
        stores.tekton = EngineObjects::default();
        stores.operators = Mirror::default();
        assert!(stores.not_listed().is_some());
        assert!(is_told(&stores));
    }

    /// A pool that is left paused is told by jobs and pools together, what is valid by each kind of ours.
    #[test]
    fn what_series_rest_on_is_waited_for() {
        for hide in [
            |stores: &mut Stores| stores.pools = Mirror::default(),
            |stores: &mut Stores| stores.cluster_versions = Mirror::default(),
            |stores: &mut Stores| stores.force_drains = Mirror::default(),
            |stores: &mut Stores| stores.hooks = Mirror::default(),
        ] {
            let mut stores = without_jobs();
            stores.jobs.list([]);
            hide(&mut stores);
            assert!(!is_told(&stores), "{:?}", stores.not_listed());
        }
    }
}
