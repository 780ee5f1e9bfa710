//! What was really written, from the API server's audit log: each request once, with its body.

use std::{collections::BTreeSet, path::Path};

use jiff::Timestamp;
use serde_json::Value;

use super::audit_log;
pub use super::audit_log::OPERATOR;

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

/// All requests that write, in the order of their answers; and what was forbidden, reads included.
///
/// An API server that has just started forbids for a moment what it allows as soon as it has read the roles: that is no
/// lack of rights.
pub fn read(log: &Path) -> (Vec<Request>, Vec<String>) {
    let (mut writes, mut forbidden, mut allowed) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for line in audit_log::read(log) {
        let code = line.code();
        let request = format!("{}: {} {}", line.user.username, line.verb, line.path());
        match line.decision() {
            Some("forbid") => forbidden.insert(request),
            Some("allow") => allowed.insert(request),
            _ => false,
        };
        let Some(object) = line.object_ref else { continue };
        if !matches!(line.verb.as_str(), "create" | "patch" | "update" | "delete") {
            continue;
        }
        let resource = object.kind();
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
        self.resource == "clusterversions" && audit_log::changes_desired_update(&self.body)
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
