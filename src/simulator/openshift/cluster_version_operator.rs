//! The cluster-version operator: the status of the ClusterVersion.

use jiff::Timestamp;

use super::{
    Context, Step,
    cluster_operators::{self, MANIFESTS, Patient, Progress, Waiting},
    conditions,
    faults::Fault,
    releases::{self, Wanted, identity},
};
use crate::{
    api::duration,
    openshift::{
        cluster_version::{ClusterVersion, ClusterVersionStatus, History, Release},
        condition,
    },
};

/// Longest history that is kept.
const MAX_HISTORY: usize = 100;

/// One reconciliation.
pub(super) fn sync(context: Context<'_>, step: &mut Step) {
    let Some(cluster_version) = &context.cluster.cluster_version else {
        return;
    };
    let mut status = cluster_version.status.clone().unwrap_or_default();
    if status.history.is_empty() {
        // The initial status is not written yet.
        return;
    }
    status.observed_generation = cluster_version.metadata.generation.unwrap_or_default();
    let invalid = accept(context, cluster_version, &mut status, step);
    let target = status.history.first().cloned();
    if let Some(target) = target {
        let progress = cluster_operators::roll_out(context, &target, step);
        report(
            context,
            &target,
            progress.as_ref(),
            invalid.as_deref(),
            &mut status,
            step,
        );
    }
    let channel = cluster_version.spec.channel.as_deref().unwrap_or_default();
    releases::retrieve_updates(channel, context, &mut status, step);
    let new = ClusterVersion {
        status: Some(status),
        ..cluster_version.clone()
    };
    step.update(cluster_version, &new);
}

/// Decides on `spec.desiredUpdate`; returns the validation error if there is one.
fn accept(
    context: Context<'_>,
    cluster_version: &ClusterVersion,
    status: &mut ClusterVersionStatus,
    step: &mut Step,
) -> Option<String> {
    let now = context.now;
    let installed = status.desired.clone();
    let release = match releases::wanted(cluster_version, status) {
        Wanted::Nothing => installed.clone(),
        Wanted::Release(release) => release,
        Wanted::Invalid(problem) => {
            let message = format!("The cluster version is invalid: {problem}");
            let all = &mut status.conditions;
            conditions::set(all, "Invalid", "True", "InvalidClusterVersion", &message, now);
            loaded(status, &installed, now);
            return Some(message);
        }
    };
    conditions::remove(&mut status.conditions, "Invalid");
    let same = release.version == installed.version && release.image == installed.image;
    if same {
        loaded(status, &installed, now);
        return None;
    }
    if context.faults.hold.control_plane || !is_retrieved(context, &release, status, step) {
        return None;
    }
    let update = cluster_version.spec.desired_update.as_ref();
    let force = update
        .and_then(|u| u.other.get("force"))
        .and_then(serde_json::Value::as_bool);
    if let Err(refusal) = releases::verify(&release, force.unwrap_or(false), status, context) {
        let all = &mut status.conditions;
        conditions::set(
            all,
            "ReleaseAccepted",
            "False",
            &refusal.reason,
            &refusal.message,
            now,
        );
        return None;
    }
    loaded(status, &release, now);
    begin(status, release, now);
    None
}

fn loaded(status: &mut ClusterVersionStatus, release: &Release, now: Timestamp) {
    let message = format!("Payload loaded {} architecture=\"amd64\"", identity(release));
    conditions::set(
        &mut status.conditions,
        "ReleaseAccepted",
        "True",
        "PayloadLoaded",
        &message,
        now,
    );
}

/// Retrieving takes a while; a release that was refused before has been retrieved.
fn is_retrieved(
    context: Context<'_>,
    release: &Release,
    status: &mut ClusterVersionStatus,
    step: &mut Step,
) -> bool {
    let message = format!("Retrieving and verifying payload {}", identity(release));
    let accepted = condition(&status.conditions, "ReleaseAccepted");
    let text = accepted.and_then(|c| c.message.as_deref()).unwrap_or_default();
    let since = accepted
        .and_then(|c| c.last_transition_time.as_ref())
        .map(|t| t.0);
    let settings = context.settings;
    let takes = settings
        .retrieve
        .draw(settings.seed, &["retrieve", &release.version]);
    match accepted.map(|c| c.status.as_str()) {
        Some("False") if text.contains(&identity(release)) => true,
        Some("Unknown") if text == message => {
            step.has_passed(since.unwrap_or(context.now), takes, context.now)
        }
        Some(_) | None => {
            // A new retrieval starts its own clock, even if one was under way for another release.
            conditions::remove(&mut status.conditions, "ReleaseAccepted");
            let all = &mut status.conditions;
            conditions::set(
                all,
                "ReleaseAccepted",
                "Unknown",
                "RetrievePayload",
                &message,
                context.now,
            );
            step.has_passed(context.now, takes, context.now)
        }
    }
}

