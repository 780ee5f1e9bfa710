//! Carries out what the simulator wants written: some at once, and nothing that is sure to be refused.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, EvictParams, Patch, PatchParams, PostParams, Preconditions,
    },
    core::Status,
};
use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{
    driver::CALL,
    openshift::write::{PodRef, Write},
};

/// So many writes are under way at a time: each has a connection, and a thousand of them would only wait for each other.
pub(super) const AT_ONCE: usize = 32;

/// After so long a watch must have shown what was written.
const MISSED: Duration = Duration::from_secs(5);

/// Writes, and remembers what became of it.
pub(super) struct Writer {
    client: Client,
    /// What went wrong since the last round without a failure: nothing is said again and again.
    failures: Vec<String>,
    answered: Answered,
}

impl Writer {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            failures: Vec::new(),
            answered: Answered::default(),
        }
    }

    /// Writes all, a bounded number at once: a slow answer to one write must not hold up the others. Returns whether every
    /// write was answered with something that the next decision takes care of.
    pub(super) async fn apply(&mut self, mut writes: Vec<Write>) -> bool {
        writes.retain(|write| !self.answered.includes(write));
        let client = &self.client;
        let calls = writes.into_iter().map(|write| async move {
            let (name, basis) = (describe(&write), Basis::of(&write));
            let result = tokio::time::timeout(CALL, apply_one(client, write)).await;
            (name, basis, result)
        });
        let mut answers = futures::stream::iter(calls).buffer_unordered(AT_ONCE);
        let mut failures = Vec::new();
        while let Some((name, basis, result)) = answers.next().await {
            match result {
                Ok(Ok(())) => info!("{name}"),
                Ok(Err(kube::Error::Api(status))) if was_late(&status) => {
                    debug!("could not {name}: {}", status.message);
                }
                Ok(Err(error)) => {
                    failures.push(format!("could not {name}: {error}"));
                    continue;
                }
                Err(_) => {
                    failures.push(format!("could not {name}: no answer within {} s", CALL.as_secs()));
                    continue;
                }
            }
            self.answered.add(basis);
        }
        drop(answers);
        if failures.is_empty() {
            self.failures.clear();
            return true;
        }
        for failure in failures {
            self.failed(failure);
        }
        false
    }

    /// Creates objects that rest on each other, in order; whether all of them are there now.
    ///
    /// Not awaited before anything else: their namespace may still be going, and goes only when its pods have ended.
    pub(super) async fn create_all(&mut self, writes: &[Write]) -> bool {
        for write in writes {
            match tokio::time::timeout(CALL, apply_one(&self.client, write.clone())).await {
                Ok(Ok(())) => info!("{}", describe(write)),
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
                Ok(Err(error)) => {
                    self.failed(format!("could not {}: {error}", describe(write)));
                    return false;
                }
                Err(_) => return false,
            }
        }
        true
    }

    fn failed(&mut self, failure: String) {
        if !self.failures.contains(&failure) {
            warn!("{failure}; trying again");
            self.failures.push(failure);
        }
    }
}

/// Versions of objects that were written over, or refused for being old, and when: until the watch has shown the next
/// version, a write that rests on one of these would be refused.
///
/// Not for ever, so that a watch that missed something costs no more than that.
#[derive(Default)]
struct Answered(BTreeMap<Basis, Instant>);

impl Answered {
    fn add(&mut self, basis: Option<Basis>) {
        let now = Instant::now();
        self.0.retain(|_, at| now.duration_since(*at) < MISSED);
        self.0.extend(basis.map(|basis| (basis, now)));
    }

    fn includes(&self, write: &Write) -> bool {
        let at = Basis::of(write).and_then(|basis| self.0.get(&basis));
        at.is_some_and(|at| at.elapsed() < MISSED)
    }
}

/// An object as it was when a write was decided.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Basis {
    kind: String,
    namespace: Option<String>,
    name: String,
    /// `None` for one that was not there.
    version: Option<String>,
}

