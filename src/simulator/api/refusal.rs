//! The server's ways to say no.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{
    answer::{Body, json_answer, text_answer},
    kinds::Resource,
};

/// In place of the reason of a Status, where there is none.
const NO_SUCH_PAGE: &str = "no such page";

/// A request that is refused. `Display` is the message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// `reason` of the Status; empty for errors that the server did not expect itself.
    pub reason: &'static str,
    /// Message.
    pub message: String,
    /// `details` of the Status.
    pub details: Value,
}

impl Refusal {
    /// A refusal without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
        }
    }

    fn about(code: u16, reason: &'static str, resource: &Resource, name: &str, message: String) -> Self {
        Self {
            details: details(&resource.group, &resource.plural, name),
            ..Self::new(code, reason, message)
        }
    }

    /// The object does not exist.
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{resource} {name:?} not found");
        Self::about(404, "NotFound", resource, name, message)
    }

    /// The object exists already.
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{resource} {name:?} already exists");
        Self::about(409, "AlreadyExists", resource, name, message)
    }

    /// Nobody serves this path, as that of a kind without CustomResourceDefinition: no Status, but a line of text.
    pub fn no_such_page() -> Self {
        Self::new(404, NO_SUCH_PAGE, "404 page not found")
    }

    /// A built-in group does not have the kind, or the kind not the subresource.
    pub fn no_such_kind() -> Self {
        Self {
            details: json!({}),
            ..Self::new(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )
        }
    }

    /// Somebody else wrote first.
    pub fn conflict(resource: &Resource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict_because(resource, name, why)
    }

    /// The object is not as the client thinks.
    pub fn conflict_because(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::about(409, "Conflict", resource, name, message)
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// The server stumbled, as the real one does over the same.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Fields are wrong. `group` and `kind` are those of the object as the real server names them, which is not always its
    /// kind.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = format!("{}: {}", error.field, error.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let problem = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let mut details = details(group, kind, name);
        let causes = errors
            .iter()
            .map(|e| json!({"reason": e.reason.as_str(), "message": e.message, "field": e.field}));
        if let Some(map) = details.as_object_mut() {
            map.insert("causes".to_owned(), causes.collect());
        }
        Self {
            details,
            ..Self::new(
                422,
                "Invalid",
                format!("{qualified} {name:?} is invalid: {problem}"),
            )
        }
    }

    /// A patch came to something that is no object of this kind.
    pub fn bad_patch(document: &Value, problem: &str) -> Self {
        let error = FieldError::invalid("patch", &Value::from(document.to_string()), problem);
        Self::invalid("", "", "", &[error])
    }

    fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Value::Object(map) = &mut status {
            if !self.reason.is_empty() {
                map.insert("reason".to_owned(), self.reason.into());
            }
            if !self.details.is_null() {
                map.insert("details".to_owned(), self.details.clone());
            }
        }
        status
    }

    /// As an answer.
    pub fn answer(&self) -> Response<Body> {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if self.reason == NO_SUCH_PAGE {
            return text_answer(code, &self.message);
        }
        json_answer(code, &self.status())
    }

    /// As the event of a watch.
    pub fn event(&self) -> Value {
        json!({"type": "ERROR", "object": self.status()})
    }
}

/// Empty parts are left out.
fn details(group: &str, kind: &str, name: &str) -> Value {
    let parts = [("name", name), ("group", group), ("kind", kind)];
    let told = parts.into_iter().filter(|(_, v)| !v.is_empty());
    told.map(|(k, v)| (k.to_owned(), Value::from(v))).collect()
}

/// What kind of wrong a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is missing.
    Required,
    /// Its value is wrong.
    Invalid,
    /// Its value is of the wrong type.
    TypeInvalid,
    /// Its value is none of those that there are.
    NotSupported,
    /// Its value is too long.
    TooLong,
    /// It has too many parts.
    TooMany,
    /// It must not be there.
    Forbidden,
    /// It is there twice.
    Duplicate,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
        }
    }

    /// Whether rules are not even tried on an object with such a field, as in `hasBlockingErr` of the real server's
    /// `registry/customresource/strategy.go`.
    pub fn is_blocking(self) -> bool {
        match self {
            Self::Required | Self::TypeInvalid | Self::NotSupported | Self::TooLong | Self::TooMany => true,
            Self::Invalid | Self::Forbidden | Self::Duplicate => false,
        }
    }
}

/// A field that is wrong, in the words of Kubernetes' `apimachinery/pkg/util/validation/field`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Path of the field.
    pub field: String,
    /// How it is wrong.
    pub reason: Reason,
    /// What is wrong.
    pub message: String,
}

impl FieldError {
    fn new(field: impl Into<String>, reason: Reason, message: String) -> Self {
        Self {
            field: field.into(),
            reason,
            message,
        }
    }

    /// A value that is wrong.
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new(field, Reason::Invalid, format!("Invalid value: {value}: {why}"))
    }

    /// A value that is wrong and that the message does not show.
    pub fn wrong(field: impl Into<String>, why: &str) -> Self {
        Self::new(field, Reason::Invalid, format!("Invalid value: {why}"))
    }

    /// A value of the wrong type.
    pub fn wrong_type(field: impl Into<String>, is: &str, why: &str) -> Self {
        Self::new(
            field,
            Reason::TypeInvalid,
            format!("Invalid value: {is:?}: {why}"),
        )
    }

    /// A value that is missing.
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let colon = if why.is_empty() { "" } else { ": " };
        Self::new(field, Reason::Required, format!("Required value{colon}{why}"))
    }

    /// A value that is none of those that there are.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[Value]) -> Self {
        let supported: Vec<String> = supported.iter().map(Value::to_string).collect();
        let message = format!(
            "Unsupported value: {value}: supported values: {}",
            supported.join(", ")
        );
        Self::new(field, Reason::NotSupported, message)
    }

    /// A value that is too long.
    pub fn too_long(field: impl Into<String>, most: impl std::fmt::Display) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self::new(field, Reason::TooLong, message)
    }

    /// A list that is too long.
    pub fn too_many(field: impl Into<String>, are: usize, most: impl std::fmt::Display) -> Self {
        let message = format!("Too many: {are}: must have at most {most} items");
        Self::new(field, Reason::TooMany, message)
    }

    /// A field that must not be as it is now.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new(field, Reason::Forbidden, format!("Forbidden: {why}"))
    }

    /// An entry that is there twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, Reason::Duplicate, format!("Duplicate value: {value}"))
    }
}
