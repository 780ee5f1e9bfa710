//! What the server would say of an object that is applied, without a server.

use serde_json::Value;

use super::{
    kinds::{Kinds, Model},
    metadata as meta,
    refusal::FieldError,
};

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Review {
    /// There is no such kind in this group and version.
    UnknownKind,
    /// It is refused; each with the field.
    Refused(Vec<String>),
    /// It is taken, but without these fields, which its kind does not have.
    Taken {
        /// Their paths, such as `spec.schedule.isoweek`.
        unknown_fields: Vec<String>,
    },
}

impl Kinds {
    /// Looks at an object, by its `apiVersion` and `kind`. Where the schema of a kind is not at hand, its objects are taken as
    /// they are.
    pub fn review(&self, object: &Value) -> Review {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let mut known = self.all().iter();
        let found = known.find(|(resource, kind)| {
            kind.name == text("kind") && kind.api_version(resource) == text("apiVersion")
        });
        let Some((resource, kind)) = found else {
            return Review::UnknownKind;
        };
        let Model::Custom(schema) = &kind.model else {
            return Review::Taken {
                unknown_fields: Vec::new(),
            };
        };
        let mut object = object.clone();
        let unknown_fields = schema.shape(&mut object);
        let mut errors = match meta::shape(&mut object) {
            Ok(()) => meta::errors(resource, kind, &object),
            Err(problem) => vec![FieldError::wrong("metadata", &problem.to_string())],
        };
        if errors.is_empty() {
            errors = schema.errors(&object, None);
        }
        if errors.is_empty() {
            return Review::Taken { unknown_fields };
        }
        let mut texts: Vec<String> = errors
            .iter()
            .map(|e| format!("{}: {}", e.field, e.message))
            .collect();
        texts.dedup();
        Review::Refused(texts)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn window(spec: &Value) -> Value {
        json!({"apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeSuspensionWindow",
            "metadata": {"name": "w", "namespace": "ns"}, "spec": spec})
    }

    fn taken(unknown: &[&str]) -> Review {
        Review::Taken {
            unknown_fields: unknown.iter().map(|f| (*f).to_owned()).collect(),
        }
    }

    #[rstest]
    #[case::as_it_should_be(json!({"start": "2026-12-01T00:00:00Z", "end": "2026-12-02T00:00:00Z"}), &[])]
    #[case::a_typo(json!({"start": "2026-12-01T00:00:00Z", "end": "2026-12-02T00:00:00Z", "reasons": "x"}), &["spec.reasons"])]
    fn what_is_taken(#[case] spec: Value, #[case] unknown: &[&str]) {
        assert_eq!(Kinds::ours().review(&window(&spec)), taken(unknown));
    }

    #[rstest]
    #[case::a_rule(json!({"start": "2026-12-02T00:00:00Z", "end": "2026-12-01T00:00:00Z"}), "end must be later than start")]
    #[case::a_missing_field(json!({"start": "2026-12-02T00:00:00Z"}), "spec.end: Required value")]
    fn what_is_refused(#[case] spec: Value, #[case] expected: &str) {
        let Review::Refused(problems) = Kinds::ours().review(&window(&spec)) else {
            panic!("taken: {spec}");
        };
        assert!(problems.iter().any(|p| p.contains(expected)), "{problems:?}");
    }

    #[test]
    fn a_version_that_is_not_served_is_an_unknown_kind() {
        let mut window = window(&json!({}));
        window["apiVersion"] = "managedupgrade.appuio.io/v1".into();
        assert_eq!(Kinds::ours().review(&window), Review::UnknownKind);
    }

    #[test]
    fn kinds_of_others_are_taken_as_they_are() {
        let route = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "datta": {}});
        assert_eq!(Kinds::ours().review(&route), taken(&[]));
    }
}
