//! Whether rights and requests fit each other. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    audit_log::{Line, ObjectRef},
    rights::{Dangling, Right, Scope, qualified},
};

/// A request, as far as rights are about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Name of the ServiceAccount.
    pub account: String,
    pub scope: Scope,
    /// As in [`Right::resource`].
    pub resource: String,
    pub verb: String,
    /// `""` if the request names none.
    pub name: String,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            account,
            scope,
            resource,
            verb,
            name,
        } = self;
        let space = if name.is_empty() { "" } else { " " };
        write!(f, "{account}: {verb} {resource}{space}{name} in {scope}")
    }
}

impl Request {
    /// Whether it asks for the same, but for the name.
    fn is_like(&self, other: &Self) -> bool {
        let of = |r: &Self| {
            (
                r.account.clone(),
                r.scope.clone(),
                r.resource.clone(),
                r.verb.clone(),
            )
        };
        of(self) == of(other)
    }

    /// The request of a line, if a ServiceAccount of this namespace made it.
    fn of(line: &Line, namespace: &str) -> Option<Self> {
        let account = line
            .user
            .username
            .strip_prefix("system:serviceaccount:")?
            .strip_prefix(namespace)?
            .strip_prefix(':')?;
        let (resource, at, name) = match &line.object_ref {
            Some(object) => {
                let ObjectRef {
                    api_group,
                    namespace,
                    name,
                    ..
                } = object;
                let resource = qualified(&object.kind(), api_group);
                // A Namespace is in itself for the API server; a role of the cluster grants it.
                let at = if object.resource == "namespaces" {
                    ""
                } else {
                    namespace
                };
                (resource, at.to_owned(), name.clone())
            }
            None => (line.path().to_owned(), String::new(), String::new()),
        };
        Some(Self {
            account: account.to_owned(),
            scope: if at.is_empty() {
                Scope::Cluster
            } else {
                Scope::Namespace(at)
            },
            resource,
            verb: line.verb.clone(),
            name,
        })
    }
}

impl Right {
    fn covers(&self, request: &Request) -> bool {
        self.account == request.account
            && (self.scope == Scope::Cluster || self.scope == request.scope)
            && self.resource == request.resource
            && self.verb == request.verb
            && (self.names.is_empty() || self.names.contains(&request.name))
    }

    fn is_wildcard(&self) -> bool {
        self.verb == "*" || self.resource.contains('*')
    }
}

/// Something that need not be so, and why it may.
#[derive(Clone, Debug)]
pub struct Exception {
    pub account: &'static str,
    /// Whether it is about the whole cluster, or the operator's namespace.
    pub of_cluster: bool,
    /// As in [`Right::resource`].
    pub resource: &'static str,
    pub verbs: &'static [&'static str],
    pub how: How,
    pub reason: &'static str,
}

/// What is excused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Granted, and never used in these tests.
    Unused,
    /// Granted, and used in some runs only.
    Rare,
    /// Not granted by us, and asked for nevertheless.
    Refused,
}

impl Exception {
    fn is_about(&self, account: &str, scope: &Scope, resource: &str, verb: &str) -> bool {
        self.account == account
            && self.of_cluster == (*scope == Scope::Cluster)
            && self.resource == resource
            && self.verbs.contains(&verb)
    }

    fn is_about_right(&self, right: &Right) -> bool {
        self.is_about(&right.account, &right.scope, &right.resource, &right.verb)
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// There is no request at all of an account: the log is of something else.
    NoRequests(String),
    /// A request was refused for want of a right.
    Refused(Request),
    /// Whoever has it may do more than is written there.
    Wildcard(Right),
    /// Nobody needs it.
    Unused(Right),
    /// A binding to a role that does not exist.
    Dangling(Dangling),
    /// An exception that is none any more.
    Stale(String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRequests(account) => write!(
                f,
                "{account} asked for nothing: is the audit log that of the tests on the cluster?"
            ),
            Self::Refused(request) => write!(f, "refused: {request}; grant it, or do not ask"),
            Self::Wildcard(right) => write!(f, "a wildcard: {right}; name what is needed"),
            Self::Unused(right) => write!(
                f,
                "used by no test: {right}; take it away, or say in tests/access/exceptions.rs why not"
            ),
            Self::Dangling(binding) => write!(f, "bound to a role that does not exist: {binding}"),
            Self::Stale(exception) => {
                write!(
                    f,
                    "needless in tests/access/exceptions.rs, for it is used or not granted: {exception}"
                )
            }
        }
    }
}

