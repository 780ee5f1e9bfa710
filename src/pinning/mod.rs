//! The life of an UpgradeConfig: pure. A run is pinned some time ahead (its version chosen, its UpgradeJob created), or
//! it is recorded why not; finished jobs beyond the limits go.
//!
//! One run, one job: a run is decided once, in order, and `status.recentRuns` says how. A job is first created and seen,
//! then recorded; a run that makes none is recorded when nothing can make it happen any more. A run that an edit puts
//! before one that is decided is decided all the same; one whose job was deleted before its start makes no other.
//!
//! What time does to a run, with `due` = run − `pinVersionWindow` (or, where it was still waiting for the run before
//! it, that one's instant):
//!
//! | until | happens |
//! |---|---|
//! | `due` | nothing; the pin is announced |
//! | `due` + `maxSchedulingDelay` | the job is created, as soon as nothing is in the way |
//! | the run | the same, where a suspension or an unknown list of updates was in the way until now |
//! | after that | the run is recorded as suspended or missed, never made up for |

pub mod history;
pub mod job;
mod last_upgrade;
mod metrics;
mod record;
mod runs;
mod status;
pub mod unresolved;

#[cfg(test)]
mod tests;

use jiff::Timestamp;

pub use metrics::metrics;

use crate::{
    api::{UpgradeConfig, UpgradeJob, upgrade_config::UpgradeConfigStatus, validation},
    lifecycle::Notice,
    schedule::{Parsed, Schedule, Zones},
    world::World,
};

/// What is the same for all configs.
#[derive(Clone, Debug)]
pub struct ConfigSettings {
    /// Time zones and the default location.
    pub zones: Zones,
}

/// What to do: create, then status; deletes and notices at any time.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigDecision {
    /// The job to create. Its run is recorded by the decision after the one that sees it.
    pub create: Option<UpgradeJob>,
    /// Jobs beyond the history limits, by name and UID.
    pub delete_jobs: Vec<(String, String)>,
    /// The status as it shall be.
    pub status: UpgradeConfigStatus,
    /// What to tell people.
    pub notices: Vec<Notice>,
    /// When time alone may change the decision.
    pub wake_at: Option<Timestamp>,
}

/// Decides what to do for a config now. A config that is being deleted is left as it is.
pub fn decide(
    config: &UpgradeConfig,
    world: &World,
    now: Timestamp,
    settings: &ConfigSettings,
) -> ConfigDecision {
    let old = config.status.clone().unwrap_or_default();
    if config.metadata.deletion_timestamp.is_some() {
        return ConfigDecision {
            create: None,
            delete_jobs: Vec::new(),
            status: old,
            notices: Vec::new(),
            wake_at: None,
        };
    }
    let outside = &world.outside;
    let view = status::View {
        config,
        old,
        now: outside.careful(now),
        hindrance: outside.hindrance(),
    };
    if outside.peer.is_some() {
        return view.held();
    }
    let now = view.now;
    let jobs: Vec<&UpgradeJob> = world
        .jobs
        .iter()
        .filter(|j| job::is_of(j, &config.metadata))
        .collect();
    let delete_jobs = history::beyond(config, &jobs);
    let decision = match (
        unsupported_topology(world),
        validate(config, world, &settings.zones),
    ) {
        (_, Err(problems)) => view.invalid(&validation::summary(&problems)),
        (Some(why), Ok(_)) => view.unsupported(why),
        (None, Ok(Parsed { schedule, warnings })) => {
            let scene = runs::Scene {
                config,
                world,
                now,
                schedule: &schedule,
                jobs: &jobs,
            };
            view.valid(&scene, &scene.walk(), &warnings)
        }
    };
    ConfigDecision {
        delete_jobs,
        wake_at: decision.wake_at.map(|t| outside.by_our_clock(t)),
        ..decision
    }
}

/// What to say of a config whose UpgradeJob the API server finds wrong, whatever our own checks say.
pub fn refused(config: &UpgradeConfig, now: Timestamp, answer: &str) -> ConfigDecision {
    let old = config.status.clone().unwrap_or_default();
    // A job was to be created, so nothing is in the way.
    let hindrance = None;
    status::View {
        config,
        old,
        now,
        hindrance,
    }
    .invalid(answer)
}

/// What is wrong with a config, if anything is: no run of it is pinned then.
pub fn problems(config: &UpgradeConfig, world: &World, zones: &Zones) -> Option<String> {
    let problems = validate(config, world, zones).err()?;
    Some(validation::summary(&problems))
}

/// The schedule, and everything that is wrong with the config.
fn validate(
    config: &UpgradeConfig,
    world: &World,
    zones: &Zones,
) -> Result<Parsed, Vec<validation::Problem>> {
    let parsed = Schedule::parse(&config.spec.schedule, zones);
    let schedule_problem = parsed.as_ref().err().map(ToString::to_string);
    let problems = validation::upgrade_config(config, &world.pools, schedule_problem);
    match parsed {
        Ok(parsed) if problems.is_empty() => Ok(parsed),
        Ok(_) | Err(_) => Err(problems),
    }
}

/// Why this cluster cannot be upgraded by us. Rule: design 5, "topology".
pub fn unsupported_topology(world: &World) -> Option<&'static str> {
    if world.control_plane_topology.as_deref() == Some("External") {
        Some(
            "the control plane is hosted outside of this cluster (Infrastructure controlPlaneTopology External); \
             upgrade it where it is hosted",
        )
    } else if world.pools.is_empty() {
        Some("this cluster has no MachineConfigPools; its nodes are upgraded by something else")
    } else {
        None
    }
}