fn begin(status: &mut ClusterVersionStatus, release: Release, now: Timestamp) {
    if let Some(last) = status.history.first_mut()
        && last.completion_time.is_none()
    {
        last.completion_time = Some(conditions::time(now));
    }
    let entry = History {
        state: "Partial".to_owned(),
        started_time: conditions::time(now),
        completion_time: None,
        version: release.version.clone(),
        image: release.image.clone(),
        verified: true,
    };
    status.history.insert(0, entry);
    status.history.truncate(MAX_HISTORY);
    status.desired = release;
}

/// Sets Available, Progressing, Failing and Upgradeable, and completes the history.
fn report(
    context: Context<'_>,
    target: &History,
    progress: Option<&Progress>,
    invalid: Option<&str>,
    status: &mut ClusterVersionStatus,
    step: &mut Step,
) {
    let (now, version) = (context.now, &target.version);
    if progress.is_none()
        && let Some(newest) = status.history.first_mut()
        && !newest.is_completed()
    {
        "Completed".clone_into(&mut newest.state);
        newest.completion_time = Some(conditions::time(now));
    }
    let upgradeable = releases::not_upgradeable(context, status);
    let all = &mut status.conditions;
    if progress.is_none() {
        conditions::set(
            all,
            "Available",
            "True",
            "",
            &format!("Done applying {version}"),
            now,
        );
    }
    let failing = failing(context, progress, step);
    // A slow operator is not a failure, and does not change the text of Progressing.
    let is_slow = failing.as_ref().is_some_and(|f| f.reason == SLOW);
    match &failing {
        Some(f) => {
            let value = if is_slow { "Unknown" } else { "True" };
            conditions::set(all, "Failing", value, &f.reason, &f.message, now);
        }
        None => conditions::set(all, "Failing", "False", "", "", now),
    }
    let failing = failing.filter(|_| !is_slow);
    let reason = match (&failing, invalid) {
        (Some(f), _) => f.reason.as_str(),
        (None, Some(_)) => "InvalidClusterVersion",
        (None, None) => "",
    };
    let message = match (progress, &failing, invalid) {
        (None, Some(f), _) => format!("Error while reconciling {version}: {}", f.message),
        (None, None, Some(_)) => format!("Stopped at {version}: the cluster version is invalid"),
        (None, None, None) => format!("Cluster version is {version}"),
        (Some(_), Some(f), _) => format!("Unable to apply {version}: {}", f.message),
        (Some(_), None, Some(_)) => format!("Reconciling {version}: the cluster version is invalid"),
        (Some(p), None, None) => working_towards(version, p),
    };
    conditions::set(
        all,
        "Progressing",
        conditions::truth(progress.is_some()),
        reason,
        &message,
        now,
    );
    match upgradeable {
        Some(f) => conditions::set(all, "Upgradeable", "False", &f.reason, &f.message, now),
        None => conditions::remove(all, "Upgradeable"),
    }
}

/// Reason of a Failing that is Unknown.
const SLOW: &str = "SlowClusterOperator";

/// Condition Failing: what was switched on, else what the wait for an operator has come to.
fn failing(context: Context<'_>, progress: Option<&Progress>, step: &mut Step) -> Option<Fault> {
    if let Some(failing) = context.faults.failing(context.now, step) {
        return Some(failing);
    }
    let waiting = progress?.waiting.as_ref()?;
    let fault = |reason: &str, message: String| {
        Some(Fault {
            reason: reason.to_owned(),
            message,
        })
    };
    match &waiting.how {
        Patient::Calm | Patient::UpTo(_) => None,
        Patient::Slow(_) => fault(SLOW, waited_for(waiting)),
        Patient::Failing(reason, message) => fault(reason, message.clone()),
    }
}

fn working_towards(version: &str, progress: &Progress) -> String {
    let Progress { done, waiting } = progress;
    if *done == 0 {
        return format!("Working towards {version}");
    }
    let percent = done * 100 / MANIFESTS;
    let waiting = waiting.as_ref().map(|w| format!(", {}", waited_for(w)));
    let waiting = waiting.unwrap_or_default();
    format!("Working towards {version}: {done} of {MANIFESTS} done ({percent}% complete){waiting}")
}

fn waited_for(Waiting { operator, how }: &Waiting) -> String {
    match how {
        Patient::Calm | Patient::Failing(..) => format!("waiting on {operator}"),
        Patient::UpTo(limit) => format!("waiting up to {} on {operator}", minutes(*limit)),
        Patient::Slow(limit) => {
            format!(
                "waiting on {operator} over {} which is longer than expected",
                minutes(*limit)
            )
        }
    }
}

/// As the cluster-version operator says it: "40 minutes".
fn minutes(limit: jiff::SignedDuration) -> String {
    if limit.as_secs() % 60 == 0 {
        format!("{} minutes", limit.as_mins())
    } else {
        duration::format(limit)
    }
}
