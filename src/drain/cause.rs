//! Why a pod is still on a node that is drained.

use std::collections::BTreeMap;

use jiff::{Timestamp, tz::TimeZone};

use super::{BlockingPod, Budget, Pod};
use crate::{api::blocker::BlockerCause, text};

/// Longest text of somebody else in a cause, in characters.
const MAX_TEXT: usize = 200;
/// Most names in a text.
const MAX_NAMES: usize = 3;

/// What is known of a namespace with pods that are left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Namespace {
    /// Its PodDisruptionBudgets.
    pub budgets: Vec<Budget>,
    /// Its pods that have yet to begin.
    pub pending: Vec<Pod>,
}

/// What the API server says about the eviction of a pod, asked without doing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// It would go through.
    Allowed,
    /// It would be refused, and what is said.
    Refused(String),
    /// It is not known, and why.
    Unknown(String),
}

/// Namespaces by name, or why they could not be read.
type Namespaces = BTreeMap<String, Result<Namespace, String>>;

/// Pods that no deletion and no budget explains: only the API server can tell why they were not evicted.
pub fn unexplained<'a>(pods: &'a [Pod], namespaces: &Namespaces) -> Vec<&'a Pod> {
    let budgets = |pod: &Pod| match namespaces.get(&pod.namespace) {
        Some(Ok(namespace)) => by_budget(pod, namespace).is_some(),
        Some(Err(_)) | None => false,
    };
    pods.iter()
        .filter(|p| p.ends_at.is_none() && !budgets(p))
        .collect()
}

/// Why each pod is left; the causes that need somebody come first. `evictions` are by the pods' UIDs.
pub fn diagnose(
    pods: &[Pod],
    namespaces: &Namespaces,
    evictions: &BTreeMap<String, Eviction>,
    zone: &TimeZone,
    now: Timestamp,
) -> Vec<BlockingPod> {
    let mut all: Vec<BlockingPod> = pods
        .iter()
        .map(|pod| {
            let why = why(pod, namespaces, evictions, zone, now);
            BlockingPod {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                cause: why.cause,
                short: why.short,
                advice: why.advice,
                owner: pod.owner(),
                controller: pod.reference(),
            }
        })
        .collect();
    all.sort_by(|a, b| (a.cause, &a.namespace, &a.name).cmp(&(b.cause, &b.namespace, &b.name)));
    all
}

struct Why {
    cause: BlockerCause,
    short: String,
    advice: String,
}

impl Why {
    fn new(cause: BlockerCause, short: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            cause,
            short: short.into(),
            advice: advice.into(),
        }
    }
}

fn why(
    pod: &Pod,
    namespaces: &Namespaces,
    evictions: &BTreeMap<String, Eviction>,
    zone: &TimeZone,
    now: Timestamp,
) -> Why {
    if let Some(ends_at) = pod.ends_at {
        return ending(pod, ends_at, zone, now);
    }
    let namespace = namespaces.get(&pod.namespace);
    if let Some(Ok(namespace)) = namespace
        && let Some(why) = by_budget(pod, namespace)
    {
        return why;
    }
    let unread = match namespace {
        Some(Err(why)) => Some(why.clone()),
        Some(Ok(_)) => None,
        None => Some(format!(
            "the PodDisruptionBudgets of namespace {} were not read: too many namespaces",
            pod.namespace
        )),
    };
    by_eviction(pod, evictions.get(&pod.uid), unread)
}

/// A pod that was deleted, and is still there.
fn ending(pod: &Pod, ends_at: Timestamp, zone: &TimeZone, now: Timestamp) -> Why {
    let when = text::time(ends_at, zone);
    if pod.has_ended || now >= ends_at {
        if !pod.finalizers.is_empty() {
            let names = text::names(&pod.finalizers, MAX_NAMES);
            return Why::new(
                BlockerCause::Finalizer,
                format!("kept by finalizer {names}"),
                "see why its controller does not remove it",
            );
        }
        if pod.has_ended && !pod.volumes.is_empty() {
            return Why::new(
                BlockerCause::VolumeDetach,
                format!(
                    "has ended, and {} is still in use on the node",
                    text::names(&pod.volumes, MAX_NAMES)
                ),
                "see what the storage driver on the node says",
            );
        }
    }
    if now < ends_at {
        return Why::new(
            BlockerCause::GracePeriod,
            format!("ends within its grace period, by {when}"),
            "wait for it, or make its terminationGracePeriodSeconds shorter",
        );
    }
    Why::new(
        BlockerCause::StillRunning,
        format!("should have ended by {when}"),
        "see what the kubelet on the node says",
    )
}

/// What its budgets say, if they keep it.
fn by_budget(pod: &Pod, namespace: &Namespace) -> Option<Why> {
    let mine: Vec<&Budget> = namespace.budgets.iter().filter(|b| b.selects(pod)).collect();
    let key = |name: &str| format!("{}/{name}", pod.namespace);
    if let [_, _, ..] = mine.as_slice() {
        let names: Vec<String> = mine.iter().map(|b| key(&b.name)).collect();
        return Some(Why::new(
            BlockerCause::SeveralPodDisruptionBudgets,
            format!(
                "never evicted: it has more than one PDB, {}",
                text::names(&names, MAX_NAMES)
            ),
            "leave one PodDisruptionBudget that selects it",
        ));
    }
    let budget = mine.into_iter().find(|b| b.blocks(pod))?;
    let short = format!("blocked by PDB {} {}", key(&budget.name), budget.numbers());
    // A pod that cannot start keeps the budget at its limit.
    let stranded = namespace
        .pending
        .iter()
        .find(|p| budget.selects(p) && p.unschedulable.is_some());
    Some(match stranded {
        Some(stranded) => Why::new(
            BlockerCause::NoRoomElsewhere,
            format!(
                "{short}: {} finds no node: {}",
                key(&stranded.name),
                text::line(stranded.unschedulable.as_deref().unwrap_or_default(), MAX_TEXT)
            ),
            "make room for that pod: another node, smaller requests, or another affinity",
        ),
        None => Why::new(
            BlockerCause::PodDisruptionBudget,
            short,
            "mend the unhealthy pods of its workload, or give it more replicas than its budget needs",
        ),
    })
}

/// Neither deleted nor kept by a budget that could be read.
fn by_eviction(pod: &Pod, eviction: Option<&Eviction>, unread: Option<String>) -> Why {
    match (eviction, unread) {
        (Some(Eviction::Refused(said)), _) => Why::new(
            BlockerCause::EvictionRefused,
            format!("eviction refused: {}", text::line(said, MAX_TEXT)),
            "see who runs that webhook or policy",
        ),
        (Some(Eviction::Allowed), _) | (None, None) => Why::new(
            BlockerCause::EvictionPending,
            "waits to be evicted",
            "wait: the machine-config operator tries again every 1 to 5 minutes",
        ),
        (Some(Eviction::Unknown(why)), _) => unknown(pod, why),
        (None, Some(why)) => unknown(pod, &why),
    }
}

fn unknown(pod: &Pod, why: &str) -> Why {
    Why::new(
        BlockerCause::Unknown,
        format!("left, why is not known: {}", text::line(why, MAX_TEXT)),
        format!(
            "see `oc -n {} get pods,poddisruptionbudgets` and the logs of machine-config-controller",
            pod.namespace
        ),
    )
}
