//! Which kinds the server has.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::{built_in::BuiltIn, schema::Schema};

/// A kind's place in URLs. The version is not part of it: every kind is served in one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// Group, empty for the core.
    pub group: String,
    /// Plural.
    pub plural: String,
}

/// As messages name it.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// What the server knows of the contents of objects of a kind.
#[derive(Clone, Debug)]
pub enum Model {
    /// A kind of Kubernetes' own.
    BuiltIn(BuiltIn),
    /// A kind of a CustomResourceDefinition, with its schema.
    Custom(Arc<Schema>),
    /// A kind of a CustomResourceDefinition whose schema is not at hand: objects are taken as they are.
    Unchecked,
}

/// What the server knows of a kind.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Version.
    pub version: String,
    /// Kind.
    pub name: String,
    /// Whether its objects have a namespace.
    pub is_namespaced: bool,
    /// Whether the status is a subresource.
    pub has_status: bool,
    /// What its objects contain.
    pub model: Model,
}

impl Kind {
    /// What a built-in kind does in its own way.
    pub fn built_in(&self) -> Option<&BuiltIn> {
        match &self.model {
            Model::BuiltIn(built_in) => Some(built_in),
            Model::Custom(_) | Model::Unchecked => None,
        }
    }

    /// Whether its objects count their generations.
    pub fn has_generation(&self) -> bool {
        self.built_in().is_none_or(|b| b.has_generation)
    }

    /// `apiVersion` of an object.
    pub fn api_version(&self, resource: &Resource) -> String {
        if resource.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", resource.group, self.version)
        }
    }
}

/// Whether objects of a built-in kind have a namespace, and whether their status is a subresource.
#[derive(Clone, Copy)]
enum Shape {
    Namespaced,
    NamespacedWithStatus,
    Cluster,
    ClusterWithStatus,
}

/// Kubernetes' own kinds, as far as our programs and the manifests of a GitOps repository use them, and those of OpenShift and
/// others. The latter are taken without a schema, for theirs would have to be copied from elsewhere.
const FOREIGN: [(&str, &str, &str, &str, Shape); 30] = [
    ("", "v1", "ConfigMap", "configmaps", Shape::Namespaced),
    ("", "v1", "Secret", "secrets", Shape::Namespaced),
    ("", "v1", "Service", "services", Shape::NamespacedWithStatus),
    ("", "v1", "ServiceAccount", "serviceaccounts", Shape::Namespaced),
    ("", "v1", "Pod", "pods", Shape::NamespacedWithStatus),
    ("", "v1", "Namespace", "namespaces", Shape::ClusterWithStatus),
    ("", "v1", "Node", "nodes", Shape::ClusterWithStatus),
    (
        "apps",
        "v1",
        "Deployment",
        "deployments",
        Shape::NamespacedWithStatus,
    ),
    ("batch", "v1", "Job", "jobs", Shape::NamespacedWithStatus),
    ("batch", "v1", "CronJob", "cronjobs", Shape::NamespacedWithStatus),
    ("coordination.k8s.io", "v1", "Lease", "leases", Shape::Namespaced),
    ("events.k8s.io", "v1", "Event", "events", Shape::Namespaced),
    (
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        Shape::NamespacedWithStatus,
    ),
    (
        "networking.k8s.io",
        "v1",
        "NetworkPolicy",
        "networkpolicies",
        Shape::Namespaced,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "Role",
        "roles",
        Shape::Namespaced,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
        "rolebindings",
        Shape::Namespaced,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRole",
        "clusterroles",
        Shape::Cluster,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        Shape::Cluster,
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        Shape::ClusterWithStatus,
    ),
    (
        "config.openshift.io",
        "v1",
        "ClusterVersion",
        "clusterversions",
        Shape::ClusterWithStatus,
    ),
    (
        "config.openshift.io",
        "v1",
        "ClusterOperator",
        "clusteroperators",
        Shape::ClusterWithStatus,
    ),
    (
        "config.openshift.io",
        "v1",
        "Infrastructure",
        "infrastructures",
        Shape::ClusterWithStatus,
    ),
    (
        "machineconfiguration.openshift.io",
        "v1",
        "MachineConfigPool",
        "machineconfigpools",
        Shape::ClusterWithStatus,
    ),
    (
        "machineconfiguration.openshift.io",
        "v1",
        "MachineConfig",
        "machineconfigs",
        Shape::Cluster,
    ),
    (
        "machine.openshift.io",
        "v1beta1",
        "MachineSet",
        "machinesets",
        Shape::NamespacedWithStatus,
    ),
    (
        "monitoring.coreos.com",
        "v1",
        "PrometheusRule",
        "prometheusrules",
        Shape::Namespaced,
    ),
    (
        "monitoring.coreos.com",
        "v1",
        "ServiceMonitor",
        "servicemonitors",
        Shape::Namespaced,
    ),
    (
        "operator.openshift.io",
        "v1",
        "Etcd",
        "etcds",
        Shape::ClusterWithStatus,
    ),
    (
        "argoproj.io",
        "v1alpha1",
        "WorkflowTemplate",
        "workflowtemplates",
        Shape::Namespaced,
    ),
    (
        "argoproj.io",
        "v1alpha1",
        "ClusterWorkflowTemplate",
        "clusterworkflowtemplates",
        Shape::Cluster,
    ),
];

