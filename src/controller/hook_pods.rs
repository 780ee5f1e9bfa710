//! Looks at the pods of hooks that an engine runs for long: of one owner at most once a minute. No pod is ever watched.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};

use super::calls::{CallError, call_within};
use crate::hooks::pods::{HookPod, HookPods, Look, PodOwner, Unread};

/// Most pods that are read of one owner: a Workflow has few whose end Argo has not taken note of.
const MAX_PODS: u32 = 50;
/// No request may take longer: the API server itself is upgraded under us, and the loop waits.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Looks at pods of hooks, and remembers what it saw.
#[derive(Default)]
pub struct PodLooker(HookPods);

impl PodLooker {
    /// What was seen.
    pub fn pods(&self) -> &HookPods {
        &self.0
    }

    /// Reads the pods of these owners; where they cannot be read, the look says so.
    pub async fn look(
        &mut self,
        client: &Client,
        namespace: &str,
        owners: &BTreeSet<PodOwner>,
        at: Timestamp,
    ) {
        let reads = owners.iter().map(|owner| pods_of(client, namespace, owner));
        for (owner, said) in owners.iter().zip(join_all(reads).await) {
            self.0.keep(owner.clone(), Look { at, said });
        }
    }
}

async fn pods_of(client: &Client, namespace: &str, owner: &PodOwner) -> Result<Vec<HookPod>, Unread> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let list = ListParams::default().labels(&owner.selector()).limit(MAX_PODS);
    let attempt = format!("list the pods of {owner}");
    let all = call_within(TIMEOUT, attempt, api.list(&list))
        .await
        .map_err(|error| unread(owner, &error))?;
    if all.metadata.continue_.is_some_and(|token| !token.is_empty()) {
        return Err(Unread::TooMany);
    }
    Ok(all.items.iter().map(HookPod::from).collect())
}

/// Without the right there is nothing to look for; a log is enough for what is tried again.
fn unread(owner: &PodOwner, error: &CallError) -> Unread {
    tracing::info!(%owner, %error, "cannot tell whether the pod of a hook has ended");
    if error.forbidden().is_some() {
        Unread::NoRight
    } else {
        Unread::Failed
    }
}

#[cfg(test)]
mod tests {
    use kube::api::PostParams;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{
        clock::Clock,
        simulator::api::{ApiServer, Identity, Kinds},
    };

    #[rstest]
    #[case::none(0, Ok(0))]
    #[case::some(3, Ok(3))]
    #[case::as_many_as_are_read(50, Ok(50))]
    #[case::more(51, Err(Unread::TooMany))]
    #[tokio::test(start_paused = true)]
    async fn pods_of_one_owner_are_read_in_one_request(
        #[case] pods: usize,
        #[case] expected: Result<usize, Unread>,
    ) {
        let clock = Clock::starting_at("2026-11-21T00:00:00Z".parse().unwrap());
        let server = ApiServer::new(clock, Kinds::ours());
        let api: Api<Pod> = Api::namespaced(server.client(Identity::Admin), "ns");
        let of = |completed: &str| json!({"workflows.argoproj.io/workflow": "wf", "workflows.argoproj.io/completed": completed});
        let other = json!({"tekton.dev/taskRun": "r"});
        let mine = (0..pods).map(|n| (format!("p-{n}"), of("false")));
        for (name, labels) in mine.chain([("q".to_owned(), of("true")), ("r".to_owned(), other)]) {
            let pod = json!({
                "metadata": {"name": name, "labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            });
            let pod = serde_json::from_value(pod).unwrap();
            api.create(&PostParams::default(), &pod).await.unwrap();
        }
        let client = server.client(Identity::Operator(1));
        let owner = PodOwner::Workflow("wf".to_owned());
        let read = pods_of(&client, "ns", &owner).await;
        assert_eq!(read.map(|all| all.len()), expected);
        let list = ("list".to_owned(), "pods".to_owned());
        assert_eq!(server.counts().get(&list), Some(&1));
    }

    fn answer(code: u16) -> CallError {
        let status = kube::core::Status {
            code,
            ..kube::core::Status::default()
        };
        CallError::Kube {
            attempt: "list".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[rstest]
    #[case::no_right(403, Unread::NoRight)]
    #[case::an_api_server_under_load(429, Unread::Failed)]
    #[case::broken(500, Unread::Failed)]
    fn only_without_the_right_there_is_nothing_to_wait_for(#[case] code: u16, #[case] expected: Unread) {
        assert_eq!(
            unread(&PodOwner::TaskRun("r".to_owned()), &answer(code)),
            expected
        );
    }
}
