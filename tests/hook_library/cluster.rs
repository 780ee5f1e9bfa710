//! The test cluster, with the library applied.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde_json::{Value, json};

use crate::hook::SOON;
pub use crate::wait::wait_for;

/// The namespace of the hooks.
pub const NAMESPACE: &str = "openshift-upgrade";
/// The node's address, where pods reach what these tests serve.
pub const NODE_ADDRESS: &str = "10.99.0.1";

/// A client of the cluster.
pub struct Cluster {
    client: Client,
}

/// Images, kinds, Alertmanager and the templates, once for all tests.
fn prepare() {
    static PREPARED: OnceLock<()> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hook_library/prepare");
        let status = Command::new(script).stdin(Stdio::null()).status().unwrap();
        assert!(status.success(), "tests/hook_library/prepare failed");
    });
}

impl Cluster {
    pub async fn ready() -> Self {
        prepare();
        // Two TLS back ends are in the graph; an error means that one was chosen already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_default()
            .await
            .expect("KUBECONFIG is not that of the test cluster: eval \"$(tests/cluster/env)\"");
        Self { client }
    }

    /// A file of the cluster's folder.
    pub fn file(name: &str) -> PathBuf {
        let folder =
            std::env::var("TESTBED_DIR").expect("TESTBED_DIR is not set: eval \"$(tests/cluster/env)\"");
        Path::new(&folder).join("cluster").join(name)
    }

    pub fn workflows(&self) -> Api<DynamicObject> {
        self.dynamic("argoproj.io", "v1alpha1", "Workflow", NAMESPACE)
    }

    /// Objects of a kind of ours.
    pub fn ours<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Objects of a kind that the crate has no type for; of the cluster, if the namespace is empty.
    pub fn dynamic(&self, group: &str, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    /// Applies an object whole; another test's copy of it is replaced.
    pub async fn apply(&self, object: Value) {
        let group_version = object["apiVersion"].as_str().unwrap();
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let api = self.dynamic(group, version, object["kind"].as_str().unwrap(), namespace);
        let by_test = PatchParams::apply("hook-library-test").force();
        api.patch(&name, &by_test, &Patch::Apply(object)).await.unwrap();
    }

    /// Makes an object that must not be what an earlier run left of it.
    pub async fn make(&self, object: Value) {
        let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        let metadata = &object["metadata"];
        let (name, namespace) = (
            metadata["name"].as_str().unwrap(),
            metadata["namespace"].as_str().unwrap(),
        );
        let api = self.dynamic(group, version, object["kind"].as_str().unwrap(), namespace);
        // Most often there is none.
        let _ = api.delete(name, &DeleteParams::default()).await;
        wait_for(&format!("there is no {name}"), SOON, async || {
            api.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
        self.apply(object).await;
    }

    /// A Secret with a webhook's URL.
    pub async fn secret(&self, name: &str, url: &str) {
        self.apply(json!({
            "apiVersion": Secret::api_version(&()), "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "stringData": {"url": url},
        }))
        .await;
    }
}

/// A name that no earlier run had.
pub fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Runs a command of the cluster, and gives what it says.
pub fn command(program: &str, arguments: &[&str]) -> String {
    let said = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        said.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&said.stderr)
    );
    String::from_utf8(said.stdout).unwrap()
}
