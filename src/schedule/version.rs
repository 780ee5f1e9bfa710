//! Which of the offered versions a run upgrades to.
//!
//! "Unknown" is not "none": a cluster-version operator that cannot say what is offered (update server away, spec not
//! seen yet) is asked again, while "none" makes a maintenance run and always carries its cause.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};
use semver::Version;

use crate::{
    api::upgrade_job::DesiredVersion,
    openshift::{
        self,
        cluster_version::{ClusterVersion, ClusterVersionStatus, Release},
    },
};

/// How long after a change of the channel by us its list of updates is waited for.
pub const CHANNEL_CHANGE_GRACE: SignedDuration = SignedDuration::from_mins(5);

/// The choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This version.
    Update {
        /// The version, with its image.
        version: DesiredVersion,
        /// What was passed over for it, and why.
        note: Option<String>,
    },
    /// There is nothing to update to.
    None {
        /// Why.
        cause: NoUpdate,
    },
    /// The cluster cannot say; ask again.
    Unknown {
        /// Why, in one sentence without a full stop.
        why: String,
    },
}

/// Why there is nothing to update to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoUpdate {
    /// The update server offers none.
    #[error("no update is offered in channel {channel}")]
    NoneOffered {
        /// The channel.
        channel: String,
    },
    /// No channel is set.
    #[error("the ClusterVersion has no channel; set spec.channel to be offered updates")]
    NoChannel,
    /// All have known risks.
    #[error("only updates with known risks are offered, which a person has to accept: {}", .versions.join(", "))]
    OnlyConditional {
        /// The versions.
        versions: Vec<String>,
    },
    /// All are minors, and the cluster is not ready for one.
    #[error("only minor updates are offered ({}), but the cluster is Upgradeable=False: {why}", .versions.join(", "))]
    OnlyMinors {
        /// The versions.
        versions: Vec<String>,
        /// Message of the condition.
        why: String,
    },
    /// None is newer than the installed version, or none can be read.
    #[error("none of the offered versions is newer than the installed {installed}: {}", .versions.join(", "))]
    NotNewer {
        /// The installed version.
        installed: String,
        /// The versions.
        versions: Vec<String>,
    },
}

/// Chooses the version of a run: the highest of the recommended updates by semver, pre-releases included; minors (and
/// majors) are passed over while the cluster is Upgradeable=False, which blocks only these.
///
/// `channel_changed_at`: when we last changed the channel of the ClusterVersion.
pub fn choose(
    cluster_version: Option<&ClusterVersion>,
    channel_changed_at: Option<Timestamp>,
    now: Timestamp,
) -> Choice {
    let Some(cv) = cluster_version else {
        return unknown("the ClusterVersion has not been read yet");
    };
    let Some(status) = cv.status.as_ref() else {
        return unknown("the cluster-version operator has not reported yet");
    };
    if !cv.is_observed() {
        return unknown(
            "the cluster-version operator has not seen the newest spec of the ClusterVersion yet",
        );
    }
    let channel = cv.spec.channel.as_deref().unwrap_or_default();
    let offered = status.available_updates.as_deref().unwrap_or_default();
    if channel.is_empty() && offered.is_empty() {
        return Choice::None {
            cause: NoUpdate::NoChannel,
        };
    }
    if let Some(why) = why_unknown(status, channel_changed_at, now) {
        return Choice::Unknown { why };
    }
    among(cv, status, channel, offered)
}

fn unknown(why: &str) -> Choice {
    Choice::Unknown { why: why.to_owned() }
}

/// Why the list of updates says nothing.
///
/// An empty list is null on the wire too (the cluster-version operator writes Go's nil slice), so null alone says
/// nothing; RetrievedUpdates=True says that the list "is both recent and accurate".
fn why_unknown(
    status: &ClusterVersionStatus,
    channel_changed_at: Option<Timestamp>,
    now: Timestamp,
) -> Option<String> {
    let retrieved = openshift::condition(&status.conditions, "RetrievedUpdates");
    match retrieved {
        Some(c) if c.status == "True" => {}
        Some(c) => {
            let message = c.message.as_deref().unwrap_or("no message");
            return Some(format!(
                "the list of updates could not be retrieved (RetrievedUpdates={}): {message}",
                c.status
            ));
        }
        None if status.available_updates.is_none() => {
            return Some("the list of updates has not been retrieved yet".to_owned());
        }
        None => {}
    }
    let changed = channel_changed_at.filter(|t| now.duration_since(*t) < CHANNEL_CHANGE_GRACE)?;
    let answered = retrieved
        .and_then(|c| c.last_transition_time.as_ref())
        .is_some_and(|t| t.0 > changed);
    (!answered)
        .then(|| "the channel was changed a moment ago, its list of updates is not there yet".to_owned())
}

struct Candidate<'a> {
    version: Version,
    release: &'a Release,
}

