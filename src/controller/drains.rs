//! Looks at nodes that drain for long: their pods, and what says why they are left. Only there and only then, a node at most
//! once a minute; no pod is ever watched, or kept longer than the look takes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt, join_all},
    stream,
};
use http::Request;
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::api::{core::v1, policy::v1::PodDisruptionBudget};
use kube::{Api, Client, Resource, api::ListParams, core::Status};
use serde_json::json;

use super::calls::{CallError, call_within};
use crate::{
    api::blocker::BlockerCause,
    drain::{
        Budget, Drains, Eviction, Finding, Look, MAX_BLOCKERS, Namespace, Pod, Sight, diagnose, is_left,
        unexplained,
    },
    world::World,
};

/// Most pods of a node that are read: kubelets take 250, and 500 where they are told to.
const MAX_PODS: usize = 500;
/// So many pods are read at once: a page is parsed whole, at about 20 kB a pod, before it is stripped.
const PAGE: u32 = 50;
/// So many nodes are looked at at once.
const AT_ONCE: usize = 4;
/// Most namespaces of a node's pods in which budgets are read.
const MAX_NAMESPACES: usize = 10;
/// Most budgets, and most pending pods, that are read in a namespace.
const MAX_OBJECTS: u32 = 200;
/// Of so many pods of a node the API server is asked whether it would evict them.
const MAX_EVICTIONS: usize = 5;
/// No request may take longer: the API server itself is upgraded under us, and the loop waits.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Looks at nodes, and remembers what it saw and what was told of it.
#[derive(Default)]
pub struct Looker {
    drains: Drains,
    told: BTreeSet<Told>,
}

/// Node, namespace, pod and cause.
type Told = (String, String, String, BlockerCause);

impl Looker {
    /// What was seen.
    pub fn drains(&self) -> &Drains {
        &self.drains
    }

    /// Takes note of which nodes are drained.
    pub fn see(&mut self, world: &World, now: Timestamp) {
        self.drains.see(&world.nodes, &world.jobs, now);
        self.told.retain(|(node, ..)| self.drains.since(node).is_some());
    }

    /// Reads the pods of these nodes; a node that cannot be read has a look that says so.
    pub async fn look(&mut self, client: &Client, zone: &TimeZone, nodes: &BTreeSet<String>, now: Timestamp) {
        let looks: Vec<BoxFuture<'_, _>> = nodes
            .iter()
            .map(|n| sight(client, zone, n, now).boxed())
            .collect();
        let said: Vec<_> = stream::iter(looks).buffered(AT_ONCE).collect().await;
        for (node, said) in nodes.iter().zip(said) {
            let said = said.map_err(|e| e.to_string());
            self.drains.keep(node, Look { at: now, said });
        }
    }

    /// Whether this was not told of while the node is drained. What comes and goes is told of once.
    pub fn is_new(&mut self, finding: &Finding) -> bool {
        let b = &finding.blocker;
        self.told
            .insert((b.node.clone(), b.namespace.clone(), b.pod.clone(), b.cause))
    }
}

async fn sight(client: &Client, zone: &TimeZone, node: &str, now: Timestamp) -> Result<Sight, CallError> {
    let (pods, is_cut) = pods_left(client, node).await?;
    let alive = pods.iter().filter(|p| p.ends_at.is_none());
    let names: BTreeSet<&str> = alive.map(|p| p.namespace.as_str()).collect();
    let names: Vec<&str> = names.into_iter().take(MAX_NAMESPACES).collect();
    let reads: Vec<BoxFuture<'_, _>> = names.iter().map(|name| namespace(client, name).boxed()).collect();
    let reads = join_all(reads)
        .await
        .into_iter()
        .map(|read| read.map_err(|e| e.to_string()));
    let namespaces: BTreeMap<_, _> = names.iter().map(|&name| name.to_owned()).zip(reads).collect();
    let mut asked = unexplained(&pods, &namespaces);
    asked.truncate(MAX_EVICTIONS);
    let answers: Vec<BoxFuture<'_, _>> = asked.iter().map(|pod| eviction(client, pod).boxed()).collect();
    let uids = asked.iter().map(|pod| pod.uid.clone());
    let evictions: BTreeMap<_, _> = uids.zip(join_all(answers).await).collect();
    let mut told = diagnose(&pods, &namespaces, &evictions, zone, now);
    told.truncate(MAX_BLOCKERS);
    Ok(Sight {
        left: pods.len(),
        is_cut,
        pods: told,
    })
}

/// Pods that are to leave the node, and whether there are more than are read.
async fn pods_left(client: &Client, node: &str) -> Result<(Vec<Pod>, bool), CallError> {
    let api: Api<v1::Pod> = Api::all(client.clone());
    let mut page = ListParams::default()
        .limit(PAGE)
        .fields(&format!("spec.nodeName={node}"));
    // All pages together have the time of one request.
    let pages = async {
        let (mut left, mut read) = (Vec::new(), 0);
        loop {
            let all = api.list(&page).await?;
            read += all.items.len();
            left.extend(all.items.iter().filter(|p| is_left(p)).map(Pod::from));
            page.continue_token = all.metadata.continue_.filter(|token| !token.is_empty());
            if page.continue_token.is_none() || read >= MAX_PODS {
                return Ok((left, page.continue_token.is_some()));
            }
        }
    };
    call_within(TIMEOUT, format!("list the pods of node {node}"), pages).await
}

async fn namespace(client: &Client, name: &str) -> Result<Namespace, CallError> {
    let list = ListParams::default().limit(MAX_OBJECTS);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), name);
    let attempt = format!("list the PodDisruptionBudgets of namespace {name}");
    let budgets = call_within(TIMEOUT, attempt, budgets.list(&list)).await?;
    let budgets: Vec<Budget> = budgets.items.iter().map(Budget::from).collect();
    if budgets.is_empty() {
        return Ok(Namespace::default());
    }
    let pending: Api<v1::Pod> = Api::namespaced(client.clone(), name);
    let attempt = format!("list the pending pods of namespace {name}");
    let list = list.fields("status.phase=Pending");
    let pending = call_within(TIMEOUT, attempt, pending.list(&list)).await?;
    Ok(Namespace {
        budgets,
        pending: pending.items.iter().map(Pod::from).collect(),
    })
}

/// Asks the API server whether it would evict a pod, which it does not do then: webhooks and policies answer too.
async fn eviction(client: &Client, pod: &Pod) -> Eviction {
    let Pod {
        namespace, name, uid, ..
    } = pod;
    // By hand: kube's own writes `delete_options`, which no API server knows.
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"dryRun": ["All"], "preconditions": {"uid": uid}},
    });
    let url = format!(
        "{}/{name}/eviction?dryRun=All",
        v1::Pod::url_path(&(), Some(namespace))
    );
    let request = Request::post(url)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes());
    let request = match request {
        Ok(request) => request,
        Err(error) => return Eviction::Unknown(error.to_string()),
    };
    let attempt = format!("ask whether pod {namespace}/{name} would be evicted");
    match call_within(TIMEOUT, attempt, client.request::<Status>(request)).await {
        Ok(_) => Eviction::Allowed,
        // Gone meanwhile.
        Err(error) if error.is_not_found() || error.is_conflict() => Eviction::Allowed,
        Err(error) => match error.refused_eviction() {
            Some(said) => Eviction::Refused(said),
            None => Eviction::Unknown(error.to_string()),
        },
    }
}
