//! Which runs are decided now, and how.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{job, record};
use crate::{
    api::{
        UpgradeConfig, UpgradeJob, UpgradeSuspensionWindow,
        conditions::{self, reasons, types},
        upgrade_config::UpgradeConfigStatus,
    },
    outside::Hindrance,
    overlay::{self, ChannelChange},
    schedule::{
        Schedule, forecast,
        suspension::{self, describe},
        version::{self, Choice},
    },
    text,
    world::World,
};

/// Timers are late: something that ends at an instant may still be followed by what begins there.
const GRACE: SignedDuration = SignedDuration::from_mins(1);
/// How often the list of updates is looked at while it is unknown; a change of the ClusterVersion is seen at once.
const POLL: SignedDuration = SignedDuration::from_mins(1);
/// So many runs are recorded in one go; the rest follows at once.
const MAX_RUNS: usize = 1_000;

/// What runs are decided from.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub config: &'a UpgradeConfig,
    pub world: &'a World,
    pub now: Timestamp,
    pub schedule: &'a Schedule,
    /// The jobs of this config.
    pub jobs: &'a [&'a UpgradeJob],
}

/// What became of the runs until now, and which comes next.
#[derive(Debug, PartialEq)]
pub struct Walk<'a> {
    /// Runs that were decided now, oldest first.
    pub decided: Vec<(Timestamp, Decided<'a>)>,
    /// The one that is not decided yet.
    pub next: Next,
}

/// A run that needs no further look.
#[derive(Debug, PartialEq)]
pub enum Decided<'a> {
    /// Its job is there.
    Created(&'a UpgradeJob),
    /// It made no job because of a suspension.
    Suspended(Block),
    /// It made no job though nothing suspended it.
    Missed(Block),
}

/// Why a run makes no job, now or at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Reason of the condition, one word.
    pub reason: &'static str,
    /// For people, without a full stop.
    pub why: String,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
}

/// The next run.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// There is none.
    Never,
    /// There are more to decide.
    More,
    /// Its job is created at `pin`.
    Later { run: Timestamp, pin: Timestamp },
    /// Its job is created as soon as the block is gone, until `limit`.
    Blocked {
        run: Timestamp,
        limit: Timestamp,
        block: Block,
    },
    /// Its job is created now.
    Create { run: Timestamp, job: Box<UpgradeJob> },
}

impl Next {
    /// The run that is not decided yet.
    pub fn run(&self) -> Option<Timestamp> {
        match self {
            Self::Never | Self::More => None,
            Self::Later { run, .. } | Self::Blocked { run, .. } | Self::Create { run, .. } => Some(*run),
        }
    }
}

enum Look<'a> {
    /// It was none when its time came.
    NoRun,
    Decided(Decided<'a>),
    Open(Next),
}

