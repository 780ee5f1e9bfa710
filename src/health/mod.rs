//! Health of the cluster: every offender by name, and whether it blocks.

pub mod answers;
mod findings;
pub mod prometheus;
pub mod response;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

pub use findings::Findings;

use self::{answers::Answers, findings::Standing};
use crate::{
    api::health_check::{HealthChecks, Severity},
    openshift::{self, StatusCondition, machine_config_pool::MachineConfigPool},
    pools::degraded_nodes,
    target::{self, Target},
    world::World,
};

/// `Failing` of the ClusterVersion comes and goes: a younger one holds an upgrade, and fails no job.
pub const FAILING_MATURES: SignedDuration = SignedDuration::from_mins(2);

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

/// What a check looks at.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The snapshot of the cluster.
    pub world: &'a World,
    /// What Prometheus said.
    pub answers: &'a Answers,
    /// The release that the job upgrades to.
    pub target: Option<&'a Target>,
    /// At which point of the upgrade.
    pub moment: Moment,
    /// Now.
    pub now: Timestamp,
}

/// Checks the cluster.
pub fn check(checks: &HealthChecks, look: &Look<'_>) -> Findings {
    let mut findings = Findings::default();
    cluster_version(checks, look, &mut findings);
    operators(checks, look.world, &mut findings);
    pools(checks, look, &mut findings);
    nodes(checks, look.world, &mut findings);
    prometheus::check(checks, look, &mut findings);
    findings.sort();
    findings
}

fn cluster_version(checks: &HealthChecks, look: &Look<'_>, findings: &mut Findings) {
    let Some(cluster) = &look.world.cluster_version else {
        let unknown = "the ClusterVersion is not known";
        return findings.add(Severity::Block, Standing::Overall, unknown);
    };
    // The CVO publishes `Failing`; a condition `Degraded` does not exist there (research/peers.md 1a).
    if let Some(failing) =
        openshift::condition(cluster.conditions(), "Failing").filter(|c| c.status == "True")
    {
        let text = format!("ClusterVersion is Failing: {}", cluster.message_of("Failing"));
        let (severity, since) = (checks.cluster_version(), since(Some(failing)));
        match since.and_then(|t| t.checked_add(FAILING_MATURES).ok()) {
            Some(matures) if look.now < matures => {
                findings.add_young(severity, Standing::since(since), text, matures);
            }
            Some(_) | None => findings.add(severity, Standing::since(since), text),
        }
    }
    if look.moment == Moment::BeforeUpgrade
        && let Some(moving) = target::movement(cluster, look.target)
    {
        findings.add(Severity::Block, Standing::Overall, moving);
    }
}

/// When a condition last changed.
fn since(condition: Option<&StatusCondition>) -> Option<Timestamp> {
    condition
        .and_then(|c| c.last_transition_time.as_ref())
        .map(|t| t.0)
}

fn operators(checks: &HealthChecks, world: &World, findings: &mut Findings) {
    let Some(severity) = checks.operators() else {
        return;
    };
    if world.operators.is_empty() {
        findings.add(severity, Standing::Overall, "no ClusterOperator is known");
    }
    for operator in &world.operators {
        let name = operator.name_any();
        if checks.exclude_operators.contains(&name) {
            continue;
        }
        let all = operator.conditions();
        let mut offends = |type_, what: &str| {
            let condition = openshift::condition(all, type_);
            let message = condition.and_then(|c| c.message.as_deref()).unwrap_or_default();
            let standing = Standing::since(since(condition));
            findings.add(
                severity,
                standing,
                format!("operator {name} is {what}: {message}"),
            );
        };
        if openshift::is_true(all, "Degraded") {
            offends("Degraded", "Degraded");
        }
        if !openshift::is_true(all, "Available") {
            offends("Available", "not Available");
        }
    }
}

fn pools(checks: &HealthChecks, look: &Look<'_>, findings: &mut Findings) {
    let Look {
        world,
        target,
        moment,
        ..
    } = *look;
    let Some(severity) = checks.machine_config_pools() else {
        return;
    };
    for pool in &world.pools {
        let name = pool.name_any();
        let state = pool.state();
        let mut offends = |type_, how: String| {
            let standing = Standing::since(since(openshift::condition(pool.conditions(), type_)));
            findings.add(severity, standing, format!("pool {name} is {how}"));
        };
        if openshift::is_true(pool.conditions(), "Degraded") || state.degraded_machine_count > 0 {
            let (count, all) = (state.degraded_machine_count, state.machine_count);
            let named = degraded_nodes(world, &name);
            offends("Degraded", format!("Degraded ({count} of {all} nodes){named}"));
        }
        if moment == Moment::BeforeUpgrade && openshift::is_true(pool.conditions(), "Updating") {
            let (done, all) = (state.updated_machine_count, state.machine_count);
            offends("Updating", format!("Updating ({done} of {all} nodes)"));
        } else if moment == Moment::BeforeUpgrade && is_minor(world, target) && is_behind(pool) {
            let behind = "behind (paused with pending changes): a minor upgrade needs it up to date";
            offends("Updated", behind.to_owned());
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
        let how = match (node.ready, node.unschedulable) {
            (false, _) => "not Ready",
            (true, true) => "cordoned",
            (true, false) => continue,
        };
        let finding = format!("node {} is {how}", node.name);
        findings.add(checks.nodes(), Standing::Unknown, finding);
    }
}