impl Basis {
    /// `None` for writes that may well be repeated.
    fn of(write: &Write) -> Option<Self> {
        match write {
            Write::Create(resource, object) => Some(Self {
                kind: resource.kind.clone(),
                namespace: object.namespace(),
                name: object.name_any(),
                version: None,
            }),
            Write::Patch { target, .. } => Some(Self {
                kind: target.resource.kind.clone(),
                namespace: target.namespace.clone(),
                name: target.name.clone(),
                version: Some(target.version.clone()),
            }),
            Write::Evict(_) | Write::Bind(..) | Write::FinishDeletion(_) => None,
        }
    }
}

/// Somebody was faster (409), the object is gone (404), or a budget says no (429): decided anew.
///
/// 422 without causes is a JSON patch that does not fit the object, which has changed; a refused value names causes.
fn was_late(status: &Status) -> bool {
    let has_causes = status.details.as_ref().is_some_and(|d| !d.causes.is_empty());
    matches!(status.code, 404 | 409 | 429) || (status.code == 422 && !has_causes)
}

fn describe(write: &Write) -> String {
    let pod = |p: &PodRef| format!("pod {}/{}", p.namespace, p.name);
    match write {
        Write::Create(resource, object) => format!("create {} {}", resource.kind, object.name_any()),
        Write::Patch { target, status, .. } => {
            let part = if *status { " status" } else { "" };
            format!("write {} {}{part}", target.resource.kind, target.name)
        }
        Write::Evict(p) => format!("evict {}", pod(p)),
        Write::Bind(p, node) => format!("bind {} to node {node}", pod(p)),
        Write::FinishDeletion(p) => format!("end {}", pod(p)),
    }
}

async fn apply_one(client: &Client, write: Write) -> kube::Result<()> {
    match write {
        Write::Create(resource, object) => {
            let api = dynamic(client, &resource, object.namespace().as_deref());
            api.create(&PostParams::default(), &object).await.map(drop)
        }
        Write::Patch {
            target,
            status,
            patch,
        } => {
            let api = dynamic(client, &target.resource, target.namespace.as_deref());
            let (params, patch) = (PatchParams::default(), Patch::<()>::Json(patch));
            if status {
                api.patch_status(&target.name, &params, &patch).await.map(drop)
            } else {
                api.patch(&target.name, &params, &patch).await.map(drop)
            }
        }
        Write::Evict(pod) => {
            let params = EvictParams {
                delete_options: Some(only(&pod)),
                ..EvictParams::default()
            };
            pods(client, &pod).evict(&pod.name, &params).await.map(drop)
        }
        Write::Bind(pod, node) => {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": pod.name, "uid": pod.uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            let params = PostParams::default();
            let api = pods(client, &pod);
            let answer: kube::Result<serde_json::Value> = api
                .create_subresource("binding", &pod.name, &params, &binding)
                .await;
            answer.map(drop)
        }
        Write::FinishDeletion(pod) => {
            let params = only(&pod).grace_period(0);
            pods(client, &pod).delete(&pod.name, &params).await.map(drop)
        }
    }
}

fn only(pod: &PodRef) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(pod.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

fn pods(client: &Client, pod: &PodRef) -> Api<Pod> {
    Api::namespaced(client.clone(), &pod.namespace)
}

fn dynamic(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::{super::openshift::write, *};

    fn node(version: &str, label: &str) -> Node {
        serde_json::from_value(
            json!({"metadata": {"name": "w-0", "resourceVersion": version, "labels": {"a": label}}}),
        )
        .unwrap()
    }

    fn patch(version: &str, label: &str) -> Write {
        write::update(&node(version, "old"), &node(version, label)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_rests_on_an_answered_version_waits_for_the_next_one_but_not_for_ever() {
        let mut answered = Answered::default();
        assert!(!answered.includes(&patch("1", "x")));
        answered.add(Basis::of(&patch("1", "x")));
        assert!(answered.includes(&patch("1", "x")));
        assert!(answered.includes(&patch("1", "y")), "whatever it would write");
        assert!(!answered.includes(&patch("2", "x")));
        assert!(!answered.includes(&write::create(&node("1", "x")).unwrap()));
        tokio::time::advance(MISSED + Duration::from_millis(1)).await;
        assert!(!answered.includes(&patch("1", "x")));
        answered.add(None);
        assert!(answered.0.is_empty(), "nothing is kept that does not count");
    }

    #[test]
    fn an_eviction_is_repeated() {
        let pod = PodRef {
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
        };
        assert_eq!(Basis::of(&Write::Evict(pod)), None);
    }
}
