//! The test cluster, as these tests see it.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Node, Pod},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, ListParams, LogParams,
        Patch, PatchParams, PostParams,
    },
    core::NamespaceResourceScope,
};
use openshift_upgrade_operator::{
    api::{UpgradeConfig, UpgradeJob, UpgradeJobHook, annotations, labels},
    engine::{Engine, Workflow, tekton::Tekton},
    leader::LEASE,
    openshift::{
        cluster_version::{self, ClusterVersion, Release},
        machine_config_pool::MachineConfigPool,
        node,
    },
};
use serde::{Serialize, de::DeserializeOwned};

pub use crate::wait::wait_for;
use crate::{
    SOON,
    example::{Delay, delays},
};

/// The operator's namespace, and of everything that it serves.
pub const NAMESPACE: &str = "openshift-upgrade";
/// The ConfigMap by which the simulated OpenShift is told what there is to upgrade to, and its faults.
pub const SIMULATED: &str = "simulated-openshift";

/// Which event a pod of a hook is for.
pub fn event_of(pod: &Pod) -> String {
    pod.labels().get(labels::HOOK_EVENT).cloned().unwrap_or_else(|| {
        // The label is on the Job; the pod has the environment.
        let env = pod
            .spec
            .as_ref()
            .and_then(|s| s.containers[0].env.as_ref())
            .unwrap();
        let name = env
            .iter()
            .find(|e| e.name == "EVENT_NAME")
            .and_then(|e| e.value.as_ref())
            .unwrap();
        serde_json::from_str(name).unwrap()
    })
}

/// Whether the kubelet found the pod ready.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions
        .filter(|c| c.type_ == "Ready")
        .any(|c| c.status == "True")
}

/// The test cluster. When a test fails, it tells what operator, job and workflow have to say.
pub struct Testbed {
    client: Client,
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            explain();
        }
    }
}

fn explain() {
    let commands: [&[&str]; 4] = [
        &[
            "get",
            "upgradeconfigs,upgradejobs,workflows,jobs,pods",
            "--output=wide",
        ],
        &[
            "get",
            "upgradejobs",
            "--output=yaml",
            "--show-managed-fields=false",
        ],
        &[
            "get",
            "workflows",
            "--output=jsonpath={range .items[*].status.nodes.*}{.displayName}{\"\\t\"}{.phase}{\"\\t\"}{.message}{\"\\n\"}{end}",
        ],
        &["logs", "deployment/upgrade-operator", "--tail=60"],
    ];
    for arguments in commands {
        println!("\n--- kubectl {}", arguments.join(" "));
        let said = Command::new("kubectl")
            .args(["--namespace", NAMESPACE])
            .args(arguments)
            .stdin(Stdio::null())
            .output();
        match said {
            Ok(said) => println!(
                "{}{}",
                String::from_utf8_lossy(&said.stdout),
                String::from_utf8_lossy(&said.stderr)
            ),
            Err(error) => println!("cannot run kubectl: {error}"),
        }
    }
}

impl Testbed {
    /// The cluster with nothing of an earlier test in it, and a new simulated OpenShift.
    pub async fn fresh(simulator: &[&str]) -> Self {
        // Two TLS back ends are in the graph; an error means that one was chosen already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_default()
            .await
            .expect("KUBECONFIG is not that of the test cluster: eval \"$(tests/cluster/env)\"");
        let testbed = Self { client };
        // Configs first, which would make new jobs; then jobs, whose end gives back what they hold.
        testbed
            .delete_all("UpgradeConfigs", &testbed.ours::<UpgradeConfig>())
            .await;
        testbed
            .delete_all("UpgradeJobs", &testbed.ours::<UpgradeJob>())
            .await;
        testbed
            .delete_all("UpgradeJobHooks", &testbed.ours::<UpgradeJobHook>())
            .await;
        testbed.delete_all("Workflows", &testbed.workflows()).await;
        let pipeline_runs = Api::namespaced_with(testbed.client.clone(), NAMESPACE, &Tekton.resource());
        testbed
            .delete_all::<DynamicObject>("PipelineRuns", &pipeline_runs)
            .await;
        testbed.delete_all("Jobs", &testbed.ours::<Job>()).await;
        let renew = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/renew");
        let status = Command::new(renew)
            .args(simulator)
            .stdin(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "tests/cluster/renew failed");
        testbed
    }

    fn ours<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn workflows(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Workflow");
        Api::namespaced_with(self.client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
    }

    async fn delete_all<K>(&self, kind: &str, api: &Api<K>)
    where
        K: Clone + Debug + DeserializeOwned,
    {
        api.delete_collection(&DeleteParams::background(), &ListParams::default())
            .await
            .unwrap();
        wait_for(&format!("there are no {kind}"), SOON, async || {
            let left = api.list_metadata(&ListParams::default()).await.unwrap();
            left.items.is_empty().then_some(())
        })
        .await;
    }

    /// Creates an object.
    pub async fn apply<K>(&self, object: &K)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        self.ours::<K>()
            .create(&PostParams::default(), object)
            .await
            .unwrap();
    }

