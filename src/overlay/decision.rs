//! What to write to the cluster's ClusterVersion now, and what to say about it.

use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{
    change::{Change, who},
    due,
    hold::updating,
    next_from, previews, problems, rendered,
    spec::{self, FieldChange},
};
use crate::{
    api::{
        cluster_version::{
            ClusterVersion as ManagedClusterVersion, ClusterVersionStatus, Overlay, UpstreamSpec,
        },
        conditions::{self, reasons, types, whole_seconds},
        validation,
    },
    lifecycle::Notice,
    openshift::cluster_version::{ClusterVersion, NAME},
    text,
    world::World,
};

/// Most overlays that are tried on the API server ahead of their time.
const MAX_REHEARSED: usize = 20;

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The object.
    pub managed: &'a ManagedClusterVersion,
    /// The cluster: its ClusterVersion and the jobs.
    pub world: &'a World,
    /// What came of earlier decisions.
    pub outcome: &'a Outcome,
    /// For times in messages.
    pub zone: &'a TimeZone,
    /// Now.
    pub now: Timestamp,
}

/// What the API server said so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// What it would say to the overlays to come; `None` = it was not asked.
    pub rehearsed: Option<Vec<Refusal>>,
    /// Fields that it refused, and why.
    pub refused: Option<(Vec<FieldChange>, String)>,
    /// Until when changes by somebody else are not set back, since they come again and again.
    pub postponed: Option<Timestamp>,
    /// What was written a moment ago.
    pub applied: Option<Change>,
}

/// An overlay that the API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// From when on the overlay applies.
    pub from: Timestamp,
    /// In the API server's words.
    pub why: String,
}

/// What to do: ask, write, decide again with the [`Outcome`], and write the status of that decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The status as it shall be.
    pub status: ClusterVersionStatus,
    /// Overlays to come that the API server is to be asked about.
    pub rehearse: Vec<(Timestamp, Change)>,
    /// What to write to the cluster's ClusterVersion.
    pub change: Option<Change>,
    /// What to tell people.
    pub notices: Vec<Notice>,
    /// When time alone may change the decision.
    pub wake_at: Option<Timestamp>,
}

/// Decides for one object now. One that is being deleted is left as it is, and so is the cluster.
pub fn decide(input: &Input<'_>) -> Decision {
    let draft = Draft::new(input);
    if input.managed.metadata.deletion_timestamp.is_some() {
        return draft.decision;
    }
    draft.decided()
}

struct Draft<'a> {
    input: &'a Input<'a>,
    old: ClusterVersionStatus,
    decision: Decision,
    /// Why the API server refuses what is due.
    refused: Option<&'a str>,
}

