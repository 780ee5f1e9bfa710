//! What a PodDisruptionBudget says about the eviction of a pod.
//!
//! Rules: Kubernetes' pkg/registry/core/pod/storage/eviction.go.

use k8s_openapi::{api::policy::v1::PodDisruptionBudget, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::ResourceExt;

use super::Pod;
use crate::api::label_selector::label_selector_matches;

/// What we keep of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// Name.
    pub name: String,
    selector: Option<LabelSelector>,
    /// Disruptions that are allowed now.
    pub allowed: i32,
    /// Pods that it wants to be healthy, and are not.
    pub unhealthy: i32,
    /// It counts on pods that are healthy, and has enough of them.
    has_enough: bool,
    /// Pods that are not ready may be evicted whatever it allows.
    always_allows_unhealthy: bool,
    /// Its status is that of an older spec: nothing is allowed meanwhile.
    is_behind: bool,
}

impl From<&PodDisruptionBudget> for Budget {
    fn from(budget: &PodDisruptionBudget) -> Self {
        let spec = budget.spec.clone().unwrap_or_default();
        let status = budget.status.clone().unwrap_or_default();
        Self {
            name: budget.name_any(),
            selector: spec.selector,
            allowed: status.disruptions_allowed,
            unhealthy: (status.expected_pods - status.current_healthy).max(0),
            has_enough: status.desired_healthy > 0 && status.current_healthy >= status.desired_healthy,
            always_allows_unhealthy: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
            is_behind: status.observed_generation < budget.metadata.generation,
        }
    }
}

impl Budget {
    /// Whether the pod is one of its. Without a selector it has none, with an empty one all of the namespace.
    pub fn selects(&self, pod: &Pod) -> bool {
        self.selector
            .as_ref()
            .is_some_and(|s| label_selector_matches(s, &pod.labels))
    }

    /// Whether it keeps the pod from being evicted, which is one of its.
    pub fn blocks(&self, pod: &Pod) -> bool {
        if !pod.has_begun || pod.has_ended {
            return false;
        }
        let may_go_unhealthy = !pod.is_ready && (self.always_allows_unhealthy || self.has_enough);
        !may_go_unhealthy && (self.allowed <= 0 || self.is_behind)
    }

    /// Its numbers in parentheses.
    pub fn numbers(&self) -> String {
        if self.is_behind {
            return "(not counted yet: does kube-controller-manager run?)".to_owned();
        }
        match self.unhealthy {
            0 => format!("({} allowed)", self.allowed),
            n => format!("({} allowed, {n} unhealthy)", self.allowed),
        }
    }
}
