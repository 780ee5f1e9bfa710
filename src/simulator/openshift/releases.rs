//! Which releases there are, which one is wanted, and whether it is accepted (engines' facts: CVO `validation.go`,
//! `sync_worker.go`, preconditions).

use jiff::Timestamp;
use semver::Version;
use serde_json::json;

use super::{
    conditions,
    faults::{Fault, Faults},
};
use crate::{
    api::names,
    openshift::cluster_version::{ClusterVersion, ClusterVersionStatus, ConditionalUpdate, Release, Risk},
};

/// The image of a simulated release: a digest that follows from the version.
pub fn image(version: &str) -> String {
    format!(
        "quay.io/openshift-release-dev/ocp-release@sha256:{}",
        names::hash(version, 64)
    )
}

/// A simulated release.
pub fn release(version: &str) -> Release {
    let minor =
        Version::parse(version).map_or_else(|_| version.to_owned(), |v| format!("{}.{}", v.major, v.minor));
    let channels = ["candidate", "eus", "fast", "stable"];
    Release {
        version: version.to_owned(),
        image: image(version),
        channels: Some(channels.iter().map(|c| format!("{c}-{minor}")).collect()),
        url: Some(format!("https://access.redhat.com/errata/simulated-{version}")),
    }
}

/// Lists the updates newer than `current` that the update service offers, or says why it does not know.
pub fn retrieve_updates(
    channel: &str,
    current: &str,
    faults: &Faults,
    status: &mut ClusterVersionStatus,
    now: Timestamp,
) {
    let failure = if channel.is_empty() {
        Some((
            "NoChannel",
            "The update channel has not been configured.".to_owned(),
        ))
    } else {
        faults.update_service.as_ref().map(|f| {
            let message = format!("Unable to retrieve available updates: {}", f.message);
            (f.reason.as_str(), message)
        })
    };
    if let Some((reason, message)) = failure {
        status.available_updates = None;
        status.conditional_updates = Vec::new();
        conditions::set(
            &mut status.conditions,
            "RetrievedUpdates",
            "False",
            reason,
            &message,
            now,
        );
        return;
    }
    let newer = |v: &&String| compare(v, current).is_gt();
    let mut offers: Vec<&String> = faults.offers(channel).iter().filter(newer).collect();
    offers.sort_by(|a, b| compare(b, a));
    offers.dedup();
    offers.retain(|v| !faults.conditional_offers.contains_key(*v));
    status.available_updates = Some(offers.into_iter().map(|v| release(v)).collect());
    let risky = faults.conditional_offers.iter().filter(|(v, _)| newer(v));
    let mut risky: Vec<_> = risky.map(|(v, f)| conditional(v, f, status, now)).collect();
    risky.sort_by(|a, b| compare(&b.release.version, &a.release.version));
    status.conditional_updates = risky;
    conditions::set(&mut status.conditions, "RetrievedUpdates", "True", "", "", now);
}

fn conditional(
    version: &str,
    fault: &Fault,
    status: &ClusterVersionStatus,
    now: Timestamp,
) -> ConditionalUpdate {
    let old = status
        .conditional_updates
        .iter()
        .find(|c| c.release.version == version);
    let mut recommended = old.map(|c| c.conditions.clone()).unwrap_or_default();
    conditions::set(
        &mut recommended,
        "Recommended",
        "False",
        &fault.reason,
        &fault.message,
        now,
    );
    let rules = json!([{"type": "Always"}]);
    ConditionalUpdate {
        release: release(version),
        risks: vec![Risk {
            name: fault.reason.clone(),
            message: fault.message.clone(),
            url: format!("https://issues.redhat.com/browse/{}", fault.reason),
            other: [("matchingRules".to_owned(), rules)].into_iter().collect(),
        }],
        conditions: recommended,
    }
}

/// What `spec.desiredUpdate` asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// Nothing: the cluster stays with what it has.
    Nothing,
    /// Something that can't be; the text is the validation error.
    Invalid(String),
    /// This release.
    Release(Release),
}

/// Reads `spec.desiredUpdate`. A version without image is looked up in the available updates and the history, not in
/// the conditional updates: that is how the cluster-version operator does it.
pub fn wanted(cluster_version: &ClusterVersion, status: &ClusterVersionStatus) -> Wanted {
    let Some(update) = &cluster_version.spec.desired_update else {
        return Wanted::Nothing;
    };
    let (version, image) = (update.version.as_str(), update.image.as_str());
    if version.is_empty() && image.is_empty() {
        return Wanted::Nothing;
    }
    let invalid = |problem: &str| {
        Wanted::Invalid(format!(
            "spec.desiredUpdate.version: Invalid value: {version:?}: {problem}"
        ))
    };
    if !version.is_empty() && Version::parse(version).is_err() {
        return invalid("if set must be a valid semantic version");
    }
    if !image.is_empty() {
        let version = if version.is_empty() {
            version_in(image, "", status).unwrap_or_default()
        } else {
            version.to_owned()
        };
        return Wanted::Release(described(&version, image, status));
    }
    let available = status.available_updates.iter().flatten();
    let mut images: Vec<&str> = available
        .map(|r| (&r.version, &r.image))
        .chain(status.history.iter().map(|h| (&h.version, &h.image)))
        .filter(|(v, i)| *v == version && !i.is_empty())
        .map(|(_, i)| i.as_str())
        .collect();
    images.sort_unstable();
    images.dedup();
    match images.as_slice() {
        [] => invalid("when image is empty the update must be an available update"),
        [image] => Wanted::Release(described(version, image, status)),
        _ => invalid("there are multiple possible payloads for this version, specify the exact image"),
    }
}