impl<'a> Draft<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        let old = input.managed.status.clone().unwrap_or_default();
        let decision = Decision {
            status: old.clone(),
            rehearse: Vec::new(),
            change: None,
            notices: Vec::new(),
            wake_at: None,
        };
        Self {
            input,
            old,
            decision,
            refused: None,
        }
    }

    fn decided(mut self) -> Decision {
        let Input {
            managed, world, now, ..
        } = *self.input;
        self.decision.status.observed_generation = managed.metadata.generation;
        let live = world.cluster_version.as_ref().map(spec::of).unwrap_or_default();
        let problems = problems(managed, &live);
        if !problems.is_empty() {
            let reason = if managed.name_any() == NAME {
                reasons::INVALID
            } else {
                self.forget();
                reasons::NOT_SERVED
            };
            self.invalid(reason, &validation::summary(&problems));
            return self.decision;
        }
        self.decision.wake_at = next_from(managed, now);
        self.decision.status.overlays = previews(managed, &live, now);
        match &world.cluster_version {
            None => {
                let why = "the cluster has no ClusterVersion version, or it has not been read yet";
                self.not_applied(reasons::CLUSTER_VERSION_MISSING, why.to_owned());
            }
            Some(cluster) => self.compare(cluster, &live),
        }
        self.valid(&live);
        self.decision
    }

    /// An object that is not served must not look as if it were.
    fn forget(&mut self) {
        let status = &mut self.decision.status;
        (status.current, status.overlay_applied) = (None, None);
        status.overlays = Vec::new();
    }

    fn compare(&mut self, cluster: &ClusterVersion, live: &UpstreamSpec) {
        let Input {
            managed,
            world,
            outcome,
            zone,
            ..
        } = *self.input;
        let overlay = due(managed, self.input.now);
        let wanted = rendered(managed, overlay, live);
        let fields = spec::differences(live, &wanted);
        self.decision.status.current = Some(live.clone());
        if fields.is_empty() {
            return self.applied(overlay, live);
        }
        let change = Change {
            by_hand: self.was_applied(overlay, &wanted).then(|| who(cluster, &fields)),
            fields,
        };
        let what = self.name_of(overlay);
        let changes = change.describe();
        if let Some(job) = updating(world, cluster) {
            let message = format!(
                "{what} is held back until the control plane of UpgradeJob {job} has been updated: {changes}"
            );
            return self.not_applied(reasons::HELD, message);
        }
        if let Some((_, why)) = outcome
            .refused
            .as_ref()
            .filter(|(fields, _)| *fields == change.fields)
        {
            self.refused = Some(why);
            let message = format!("the API server refuses {what} ({changes}), so nothing is changed: {why}");
            self.not_applied(reasons::REFUSED, message);
        }
        if let (Some(who), Some(until)) = (&change.by_hand, outcome.postponed) {
            let message = format!(
                "the spec of the ClusterVersion is changed by {who} again and again, though {what} says otherwise \
                 ({changes}); it is set back at {}. Only one of the two can have it",
                text::time(until, zone)
            );
            self.not_applied(reasons::SET_BACK, message);
        }
        self.decision.change = Some(change);
    }

    /// Whether the cluster had exactly this by our own account, so that somebody else must have changed it.
    fn was_applied(&self, overlay: Option<&Overlay>, wanted: &UpstreamSpec) -> bool {
        let old = &self.old;
        let reason = conditions::get(&old.conditions, types::APPLIED).map(|c| c.reason.as_str());
        let is_same = old.overlay_applied == overlay.map(from) && old.current.as_ref() == Some(wanted);
        old.observed_generation == self.input.managed.metadata.generation
            && match reason {
                Some(reasons::APPLIED) => is_same,
                Some(reasons::SET_BACK) => true,
                Some(_) | None => false,
            }
    }

    fn applied(&mut self, overlay: Option<&Overlay>, live: &UpstreamSpec) {
        self.decision.status.overlay_applied = overlay.map(from);
        let what = self.name_of(overlay);
        let next = self.next(live);
        self.condition(
            types::APPLIED,
            true,
            reasons::APPLIED,
            format!("the ClusterVersion has the spec of {what}{next}"),
        );
        match &self.input.outcome.applied {
            Some(
                change @ Change {
                    by_hand: Some(who), ..
                },
            ) => {
                let note = format!(
                    "the spec of the ClusterVersion was changed by {who}; set back to {what}: {}. Change ClusterVersion \
                     {}/{} of {} instead, or delete it",
                    change.describe(),
                    self.input.managed.namespace().unwrap_or_default(),
                    self.input.managed.name_any(),
                    crate::api::GROUP,
                );
                self.notice(true, reasons::SET_BACK, note);
            }
            Some(change) => {
                let note = format!("{what} applied to the ClusterVersion: {}", change.describe());
                self.notice(false, reasons::APPLIED, note);
            }
            // Written before a crash, or there already.
            None if !conditions::is_true(&self.old.conditions, types::APPLIED)
                || self.old.overlay_applied != self.decision.status.overlay_applied =>
            {
                let note = format!("the ClusterVersion has the spec of {what}");
                self.notice(false, reasons::APPLIED, note);
            }
            None => {}
        }
    }

    fn next(&self, live: &UpstreamSpec) -> String {
        let Input {
            managed, zone, now, ..
        } = *self.input;
        let overlays = managed.spec.overlays.iter();
        let next = overlays.filter(|o| o.from.0 > now).min_by_key(|o| o.from.0);
        let Some(next) = next else {
            return String::new();
        };
        let changes = spec::differences(live, &rendered(managed, Some(next), live));
        let changes = match spec::describe(&changes) {
            nothing if nothing.is_empty() => "no change".to_owned(),
            changes => changes,
        };
        format!(
            "; the next overlay is due at {}: {changes}",
            text::time(next.from.0, zone)
        )
    }

    fn not_applied(&mut self, reason: &str, message: String) {
        if self.condition(types::APPLIED, false, reason, message.clone()) {
            self.notice(true, reason, message);
        }
    }

    fn invalid(&mut self, reason: &str, message: &str) {
        if self.condition(types::VALID, false, reason, message.to_owned()) {
            self.notice(true, reason, message.to_owned());
        }
        let why = "nothing is applied: see the condition Valid".to_owned();
        self.condition(types::APPLIED, false, reason, why);
    }

    /// Valid, unless the API server refuses it now or, as it is today, would later.
    fn valid(&mut self, live: &UpstreamSpec) {
        let Input { outcome, zone, .. } = *self.input;
        if self.input.world.cluster_version.is_none() {
            return self.judged(&[]);
        }
        let Some(rehearsed) = &outcome.rehearsed else {
            self.decision.rehearse = self.upcoming(live);
            if self.decision.rehearse.is_empty() {
                self.judged(&[]);
            }
            return;
        };
        let refusals: Vec<String> = rehearsed
            .iter()
            .filter(|r| r.from > self.input.now)
            .map(|r| {
                let when = text::time(r.from, zone);
                format!("the API server would refuse the overlay from {when}: {}", r.why)
            })
            .collect();
        self.judged(&refusals);
    }

    fn judged(&mut self, refusals: &[String]) {
        let due = self
            .refused
            .map(|why| format!("the API server refuses it: {why}"));
        let all: Vec<String> = due.into_iter().chain(refusals.iter().cloned()).collect();
        if all.is_empty() {
            let message = "template and overlays are valid".to_owned();
            self.condition(types::VALID, true, reasons::VALID, message);
            return;
        }
        let message = all.join("; ");
        if self.condition(types::VALID, false, reasons::REFUSED, message.clone()) && !refusals.is_empty() {
            self.notice(true, reasons::REFUSED, message);
        }
    }

    /// Overlays to come, soonest first, as changes of the spec as it is.
    fn upcoming(&self, live: &UpstreamSpec) -> Vec<(Timestamp, Change)> {
        let Input { managed, now, .. } = *self.input;
        let mut upcoming: Vec<&Overlay> = managed.spec.overlays.iter().filter(|o| o.from.0 > now).collect();
        upcoming.sort_by_key(|o| o.from.0);
        upcoming
            .into_iter()
            .take(MAX_REHEARSED)
            .map(|overlay| {
                let fields = spec::differences(live, &rendered(managed, Some(overlay), live));
                (
                    overlay.from.0,
                    Change {
                        fields,
                        by_hand: None,
                    },
                )
            })
            .filter(|(_, change)| !change.fields.is_empty())
            .collect()
    }

    fn name_of(&self, overlay: Option<&Overlay>) -> String {
        match overlay {
            Some(overlay) => format!("the overlay from {}", text::time(overlay.from.0, self.input.zone)),
            None => "the template".to_owned(),
        }
    }

    fn condition(&mut self, type_: &str, value: bool, reason: &str, message: String) -> bool {
        let generation = self.input.managed.metadata.generation;
        let all = &mut self.decision.status.conditions;
        conditions::set(all, type_, value, reason, message, generation, self.input.now)
    }

    fn notice(&mut self, warning: bool, reason: &str, note: String) {
        self.decision.notices.push(Notice {
            warning,
            reason: reason.to_owned(),
            note,
        });
    }
}

/// `from` as it is in a status.
fn from(overlay: &Overlay) -> Time {
    Time(whole_seconds(overlay.from.0))
}
