//! How a case is written.
//!
//! ```yaml
//! - case: an object that exists is not created again
//!   steps:
//!   - ask: POST /api/v1/namespaces/{ns}/configmaps
//!     body: {metadata: {name: a}}
//!     code: 201
//!     answer: {metadata: {uid: $save uid}}
//!   - ask: POST /api/v1/namespaces/{ns}/configmaps
//!     body: {metadata: {name: a}}
//!     code: 409
//!     answer: {reason: AlreadyExists}
//! ```
//!
//! Each case has a namespace `{ns}` of its own, also a good part of names that are unique in the cluster. What a step saved
//! stands in braces in later ones; `{a63}` is the letter a, 63 times. What an answer may ask of a value: see
//! [`super::expect`].

use serde::Deserialize;
use serde_json::Value;

/// A sequence of requests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What holds if the answers are these.
    pub case: String,
    /// The requests.
    pub steps: Vec<Step>,
}

/// A request, and what the server must answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Method, path and parameters; what a URI may not contain is escaped.
    pub ask: String,
    /// The body.
    #[serde(default)]
    pub body: Option<Value>,
    /// A body that is sent as it is.
    #[serde(default)]
    pub text: Option<String>,
    /// Media type of the body: `merge`, `json`, `strategic` or `apply` patch; otherwise plain JSON.
    #[serde(default)]
    pub patch: PatchType,
    /// Only metadata is asked for, as kube's metadata API does it.
    #[serde(default)]
    pub metadata_only: bool,
    /// HTTP status of the answer.
    #[serde(default = "ok")]
    pub code: u16,
    /// What must be in the answer.
    #[serde(default)]
    pub answer: Option<Value>,
    /// Asked again until it is so, this many seconds at most: for what controllers do.
    #[serde(default)]
    pub within: Option<u64>,
    /// Events that the answer, a watch, must begin with.
    #[serde(default)]
    pub events: Option<Vec<Value>>,
    /// Whether the watch ends after them by itself.
    #[serde(default)]
    pub ends: bool,
}

fn ok() -> u16 {
    200
}

/// Kind of a patch.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum PatchType {
    /// The request is no patch.
    #[default]
    None,
    /// RFC 7386.
    Merge,
    /// RFC 6902.
    Json,
    /// Kubernetes' own.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// Media type of the body.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::None => "application/json",
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}
