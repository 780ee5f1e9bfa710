//! Stored objects of our kinds that do not parse: written under another schema (the peer's, an older or a newer release).
//!
//! They are there, and one of them may be what forbids an upgrade: so each is said on the object itself, and what it could
//! have forbidden is not begun. An upgrade that runs is not touched.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, api::ApiResource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{
    NodeForceDrain, UpgradeConfig, UpgradeJob, UpgradeJobHook, UpgradeSuspensionWindow,
    cluster_version::ClusterVersion,
};

/// Kinds of ours that the operator reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Kind {
    ClusterVersion,
    NodeForceDrain,
    UpgradeConfig,
    UpgradeJob,
    UpgradeJobHook,
    UpgradeSuspensionWindow,
}

impl Kind {
    /// The kind of this type, if it is one of these.
    pub fn of<K: Resource<DynamicType = ()>>() -> Option<Self> {
        let name = K::kind(&());
        let all = [
            Self::ClusterVersion,
            Self::NodeForceDrain,
            Self::UpgradeConfig,
            Self::UpgradeJob,
            Self::UpgradeJobHook,
            Self::UpgradeSuspensionWindow,
        ];
        all.into_iter().find(|kind| kind.resource().kind == name)
    }

    /// For the API.
    pub fn resource(self) -> ApiResource {
        match self {
            Self::ClusterVersion => ApiResource::erase::<ClusterVersion>(&()),
            Self::NodeForceDrain => ApiResource::erase::<NodeForceDrain>(&()),
            Self::UpgradeConfig => ApiResource::erase::<UpgradeConfig>(&()),
            Self::UpgradeJob => ApiResource::erase::<UpgradeJob>(&()),
            Self::UpgradeJobHook => ApiResource::erase::<UpgradeJobHook>(&()),
            Self::UpgradeSuspensionWindow => ApiResource::erase::<UpgradeSuspensionWindow>(&()),
        }
    }

    /// Why an object does not parse, beginning with the field; `None` if it does.
    pub fn problem(self, object: &Value) -> Option<String> {
        match self {
            Self::ClusterVersion => problem::<ClusterVersion>(object),
            Self::NodeForceDrain => problem::<NodeForceDrain>(object),
            Self::UpgradeConfig => problem::<UpgradeConfig>(object),
            Self::UpgradeJob => problem::<UpgradeJob>(object),
            Self::UpgradeJobHook => problem::<UpgradeJobHook>(object),
            Self::UpgradeSuspensionWindow => problem::<UpgradeSuspensionWindow>(object),
        }
    }

    /// What is not done while an object of this kind cannot be read.
    pub fn effect(self) -> &'static str {
        match self {
            Self::ClusterVersion => "the cluster's ClusterVersion stays as it is",
            Self::NodeForceDrain => "no pod is deleted because of it",
            Self::UpgradeConfig => "no run of it is pinned, and no job that it made starts",
            Self::UpgradeJob => "nothing is done for it; if it has the lock, no other job starts",
            Self::UpgradeJobHook => "no upgrade starts, since it may be one that is to stop it",
            Self::UpgradeSuspensionWindow => "no upgrade starts, since it may forbid it",
        }
    }
}

fn problem<K: DeserializeOwned>(object: &Value) -> Option<String> {
    let error = serde_path_to_error::deserialize::<_, K>(object).err()?;
    Some(match error.path().to_string().as_str() {
        "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    })
}

/// An object that does not parse.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// Its kind.
    pub kind: Kind,
    /// Its metadata, which does.
    pub metadata: ObjectMeta,
    /// Why not.
    pub problem: String,
}

impl Unreadable {
    /// One of this name in namespace `ns`, for tests.
    #[cfg(test)]
    pub fn named(kind: Kind, name: &str) -> Self {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            ..ObjectMeta::default()
        };
        Self {
            kind,
            metadata,
            problem: "invalid type".to_owned(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

/// What is said on an object that cannot be read. `problem` is [`Kind::problem`].
pub fn message(problem: &str, kind: Kind) -> String {
    let effect = kind.effect();
    format!(
        "the stored object cannot be read: {problem}. Mend this field, or delete the object; until then {effect}"
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::window(Kind::UpgradeSuspensionWindow, json!({"start": "soon", "end": "2026-12-25T00:00:00Z"}), "spec.start: ")]
    #[case::config(Kind::UpgradeConfig, json!({"schedule": {"cron": 5}, "jobTemplate": {"spec": {}}}), "spec.schedule.cron: ")]
    #[case::nested(Kind::UpgradeConfig, json!({"schedule": {"cron": "@weekly"}, "jobTemplate": {"spec": {"config": {"upgradeTimeout": []}}}}),
        "spec.jobTemplate.spec.config.upgradeTimeout: ")]
    #[case::hook(Kind::UpgradeJobHook, json!({"events": ["Start", "Later"]}), "spec.events[1]: ")]
    #[case::absent(Kind::UpgradeJob, json!({"startBefore": "2026-12-25T00:00:00Z"}), "spec: missing field `startAfter`")]
    #[case::ours(Kind::ClusterVersion, json!({"template": {"spec": {}}, "overlays": [{"from": 4}]}), "spec.overlays[0].from: ")]
    fn the_field_is_named(#[case] kind: Kind, #[case] spec: Value, #[case] expected: &str) {
        let types = kind.resource();
        let object = json!({"apiVersion": types.api_version, "kind": types.kind, "metadata": {"name": "x"}, "spec": spec});
        let problem = kind.problem(&object).unwrap();
        assert!(problem.starts_with(expected), "{problem}");
        let said = message(&problem, kind);
        assert!(said.contains(expected) && said.contains("until then"), "{said}");
    }

    #[test]
    fn what_parses_has_no_problem_and_every_type_has_its_kind() {
        let window = json!({"metadata": {"name": "w"}, "spec": {"start": "2026-12-24T00:00:00Z", "end": "2026-12-25T00:00:00Z"}});
        assert_eq!(Kind::UpgradeSuspensionWindow.problem(&window), None);
        assert_eq!(Kind::of::<UpgradeConfig>(), Some(Kind::UpgradeConfig));
        assert_eq!(Kind::of::<ClusterVersion>(), Some(Kind::ClusterVersion));
        assert_eq!(Kind::of::<k8s_openapi::api::core::v1::Node>(), None);
    }
}
