//! Which releases there are, which one is wanted, and whether it is accepted (engines' facts: CVO `validation.go`,
//! `sync_worker.go`, preconditions).

use jiff::Timestamp;
use semver::Version;
use serde_json::json;

use super::{
    Context, Step, conditions,
    faults::{self, Fault},
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

/// Lists the updates that the update service offers, or says why it does not know.
pub(super) fn retrieve_updates(
    channel: &str,
    context: Context<'_>,
    status: &mut ClusterVersionStatus,
    step: &mut Step,
) {
    let now = context.now;
    if let Some((reason, message)) = retrieval_failure(channel, context, status) {
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
    let (recommended, risky) = offers(channel, &status.desired.version, context, step);
    status.available_updates = Some(recommended.into_iter().map(|v| release(&v)).collect());
    let risky = risky
        .iter()
        .map(|(v, risks)| conditional(v, risks, status, now))
        .collect();
    status.conditional_updates = risky;
    conditions::set(&mut status.conditions, "RetrievedUpdates", "True", "", "", now);
}

/// Why it is not known what there is: reason and message.
fn retrieval_failure<'a>(
    channel: &str,
    context: Context<'a>,
    status: &ClusterVersionStatus,
) -> Option<(&'a str, String)> {
    if channel.is_empty() {
        let message = "The update channel has not been configured.".to_owned();
        return Some(("NoChannel", message));
    }
    if let Some(fault) = &context.faults.update_service {
        let message = format!("Unable to retrieve available updates: {}", fault.message);
        return Some((fault.reason.as_str(), message));
    }
    let current = &status.desired.version;
    (!context.faults.graph.knows(current, channel)).then(|| {
        let message = format!(
            "Unable to retrieve available updates: currently reconciling cluster version {current} not found in the {channel:?} channel"
        );
        ("VersionNotFound", message)
    })
}

/// Versions that are recommended, and versions with their risks; newest first.
type Offers = (Vec<String>, Vec<(String, Vec<Fault>)>);

fn offers(channel: &str, current: &str, context: Context<'_>, step: &mut Step) -> Offers {
    let faults = context.faults;
    let plain = faults
        .offers(channel)
        .iter()
        .chain(faults.conditional_offers.keys());
    let mut all: Vec<String> = plain.filter(|v| compare(v, current).is_gt()).cloned().collect();
    all.extend(faults.graph.updates(channel, current, context.now, step));
    all.sort_by(|a, b| compare(b, a));
    all.dedup();
    let risks_of = |version: &String| {
        let known = faults.graph.risks_of(version).iter();
        let risks: Vec<Fault> = known
            .chain(faults.conditional_offers.get(version))
            .cloned()
            .collect();
        (version.clone(), risks)
    };
    let (risky, plain): (Vec<_>, Vec<_>) = all.iter().map(risks_of).partition(|(_, risks)| !risks.is_empty());
    let mut recommended: Vec<String> = plain.into_iter().map(|(version, _)| version).collect();
    if recommended.is_empty() && faults.graph.always_an_update {
        recommended.extend(next_patch(current));
    }
    (recommended, risky)
}

fn next_patch(current: &str) -> Option<String> {
    let Version {
        major, minor, patch, ..
    } = Version::parse(current).ok()?;
    Some(Version::new(major, minor, patch + 1).to_string())
}

fn conditional(
    version: &str,
    risks: &[Fault],
    status: &ClusterVersionStatus,
    now: Timestamp,
) -> ConditionalUpdate {
    let old = status
        .conditional_updates
        .iter()
        .find(|c| c.release.version == version);
    let mut recommended = old.map(|c| c.conditions.clone()).unwrap_or_default();
    let messages: Vec<&str> = risks.iter().map(|r| r.message.as_str()).collect();
    let reason = match risks {
        [only] => only.reason.as_str(),
        _ => "MultipleReasons",
    };
    conditions::set(
        &mut recommended,
        "Recommended",
        "False",
        reason,
        &messages.join("\n\n"),
        now,
    );
    let risk = |fault: &Fault| Risk {
        name: fault.reason.clone(),
        message: fault.message.clone(),
        url: format!("https://issues.redhat.com/browse/{}", fault.reason),
        other: [("matchingRules".to_owned(), json!([{"type": "Always"}]))]
            .into_iter()
            .collect(),
    };
    ConditionalUpdate {
        release: release(version),
        risks: risks.iter().map(risk).collect(),
        conditions: recommended,
    }
}

/// Why the cluster is not Upgradeable: what was switched on, and admin gates of the installed minor that nobody has
/// acknowledged.
pub(super) fn not_upgradeable(context: Context<'_>, status: &ClusterVersionStatus) -> Option<Fault> {
    let installed = status.history.iter().find(|h| h.is_completed())?;
    let minor = Version::parse(&installed.version)
        .ok()
        .map(|v| (v.major, v.minor));
    let acks = context.cluster.admin_acks.as_ref().and_then(|c| c.data.as_ref());
    let is_open = |key: &str| acks.and_then(|all| all.get(key)).is_none_or(|v| v != "true");
    let gates = context.faults.admin_gates.iter();
    let mut all: Vec<&Fault> = gates
        .filter(|(key, _)| faults::gated_minor(key).ok() == minor && is_open(key))
        .map(|(_, gate)| gate)
        .collect();
    // Several gates have one reason; with anything else there are several.
    let fault = context.faults.not_upgradeable.as_ref();
    let reason = match (fault, all.first().copied()) {
        (Some(_), Some(_)) => "MultipleReasons",
        (Some(one), None) | (None, Some(one)) => &one.reason,
        (None, None) => return None,
    };
    all.extend(fault);
    let messages: Vec<&str> = all.iter().map(|f| f.message.as_str()).collect();
    Some(Fault {
        reason: reason.to_owned(),
        message: messages.join("; "),
    })
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
    // The whole spec is validated, whatever it asks for.
    let upstream = cluster_version.spec.other.get("upstream");
    if let Some(url) = upstream.and_then(serde_json::Value::as_str)
        && !url.is_empty()
        && url.parse::<http::Uri>().is_err()
    {
        return Wanted::Invalid(format!(
            "spec.upstream: Invalid value: {url:?}: must be a valid URL or empty"
        ));
    }
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
pub(super) fn verify(
    release: &Release,
    force: bool,
    status: &ClusterVersionStatus,
    context: Context<'_>,
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
    if let Some(f) = context.faults.rejection(&release.version)
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
    match failed_precondition(&payload, current, status, context) {
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
    context: Context<'_>,
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
    let upgradeable = not_upgradeable(context, status)?;
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
