//! Health of the cluster: every offender by name, and whether it blocks.
//!
//! Alerts and custom queries need a Prometheus; where none is configured they are reported as not checked.

use kube::ResourceExt;

use crate::{
    api::health_check::{HealthChecks, Severity},
    openshift::{self, machine_config_pool::MachineConfigPool},
    target::{self, Target},
    world::World,
};

/// At which point of an upgrade the cluster is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before anything is touched.
    BeforeUpgrade,
    /// After the upgrade.
    AfterUpgrade,
    /// Before a held pool is released: pools that are rolling do not count.
    BeforePool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What the step waits for.
    pub blocking: Vec<String>,
    /// What is only shown.
    pub warnings: Vec<String>,
}

/// Longest list of offenders in a message.
const MAX_SHOWN: usize = 8;

impl Findings {
    /// Whether nothing blocks.
    pub fn is_healthy(&self) -> bool {
        self.blocking.is_empty()
    }

    /// The offenders in one line.
    pub fn describe(&self) -> String {
        match (self.blocking.is_empty(), self.warnings.is_empty()) {
            (true, true) => "healthy".to_owned(),
            (true, false) => format!("healthy; {}", list(&self.warnings)),
            (false, _) => format!("not healthy: {}", list(&self.blocking)),
        }
    }

    fn add(&mut self, severity: Severity, finding: String) {
        match severity {
            Severity::Block => self.blocking.push(finding),
            Severity::Warn => self.warnings.push(finding),
        }
    }
}

fn list(all: &[String]) -> String {
    let shown: Vec<&str> = all.iter().take(MAX_SHOWN).map(String::as_str).collect();
    let more = all.len().saturating_sub(MAX_SHOWN);
    let tail = if more > 0 {
        format!("; and {more} more")
    } else {
        String::new()
    };
    format!("{}{tail}", shown.join("; "))
}

/// Checks the cluster; `target` is the release that the job upgrades to.
pub fn check(checks: &HealthChecks, world: &World, moment: Moment, target: Option<&Target>) -> Findings {
    let mut findings = Findings::default();
    cluster_version(checks, world, moment, target, &mut findings);
    operators(checks, world, &mut findings);
    pools(checks, world, moment, target, &mut findings);
    nodes(checks, world, &mut findings);
    unchecked(checks, &mut findings);
    findings
}

fn cluster_version(
    checks: &HealthChecks,
    world: &World,
    moment: Moment,
    target: Option<&Target>,
    findings: &mut Findings,
) {
    let Some(cluster) = &world.cluster_version else {
        findings
            .blocking
            .push("the ClusterVersion is not known".to_owned());
        return;
    };
    // The CVO publishes `Failing`; a condition `Degraded` does not exist there (research/peers.md 1a).
    if openshift::is_true(cluster.conditions(), "Failing") {
        let text = cluster.message_of("Failing");
        findings.add(
            checks.cluster_version(),
            format!("ClusterVersion is Failing: {text}"),
        );
    }
    if moment == Moment::BeforeUpgrade
        && let Some(moving) = target::movement(cluster, target)
    {
        findings.blocking.push(moving);
    }
}

fn operators(checks: &HealthChecks, world: &World, findings: &mut Findings) {
    let Some(severity) = checks.operators() else {
        return;
    };
    if world.operators.is_empty() {
        findings.add(severity, "no ClusterOperator is known".to_owned());
    }
    for operator in &world.operators {
        let name = operator.name_any();
        if checks.exclude_operators.contains(&name) {
            continue;
        }
        let all = operator.conditions();
        let message = |type_| {
            openshift::condition(all, type_)
                .and_then(|c| c.message.clone())
                .unwrap_or_default()
        };
        if openshift::is_true(all, "Degraded") {
            findings.add(
                severity,
                format!("operator {name} is Degraded: {}", message("Degraded")),
            );
        }
        if !openshift::is_true(all, "Available") {
            findings.add(
                severity,
                format!("operator {name} is not Available: {}", message("Available")),
            );
        }
    }
}

fn pools(
    checks: &HealthChecks,
    world: &World,
    moment: Moment,
    target: Option<&Target>,
    findings: &mut Findings,
) {
    let Some(severity) = checks.machine_config_pools() else {
        return;
    };
    for pool in &world.pools {
        let name = pool.name_any();
        let state = pool.state();
        if openshift::is_true(pool.conditions(), "Degraded") || state.degraded_machine_count > 0 {
            let count = state.degraded_machine_count;
            findings.add(
                severity,
                format!(
                    "pool {name} is Degraded ({count} of {} nodes)",
                    state.machine_count
                ),
            );
        }
        if moment == Moment::BeforeUpgrade && openshift::is_true(pool.conditions(), "Updating") {
            let (done, all) = (state.updated_machine_count, state.machine_count);
            findings.add(
                severity,
                format!("pool {name} is Updating ({done} of {all} nodes)"),
            );
        } else if moment == Moment::BeforeUpgrade && is_minor(world, target) && is_behind(pool) {
            findings.add(
                severity,
                format!(
                    "pool {name} is behind (paused with pending changes): a minor upgrade needs it up to date"
                ),
            );
        }
    }
}

fn is_behind(pool: &MachineConfigPool) -> bool {
    let state = pool.state();
    state.machine_count > 0 && pool.spec.configuration.name != state.configuration.name
}

/// Whether the target is another minor version than the installed one.
fn is_minor(world: &World, target: Option<&Target>) -> bool {
    let installed = world
        .cluster_version
        .as_ref()
        .and_then(|c| c.newest())
        .map(|h| h.version.as_str());
    let parse = |v: &str| semver::Version::parse(v).ok().map(|v| (v.major, v.minor));
    match (installed.and_then(parse), target.and_then(|t| parse(&t.version))) {
        (Some(from), Some(to)) => from != to,
        (None, _) | (_, None) => false,
    }
}

fn nodes(checks: &HealthChecks, world: &World, findings: &mut Findings) {
    for node in &world.nodes {
        if !node.ready {
            findings.add(checks.nodes(), format!("node {} is not Ready", node.name));
        } else if node.unschedulable {
            findings.add(checks.nodes(), format!("node {} is cordoned", node.name));
        }
    }
}

/// What the configuration asks for and this operator has nobody to ask about.
fn unchecked(checks: &HealthChecks, findings: &mut Findings) {
    let mut left_out: Vec<String> = Vec::new();
    if checks.check_critical_alerts == Some(true) {
        left_out.push("critical alerts".to_owned());
    }
    match checks.custom_queries.len() {
        0 => {}
        1 => left_out.push("1 custom query".to_owned()),
        n => left_out.push(format!("{n} custom queries")),
    }
    if !left_out.is_empty() {
        let what = left_out.join(" and ");
        findings.warnings.push(format!(
            "not checked: {what} (this version does not query Prometheus yet)"
        ));
    }
}
