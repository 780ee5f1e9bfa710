//! Counts the requests to the API server, and how long their answers take: a layer below the client.
//!
//! Labels are bounded: by the verbs, the kinds that this operator reads and writes, and the codes of HTTP. Names of objects are
//! no labels.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{Method, Request, StatusCode, Uri};
use kube::{Client, client::Body};
use tokio::time::Instant;

use crate::metrics::{Distribution, Family, Labels, Series, Type, Value};

/// Upper bounds in seconds; calls are given up after 10 s.
const BOUNDS: [f64; 8] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// The code of a request that got no answer.
const NO_ANSWER: &str = "none";

/// What was asked since the process started.
#[derive(Clone, Default)]
pub struct Requests(Arc<Mutex<Totals>>);

#[derive(Default)]
struct Totals {
    codes: BTreeMap<(Asked, String), u64>,
    durations: BTreeMap<Asked, Distribution>,
}

/// What a request is, without the name of its object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    verb: &'static str,
    group: String,
    resource: String,
}

impl Requests {
    /// The same client, whose requests are counted.
    pub fn watch(&self, client: &Client) -> Client {
        let (watched, requests) = (client.clone(), self.clone());
        let counted = tower::service_fn(move |request: Request<Body>| {
            let client = watched.clone();
            let under_way = UnderWay {
                requests: requests.clone(),
                asked: Asked::of(request.method(), request.uri()),
                since: Instant::now(),
                code: None,
            };
            async move {
                let answer = client.send(request).await?;
                under_way.answered(answer.status());
                Ok::<_, kube::Error>(answer)
            }
        });
        Client::new(counted, client.default_namespace())
    }

    /// As metrics.
    pub fn metrics(&self) -> Vec<Family> {
        let totals = self.lock();
        // Exact for any number of requests of a process.
        #[allow(clippy::cast_precision_loss)]
        let count = |n: u64| n as f64;
        let codes = totals.codes.iter().map(|((asked, code), n)| {
            let mut labels = asked.labels();
            labels.push(("code", code.clone()));
            Series::new(labels, count(*n))
        });
        let durations = totals.durations.iter();
        let durations =
            durations.map(|(asked, took)| Series::new(asked.labels(), Value::Distribution(took.clone())));
        vec![
            Family {
                name: "openshift_upgrade_controller_api_requests",
                help: "Requests to the API server by the code of the answer; none is a request without one.",
                type_: Type::Counter,
                series: codes.collect(),
            },
            Family {
                name: "openshift_upgrade_controller_api_request_duration_seconds",
                help: "How long the API server took to answer; of a watch, to begin with it.",
                type_: Type::Histogram,
                series: durations.collect(),
            },
        ]
    }

    /// One request, for tests.
    #[cfg(test)]
    pub fn note(&self, method: &Method, uri: &Uri, status: StatusCode) {
        let under_way = UnderWay {
            requests: self.clone(),
            asked: Asked::of(method, uri),
            since: Instant::now(),
            code: None,
        };
        under_way.answered(status);
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    /// Rule: the paths and verbs of Kubernetes' API (`kubernetes.io/docs/reference/using-api/api-concepts`).
    fn of(method: &Method, uri: &Uri) -> Self {
        let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => ("", &[][..]),
        };
        let rest = match rest {
            ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
            _ => rest,
        };
        let has_name = rest.len() > 1;
        let resource = match rest {
            [] => String::new(),
            [kind] | [kind, _] => (*kind).to_owned(),
            [kind, _, sub, ..] => format!("{kind}/{sub}"),
        };
        let is_watch = || {
            uri.query()
                .is_some_and(|q| q.split('&').any(|p| matches!(p, "watch=true" | "watch=1")))
        };
        let verb = match *method {
            Method::GET if is_watch() => "watch",
            Method::GET if has_name || rest.is_empty() => "get",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if has_name => "delete",
            Method::DELETE => "deletecollection",
            _ => "other",
        };
        Self {
            verb,
            group: group.to_owned(),
            resource,
        }
    }

    fn labels(&self) -> Labels {
        vec![
            ("verb", self.verb.to_owned()),
            ("group", self.group.clone()),
            ("resource", self.resource.clone()),
        ]
    }
}