/// What the log says of the ServiceAccounts of `namespace`: what they asked for, and what of it was refused.
pub fn requests(log: &[Line], namespace: &str) -> (BTreeSet<Request>, BTreeSet<Request>) {
    let (mut all, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for line in log {
        let Some(request) = Request::of(line, namespace) else {
            continue;
        };
        if line.code() == 403 || line.decision() == Some("forbid") {
            refused.insert(request);
        } else {
            all.insert(request);
        }
    }
    (all, refused)
}

/// All findings, in order. `accounts` are those that must have asked for something.
pub fn judge(
    accounts: &[&str],
    rights: &[Right],
    dangling: &[Dangling],
    (asked, refused): &(BTreeSet<Request>, BTreeSet<Request>),
    exceptions: &[Exception],
) -> Vec<Finding> {
    let mut findings = BTreeSet::new();
    for account in accounts {
        if !asked.iter().any(|r| r.account == *account) {
            findings.insert(Finding::NoRequests((*account).to_owned()));
        }
    }
    findings.extend(dangling.iter().cloned().map(Finding::Dangling));
    findings.extend(
        rights
            .iter()
            .filter(|r| r.is_wildcard())
            .cloned()
            .map(Finding::Wildcard),
    );
    let used = used(rights, asked);
    for right in rights
        .iter()
        .filter(|r| !r.is_wildcard() && !used.contains_key(r))
    {
        let excused = exceptions
            .iter()
            .any(|e| matches!(e.how, How::Unused | How::Rare) && e.is_about_right(right));
        if !excused {
            findings.insert(Finding::Unused(right.clone()));
        }
    }
    let is_excused = |request: &Request| {
        let expected = exceptions.iter().any(|e| {
            let Request {
                account,
                scope,
                resource,
                verb,
                name: _,
            } = request;
            e.how == How::Refused && e.is_about(account, scope, resource, verb)
        });
        // Roles come and go with the chart, and an API server that has just started has not read them: what is granted, and
        // went through at other times, is no lack of rights.
        let is_granted = rights.iter().any(|right| right.covers(request));
        expected || is_granted && asked.iter().any(|a| a.is_like(request))
    };
    findings.extend(
        refused
            .iter()
            .filter(|r| !is_excused(r))
            .cloned()
            .map(Finding::Refused),
    );
    for exception in exceptions {
        for verb in stale(exception, rights, &used, refused) {
            let Exception {
                account,
                resource,
                reason,
                of_cluster: _,
                verbs: _,
                how: _,
            } = exception;
            let text = format!("{account}: {verb} {resource} ({reason})");
            findings.insert(Finding::Stale(text));
        }
    }
    findings.into_iter().collect()
}

/// The rights that requests needed. One that two rights cover needs the narrower: the other may be for something else.
fn used<'a>(rights: &'a [Right], asked: &'a BTreeSet<Request>) -> BTreeMap<&'a Right, &'a Request> {
    let mut used = BTreeMap::new();
    for request in asked {
        let covering = rights.iter().filter(|r| r.covers(request));
        let narrowest = covering.min_by_key(|r| (r.scope == Scope::Cluster, r.names.is_empty()));
        used.extend(narrowest.map(|right| (right, request)));
    }
    used
}

