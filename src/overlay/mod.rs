//! Our ClusterVersion: what the spec of the cluster's ClusterVersion is to be, now and later. Pure.
//!
//! The template with the newest overlay whose time has come; overlays do not accumulate. It replaces the whole spec, so
//! that what was removed in Git is removed on the cluster, except for:
//!
//! - `desiredUpdate`, which jobs and people set: it is neither read nor written here;
//! - `clusterID`: the cluster keeps its own. An object that names another one was made for another cluster, and nothing
//!   of it is applied.
//!
//! While the control plane of a job is being updated nothing is changed: a job that has started chose its version in
//! the channel that is set, and an administrator may be at work by hand.

mod announcement;
mod change;
mod decision;
mod hold;
mod memory;
mod metrics;
mod spec;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{
        annotations,
        cluster_version::{
            ClusterVersion as ManagedClusterVersion, Overlay, OverlayPreview, Template, UpstreamSpec,
        },
        validation::{self, Problem},
    },
    openshift::cluster_version::ClusterVersion,
};

pub use announcement::{ChannelChange, channel_change, channel_pending};
pub use change::Change;
pub use decision::{Decision, Input, Outcome, Refusal, decide};
pub use memory::Memory;
pub use metrics::metrics;
pub use spec::FieldChange;

/// Most previews in the status; those that are due or come next are shown first.
const MAX_PREVIEWS: usize = 100;

/// The overlay that is due: the newest whose `from` has come.
fn due(managed: &ManagedClusterVersion, now: Timestamp) -> Option<&Overlay> {
    let due = managed.spec.overlays.iter().filter(|o| o.from.0 <= now);
    due.max_by_key(|o| o.from.0)
}

/// When the next overlay is due.
fn next_from(managed: &ManagedClusterVersion, now: Timestamp) -> Option<Timestamp> {
    let later = managed.spec.overlays.iter().map(|o| o.from.0);
    later.filter(|from| *from > now).min()
}

/// Template and overlay, with the identity that the cluster has.
fn rendered(managed: &ManagedClusterVersion, overlay: Option<&Overlay>, live: &UpstreamSpec) -> UpstreamSpec {
    let base = &managed.spec.template.spec;
    let mut rendered = match overlay {
        Some(overlay) => spec::merge(base, &overlay.overlay.spec),
        None => spec::tidy(base),
    };
    if let Some(id) = live.get(spec::CLUSTER_ID) {
        rendered.insert(spec::CLUSTER_ID.to_owned(), id.clone());
    }
    rendered
}

/// What each overlay makes of the template, by `from`; of more than [`MAX_PREVIEWS`] those that count soonest.
fn previews(managed: &ManagedClusterVersion, live: &UpstreamSpec, now: Timestamp) -> Vec<OverlayPreview> {
    let mut overlays: Vec<&Overlay> = managed.spec.overlays.iter().collect();
    overlays.sort_by_key(|o| o.from.0);
    let past = overlays.iter().filter(|o| o.from.0 <= now).count();
    let too_many = overlays.len().saturating_sub(MAX_PREVIEWS);
    let skipped = too_many.min(past.saturating_sub(1));
    overlays
        .into_iter()
        .skip(skipped)
        .take(MAX_PREVIEWS)
        .map(|overlay| OverlayPreview {
            from: Time(crate::api::conditions::whole_seconds(overlay.from.0)),
            preview: Template {
                spec: rendered(managed, Some(overlay), live),
            },
        })
        .collect()
}

/// Everything that is wrong with the object, on this cluster.
fn problems(managed: &ManagedClusterVersion, live: &UpstreamSpec) -> Vec<Problem> {
    let mut found = validation::cluster_version(managed);
    let overlays = managed.spec.overlays.iter().enumerate();
    let specs = overlays.map(|(i, o)| (format!("spec.overlays[{i}].overlay.spec"), &o.overlay.spec));
    let template = ("spec.template.spec".to_owned(), &managed.spec.template.spec);
    let own = spec::text(live, spec::CLUSTER_ID);
    for (field, spec) in std::iter::once(template).chain(specs) {
        let id = spec::text(spec, spec::CLUSTER_ID);
        if !id.is_empty() && !own.is_empty() && !id.eq_ignore_ascii_case(own) {
            found.push(Problem {
                field: format!("{field}.clusterID"),
                message: format!(
                    "{id} is another cluster, this one is {own}, so nothing is applied: leave clusterID out, or correct it"
                ),
            });
        }
    }
    found
}

/// When this operator last changed what decides which updates are offered (channel or update service); it is recorded
/// on the ClusterVersion by the same write, so that it cannot be lost. A time to come is a wrong clock's, and no answer.
pub fn channel_changed_at(cluster: &ClusterVersion, now: Timestamp) -> Option<Timestamp> {
    let written = cluster
        .metadata
        .annotations
        .as_ref()?
        .get(annotations::CHANNEL_CHANGED_AT)?;
    let at: Timestamp = written.parse().ok()?;
    (at <= now
        .saturating_add(jiff::SignedDuration::from_mins(1))
        .unwrap_or(now))
    .then_some(at)
}
