//! What was really written, from the API server's audit log: each request once, with its body.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The operator's user.
pub const OPERATOR: &str = "system:serviceaccount:openshift-upgrade:upgrade-operator";

/// One request that may have changed something.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who made it.
    pub user: String,
    /// The program, as it calls itself.
    pub agent: String,
    /// `create`, `patch`, `update`, `delete`.
    pub verb: String,
    /// Resource, with the subresource where there is one (`upgradejobs/status`).
    pub resource: String,
    /// Name of the object.
    pub name: String,
    /// Answer.
    pub code: u16,
    /// What was sent.
    pub body: Value,
    /// When it arrived.
    pub at: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    #[serde(default)]
    request_object: Value,
    request_received_timestamp: Timestamp,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(rename = "requestURI")]
    request_uri: String,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

/// All requests that write, in the order of their answers; and what was forbidden, reads included.
///
/// An API server that has just started forbids for a moment what it allows as soon as it has read the roles: that is no
/// lack of rights.
pub fn read(log: &Path) -> (Vec<Request>, Vec<String>) {
    let (mut writes, mut forbidden, mut allowed) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let file = BufReader::new(File::open(log).expect("opening the audit log"));
    for line in file.lines() {
        let text = line.expect("reading the audit log");
        // The last line may still be growing.
        let Ok(line) = serde_json::from_str::<Line>(&text) else {
            continue;
        };
        let code = line.response_status.map_or(0, |s| s.code);
        let path = line.request_uri.split('?').next().unwrap_or_default();
        let request = format!("{}: {} {path}", line.user.username, line.verb);
        match line
            .annotations
            .get("authorization.k8s.io/decision")
            .map(String::as_str)
        {
            Some("forbid") => forbidden.insert(request),
            Some("allow") => allowed.insert(request),
            _ => false,
        };
        let Some(object) = line.object_ref else { continue };
        if !matches!(line.verb.as_str(), "create" | "patch" | "update" | "delete") {
            continue;
        }
        let resource = match object.subresource.as_str() {
            "" => object.resource,
            sub => format!("{}/{sub}", object.resource),
        };
        let in_body = line
            .request_object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        writes.push(Request {
            user: line.user.username,
            agent: line.user_agent,
            verb: line.verb,
            resource,
            name: if object.name.is_empty() {
                in_body.to_owned()
            } else {
                object.name
            },
            code,
            body: line.request_object,
            at: line.request_received_timestamp,
        });
    }
    (writes, forbidden.difference(&allowed).cloned().collect())
}

impl Request {
    /// Whether the operator made it, and it went through.
    pub fn is_operators(&self) -> bool {
        self.user == OPERATOR && (200..300).contains(&self.code)
    }

    /// Whether it sets or removes `spec.desiredUpdate` of the ClusterVersion.
    pub fn is_of_desired_update(&self) -> bool {
        let changes = |op: &Value| op["path"] == "/spec/desiredUpdate" && op["op"] != "test";
        self.resource == "clusterversions"
            && (self.body.as_array().is_some_and(|ops| ops.iter().any(changes))
                || self.body.pointer("/spec/desiredUpdate").is_some())
    }

    /// Whether it changes the pause of a pool, and to what.
    pub fn pauses(&self) -> Option<bool> {
        let is_pool = self.resource == "machineconfigpools";
        self.body
            .pointer("/spec/paused")
            .filter(|_| is_pool)
            .and_then(Value::as_bool)
    }
}
