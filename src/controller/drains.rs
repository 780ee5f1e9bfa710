//! Looks at nodes that drain for long: their pods, and what says why they are left. Only there and only then, a node at most
//! once a minute; no pod is ever watched, or kept longer than the look takes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt, join_all};
use http::Request;
use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::api::{core::v1, policy::v1::PodDisruptionBudget};
use kube::{Api, Client, Resource, api::ListParams, core::Status};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Semaphore;

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
/// So many are read at once: a page is parsed whole, at about 20 kB a pod, before it is stripped.
const PAGE: u32 = 50;
/// So many pages are in memory at once, whatever there is to look at.
const MAX_PAGES: usize = 4;
/// Most namespaces of a node's pods in which budgets are read.
const MAX_NAMESPACES: usize = 10;
/// Most budgets, and most pending pods, that are read in a namespace.
const MAX_OBJECTS: usize = 200;
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
        let places = &Semaphore::new(MAX_PAGES);
        let reader = Reader { client, places };
        let looks: Vec<BoxFuture<'_, _>> = nodes
            .iter()
            .map(|n| sight(reader, zone, n, now).boxed())
            .collect();
        for (node, said) in nodes.iter().zip(join_all(looks).await) {
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

async fn sight(reader: Reader<'_>, zone: &TimeZone, node: &str, now: Timestamp) -> Result<Sight, CallError> {
    let (pods, is_cut) = reader.pods_left(node).await?;
    let alive = pods.iter().filter(|p| p.ends_at.is_none());
    let names: BTreeSet<&str> = alive.map(|p| p.namespace.as_str()).collect();
    let names: Vec<&str> = names.into_iter().take(MAX_NAMESPACES).collect();
    let reads: Vec<BoxFuture<'_, _>> = names.iter().map(|name| reader.namespace(name).boxed()).collect();
    let reads = join_all(reads)
        .await
        .into_iter()
        .map(|read| read.map_err(|e| e.to_string()));
    let namespaces: BTreeMap<_, _> = names.iter().map(|&name| name.to_owned()).zip(reads).collect();
    let mut asked = unexplained(&pods, &namespaces);
    asked.truncate(MAX_EVICTIONS);
    let answers: Vec<BoxFuture<'_, _>> = asked
        .iter()
        .map(|pod| eviction(reader.client, pod).boxed())
        .collect();
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

/// Reads lists page by page.
#[derive(Clone, Copy)]
struct Reader<'a> {
    client: &'a Client,
    /// One for each page that may be in memory.
    places: &'a Semaphore,
}

impl Reader<'_> {
    /// Pods that are to leave the node, and whether there are more than are read.
    async fn pods_left(self, node: &str) -> Result<(Vec<Pod>, bool), CallError> {
        let api: Api<v1::Pod> = Api::all(self.client.clone());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let keep = |pod: &v1::Pod| is_left(pod).then(|| Pod::from(pod));
        let attempt = format!("list the pods of node {node}");
        call_within(TIMEOUT, attempt, self.pages(&api, of_node, MAX_PODS, keep)).await
    }

    async fn namespace(self, name: &str) -> Result<Namespace, CallError> {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), name);
        let attempt = format!("list the PodDisruptionBudgets of namespace {name}");
        let keep = |budget: &_| Some(Budget::from(budget));
        let budgets = self.pages(&budgets, ListParams::default(), MAX_OBJECTS, keep);
        let (budgets, _) = call_within(TIMEOUT, attempt, budgets).await?;
        if budgets.is_empty() {
            return Ok(Namespace::default());
        }
        let api: Api<v1::Pod> = Api::namespaced(self.client.clone(), name);
        let attempt = format!("list the pending pods of namespace {name}");
        let pending = ListParams::default().fields("status.phase=Pending");
        let keep = |pod: &_| Some(Pod::from(pod));
        let pending = self.pages(&api, pending, MAX_OBJECTS, keep);
        let (pending, _) = call_within(TIMEOUT, attempt, pending).await?;
        Ok(Namespace { budgets, pending })
    }

    /// What is kept of a list, and whether there is more of it than `most`.
    async fn pages<K, T>(
        self,
        api: &Api<K>,
        list: ListParams,
        most: usize,
        keep: impl Fn(&K) -> Option<T>,
    ) -> kube::Result<(Vec<T>, bool)>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let mut page = list.limit(PAGE);
        let (mut kept, mut read) = (Vec::new(), 0);
        loop {
            // An error would say that it was closed, which nobody does. Given back after the page is gone.
            let _place = self.places.acquire().await;
            let all = api.list(&page).await?;
            read += all.items.len();
            kept.extend(all.items.iter().filter_map(&keep));
            page.continue_token = all.metadata.continue_.filter(|token| !token.is_empty());
            if page.continue_token.is_none() || read >= most {
                return Ok((kept, page.continue_token.is_some()));
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use kube::api::PostParams;
    use rstest::rstest;

    use super::*;
    use crate::{
        clock::Clock,
        simulator::api::{ApiServer, Identity, Kinds},
    };

    #[rstest]
    #[case::none(0, 0, 1)]
    #[case::a_page(50, 50, 1)]
    #[case::some_pages(120, 120, 3)]
    #[case::too_many(520, 500, 10)]
    #[tokio::test(start_paused = true)]
    async fn pods_are_read_page_by_page_up_to_a_limit(
        #[case] pods: usize,
        #[case] left: usize,
        #[case] requests: u64,
    ) {
        let clock = Clock::starting_at("2026-11-21T00:00:00Z".parse().unwrap());
        let server = ApiServer::new(clock, Kinds::ours());
        let api: Api<v1::Pod> = Api::namespaced(server.client(Identity::Admin), "shop");
        for n in 0..pods {
            let pod = json!({
                "metadata": {"name": format!("p-{n}")},
                "spec": {"nodeName": "w-0", "containers": [{"name": "c", "image": "i"}]},
            });
            api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
                .await
                .unwrap();
        }
        let client = server.client(Identity::Operator(1));
        let places = Semaphore::new(MAX_PAGES);
        let reader = Reader {
            client: &client,
            places: &places,
        };
        let (found, is_cut) = reader.pods_left("w-0").await.unwrap();
        assert_eq!((found.len(), is_cut), (left, pods > left));
        let list = ("list".to_owned(), "pods".to_owned());
        assert_eq!(server.counts().get(&list), Some(&requests));
    }
}
