//! What a ServiceAccount was granted, out of roles and bindings as the API server has them.

use std::fmt;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use kube::ResourceExt;

/// Where a right or a request is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All namespaces, and what is in none.
    Cluster,
    /// One namespace.
    Namespace(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Namespace(name) => write!(f, "namespace {name}"),
        }
    }
}

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Name of the ServiceAccount.
    pub account: String,
    pub scope: Scope,
    /// `resource.group`, with the subresource where there is one (`pods/eviction`); a path that is no object's as it is.
    pub resource: String,
    pub verb: String,
    /// Only on objects of these names, if there are any.
    pub names: Vec<String>,
    /// The role that grants it.
    pub role: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            account,
            scope,
            resource,
            verb,
            names,
            role,
        } = self;
        write!(f, "{account} may {verb} {resource}")?;
        if !names.is_empty() {
            write!(f, " named {}", names.join(", "))?;
        }
        write!(f, " in {scope} ({role})")
    }
}

/// `resource.group`, or the resource alone in the core group.
pub fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

/// The roles and bindings of a cluster.
#[derive(Default)]
pub struct Access {
    pub roles: Vec<Role>,
    pub role_bindings: Vec<RoleBinding>,
    pub cluster_roles: Vec<ClusterRole>,
    pub cluster_role_bindings: Vec<ClusterRoleBinding>,
}

/// A binding to a role that does not exist grants nothing, and may one day grant anything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dangling {
    /// Name of the ServiceAccount.
    pub account: String,
    /// Kind and name.
    pub role: String,
}

impl fmt::Display for Dangling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.account, self.role)
    }
}

impl Access {
    /// What the ServiceAccounts of these names in `namespace` were granted by name, in order; and bindings of theirs to roles
    /// that do not exist. What every user may is not meant.
    pub fn of(&self, namespace: &str, accounts: &[&str]) -> (Vec<Right>, Vec<Dangling>) {
        let (mut rights, mut dangling) = (Vec::new(), Vec::new());
        for account in accounts {
            let is_meant = |subjects: &Option<Vec<Subject>>, in_namespace: &str| {
                subjects.iter().flatten().any(|s| {
                    let at = s.namespace.as_deref().unwrap_or(in_namespace);
                    s.kind == "ServiceAccount" && s.name == *account && at == namespace
                })
            };
            let mut grant = |scope: &Scope, reference: (&str, &str)| {
                let Some((role, rules)) = self.rules(scope, reference) else {
                    dangling.push(Dangling {
                        account: (*account).to_owned(),
                        role: format!("{} {}", reference.0, reference.1),
                    });
                    return;
                };
                rights.extend(rules.iter().flat_map(|rule| expand(account, scope, &role, rule)));
            };
            for binding in &self.cluster_role_bindings {
                if is_meant(&binding.subjects, "") {
                    grant(&Scope::Cluster, (&binding.role_ref.kind, &binding.role_ref.name));
                }
            }
            for binding in &self.role_bindings {
                let at = binding.namespace().unwrap_or_default();
                if is_meant(&binding.subjects, &at) {
                    let scope = Scope::Namespace(at);
                    grant(&scope, (&binding.role_ref.kind, &binding.role_ref.name));
                }
            }
        }
        rights.sort();
        rights.dedup();
        (rights, dangling)
    }

    fn rules(&self, scope: &Scope, (kind, name): (&str, &str)) -> Option<(String, &[PolicyRule])> {
        let rules = match scope {
            Scope::Namespace(at) if kind == "Role" => {
                let role = self
                    .roles
                    .iter()
                    .find(|r| r.name_any() == name && r.namespace().as_deref() == Some(at))?;
                role.rules.as_deref()
            }
            Scope::Namespace(_) | Scope::Cluster => {
                let role = self.cluster_roles.iter().find(|r| r.name_any() == name)?;
                role.rules.as_deref()
            }
        };
        Some((format!("{kind} {name}"), rules.unwrap_or_default()))
    }
}

fn expand(account: &str, scope: &Scope, granted_by: &str, rule: &PolicyRule) -> Vec<Right> {
    let some = |all: &Option<Vec<String>>| all.clone().unwrap_or_default();
    let (groups, names) = (some(&rule.api_groups), some(&rule.resource_names));
    let mut resources: Vec<String> = some(&rule.non_resource_urls);
    for resource in some(&rule.resources) {
        resources.extend(groups.iter().map(|g| qualified(&resource, g)));
    }
    let right = |resource: &String, verb: &String| Right {
        account: account.to_owned(),
        scope: scope.clone(),
        resource: resource.clone(),
        verb: verb.clone(),
        names: names.clone(),
        role: granted_by.to_owned(),
    };
    let of = |resource| rule.verbs.iter().map(move |verb| right(resource, verb));
    resources.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn access() -> Access {
        let subject =
            |name: &str, at: &str| json!([{"kind": "ServiceAccount", "name": name, "namespace": at}]);
        let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!([{"apiGroups": [group], "resources": resources, "verbs": verbs}]);
        let reference = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        Access {
            roles: vec![
                read(
                    json!({"metadata": {"name": "r", "namespace": "ns"}, "rules": rule("", &["pods", "pods/log"], &["get", "list"])}),
                ),
                read(
                    json!({"metadata": {"name": "r", "namespace": "other"}, "rules": rule("*", &["*"], &["*"])}),
                ),
            ],
            role_bindings: vec![
                read(
                    json!({"metadata": {"name": "b", "namespace": "ns"}, "roleRef": reference("Role", "r"), "subjects": subject("us", "ns")}),
                ),
                // Of another namespace's account of the same name.
                read(
                    json!({"metadata": {"name": "b", "namespace": "other"}, "roleRef": reference("Role", "r"), "subjects": subject("us", "other")}),
                ),
                // A ClusterRole, in one namespace only.
                read(
                    json!({"metadata": {"name": "c", "namespace": "other"}, "roleRef": reference("ClusterRole", "c"), "subjects": subject("us", "ns")}),
                ),
            ],
            cluster_roles: vec![read(json!({"metadata": {"name": "c"}, "rules": [
                {"apiGroups": ["a.io"], "resources": ["things"], "resourceNames": ["one"], "verbs": ["patch"]},
                {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
            ]}))],
            cluster_role_bindings: vec![
                read(
                    json!({"metadata": {"name": "d"}, "roleRef": reference("ClusterRole", "gone"), "subjects": subject("us", "ns")}),
                ),
                read(
                    json!({"metadata": {"name": "e"}, "roleRef": reference("ClusterRole", "c"), "subjects": subject("them", "ns")}),
                ),
            ],
        }
    }

    #[test]
    fn rights_are_those_of_the_bound_roles_where_they_are_bound() {
        let (rights, dangling) = access().of("ns", &["us"]);
        let told: Vec<String> = rights.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "us may get pods in namespace ns (Role r)",
                "us may list pods in namespace ns (Role r)",
                "us may get pods/log in namespace ns (Role r)",
                "us may list pods/log in namespace ns (Role r)",
                "us may get /metrics in namespace other (ClusterRole c)",
                "us may patch things.a.io named one in namespace other (ClusterRole c)",
            ]
        );
        let told: Vec<String> = dangling.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["us: ClusterRole gone"]);
    }
}