fn known(status: &ClusterVersionStatus) -> impl Iterator<Item = &Release> {
    let available = status.available_updates.iter().flatten();
    available
        .chain(status.conditional_updates.iter().map(|c| &c.release))
        .chain(std::iter::once(&status.desired))
}

/// The release with channels and URL, where the update service told them.
fn described(version: &str, image: &str, status: &ClusterVersionStatus) -> Release {
    let plain = Release {
        version: version.to_owned(),
        image: image.to_owned(),
        ..Release::default()
    };
    known(status)
        .find(|r| r.version == version && r.image == image)
        .cloned()
        .unwrap_or(plain)
}

/// The version inside a release image; `None` if nobody has signed such an image.
fn version_in(image_: &str, expected: &str, status: &ClusterVersionStatus) -> Option<String> {
    if image_ == image(expected) {
        return Some(expected.to_owned());
    }
    let history = status.history.iter().map(|h| (&h.version, &h.image));
    known(status)
        .map(|r| (&r.version, &r.image))
        .chain(history)
        .filter(|(_, i)| *i == image_)
        .map(|(v, _)| v.clone())
        .max_by_key(|v| v == expected)
}

/// Why a release is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The step that failed: the reason of condition ReleaseAccepted.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// Loads and checks a release as the cluster-version operator does. `force` skips signatures and preconditions.
pub fn verify(
    release: &Release,
    force: bool,
    status: &ClusterVersionStatus,
    faults: &Faults,
) -> Result<(), Refusal> {
    let payload = version_in(&release.image, &release.version, status);
    let payload = match payload {
        None if force => release.version.clone(),
        None => {
            let digest = release.image.rsplit('@').next().unwrap_or_default();
            let failure = format!(
                "The update cannot be verified: unable to verify {digest} against keyrings: verifier-public-key-redhat"
            );
            return Err(refusal("RetrievePayload", release, &failure));
        }
        Some(version) => version,
    };
    if payload != release.version {
        let failure = format!(
            "release image version {payload} does not match the expected upstream version {}",
            release.version
        );
        return Err(refusal("VerifyPayloadVersion", release, &failure));
    }
    if let Some(f) = faults.reject.get(&release.version)
        && !(force && f.reason == "PreconditionChecks")
    {
        let failure = if f.reason == "PreconditionChecks" {
            precondition("ClusterVersionUpgradeable", "SimulatedFault", &f.message)
        } else {
            f.message.clone()
        };
        return Err(refusal(&f.reason, release, &failure));
    }
    let current = status.history.first().map_or("", |h| h.version.as_str());
    match failed_precondition(&payload, current, status, faults) {
        Some(failure) if !force => Err(refusal("PreconditionChecks", release, &failure)),
        Some(_) | None => Ok(()),
    }
}

fn precondition(name: &str, reason: &str, message: &str) -> String {
    format!("Precondition {name:?} failed because of {reason:?}: {message}")
}

fn refusal(reason: &str, release: &Release, failure: &str) -> Refusal {
    let what = identity(release);
    let message = match reason {
        "RetrievePayload" => format!("Retrieving payload failed {what} failure={failure}"),
        "LoadPayload" => format!("Loading payload failed {what} failure={failure}"),
        "VerifyPayloadVersion" => format!("Verifying payload failed {what} failure={failure}"),
        _ => format!("Preconditions failed for payload loaded {what}: {failure}"),
    };
    Refusal {
        reason: reason.to_owned(),
        message,
    }
}

/// A release as the messages of condition ReleaseAccepted name it.
pub fn identity(release: &Release) -> String {
    format!("version={:?} image={:?}", release.version, release.image)
}

/// Upgradeable, GiantHop and Rollback; versions that don't parse pass.
fn failed_precondition(
    target: &str,
    current: &str,
    status: &ClusterVersionStatus,
    faults: &Faults,
) -> Option<String> {
    let (to, from) = (Version::parse(target).ok()?, Version::parse(current).ok()?);
    if to < from {
        let completed = status.history.iter().skip(1).find(|h| h.is_completed());
        let is_previous = completed.is_some_and(|h| h.version == target);
        let same_minor = (to.major, to.minor) == (from.major, from.minor);
        return (!is_previous || !same_minor).then(|| {
            let message = format!(
                "{to} is less than the current version {from}, and the only supported rollback is to the cluster's previous version"
            );
            precondition("ClusterVersionRollback", "LowDesiredVersion", &message)
        });
    }
    if to.major == from.major && to.minor > from.minor + 1 {
        let message = format!("{to} is more than one minor version beyond {from}");
        return Some(precondition(
            "ClusterVersionGiantHop",
            "MultipleMinorVersionsUpdate",
            &message,
        ));
    }
    let upgradeable = faults.not_upgradeable.as_ref()?;
    ((to.major, to.minor) != (from.major, from.minor)).then(|| {
        let message = format!(
            "Cluster should not be upgraded between minor versions: {}",
            upgradeable.message
        );
        precondition("ClusterVersionUpgradeable", &upgradeable.reason, &message)
    })
}

/// Order of versions; what does not parse counts as older than anything.
fn compare(a: &str, b: &str) -> std::cmp::Ordering {
    Version::parse(a).ok().cmp(&Version::parse(b).ok())
}