fn among(cv: &ClusterVersion, status: &ClusterVersionStatus, channel: &str, offered: &[Release]) -> Choice {
    let installed_text = match cv.newest() {
        Some(newest) => newest.version.as_str(),
        None => status.desired.version.as_str(),
    };
    let installed = Version::parse(installed_text).ok();
    let mut newer: Vec<Candidate<'_>> = offered
        .iter()
        .filter_map(|release| {
            let version = Version::parse(&release.version).ok()?;
            let is_newer = installed
                .as_ref()
                .is_none_or(|i| version.cmp_precedence(i).is_gt());
            is_newer.then_some(Candidate { version, release })
        })
        .collect();
    newer.sort_by(|a, b| descending(a, b));

    let blocked = openshift::is_false(&status.conditions, "Upgradeable");
    let is_passed_over = |c: &&Candidate<'_>| {
        blocked
            && installed
                .as_ref()
                .is_some_and(|i| (c.version.major, c.version.minor) != (i.major, i.minor))
    };
    let passed_over: Vec<String> = newer
        .iter()
        .filter(is_passed_over)
        .map(|c| c.release.version.clone())
        .collect();
    if let Some(best) = newer.iter().find(|c| !is_passed_over(c)) {
        return Choice::Update {
            version: DesiredVersion {
                version: Some(best.release.version.clone()),
                image: Some(best.release.image.clone()).filter(|image| !image.is_empty()),
                ..DesiredVersion::default()
            },
            note: (!passed_over.is_empty()).then(|| {
                format!(
                    "passed over {}, because the cluster is Upgradeable=False: {}",
                    passed_over.join(", "),
                    cv.message_of("Upgradeable")
                )
            }),
        };
    }
    let versions = |releases: &mut dyn Iterator<Item = &Release>| -> Vec<String> {
        releases.map(|r| r.version.clone()).collect()
    };
    let cause = if !passed_over.is_empty() {
        NoUpdate::OnlyMinors {
            versions: passed_over,
            why: cv.message_of("Upgradeable").to_owned(),
        }
    } else if !offered.is_empty() {
        NoUpdate::NotNewer {
            installed: installed_text.to_owned(),
            versions: versions(&mut offered.iter()),
        }
    } else if !status.conditional_updates.is_empty() {
        NoUpdate::OnlyConditional {
            versions: versions(&mut status.conditional_updates.iter().map(|c| &c.release)),
        }
    } else {
        NoUpdate::NoneOffered {
            channel: channel.to_owned(),
        }
    };
    Choice::None { cause }
}