/// The kinds that a server has, with their schemas compiled. Clones share them.
#[derive(Clone, Debug)]
pub struct Kinds(BTreeMap<Resource, Kind>);

/// Compiling takes longer than many a simulation.
static OURS: LazyLock<Kinds> = LazyLock::new(|| Kinds::new(&crate::api::crds()));

impl Kinds {
    /// Kubernetes' and OpenShift's kinds, and those of `crds`.
    pub fn new(crds: &[CustomResourceDefinition]) -> Self {
        let mut all = foreign();
        all.extend(crds.iter().filter_map(of_crd));
        Self(all)
    }

    /// Those of a cluster with our operator, compiled once a process.
    pub fn ours() -> Self {
        OURS.clone()
    }

    /// And that of this definition.
    #[must_use]
    pub fn and(mut self, crd: &CustomResourceDefinition) -> Self {
        self.0.extend(of_crd(crd));
        self
    }

    /// By resource.
    pub fn all(&self) -> &BTreeMap<Resource, Kind> {
        &self.0
    }
}

fn foreign() -> BTreeMap<Resource, Kind> {
    FOREIGN
        .iter()
        .map(|(group, version, kind, plural, shape)| {
            let (is_namespaced, has_status) = match shape {
                Shape::Namespaced => (true, false),
                Shape::NamespacedWithStatus => (true, true),
                Shape::Cluster => (false, false),
                Shape::ClusterWithStatus => (false, true),
            };
            let resource = Resource {
                group: (*group).to_owned(),
                plural: (*plural).to_owned(),
            };
            let kind = Kind {
                version: (*version).to_owned(),
                name: (*kind).to_owned(),
                is_namespaced,
                has_status,
                model: BuiltIn::of(group, kind).map_or(Model::Unchecked, Model::BuiltIn),
            };
            (resource, kind)
        })
        .collect()
}

/// The kind of a CustomResourceDefinition; `None` if it serves no version.
fn of_crd(crd: &CustomResourceDefinition) -> Option<(Resource, Kind)> {
    let version = crd.spec.versions.iter().find(|v| v.served)?;
    let resource = Resource {
        group: crd.spec.group.clone(),
        plural: crd.spec.names.plural.clone(),
    };
    let kind = Kind {
        version: version.name.clone(),
        name: crd.spec.names.kind.clone(),
        is_namespaced: crd.spec.scope == "Namespaced",
        has_status: version.subresources.as_ref().is_some_and(|s| s.status.is_some()),
        model: match version
            .schema
            .as_ref()
            .and_then(|s| s.open_api_v3_schema.as_ref())
        {
            Some(schema) => Model::Custom(Arc::new(Schema::new(schema))),
            None => Model::Unchecked,
        },
    };
    Some((resource, kind))
}
