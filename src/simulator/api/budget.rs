//! PodDisruptionBudgets: what the disruption controller counts, and whether a pod may be evicted.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    kinds::Resource,
    refusal::Refusal,
    storage::{Key, Storage, generation, metadata},
};
use crate::api::label_selector::label_selector_matches;

/// Kinds whose changes change what a budget allows.
pub fn counts(key: &Key) -> bool {
    matches!(
        (key.resource.group.as_str(), key.resource.plural.as_str()),
        ("", "pods") | ("policy", "poddisruptionbudgets")
    )
}

impl Storage {
    /// Counts the pods of each budget of a namespace anew.
    pub fn count_budgets(&mut self, namespace: &str) {
        for (key, budget) in self.budgets(namespace) {
            let pods = self.pods_of(&budget, namespace);
            let expected = pods.len();
            let healthy = pods.iter().filter(|p| is_ready(p)).count();
            let desired = desired(&budget, expected);
            let mut counted = budget.clone();
            if let Some(map) = counted.as_object_mut() {
                let status = json!({
                    "observedGeneration": generation(&budget), "expectedPods": expected, "currentHealthy": healthy,
                    "desiredHealthy": desired, "disruptionsAllowed": healthy.saturating_sub(desired),
                });
                map.insert("status".to_owned(), status);
            }
            if counted != budget {
                self.put(&key, counted);
            }
        }
    }

    /// Whether the budgets allow that a pod is evicted.
    pub fn check_eviction(&self, pod: &Value, namespace: &str) -> Result<(), Refusal> {
        let phase = pod.pointer("/status/phase").and_then(Value::as_str);
        let is_over = matches!(phase, Some("Pending" | "Succeeded" | "Failed"));
        if is_over || metadata(pod, "deletionTimestamp").is_some() {
            return Ok(());
        }
        for (key, budget) in self.budgets(namespace) {
            let number = |field: &str| {
                let found = budget.pointer(&format!("/status/{field}"));
                found.and_then(Value::as_u64).unwrap_or(0)
            };
            if matches(&budget, pod) && number("disruptionsAllowed") == 0 {
                let why = format!(
                    "The disruption budget {} needs {} healthy pods and has {} currently",
                    key.name,
                    number("desiredHealthy"),
                    number("currentHealthy")
                );
                let message = "Cannot evict pod as it would violate the pod's disruption budget.";
                return Err(Refusal {
                    details: json!({"causes": [{"reason": "DisruptionBudget", "message": why}]}),
                    ..Refusal::new(429, "TooManyRequests", message)
                });
            }
        }
        Ok(())
    }

    fn budgets(&self, namespace: &str) -> Vec<(Key, Value)> {
        self.in_namespace("policy", "poddisruptionbudgets", namespace)
    }

    fn pods_of(&self, budget: &Value, namespace: &str) -> Vec<Value> {
        let pods = self.in_namespace("", "pods", namespace).into_iter();
        pods.map(|(_, pod)| pod).filter(|p| matches(budget, p)).collect()
    }

    fn in_namespace(&self, group: &str, plural: &str, namespace: &str) -> Vec<(Key, Value)> {
        let first = Key {
            resource: Resource {
                group: group.to_owned(),
                plural: plural.to_owned(),
            },
            namespace: namespace.to_owned(),
            name: String::new(),
        };
        let (resource, from) = (first.resource.clone(), first);
        self.objects
            .range(from..)
            .take_while(|(key, _)| key.resource == resource && key.namespace == namespace)
            .map(|(key, object)| (key.clone(), object.as_ref().clone()))
            .collect()
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let is = |c: &Value| c.get("type") == Some(&json!("Ready")) && c.get("status") == Some(&json!("True"));
    metadata(pod, "deletionTimestamp").is_none() && conditions.into_iter().flatten().any(is)
}

fn matches(budget: &Value, pod: &Value) -> bool {
    let selector = budget.pointer("/spec/selector");
    let selector = selector.and_then(|s| LabelSelector::deserialize(s).ok());
    let labels = metadata(pod, "labels").and_then(|l| BTreeMap::deserialize(l).ok());
    selector.is_some_and(|s| label_selector_matches(&s, &labels.unwrap_or_default()))
}

/// How many pods must be healthy. (The real controller counts what a pod's controller wants, not what there is.)
fn desired(budget: &Value, expected: usize) -> usize {
    let spec = |field: &str| budget.pointer(&format!("/spec/{field}"));
    let number = |value: &Value| match value {
        Value::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            (expected * percent).div_ceil(100)
        }
        other => other.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
    };
    match (spec("minAvailable"), spec("maxUnavailable")) {
        (Some(least), _) => number(least),
        (None, Some(most)) => expected.saturating_sub(number(most)),
        (None, None) => 0,
    }
}
