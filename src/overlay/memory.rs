//! What came of earlier decisions, and when something is tried again: with a pause that grows.

use std::cmp::max;

use jiff::{SignedDuration, Timestamp};

use super::{Change, FieldChange, Outcome, Refusal};
use crate::{
    api::cluster_version::ClusterVersion as ManagedClusterVersion,
    openshift::cluster_version::ClusterVersion, world::World,
};

/// First pause before something that was refused, or set back again, is tried once more; it doubles each time.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(5);
/// Longest such pause.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(10);
/// After so long without a change by somebody else, the next one is set back at once.
const PEACE: SignedDuration = SignedDuration::from_mins(30);

/// What is remembered of the object named `version`. Forgotten at a restart: then everything is tried once more.
#[derive(Debug, Default)]
pub struct Memory {
    rehearsal: Option<Rehearsal>,
    refusal: Option<Refused>,
    set_back: Tries,
}

/// What the API server said to the overlays to come.
#[derive(Debug)]
struct Rehearsal {
    of: Rehearsed,
    refusals: Vec<Refusal>,
}

/// What its answer depends on.
#[derive(Debug, PartialEq)]
struct Rehearsed {
    uid: Option<String>,
    generation: Option<i64>,
    /// A newer API server may take more.
    cluster: Option<String>,
}

impl Rehearsed {
    fn of(managed: &ManagedClusterVersion, world: &World) -> Self {
        let newest = world.cluster_version.as_ref().and_then(ClusterVersion::newest);
        Self {
            uid: managed.metadata.uid.clone(),
            generation: managed.metadata.generation,
            cluster: newest.map(|h| format!("{} {}", h.version, h.state)),
        }
    }
}

#[derive(Debug)]
struct Refused {
    fields: Vec<FieldChange>,
    why: String,
    tries: Tries,
}

/// How often something was tried, and when last.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    count: u32,
    last: Option<Timestamp>,
}

impl Tries {
    fn again(self, now: Timestamp) -> Self {
        Self {
            count: self.count.saturating_add(1),
            last: Some(now),
        }
    }

    /// Before when not to try again.
    fn not_before(self, free: u32) -> Option<Timestamp> {
        let doublings = self.count.checked_sub(free.saturating_add(1))?.min(16);
        let pause = FIRST_PAUSE
            .checked_mul(1 << doublings)
            .unwrap_or(LONGEST_PAUSE)
            .min(LONGEST_PAUSE);
        Some(self.last?.saturating_add(pause).unwrap_or(Timestamp::MAX))
    }
}

impl Memory {
    /// What a decision is to know of earlier ones.
    pub fn outcome(&self, managed: &ManagedClusterVersion, world: &World, now: Timestamp) -> Outcome {
        let of = Rehearsed::of(managed, world);
        let rehearsal = self.rehearsal.as_ref().filter(|r| r.of == of);
        Outcome {
            rehearsed: rehearsal.map(|r| r.refusals.clone()),
            refused: self.refusal.as_ref().map(|r| (r.fields.clone(), r.why.clone())),
            // The first change by somebody else is set back at once; whoever insists is another controller.
            postponed: self.set_back.not_before(1).filter(|t| now < *t),
            applied: None,
        }
    }

    /// Before when this change is not to be tried (again).
    pub fn not_before(&self, change: &Change) -> Option<Timestamp> {
        let refused = self.refusal.as_ref().filter(|r| r.fields == change.fields);
        let refused = refused.and_then(|r| r.tries.not_before(0));
        let set_back = change.by_hand.as_ref().and_then(|_| self.set_back.not_before(1));
        max(refused, set_back)
    }

    /// The API server was asked about the overlays to come.
    pub fn rehearsed(&mut self, managed: &ManagedClusterVersion, world: &World, refusals: Vec<Refusal>) {
        self.rehearsal = Some(Rehearsal {
            of: Rehearsed::of(managed, world),
            refusals,
        });
    }

    /// The API server refused this change.
    pub fn refused(&mut self, change: &Change, why: String, now: Timestamp) {
        let tries = match self.refusal.take().filter(|r| r.fields == change.fields) {
            Some(before) => before.tries,
            None => Tries::default(),
        };
        self.refusal = Some(Refused {
            fields: change.fields.clone(),
            why,
            tries: tries.again(now),
        });
    }

    /// This change was written.
    pub fn applied(&mut self, change: &Change, now: Timestamp) {
        self.refusal = None;
        if change.by_hand.is_none() {
            return;
        }
        let quiet = self
            .set_back
            .last
            .is_none_or(|last| now.duration_since(last) > PEACE);
        let before = if quiet { Tries::default() } else { self.set_back };
        self.set_back = before.again(now);
    }
}
