//! What the cluster-version operator says of an update under way, made short; and how far a step is, as a number.

use crate::{
    api::UpgradeJob,
    openshift::{self, cluster_version::ClusterVersion, machine_config_pool::MachineConfigPool},
    plan::StepAction,
    pools,
    world::World,
};

/// How far a step is, from 0 to 1; `None` for one that is not a matter of more or less, or where the cluster does not say.
pub fn fraction(step: &StepAction, job: &UpgradeJob, world: &World) -> Option<f64> {
    match step {
        StepAction::AwaitControlPlane => percent(world.cluster_version.as_ref()?.message_of("Progressing")),
        StepAction::AwaitPools => updated(world.pools.iter().filter(|p| !pools::is_held(job, p))),
        StepAction::AwaitGroup { group } => updated(pools::members(job, *group, &world.pools)),
        StepAction::PreHealthCheck
        | StepAction::PausePools
        | StepAction::SetDesiredUpdate
        | StepAction::PostHealthCheck
        | StepAction::FinalHealthCheck
        | StepAction::Hold { .. }
        | StepAction::Unpause { .. }
        | StepAction::Hook { .. }
        | StepAction::HooksJoin { .. }
        | StepAction::Release => None,
    }
}

fn percent(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once(" done (")?;
    let (percent, _) = rest.split_once("% complete)")?;
    percent.parse().ok().map(|p: f64| p / 100.0)
}

/// Nodes that have the new configuration, of all nodes of these pools.
fn updated<'a>(pools: impl IntoIterator<Item = &'a MachineConfigPool>) -> Option<f64> {
    let (mut updated, mut all) = (0, 0);
    for status in pools.into_iter().filter_map(|pool| pool.status.as_ref()) {
        updated += status.updated_machine_count;
        all += status.machine_count;
    }
    // Exact for any number of nodes.
    #[allow(clippy::cast_precision_loss)]
    (all > 0).then(|| updated as f64 / all as f64)
}

/// `62% done, waiting on etcd`, out of `Working towards 4.18.5: 500 of 800 done (62% complete), waiting on etcd`; the text
/// as it is where it has another form. Failing=True is appended: it is often transient and no ending by itself.
pub fn control_plane(cluster: &ClusterVersion) -> String {
    let text = cluster.message_of("Progressing");
    let mut line = shorten(text).unwrap_or_else(|| text.to_owned());
    if openshift::is_true(cluster.conditions(), "Failing") {
        line = format!("{line}; Failing: {}", cluster.message_of("Failing"));
    }
    if line.is_empty() {
        "waiting for the cluster-version operator".to_owned()
    } else {
        line
    }
}

fn shorten(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(" done (")?;
    let (percent, tail) = rest.split_once(" complete)")?;
    let tail = tail.trim_start_matches([',', ' ']);
    Some(if tail.is_empty() {
        format!("{percent} done")
    } else {
        format!("{percent} done, {tail}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_made_short() {
        let long = "Working towards 4.18.5: 500 of 800 done (62% complete), waiting on etcd";
        assert_eq!(shorten(long).unwrap(), "62% done, waiting on etcd");
        assert_eq!(
            shorten("Working towards 4.18.5: 1 of 800 done (0% complete)").unwrap(),
            "0% done"
        );
        assert_eq!(shorten("Working towards 4.18.5"), None);
    }
}