/// Highest first. Build metadata has no precedence; it and the image only make the order independent of the list's.
fn descending(a: &Candidate<'_>, b: &Candidate<'_>) -> Ordering {
    (b.version.cmp_precedence(&a.version))
        .then_with(|| b.version.cmp(&a.version))
        .then_with(|| a.release.image.cmp(&b.release.image))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-11-24T18:00:00Z";

    fn cluster(available: &Value, conditional: &Value, conditions: &Value) -> ClusterVersion {
        serde_json::from_value(json!({
            "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
            "metadata": {"name": "version", "generation": 3},
            "spec": {"clusterID": "x", "channel": "stable-4.18"},
            "status": {
                "desired": {"version": "4.18.2", "image": "i2"}, "observedGeneration": 3, "versionHash": "x",
                "availableUpdates": available, "conditionalUpdates": conditional, "conditions": conditions,
                "history": [{"state": "Completed", "startedTime": NOW, "completionTime": NOW, "version": "4.18.2",
                    "image": "i2", "verified": true}],
            },
        }))
        .unwrap()
    }

    fn releases(versions: &[&str]) -> Value {
        versions
            .iter()
            .map(|v| json!({"version": v, "image": format!("image-of-{v}")}))
            .collect()
    }

    fn retrieved() -> Value {
        json!([{"type": "RetrievedUpdates", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    fn not_upgradeable() -> Value {
        json!([{"type": "RetrievedUpdates", "status": "True"},
            {"type": "Upgradeable", "status": "False", "message": "ack needed"}])
    }

    fn chosen(cv: &ClusterVersion) -> Choice {
        choose(Some(cv), None, NOW.parse().unwrap())
    }

    #[rstest]
    #[case::highest_by_number(&["4.18.9", "4.18.10", "4.18.3"], retrieved(), "4.18.10", None)]
    #[case::minor(&["4.18.9", "4.19.1"], retrieved(), "4.19.1", None)]
    #[case::pre_release(&["4.18.9", "4.19.0-rc.2", "4.19.0-ec.5"], retrieved(), "4.19.0-rc.2", None)]
    #[case::release_beats_its_candidate(&["4.19.0-rc.2", "4.19.0"], retrieved(), "4.19.0", None)]
    #[case::minor_passed_over(&["4.18.9", "4.19.1"], not_upgradeable(), "4.18.9",
        Some("passed over 4.19.1, because the cluster is Upgradeable=False: ack needed"))]
    #[case::z_stream_is_not_blocked(&["4.18.9"], not_upgradeable(), "4.18.9", None)]
    #[case::rollback_is_never_chosen(&["4.18.1", "4.18.3"], retrieved(), "4.18.3", None)]
    #[case::unreadable_is_passed_over(&["newest", "4.18.3"], retrieved(), "4.18.3", None)]
    #[case::without_condition(&["4.18.3"], json!([]), "4.18.3", None)]
    fn the_highest_version_that_can_be_set_is_chosen(
        #[case] offered: &[&str],
        #[case] conditions: Value,
        #[case] expected: &str,
        #[case] note: Option<&str>,
    ) {
        let cv = cluster(&releases(offered), &json!([]), &conditions);
        let version = DesiredVersion {
            version: Some(expected.to_owned()),
            image: Some(format!("image-of-{expected}")),
            ..DesiredVersion::default()
        };
        assert_eq!(
            chosen(&cv),
            Choice::Update {
                version,
                note: note.map(ToOwned::to_owned)
            }
        );
    }

    #[rstest]
    #[case::empty(json!([]), json!([]), retrieved(), "no update is offered in channel stable-4.18")]
    #[case::empty_is_null_on_the_wire(Value::Null, json!([]), retrieved(), "no update is offered in channel stable-4.18")]
    #[case::conditional(json!([]), json!([{"release": {"version": "4.18.5", "image": "i"}}]), retrieved(),
        "only updates with known risks are offered, which a person has to accept: 4.18.5")]
    #[case::minors(releases(&["4.19.1", "4.19.2"]), json!([]), not_upgradeable(),
        "only minor updates are offered (4.19.2, 4.19.1), but the cluster is Upgradeable=False: ack needed")]
    #[case::older(releases(&["4.18.1"]), json!([]), retrieved(),
        "none of the offered versions is newer than the installed 4.18.2: 4.18.1")]
    fn none_carries_its_cause(
        #[case] available: Value,
        #[case] conditional: Value,
        #[case] conditions: Value,
        #[case] expected: &str,
    ) {
        match chosen(&cluster(&available, &conditional, &conditions)) {
            Choice::None { cause } => assert_eq!(cause.to_string(), expected),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_channel_is_none_and_not_unknown() {
        let no_channel = json!([{"type": "RetrievedUpdates", "status": "False", "reason": "NoChannel"}]);
        let mut cv = cluster(&Value::Null, &json!([]), &no_channel);
        cv.spec.channel = None;
        assert_eq!(
            chosen(&cv),
            Choice::None {
                cause: NoUpdate::NoChannel
            }
        );
        // As long as the operator has not seen that there is no channel, its status is that of the old one.
        cv.metadata.generation = Some(4);
        assert!(matches!(chosen(&cv), Choice::Unknown { .. }));
    }

    #[rstest]
    #[case::null(Value::Null, json!([]), "not been retrieved yet")]
    #[case::not_retrieved(releases(&["4.18.9"]),
        json!([{"type": "RetrievedUpdates", "status": "False", "message": "server away"}]), "server away")]
    #[case::unknown(Value::Null, json!([{"type": "RetrievedUpdates", "status": "Unknown"}]), "RetrievedUpdates=Unknown")]
    fn a_list_that_was_not_retrieved_is_unknown(
        #[case] available: Value,
        #[case] conditions: Value,
        #[case] expected: &str,
    ) {
        match chosen(&cluster(&available, &json!([]), &conditions)) {
            Choice::Unknown { why } => assert!(why.contains(expected), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cluster_that_was_not_seen_is_unknown() {
        let mut cv = cluster(&releases(&["4.18.9"]), &json!([]), &retrieved());
        assert!(matches!(
            choose(None, None, NOW.parse().unwrap()),
            Choice::Unknown { .. }
        ));
        cv.metadata.generation = Some(4);
        assert!(matches!(chosen(&cv), Choice::Unknown { .. }));
        cv.status = None;
        assert!(matches!(chosen(&cv), Choice::Unknown { .. }));
    }

    #[rstest]
    #[case::just_now("2026-11-24T17:58:00Z", "2026-01-01T00:00:00Z", true)]
    #[case::answered("2026-11-24T17:58:00Z", "2026-11-24T17:59:00Z", false)]
    #[case::long_ago("2026-11-24T17:55:00Z", "2026-01-01T00:00:00Z", false)]
    fn after_our_own_change_of_the_channel_its_list_is_waited_for(
        #[case] changed: &str,
        #[case] retrieved: &str,
        #[case] unknown: bool,
    ) {
        let conditions =
            json!([{"type": "RetrievedUpdates", "status": "True", "lastTransitionTime": retrieved}]);
        let cv = cluster(&releases(&["4.18.9"]), &json!([]), &conditions);
        let choice = choose(Some(&cv), Some(changed.parse().unwrap()), NOW.parse().unwrap());
        assert_eq!(matches!(choice, Choice::Unknown { .. }), unknown);
    }
}