/// A request under way. One that is dropped, because it took too long, got no answer.
struct UnderWay {
    requests: Requests,
    asked: Asked,
    since: Instant,
    code: Option<String>,
}

impl UnderWay {
    fn answered(mut self, status: StatusCode) {
        self.code = Some(status.as_str().to_owned());
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let code = self.code.take().unwrap_or_else(|| NO_ANSWER.to_owned());
        let mut totals = self.requests.lock();
        let durations = totals.durations.entry(self.asked.clone());
        let took = self.since.elapsed().as_secs_f64();
        durations
            .or_insert_with(|| Distribution::new(&BOUNDS))
            .observe(took);
        *totals.codes.entry((self.asked.clone(), code)).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, api::PostParams};
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{
        clock::Clock,
        metrics::told,
        simulator::api::{ApiServer, Fault, Identity, Kinds},
    };

    #[rstest]
    #[case("GET", "/api/v1/nodes?limit=50", "list", "", "nodes")]
    #[case("GET", "/api/v1/nodes?watch=true&resourceVersion=5", "watch", "", "nodes")]
    #[case("GET", "/api/v1/namespaces/shop", "get", "", "namespaces")]
    #[case("GET", "/api/v1/namespaces", "list", "", "namespaces")]
    #[case("GET", "/api/v1/namespaces/ns/pods", "list", "", "pods")]
    #[case(
        "POST",
        "/api/v1/namespaces/ns/pods/cart-7/eviction",
        "create",
        "",
        "pods/eviction"
    )]
    #[case(
        "GET",
        "/apis/config.openshift.io/v1/clusterversions/version",
        "get",
        "config.openshift.io",
        "clusterversions"
    )]
    #[case(
        "PATCH",
        "/apis/managedupgrade.appuio.io/v1beta1/namespaces/ns/upgradejobs/j/status",
        "patch",
        "managedupgrade.appuio.io",
        "upgradejobs/status"
    )]
    #[case(
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/ns/leases/upgrade-operator",
        "update",
        "coordination.k8s.io",
        "leases"
    )]
    #[case("DELETE", "/apis/batch/v1/namespaces/ns/jobs/x", "delete", "batch", "jobs")]
    #[case(
        "DELETE",
        "/apis/batch/v1/namespaces/ns/jobs",
        "deletecollection",
        "batch",
        "jobs"
    )]
    #[case("GET", "/version", "get", "", "")]
    fn a_request_is_told_without_the_name_of_its_object(
        #[case] method: &str,
        #[case] uri: &str,
        #[case] verb: &str,
        #[case] group: &str,
        #[case] resource: &str,
    ) {
        let asked = Asked::of(&method.parse().unwrap(), &uri.parse().unwrap());
        assert_eq!(
            (asked.verb, asked.group.as_str(), asked.resource.as_str()),
            (verb, group, resource)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_by_answer_and_those_without_one_too() {
        let server = ApiServer::new(
            Clock::starting_at("2026-11-21T00:00:00Z".parse().unwrap()),
            Kinds::ours(),
        );
        let requests = Requests::default();
        let maps: Api<ConfigMap> =
            Api::namespaced(requests.watch(&server.client(Identity::Operator(1))), "ns");
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
        let params = PostParams::default();
        maps.create(&params, &map).await.unwrap();
        maps.create(&params, &map).await.unwrap_err();
        assert_eq!(maps.get_opt("absent").await.unwrap(), None);
        server.plan(3, Fault::RequestLost);
        let lost = maps.create(&params, &map);
        tokio::time::timeout(Duration::from_secs(3), lost)
            .await
            .unwrap_err();
        let families = requests.metrics();
        assert_eq!(
            told(&families[..1]),
            [
                "api_requests create,,configmaps,201 1",
                "api_requests create,,configmaps,409 1",
                "api_requests create,,configmaps,none 1",
                "api_requests get,,configmaps,404 1",
            ]
        );
        // The API server in memory takes a millisecond.
        let mut expected = Distribution::new(&BOUNDS);
        for seconds in [0.001, 0.001, 3.0] {
            expected.observe(seconds);
        }
        assert_eq!(families[1].series[0].value, Value::Distribution(expected));
    }
}
