//! A change of the channel between the moment a run's version is chosen and the run itself.

use jiff::{Timestamp, tz::TimeZone};

use super::{due, spec};
use crate::{
    api::{cluster_version::ClusterVersion as ManagedClusterVersion, validation},
    schedule::version::CHANNEL_CHANGE_GRACE,
    text,
    world::World,
};

/// A change of the channel by an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelChange {
    /// When.
    pub at: Timestamp,
    /// The channel before it; empty = none.
    pub before: String,
    /// The channel after it; empty = none.
    pub after: String,
}

/// The change of the channel that an overlay brings in `(pinned, run]`: the version chosen at `pinned` may no longer be
/// offered at `run`, and a newer one be passed over until the next run.
pub fn channel_change(world: &World, pinned: Timestamp, run: Timestamp) -> Option<ChannelChange> {
    let managed = world.managed_version()?;
    if !validation::cluster_version(managed).is_empty() {
        return None;
    }
    let at = due(managed, run)?.from.0;
    let (before, after) = (channel_at(managed, pinned), channel_at(managed, run));
    (at > pinned && before != after).then_some(ChannelChange { at, before, after })
}

/// The channel that an overlay is about to bring: it is due, and the cluster does not have it yet. A run is not pinned
/// in the old channel because of a write that is a moment late; one that does not come at all is not waited for.
pub fn channel_pending(world: &World, now: Timestamp) -> Option<String> {
    let managed = world.managed_version()?;
    let from = due(managed, now)?.from.0;
    let late = now.duration_since(from) < CHANNEL_CHANGE_GRACE;
    let wanted = channel_at(managed, now);
    let has = world.cluster_version.as_ref()?.spec.channel.as_deref();
    let is_served = validation::cluster_version(managed).is_empty();
    (late && is_served && has.unwrap_or_default() != wanted).then_some(wanted)
}

fn channel_at(managed: &ManagedClusterVersion, t: Timestamp) -> String {
    let base = &managed.spec.template.spec;
    let spec = due(managed, t).map_or_else(|| spec::tidy(base), |o| spec::merge(base, &o.overlay.spec));
    spec::text(&spec, "channel").to_owned()
}

impl ChannelChange {
    /// For people, as part of a sentence.
    pub fn describe(&self, zone: &TimeZone, now: Timestamp) -> String {
        let name = |channel: &str| match channel {
            "" => "none".to_owned(),
            channel => channel.to_owned(),
        };
        let (verb, is) = if self.at > now {
            ("changes", "is")
        } else {
            ("changed", "was")
        };
        format!(
            "an overlay of ClusterVersion version {verb} the channel from {} to {} at {}, after the version {is} chosen",
            name(&self.before),
            name(&self.after),
            text::time(self.at, zone)
        )
    }
}