impl<'a> Scene<'a> {
    /// Looks at the runs after the last that was decided, in order, until one that is open.
    pub fn walk(&self) -> Walk<'a> {
        let mut decided = Vec::new();
        let mut reference = self.reference();
        while decided.len() < MAX_RUNS {
            let Some(run) = self.schedule.next_after(reference) else {
                return Walk {
                    decided,
                    next: Next::Never,
                };
            };
            reference = run;
            if self
                .status()
                .is_some_and(|status| record::of(status, run).is_some())
            {
                continue;
            }
            match self.look(run) {
                Look::Open(next) => return Walk { decided, next },
                Look::Decided(how) => decided.push((run, how)),
                Look::NoRun => {}
            }
        }
        Walk {
            decided,
            next: Next::More,
        }
    }

    /// Until when all runs are decided; of a config seen for the first time, its creation.
    fn reference(&self) -> Timestamp {
        let created = self.config.metadata.creation_timestamp.as_ref();
        self.status()
            .and_then(record::decided_until)
            .or(created.map(|t| t.0))
            .unwrap_or(self.now)
    }

    fn status(&self) -> Option<&'a UpgradeConfigStatus> {
        self.config.status.as_ref()
    }

    fn last(&self) -> Option<Timestamp> {
        Some(self.status()?.last_scheduled_upgrade.as_ref()?.0)
    }

    /// Whether the config was edited since it was last looked at.
    pub fn is_edited(&self) -> bool {
        let seen = self.status().and_then(|s| s.observed_generation);
        seen.is_some() && seen != self.config.metadata.generation
    }

    /// Whether an edit put this run into the past: it was none when its time came.
    fn came_too_late(&self, run: Timestamp) -> bool {
        let announced = self.status().map_or(&[][..], |s| &s.next_possible_schedules);
        self.is_edited()
            && run <= self.now
            && announced.last().is_some_and(|last| run <= last.time.0)
            && announced.iter().all(|next| next.time.0 != run)
    }

    /// When the job of a run is to be created.
    fn pin(&self, run: Timestamp) -> Timestamp {
        run.saturating_sub(self.config.spec.pin_version_window())
            .unwrap_or(run)
    }

    fn look(&self, run: Timestamp) -> Look<'a> {
        if let Some(job) = self.job_of(run) {
            return Look::Decided(Decided::Created(job));
        }
        let pin = self.pin(run);
        if self.now < pin {
            return Look::Open(Next::Later { run, pin });
        }
        // A suspension can be lifted until the run itself.
        if let Some(block) = self.suspended(run) {
            return if self.came_too_late(run) {
                Look::NoRun
            } else if self.now >= run {
                Look::Decided(Decided::Suspended(block))
            } else {
                Look::Open(Next::Blocked {
                    run,
                    limit: run,
                    block,
                })
            };
        }
        let limit = self.create_by(run, pin);
        let start_before = add(run, self.config.spec.max_upgrade_start_delay());
        let is_late = self.now > limit || self.now >= start_before;
        if is_late && self.came_too_late(run) {
            return Look::NoRun;
        }
        match self.blocked_now(run) {
            Err(block) if is_late => Look::Decided(Decided::Missed(block)),
            Ok(_) if is_late => Look::Decided(Decided::Missed(self.not_in_time(run, pin, limit))),
            Err(block) => Look::Open(Next::Blocked { run, limit, block }),
            Ok((version, why)) => {
                let job = job::of_run(self.config, run, version.as_ref(), why.as_deref());
                Look::Open(Next::Create {
                    run,
                    job: Box::new(job),
                })
            }
        }
    }

    /// The job of this run, if there is one that stays.
    pub fn job_of(&self, run: Timestamp) -> Option<&'a UpgradeJob> {
        self.jobs.iter().find(|j| job::is_of_run(j, run)).copied()
    }

    /// The change of the channel between the choice of this run's version and the run.
    pub fn channel_change(&self, run: Timestamp) -> Option<ChannelChange> {
        let made = self
            .job_of(run)
            .and_then(|j| j.metadata.creation_timestamp.as_ref());
        // Without a job the version is still to be chosen, however late.
        let pinned = made.map_or_else(|| self.pin(run).max(self.now), |t| t.0);
        overlay::channel_change(self.world, pinned, run)
    }

    /// What keeps this run from making a job, whenever it is created.
    fn suspended(&self, run: Timestamp) -> Option<Block> {
        if self.config.spec.schedule.suspend {
            return Some(Block {
                reason: reasons::SCHEDULE_SUSPENDED,
                why: "spec.schedule.suspend is true".to_owned(),
                until: None,
            });
        }
        self.window_at(run).map(|window| self.in_window(window))
    }

    fn window_at(&self, t: Timestamp) -> Option<&'a UpgradeSuspensionWindow> {
        suspension::window_matching_config(&self.world.windows, forecast::subject(self.config), t)
    }

    fn in_window(&self, window: &UpgradeSuspensionWindow) -> Block {
        Block {
            reason: reasons::SUSPENSION_WINDOW,
            why: describe(window, self.schedule.zone()),
            until: Some(window.spec.end.0),
        }
    }

    /// What keeps a job from being created at this moment; otherwise its version, and what is to be said about it.
    fn blocked_now(
        &self,
        run: Timestamp,
    ) -> Result<(Option<crate::api::upgrade_job::DesiredVersion>, Option<String>), Block> {
        if let Some(Hindrance { reason, message }) = self.world.outside.clock_skew() {
            return Err(Block {
                reason,
                why: message,
                until: None,
            });
        }
        if let Some(window) = self.window_at(self.now) {
            return Err(self.in_window(window));
        }
        // A job that waits for a later start was pinned before an edit put this run in front of it.
        let goes_first = |j: &&UpgradeJob| j.is_started() || j.spec.start_after.0 <= run;
        if let Some(job) = self.unfinished().find(goes_first) {
            return Err(Block {
                reason: reasons::PREVIOUS_JOB_RUNNING,
                why: format!("UpgradeJob {} of this config has not ended", job.name_any()),
                until: None,
            });
        }
        if let Some(channel) = overlay::channel_pending(self.world, self.now) {
            return Err(Block {
                reason: reasons::UPDATES_UNKNOWN,
                why: format!("the channel is being changed to {channel} by an overlay that is due"),
                until: self.now.checked_add(POLL).ok(),
            });
        }
        let cluster_version = self.world.cluster_version.as_ref();
        let channel_changed_at = cluster_version.and_then(|c| overlay::channel_changed_at(c, self.now));
        match version::choose(cluster_version, channel_changed_at, self.now) {
            Choice::Update { version, note } => Ok((Some(version), note)),
            Choice::None { cause } => Ok((None, Some(format!("{cause}: hooks and pools only")))),
            Choice::Unknown { why } => Err(Block {
                reason: reasons::UPDATES_UNKNOWN,
                why,
                until: self.now.checked_add(POLL).ok(),
            }),
        }
    }

    /// Jobs that are under way, or will be. One that waits for a start that is no longer in the schedule will be
    /// skipped as rescheduled, and must not keep the new run from being pinned.
    pub fn unfinished(&self) -> impl Iterator<Item = &'a UpgradeJob> {
        let is_to_come = |j: &UpgradeJob| j.is_started() || self.schedule.contains(j.spec.start_after.0);
        let jobs = self.jobs.iter().copied();
        jobs.filter(move |j| !j.is_finished() && is_to_come(j))
    }

    /// Until when the job of a run may be created.
    ///
    /// A config that is created between pin and run is in time too: a GitOps tool that deletes and creates it anew must not
    /// cost the run, whose job went with the old config. Nor must an edit that adds a run after its pin: that one is in time
    /// until it begins.
    fn create_by(&self, run: Timestamp, pin: Timestamp) -> Timestamp {
        let delay = self.config.spec.max_scheduling_delay().max(GRACE);
        let created = self.config.metadata.creation_timestamp.as_ref();
        // Where a later run is decided already, this one was added after that.
        let (before, after) = self
            .last()
            .map_or((None, false), |last| ((last < run).then_some(last), last > run));
        let begins = [created.map(|t| t.0), before].into_iter().flatten();
        let due = begins.fold(pin, |due, t| due.max(t.min(run)));
        let opens = suspension::first_open(&self.world.windows, forecast::subject(self.config), due);
        let end = add(run, GRACE);
        let mut limit = add(due, delay);
        if opens > due {
            limit = limit.max(add(opens, delay).min(end));
        }
        if after || self.is_edited() || self.waited_for(run).is_some() {
            limit.max(end)
        } else {
            limit
        }
    }

    /// What this run waited for when it was last looked at, if that is something it may wait for until it begins.
    fn waited_for(&self, run: Timestamp) -> Option<&'a str> {
        let status = self.config.status.as_ref()?;
        let scheduled = conditions::get(&status.conditions, types::SCHEDULED)?;
        let is_of_run = status
            .next_possible_schedules
            .first()
            .is_some_and(|next| next.time.0 == run);
        let may_wait = matches!(
            scheduled.reason.as_str(),
            reasons::SCHEDULE_SUSPENDED
                | reasons::SUSPENSION_WINDOW
                | reasons::UPDATES_UNKNOWN
                | reasons::PREVIOUS_JOB_RUNNING
                | reasons::CLOCK_SKEW
        );
        (scheduled.status == "False" && is_of_run && may_wait).then_some(scheduled.message.as_str())
    }

    fn not_in_time(&self, run: Timestamp, pin: Timestamp, limit: Timestamp) -> Block {
        let zone = self.schedule.zone();
        let why = self.waited_for(run).map_or_else(
            || {
                format!(
                    "its UpgradeJob was to be created between {} and {} (maxSchedulingDelay), and the operator did not \
                     run then, could not reach the API server, or the config was changed since",
                    text::time(pin, zone),
                    text::time(limit, zone)
                )
            },
            str::to_owned,
        );
        Block {
            reason: reasons::NOT_CREATED_IN_TIME,
            why,
            until: None,
        }
    }
}

fn add(t: Timestamp, d: SignedDuration) -> Timestamp {
    t.saturating_add(d).unwrap_or(Timestamp::MAX)
}