/// The verbs of an exception that need none.
fn stale(
    exception: &Exception,
    rights: &[Right],
    used: &BTreeMap<&Right, &Request>,
    refused: &BTreeSet<Request>,
) -> Vec<&'static str> {
    let is_needed = |verb: &str| {
        let is_it = |right: &&Right| right.verb == verb && exception.is_about_right(right);
        match exception.how {
            How::Unused => rights.iter().any(|r| is_it(&r) && !used.contains_key(r)),
            How::Rare => rights.iter().any(|r| is_it(&r)),
            How::Refused => refused
                .iter()
                .any(|r| exception.is_about(&r.account, &r.scope, &r.resource, verb) && r.verb == verb),
        }
    };
    exception
        .verbs
        .iter()
        .copied()
        .filter(|verb| !is_needed(verb))
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const US: &str = "us";

    fn split_name(text: &str) -> (&str, &str) {
        text.split_once(':').unwrap_or((text, ""))
    }

    /// `verb resource[:name] namespace`, with `-` for the cluster.
    fn right(text: &str) -> Right {
        let [verb, resource, at] = text.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        let (resource, name) = split_name(resource);
        let names = Some(name.to_owned()).filter(|n| !n.is_empty());
        Right {
            account: US.to_owned(),
            scope: if at == "-" {
                Scope::Cluster
            } else {
                Scope::Namespace(at.to_owned())
            },
            resource: resource.to_owned(),
            verb: verb.to_owned(),
            names: names.into_iter().collect(),
            role: "r".to_owned(),
        }
    }

    /// `verb resource[:name] namespace code`, as the API server writes it.
    fn line(text: &str) -> Line {
        let [verb, resource, at, code] = text.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        let (full, name) = split_name(resource);
        let (kind, group) = full.split_once('.').unwrap_or((full, ""));
        let (resource, subresource) = kind.split_once('/').unwrap_or((kind, ""));
        let mut object =
            json!({"apiGroup": group, "resource": resource, "subresource": subresource, "name": name});
        if at != "-" {
            object["namespace"] = json!(at);
        }
        serde_json::from_value(json!({
            "verb": verb,
            "user": {"username": "system:serviceaccount:ns:us"},
            "objectRef": object,
            "responseStatus": {"code": code.parse::<u16>().unwrap()},
            "requestReceivedTimestamp": "2026-11-22T01:00:00.000000Z",
            "stageTimestamp": "2026-11-22T01:00:00.001000Z",
            "annotations": {"authorization.k8s.io/decision": if code == "403" { "forbid" } else { "allow" }},
            "requestURI": "/",
        }))
        .unwrap()
    }

    const fn excused(resource: &'static str, verbs: &'static [&'static str], how: How) -> Exception {
        Exception {
            account: US,
            of_cluster: true,
            resource,
            verbs,
            how,
            reason: "because",
        }
    }

    #[rstest]
    #[case::used(&["get pods ns", "patch things/status.a.io -"], &["get pods:p ns 200", "patch things/status.a.io:t - 200"], &[], &[])]
    #[case::used_though_it_failed(&["get pods ns"], &["get pods:p ns 404"], &[], &[])]
    #[case::a_namespace_is_the_clusters(&["get namespaces -"], &["get namespaces:n n 200"], &[], &[])]
    #[case::in_any_namespace(&["get pods -"], &["get pods:p ns 200"], &[], &[])]
    #[case::unused(&["get pods ns", "list pods ns"], &["get pods:p ns 200"], &[],
        &["used by no test: us may list pods in namespace ns (r)"])]
    #[case::of_another_group(&["get things.a.io -"], &["get things.b.io - 200"], &[],
        &["used by no test: us may get things.a.io in the cluster (r)"])]
    #[case::the_subresource_only(&["patch jobs.batch ns"], &["patch jobs/status.batch:j ns 200"], &[],
        &["used by no test: us may patch jobs.batch in namespace ns (r)"])]
    #[case::in_another_namespace(&["get pods ns"], &["get pods:p other 200"], &[],
        &["used by no test: us may get pods in namespace ns (r)"])]
    #[case::of_another_name(&["get leases:a ns"], &["get leases:b ns 200"], &[],
        &["used by no test: us may get leases named a in namespace ns (r)"])]
    #[case::the_narrower_was_enough(&["create events -", "create events ns"], &["create events ns 201"], &[],
        &["used by no test: us may create events in the cluster (r)"])]
    #[case::both_were_needed(&["create events -", "create events ns"], &["create events ns 201", "create events default 201"], &[], &[])]
    #[case::refused(&[], &["get pods:p ns 403", "get pods:p ns 200"], &[], &["refused: us: get pods p in namespace ns"])]
    #[case::refused_while_the_role_was_away(&["get pods ns"], &["get pods:p ns 403", "get pods:q ns 200"], &[], &[])]
    #[case::refused_for_its_name(&["get leases:a ns"], &["get leases:b ns 403", "get leases:a ns 200"], &[],
        &["refused: us: get leases b in namespace ns"])]
    #[case::refused_and_so_unused(&["get pods ns"], &["get pods:p ns 403"], &[],
        &["refused: us: get pods p in namespace ns", "used by no test: us may get pods in namespace ns (r)"])]
    #[case::wildcards(&["* pods -", "get *.a.io -", "get pods/* -"], &["get pods - 200"], &[],
        &["a wildcard: us may get *.a.io in the cluster (r)", "a wildcard: us may * pods in the cluster (r)",
            "a wildcard: us may get pods/* in the cluster (r)"])]
    #[case::unused_and_excused(&["get pods -"], &[], &[excused("pods", &["get"], How::Unused)], &[])]
    #[case::excused_for_the_cluster_only(&["get pods ns"], &[], &[excused("pods", &["get"], How::Rare)],
        &["used by no test: us may get pods in namespace ns (r)",
            "needless in tests/access/exceptions.rs, for it is used or not granted: us: get pods (because)"])]
    #[case::used_after_all(&["get pods -"], &["get pods - 200"], &[excused("pods", &["get"], How::Unused)],
        &["needless in tests/access/exceptions.rs, for it is used or not granted: us: get pods (because)"])]
    #[case::used_today(&["get pods -"], &["get pods - 200"], &[excused("pods", &["get"], How::Rare)], &[])]
    #[case::not_granted_any_more(&[], &[], &[excused("pods", &["get"], How::Rare)],
        &["needless in tests/access/exceptions.rs, for it is used or not granted: us: get pods (because)"])]
    #[case::refused_and_excused(&[], &["get pods - 403"], &[excused("pods", &["get"], How::Refused)], &[])]
    #[case::not_refused_any_more(&["get pods -"], &["get pods - 200"], &[excused("pods", &["get"], How::Refused)],
        &["needless in tests/access/exceptions.rs, for it is used or not granted: us: get pods (because)"])]
    fn rights_and_requests_fit(
        #[case] rights: &[&str],
        #[case] log: &[&str],
        #[case] exceptions: &[Exception],
        #[case] expected: &[&str],
    ) {
        let rights: Vec<Right> = rights.iter().map(|t| right(t)).collect();
        let log: Vec<Line> = log.iter().map(|t| line(t)).collect();
        let findings = judge(&[], &rights, &[], &requests(&log, "ns"), exceptions);
        let told: Vec<String> = findings
            .iter()
            .map(|f| f.to_string().split(';').next().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn a_log_of_something_else_is_found() {
        let log = [line("get pods - 200")];
        let findings = judge(&[US, "them"], &[], &[], &requests(&log, "ns"), &[]);
        assert_eq!(findings, [Finding::NoRequests("them".to_owned())]);
        let of_another_namespace = requests(&log, "other");
        assert!(of_another_namespace.0.is_empty(), "{of_another_namespace:?}");
    }

    #[test]
    fn a_role_that_does_not_exist_is_found() {
        let gone = Dangling {
            account: US.to_owned(),
            role: "ClusterRole gone".to_owned(),
        };
        let findings = judge(&[], &[], std::slice::from_ref(&gone), &requests(&[], "ns"), &[]);
        assert_eq!(findings, [Finding::Dangling(gone)]);
    }
}
