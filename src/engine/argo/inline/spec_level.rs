//! What the spec of a WorkflowTemplate says for all of its pods, put on the copied templates.
//!
//! Argo itself takes nothing but the template through a `templateRef`. A WorkflowTemplate that works when it is submitted
//! shall work as a hook, so what can be said on a template is put there, under Argo's own rule: the template's own wins.
//! The fields are those of `WorkflowSpec` in Argo v4.1.4.

use serde_json::{Value, json};

use super::{InlineError, Object, list_mut, object_mut, pods, set};
use crate::engine::native::TemplateKey;

/// Has the same name on a template of a pod, and counts where that has none.
const SAME_ON_PODS: [&str; 11] = [
    "activeDeadlineSeconds",
    "affinity",
    "automountServiceAccountToken",
    "executor",
    "hostAliases",
    "nodeSelector",
    "podResources",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
];
/// Has no place on a template, but in the patch of its pods.
const IN_PATCH: [&str; 5] = [
    "dnsConfig",
    "dnsPolicy",
    "hostNetwork",
    "imagePullSecrets",
    "resourceClaims",
];
/// Taken care of elsewhere in this module or in those beside it.
const ELSEWHERE: [&str; 11] = [
    "archiveLogs",
    "arguments",
    "artifactRepositoryRef",
    "entrypoint",
    "podMetadata",
    "podPriorityClassName",
    "podSpecPatch",
    "retryStrategy",
    "synchronization",
    "templates",
    "volumes",
];
/// About a workflow of its own, which there is none of: nothing that a hook does depends on it.
const WITHOUT_EFFECT: [&str; 11] = [
    "artifactGC",
    "metrics",
    "podDisruptionBudget",
    "podGC",
    "priority",
    "shutdown",
    "suspend",
    "ttlStrategy",
    "volumeClaimGC",
    "workflowMetadata",
    // Says which artifacts are kept in a database of Argo's.
    "archive",
];
/// Cannot be taken over, and what to write instead.
const REFUSED: [(&str, &str); 7] = [
    ("executorPlugins", "use a container"),
    ("hooks", "write them on the steps or tasks of the template"),
    ("onExit", "write onExit on the steps or tasks of the template"),
    ("parallelism", "write it on the template of steps or the DAG"),
    ("templateDefaults", "write them on the templates"),
    (
        "volumeClaimTemplates",
        "make a PersistentVolumeClaim and use it in volumes",
    ),
    (
        "workflowTemplateRef",
        "name that WorkflowTemplate in spec.templateRef",
    ),
];

/// What is put on every copied template.
pub struct Carried<'a> {
    spec: &'a Object,
    /// What is merged into pods.
    patch: Object,
}

impl<'a> Carried<'a> {
    /// What a spec says for all; refuses what cannot be said on a template.
    pub fn of(of: &TemplateKey, spec: &'a Object) -> Result<Self, InlineError> {
        for field in spec.iter().filter(|(_, v)| !is_empty(v)).map(|(k, _)| k.as_str()) {
            if SAME_ON_PODS.contains(&field)
                || IN_PATCH.contains(&field)
                || ELSEWHERE.contains(&field)
                || WITHOUT_EFFECT.contains(&field)
            {
                continue;
            }
            let instead = REFUSED.iter().find(|(name, _)| *name == field);
            return Err(InlineError::Field {
                of: of.clone(),
                field: field.to_owned(),
                instead: instead.map_or("this operator does not know it; remove it", |(_, instead)| {
                    instead
                }),
            });
        }
        let patch = IN_PATCH
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), set(spec, field)?.clone())))
            .collect();
        Ok(Self { spec, patch })
    }

    /// Puts it on a template, and on those that are written within its calls.
    pub fn put_on(&self, of: &TemplateKey, body: &mut Object, is_entry: bool) -> Result<(), InlineError> {
        let mut within = Ok(());
        pods::each_inline(body, &mut |body| {
            if let Err(error) = self.put_on(of, body, false) {
                within = Err(error);
            }
        });
        within?;
        // Argo tries every kind of template again by this, not only pods.
        self.where_missing(body, "retryStrategy", "retryStrategy");
        // A lock of the whole workflow is one of the template that is all of it.
        if is_entry {
            self.where_missing(body, "synchronization", "synchronization");
        }
        if !pods::is_pod(body) {
            return Ok(());
        }
        for field in SAME_ON_PODS {
            self.where_missing(body, field, field);
        }
        self.where_missing(body, "podPriorityClassName", "priorityClassName");
        self.volumes(body);
        self.metadata(body);
        if let Some(archive) = set(self.spec, "archiveLogs")
            && let Some(location) = object_mut(body, "archiveLocation")
        {
            location.entry("archiveLogs").or_insert_with(|| archive.clone());
        }
        self.patch(of, body)
    }

    fn where_missing(&self, body: &mut Object, field: &str, as_field: &str) {
        if let Some(value) = set(self.spec, field)
            && body.get(as_field).is_none_or(is_empty)
        {
            body.insert(as_field.to_owned(), value.clone());
        }
    }

    /// Both; of two with one name the template's.
    fn volumes(&self, body: &mut Object) {
        let Some(Value::Array(all)) = set(self.spec, "volumes") else {
            return;
        };
        let Some(own) = list_mut(body, "volumes") else {
            return;
        };
        for volume in all {
            if !own.iter().any(|v| v.get("name") == volume.get("name")) {
                own.push(volume.clone());
            }
        }
    }

    fn metadata(&self, body: &mut Object) {
        let Some(Value::Object(all)) = set(self.spec, "podMetadata") else {
            return;
        };
        for field in ["labels", "annotations"] {
            let Some(Value::Object(values)) = set(all, field) else {
                continue;
            };
            if let Some(own) = object_mut(body, "metadata").and_then(|m| object_mut(m, field)) {
                for (key, value) in values {
                    own.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
    }

    fn patch(&self, of: &TemplateKey, body: &mut Object) -> Result<(), InlineError> {
        let given = set(self.spec, "podSpecPatch");
        let own = body.get("podSpecPatch").filter(|p| !is_empty(p));
        let patches = usize::from(given.is_some()) + usize::from(!self.patch.is_empty());
        if patches == 0 {
            return Ok(());
        }
        if patches + usize::from(own.is_some()) > 1 {
            let mut fields: Vec<&str> = self.patch.keys().map(String::as_str).collect();
            fields.extend(given.map(|_| "podSpecPatch"));
            return Err(InlineError::TwoPatches {
                of: of.clone(),
                template: super::arguments::name_of(body),
                fields: fields.join(", "),
            });
        }
        let patch = given.map_or_else(
            || json!(Value::Object(self.patch.clone()).to_string()),
            Clone::clone,
        );
        body.insert("podSpecPatch".to_owned(), patch);
        Ok(())
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_decided_once() {
        let refused: Vec<&str> = REFUSED.iter().map(|(name, _)| *name).collect();
        let mut all = [
            &SAME_ON_PODS[..],
            &IN_PATCH,
            &ELSEWHERE,
            &WITHOUT_EFFECT,
            &refused,
        ]
        .concat();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