    pub async fn job(&self, name: &str) -> UpgradeJob {
        self.ours().get(name).await.unwrap()
    }

    /// Lets the held pool of the example go in so many seconds; returns when that is.
    pub async fn let_go_in(&self, job: &UpgradeJob, seconds: i64) -> Timestamp {
        let start = job.spec.start_after.0.as_second();
        let due = Timestamp::now().as_second() + seconds;
        let delay = Delay {
            min: due - start,
            max: 3_600,
        };
        let config = serde_json::json!({"machineConfigPools": delays(&delay)});
        let patch = Patch::Merge(serde_json::json!({"spec": {"config": config}}));
        self.ours::<UpgradeJob>()
            .patch(&job.name_any(), &PatchParams::default(), &patch)
            .await
            .unwrap();
        Timestamp::from_second(due).unwrap()
    }

    pub async fn jobs(&self) -> Vec<UpgradeJob> {
        self.ours().list(&ListParams::default()).await.unwrap().items
    }

    /// The one UpgradeJob, as soon as there is one.
    pub async fn only_job(&self, at_most: Duration) -> UpgradeJob {
        wait_for("there is an UpgradeJob", at_most, async || {
            let mut jobs = self.jobs().await;
            assert!(jobs.len() <= 1, "one run, one job");
            jobs.pop()
        })
        .await
    }

    /// The one workflow of the upgrade itself.
    pub async fn only_workflow(&self) -> DynamicObject {
        let all = self.workflows().list(&ListParams::default()).await.unwrap();
        let mut main: Vec<_> = all
            .into_iter()
            .filter(|w| w.name_any().contains("-run-"))
            .collect();
        assert_eq!(
            main.len(),
            1,
            "{:?}",
            main.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
        );
        main.pop().unwrap()
    }

    /// A workflow of an upgrade, if there is one.
    pub async fn find_workflow(&self) -> Option<DynamicObject> {
        let all = self.workflows().list(&ListParams::default()).await.unwrap();
        all.into_iter().find(|w| w.name_any().contains("-run-"))
    }

    pub async fn cluster_version(&self) -> ClusterVersion {
        Api::all(self.client.clone())
            .get(cluster_version::NAME)
            .await
            .unwrap()
    }

    /// An offered release.
    pub async fn offered(&self, version: &str) -> Release {
        wait_for(&format!("{version} is offered"), SOON, async || {
            let offers = self.cluster_version().await.status?.available_updates?;
            offers.into_iter().find(|r| r.version == version)
        })
        .await
    }

