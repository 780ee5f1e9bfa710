//! `PoolsLeftPaused`: pools that an ended job leaves paused, why, who lifts the pause, and the command that does.
//!
//! Rule: design 5, *Pauses*.

use jiff::Timestamp;
use kube::ResourceExt;

use super::draft::Draft;
use crate::{
    api::{
        conditions::{reasons, types},
        upgrade_job::PauseReason,
    },
    openshift::machine_config_pool::MachineConfigPool,
    pools::{self, Pause},
    text,
};

/// What a pool that stays paused waits for, from what matters least to what matters most.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Awaits {
    /// Nothing is pending for it: the job may not touch it any more, or it would be unpaused.
    Nothing,
    /// The job failed, and that pauses it: a person lifts it.
    Person,
    /// Another job will hold it, and lift the pause in its own time; it is named.
    Successor(String),
    /// Changes are pending, and nobody will lift the pause.
    Nobody,
}

impl Awaits {
    fn reason(&self) -> &'static str {
        match self {
            Self::Nothing => reasons::NOTHING_PENDING,
            Self::Person => reasons::PAUSED_ON_FAILURE,
            Self::Successor(_) => reasons::PENDING_CHANGES,
            Self::Nobody => reasons::ORPHANED,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Nothing => "nothing is pending for it, no node reboots when it is unpaused".to_owned(),
            Self::Person => "paused because the upgrade failed (pauseMachineConfigPoolsOnFailure), so only a person \
                             unpauses it, once the cause is mended; its nodes reboot then if changes are pending"
                .to_owned(),
            Self::Successor(who) => {
                format!("changes are pending, its nodes reboot when it is unpaused; {who} takes over and unpauses it in its own time")
            }
            Self::Nobody => "changes are pending, its nodes reboot when it is unpaused; no UpgradeConfig holds it, so nobody \
                             will unpause it but you"
                .to_owned(),
        }
    }
}

/// A pool that this job leaves paused.
struct Left {
    name: String,
    since: Timestamp,
    awaits: Awaits,
}

/// Records the pools that stay paused; returns what to say of it in few words.
pub(super) fn record(draft: &mut Draft<'_>) -> String {
    let left = pools_left(draft);
    let Some(worst) = left.iter().map(|l| &l.awaits).max() else {
        if draft.has(types::POOLS_LEFT_PAUSED) {
            let message = "no pool of this job is paused any more";
            draft.condition(types::POOLS_LEFT_PAUSED, false, reasons::COMPLETED, message);
        }
        return "everything was given back".to_owned();
    };
    let message = describe(draft, &left);
    if draft.condition(types::POOLS_LEFT_PAUSED, true, worst.reason(), message.clone()) {
        draft.notice(true, types::POOLS_LEFT_PAUSED, message);
    }
    let names: Vec<&str> = left.iter().map(|l| l.name.as_str()).collect();
    format!("left paused: {}", names.join(", "))
}

fn pools_left(draft: &Draft<'_>) -> Vec<Left> {
    let pools = draft.input.world.pools.iter();
    pools
        .filter_map(|pool| {
            let Pause::Ours(reason) = pools::pause(draft.input.job, pool) else {
                return None;
            };
            let name = pool.name_any();
            let recorded = draft.status.paused_pools.iter().find(|p| p.name == name);
            let since = recorded.and_then(|p| p.since.as_ref()).map(|t| t.0);
            Some(Left {
                since: since.unwrap_or_else(|| draft.now()),
                awaits: awaits(draft, pool, reason),
                name,
            })
        })
        .collect()
}

fn awaits(draft: &Draft<'_>, pool: &MachineConfigPool, reason: PauseReason) -> Awaits {
    match reason {
        PauseReason::Failure => Awaits::Person,
        PauseReason::Delay if !pools::is_pending(draft.input.world, pool) => Awaits::Nothing,
        PauseReason::Delay => successor(draft, pool).map_or(Awaits::Nobody, Awaits::Successor),
    }
}

/// Who takes the pool over: a job that is still to end, or the next one of a config.
fn successor(draft: &Draft<'_>, pool: &MachineConfigPool) -> Option<String> {
    let world = draft.input.world;
    let job = world
        .jobs
        .iter()
        .filter(|j| j.metadata.uid != draft.input.job.metadata.uid)
        .filter(|j| !j.is_finished() && j.metadata.deletion_timestamp.is_none())
        .find(|j| j.spec.config.hold_of(pool).is_some())
        .map(|j| format!("UpgradeJob {}", j.name_any()));
    job.or_else(|| {
        world
            .configs
            .iter()
            .filter(|c| c.metadata.deletion_timestamp.is_none())
            .find(|c| c.spec.job_template.spec.config.hold_of(pool).is_some())
            .map(|c| format!("the next job of UpgradeConfig {}", c.name_any()))
    })
}

fn describe(draft: &Draft<'_>, left: &[Left]) -> String {
    let zone = draft.input.settings.zone();
    let pools: Vec<String> = left
        .iter()
        .map(|l| {
            let since = text::time(l.since, zone);
            format!("{} (paused since {since}): {}", l.name, l.awaits.describe())
        })
        .collect();
    let commands: Vec<String> = left
        .iter()
        .map(|l| {
            let name = &l.name;
            format!("oc patch machineconfigpool {name} --type merge -p '{{\"spec\":{{\"paused\":false}}}}'")
        })
        .collect();
    // OpenShift's book on updates: a paused pool gets no new certificate authority for its kubelets either.
    format!(
        "left paused: {}. The nodes of a paused pool get no new certificates either, so do not leave it so for weeks. By hand: {}",
        pools.join(". "),
        commands.join("; "),
    )
}
