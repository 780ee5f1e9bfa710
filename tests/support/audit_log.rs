//! The API server's audit log, as a file of lines: one for each request that is over, and for a watch one when it begins, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// What the users of our ServiceAccounts begin with.
const ACCOUNTS: &str = "system:serviceaccount:openshift-upgrade:";
/// The operator's user.
pub const OPERATOR: &str = "system:serviceaccount:openshift-upgrade:upgrade-operator";

/// One line (`audit.k8s.io/v1`, Event). What a level leaves out is empty.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; of a path that is no object's the HTTP
    /// method.
    pub verb: String,
    /// Who asked.
    pub user: User,
    /// The program, as it calls itself.
    #[serde(default)]
    pub user_agent: String,
    /// What was asked for.
    pub object_ref: Option<ObjectRef>,
    /// The answer.
    pub response_status: Option<Status>,
    /// What was sent.
    #[serde(default)]
    pub request_object: Value,
    /// When it arrived.
    pub request_received_timestamp: Timestamp,
    /// When it was answered.
    pub stage_timestamp: Timestamp,
    /// What the API server says of it.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
}

/// Who asked.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// The user's name.
    pub username: String,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// `""` for the core group.
    pub api_group: String,
    /// In the plural.
    pub resource: String,
    /// Such as `status`.
    pub subresource: String,
    /// `""` for objects of the cluster, and for requests about all namespaces.
    pub namespace: String,
    /// `""` where it is not in the path.
    pub name: String,
}

/// The answer.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// As in HTTP.
    #[serde(default)]
    pub code: u16,
}

impl Line {
    /// The answer; 0 if there was none.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |s| s.code)
    }

    /// Whether it went through.
    pub fn was_accepted(&self) -> bool {
        (200..300).contains(&self.code())
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.request_uri.split('?').next().unwrap_or_default()
    }

    /// Whether the query has this pair.
    pub fn asks(&self, pair: &str) -> bool {
        let query = self.request_uri.split_once('?').map_or("", |(_, q)| q);
        query.split('&').any(|p| p == pair)
    }

    /// What the authorizer said: `allow` or `forbid`.
    pub fn decision(&self) -> Option<&str> {
        self.annotations
            .get("authorization.k8s.io/decision")
            .map(String::as_str)
    }

    /// Which process of the operator it was, by the name that it has in the Lease.
    pub fn process(&self) -> &str {
        let named = self.user_agent.split_once('(');
        named.map_or(self.user_agent.as_str(), |(_, name)| name.trim_end_matches(')'))
    }
}

impl ObjectRef {
    /// Resource, with the subresource where there is one (`upgradejobs/status`).
    pub fn kind(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            sub => format!("{}/{sub}", self.resource),
        }
    }
}

/// Whether a patch of the ClusterVersion sets or removes `spec.desiredUpdate`.
pub fn changes_desired_update(patch: &Value) -> bool {
    let changes = |op: &Value| op["path"] == "/spec/desiredUpdate" && op["op"] != "test";
    patch.as_array().is_some_and(|ops| ops.iter().any(changes))
        || patch.pointer("/spec/desiredUpdate").is_some()
}

/// All lines; the last one may still be growing, and is left out then.
pub fn read(log: &Path) -> Vec<Line> {
    texts(log)
        .filter_map(|text| serde_json::from_str(&text).ok())
        .collect()
}

fn texts(log: &Path) -> impl Iterator<Item = String> {
    let file = File::open(log).unwrap_or_else(|e| {
        panic!(
            "cannot read the audit log {} ({e}): bring the cluster up with TESTBED_AUDIT=ours",
            log.display()
        )
    });
    BufReader::new(file).lines().map_while(Result::ok)
}

/// Where tests on lanes leave what was asked for there, if anywhere: a folder of audit logs for `tests/access`.
pub fn kept_folder() -> Option<PathBuf> {
    std::env::var_os("TESTBED_KEEP_REQUESTS").map(PathBuf::from)
}

/// Copies a log into that folder, of requests of our ServiceAccounts that are alike only one.
pub fn keep(log: &Path) {
    let Some(folder) = kept_folder() else { return };
    let mut seen = BTreeSet::new();
    let mut kept = String::new();
    for text in texts(log) {
        let Ok(line) = serde_json::from_str::<Line>(&text) else {
            continue;
        };
        let object = line.object_ref.clone().unwrap_or_default();
        let ours = line.user.username.starts_with(ACCOUNTS);
        let alike = (
            line.user.username.clone(),
            line.verb.clone(),
            object.kind(),
            object.api_group,
            object.namespace,
            line.code(),
        );
        if ours && seen.insert(alike) {
            kept.push_str(&text);
            kept.push('\n');
        }
    }
    let name = format!("{}-{}.log", std::process::id(), Timestamp::now().as_nanosecond());
    std::fs::create_dir_all(&folder).expect("making the folder of kept requests");
    std::fs::write(folder.join(name), kept).expect("keeping the requests of a test");
}

/// The audit log of the whole test cluster.
pub fn of_cluster() -> PathBuf {
    let logs = std::env::var("TESTBED_LOGS").expect("TESTBED_LOGS is not set: eval \"$(tests/cluster/env)\"");
    Path::new(&logs).join("audit.log")
}