    /// Switches a fault of the simulator on, or off with an empty text. A new simulated OpenShift has none.
    pub async fn fault(&self, name: &str, text: &str) {
        let value = Some(text).filter(|t| !t.is_empty());
        let patch = Patch::Merge(serde_json::json!({"data": {name: value}}));
        self.ours::<ConfigMap>()
            .patch(SIMULATED, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub async fn pool(&self, name: &str) -> MachineConfigPool {
        Api::all(self.client.clone()).get(name).await.unwrap()
    }

    /// What the nodes of a pool run, and whether they are cordoned.
    pub async fn configs_of_nodes(
        &self,
        pool: &str,
    ) -> BTreeMap<String, (Option<String>, Option<String>, bool)> {
        let with_role = ListParams::default().labels(&format!("node-role.kubernetes.io/{pool}"));
        let nodes = Api::<Node>::all(self.client.clone())
            .list(&with_role)
            .await
            .unwrap();
        let describe = |node: Node| {
            let annotation = |key| node.annotations().get(key).cloned();
            let configs = (annotation(node::CURRENT_CONFIG), annotation(node::DESIRED_CONFIG));
            let cordoned = node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false);
            (node.name_any(), (configs.0, configs.1, cordoned))
        };
        nodes.into_iter().map(describe).collect()
    }

    /// The release is installed, and every pool runs it.
    pub async fn assert_installed(&self, version: &str) {
        let cluster = self.cluster_version().await;
        let newest = cluster.newest().unwrap();
        assert_eq!((newest.version.as_str(), newest.is_completed()), (version, true));
        for pool in Api::<MachineConfigPool>::all(self.client.clone())
            .list(&ListParams::default())
            .await
            .unwrap()
        {
            let (wanted, state) = (&pool.spec.configuration.name, pool.state());
            assert_eq!(&state.configuration.name, wanted, "pool {}", pool.name_any());
            assert_eq!(
                state.updated_machine_count,
                state.machine_count,
                "pool {}",
                pool.name_any()
            );
        }
    }

    /// No lock, no pause, no finalizer.
    pub async fn assert_nothing_is_held(&self) {
        let lock: Vec<_> = [annotations::UPGRADE_JOB, annotations::UPGRADE_JOB_UID].to_vec();
        let cluster = self.cluster_version().await;
        assert!(
            lock.iter().all(|a| !cluster.annotations().contains_key(*a)),
            "{:?}",
            cluster.annotations()
        );
        for pool in Api::<MachineConfigPool>::all(self.client.clone())
            .list(&ListParams::default())
            .await
            .unwrap()
        {
            assert!(!pool.spec.paused, "pool {} is paused", pool.name_any());
            assert!(
                lock.iter().all(|a| !pool.annotations().contains_key(*a)),
                "{:?}",
                pool.annotations()
            );
        }
        for job in self.jobs().await {
            assert!(
                job.finalizers().is_empty(),
                "{}: {:?}",
                job.name_any(),
                job.finalizers()
            );
        }
        // The operator lets go of a hook's Job once its end is on record.
        wait_for("the hooks' Jobs have no finalizer", SOON, async || {
            let jobs = self.ours::<Job>().list(&ListParams::default()).await.unwrap();
            jobs.iter().all(|j| j.finalizers().is_empty()).then_some(())
        })
        .await;
    }

    /// Deletes the Job of a hook, as a person does.
    pub async fn delete_hook_job(&self, hook: &str) {
        let of_hook = ListParams::default().labels(&format!("{}={hook}", labels::HOOK));
        let jobs = self.ours::<Job>().list(&of_hook).await.unwrap().items;
        assert_eq!(jobs.len(), 1, "Jobs of hook {hook}");
        let deletion = DeleteParams::background();
        self.ours::<Job>()
            .delete(&jobs[0].name_any(), &deletion)
            .await
            .unwrap();
    }

    /// Pods of hooks.
    pub async fn hook_pods(&self) -> Vec<Pod> {
        let of_jobs = ListParams::default().labels("batch.kubernetes.io/job-name");
        self.ours::<Pod>().list(&of_jobs).await.unwrap().items
    }

    /// Pods of workflows.
    pub async fn workflow_pods(&self) -> Vec<Pod> {
        let of_workflows = ListParams::default().labels("workflows.argoproj.io/workflow");
        self.ours::<Pod>().list(&of_workflows).await.unwrap().items
    }

    /// Evicts a pod as a drain does.
    pub async fn evict(&self, pod: &Pod) {
        let api = self.ours::<Pod>();
        api.evict(&pod.name_any(), &EvictParams::default()).await.unwrap();
        println!("pod {} is evicted", pod.name_any());
    }

    /// Deletes a pod, with a grace period in seconds other than its own.
    pub async fn delete_pod(&self, pod: &Pod, grace_period: Option<u32>) {
        let how = DeleteParams {
            grace_period_seconds: grace_period,
            ..DeleteParams::default()
        };
        self.ours::<Pod>().delete(&pod.name_any(), &how).await.unwrap();
        println!("pod {} is deleted", pod.name_any());
    }

    /// Pods of TaskRuns.
    pub async fn task_run_pods(&self) -> Vec<Pod> {
        let of_task_runs = ListParams::default().labels("tekton.dev/taskRun");
        self.ours::<Pod>().list(&of_task_runs).await.unwrap().items
    }

    /// A PipelineRun, with its CustomRuns.
    pub async fn pipeline_run(&self, name: &str) -> Workflow {
        let api = |kind: &ApiResource| -> Api<DynamicObject> {
            Api::namespaced_with(self.client.clone(), NAMESPACE, kind)
        };
        let object = api(&Tekton.resource()).get(name).await.unwrap();
        let of_run = ListParams::default().labels(&format!("tekton.dev/pipelineRun={name}"));
        let steps = api(&Tekton.step_resource().unwrap());
        let steps = steps.list(&of_run).await.unwrap().items;
        Workflow { object, steps }
    }

    /// Creates an object such as a WorkflowTemplate, a Task or one of the cluster, in place of an earlier one of its name.
    pub async fn create_object(&self, object: &serde_json::Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
        let kind = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        };
        // An error says that there is none.
        let _ = api.delete(&object.name_any(), &DeleteParams::default()).await;
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    pub async fn log(&self, pod: &Pod) -> String {
        // The first container of a hook's Job, and that of a workflow which is the hook.
        let main = pod
            .spec
            .iter()
            .flat_map(|s| &s.containers)
            .find(|c| c.name == "main");
        let container = LogParams {
            container: main.map(|c| c.name.clone()),
            ..LogParams::default()
        };
        self.ours::<Pod>()
            .logs(&pod.name_any(), &container)
            .await
            .unwrap()
    }

    /// The operator's pods, also those that are about to go.
    pub async fn operator_pods(&self) -> Vec<Pod> {
        let ours = ListParams::default().labels("app.kubernetes.io/name=upgrade-operator");
        self.ours::<Pod>().list(&ours).await.unwrap().items
    }

    /// Deletes a pod of the operator, as in a rollout: it may end in order.
    pub async fn delete_operator_pod(&self, name: &str) {
        let api = self.ours::<Pod>();
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The process that holds the operator's Lease.
    pub async fn leader(&self) -> Option<String> {
        let lease = self.ours::<Lease>().get(LEASE).await.unwrap();
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }

    /// How often the operator's container was started again.
    pub async fn operator_restarts(&self) -> i32 {
        let pods = self.operator_pods().await;
        assert_eq!(pods.len(), 1, "the operator has one pod");
        pods[0]
            .status
            .as_ref()
            .and_then(|s| s.container_statuses.as_ref())
            .unwrap()[0]
            .restart_count
    }
}
