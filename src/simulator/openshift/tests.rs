//! The whole simulator in virtual time.

mod fake;
mod faults_in_time;
mod graph_in_time;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use rstest::rstest;

use self::fake::Fake;
use super::*;
use crate::openshift::{cluster_version::Update, condition, is_true, node::CURRENT_CONFIG};

fn is_completed(cluster: &Cluster, version: &str) -> bool {
    let newest = cluster.cluster_version.as_ref().and_then(ClusterVersion::newest);
    newest.is_some_and(|h| h.version == version && h.is_completed())
}

fn is_updated(cluster: &Cluster, pool: &str) -> bool {
    let pool = cluster.pools.iter().find(|p| p.name_any() == pool).unwrap();
    is_true(pool.conditions(), "Updated") && pool.state().configuration.name == pool.spec.configuration.name
}

#[test]
fn a_whole_upgrade_takes_the_control_plane_and_every_node_to_the_new_release() {
    let mut fake = Fake::ready();
    fake.add_pod("web", "worker-1", "ReplicaSet");
    fake.add_pod("agent", "worker-1", "DaemonSet");
    fake.want_version("4.18.5");
    fake.until("10s", |c| {
        !c.cluster_version
            .as_ref()
            .unwrap()
            .newest()
            .unwrap()
            .is_completed()
    });
    assert_eq!(fake.progressing(), "Working towards 4.18.5");
    let started = fake.now;
    fake.until("10s", |c| {
        let progressing = c.cluster_version.as_ref().unwrap().message_of("Progressing");
        progressing == "Working towards 4.18.5: 392 of 901 done (43% complete), waiting on authentication"
    });
    fake.until("60s", |c| is_completed(c, "4.18.5"));
    let version = fake.version().unwrap();
    let status = version.status.as_ref().unwrap();
    assert!(version.is_observed());
    assert_eq!(fake.progressing(), "Cluster version is 4.18.5");
    assert_eq!(version.message_of("Available"), "Done applying 4.18.5");
    assert_eq!(status.desired.version, "4.18.5");
    assert_eq!(status.available_updates, Some(Vec::new()));
    assert_eq!(status.history.len(), 2);
    assert!(status.history.iter().all(|h| h.completion_time.is_some()));
    assert!(
        fake.cluster
            .operators
            .iter()
            .all(|o| o.operator_version() == Some("4.18.5"))
    );
    // The control plane waits for the masters, not for the workers.
    assert!(is_updated(&fake.cluster, "master"));
    fake.until("60s", |c| is_updated(c, "worker") && is_updated(c, "x-app-night"));
    let took = fake.now.duration_since(started);
    assert!(
        (SignedDuration::from_secs(25)..SignedDuration::from_secs(45)).contains(&took),
        "{took:?}"
    );
    for node in &fake.cluster.nodes {
        let config = annotation(node, CURRENT_CONFIG);
        let rendered = fake
            .cluster
            .machine_configs
            .iter()
            .find(|c| c.name_any() == config)
            .unwrap();
        let release = &rendered.annotations()[crate::openshift::machine_config::RELEASE_VERSION];
        assert_eq!(release, "4.18.5", "{}", node.name_any());
        assert!(node_update::is_available(node), "{}", node.name_any());
    }
    assert_eq!(fake.evictions, ["web"]);
    assert_eq!(fake.settle(), None, "something goes on after the end");
}

#[test]
fn a_paused_pool_is_left_alone_and_rolls_as_soon_as_it_is_unpaused() {
    let mut fake = Fake::ready();
    let before = fake.pool("x-app-night").state().configuration.name;
    fake.pause("x-app-night", true);
    fake.want_version("4.18.5");
    fake.until("60s", |c| is_completed(c, "4.18.5") && is_updated(c, "worker"));
    fake.pass("1h");
    let pool = fake.pool("x-app-night");
    let wanted = pool.spec.configuration.name.clone();
    assert_ne!(wanted, before);
    assert_eq!(pool.state().configuration.name, before);
    assert_eq!(pool.state().updated_machine_count, 0);
    assert!(!is_true(pool.conditions(), "Updated") && !is_true(pool.conditions(), "Updating"));
    let updating = condition(pool.conditions(), "Updating").unwrap().message.clone();
    let text = format!("Pool is paused; will not update to MachineConfig {wanted}");
    assert_eq!(updating, Some(text));
    fake.pause("x-app-night", false);
    fake.settle();
    assert!(is_true(fake.pool("x-app-night").conditions(), "Updating"));
    fake.until("20s", |c| is_updated(c, "x-app-night"));
}

#[test]
fn pools_say_updated_until_the_new_configuration_is_rendered() {
    let mut fake = Fake::ready();
    fake.want_version("4.18.5");
    fake.until("20s", |c| {
        c.operators
            .iter()
            .filter(|o| o.operator_version() == Some("4.18.5"))
            .count()
            == 5
    });
    assert!(
        ["master", "worker", "x-app-night"]
            .iter()
            .all(|p| is_updated(&fake.cluster, p))
    );
}

#[rstest]
#[case("RetrievePayload", "Retrieving payload failed version=\"4.18.5\"")]
#[case("VerifyPayloadVersion", "Verifying payload failed version=\"4.18.5\"")]
#[case(
    "PreconditionChecks",
    "Preconditions failed for payload loaded version=\"4.18.5\""
)]
fn a_refused_release_starts_by_itself_when_the_cause_is_gone_unless_it_was_withdrawn(
    #[case] reason: &str,
    #[case] text: &str,
) {
    for withdrawn in [false, true] {
        let mut fake = Fake::ready();
        fake.control("reject", &format!("4.18.5 {reason} not today"));
        fake.want_version("4.18.5");
        fake.pass("1h");
        let version = fake.version().unwrap();
        let accepted = condition(version.conditions(), "ReleaseAccepted").unwrap();
        assert_eq!(
            (accepted.status.as_str(), accepted.reason.as_deref()),
            ("False", Some(reason))
        );
        assert!(
            version.message_of("ReleaseAccepted").starts_with(text),
            "{accepted:?}"
        );
        assert!(version.message_of("ReleaseAccepted").ends_with("not today"));
        assert!(version.is_observed() && !is_true(version.conditions(), "Progressing"));
        assert_eq!(version.newest().unwrap().version, "4.18.3");
        if withdrawn {
            fake.want(None);
            fake.settle();
        }
        fake.control("reject", "");
        fake.pass("2m");
        let started = is_completed(&fake.cluster, "4.18.5");
        assert_eq!(started, !withdrawn);
        assert!(is_true(fake.version().unwrap().conditions(), "ReleaseAccepted"));
    }
}

#[rstest]
#[case::not_offered(
    "4.18.9",
    "",
    Some("when image is empty the update must be an available update")
)]
#[case::not_a_version("next", "", Some("if set must be a valid semantic version"))]
#[case::offered("4.18.4", "", None)]
fn a_version_without_image_must_be_offered(
    #[case] version: &str,
    #[case] image: &str,
    #[case] problem: Option<&str>,
) {
    let mut fake = Fake::ready();
    fake.want(Some(Update {
        version: version.to_owned(),
        image: image.to_owned(),
        ..Update::default()
    }));
    fake.pass("2m");
    let cv = fake.version().unwrap();
    assert_eq!(is_true(cv.conditions(), "Invalid"), problem.is_some());
    assert!(cv.message_of("Invalid").ends_with(problem.unwrap_or_default()));
    assert_eq!(is_completed(&fake.cluster, version), problem.is_none());
    if problem.is_some() {
        assert_eq!(
            fake.progressing(),
            "Stopped at 4.18.3: the cluster version is invalid"
        );
        fake.want(None);
        fake.settle();
        assert_eq!(fake.progressing(), "Cluster version is 4.18.3");
        assert!(condition(fake.version().unwrap().conditions(), "Invalid").is_none());
    }
}

#[test]
fn a_spec_that_is_invalid_stops_every_update_until_it_is_mended() {
    let mut fake = Fake::ready();
    fake.set_upstream("http://no host");
    fake.want_version("4.18.4");
    fake.pass("2m");
    let cv = fake.version().unwrap();
    assert!(is_true(cv.conditions(), "Invalid"));
    assert!(
        cv.message_of("Invalid").contains("spec.upstream"),
        "{}",
        cv.message_of("Invalid")
    );
    assert!(!is_completed(&fake.cluster, "4.18.4"));
    fake.set_upstream("https://updates.example.com/graph");
    fake.pass("2m");
    assert!(is_completed(&fake.cluster, "4.18.4"));
}

#[rstest]
#[case::unsigned(
    "4.18.5",
    "quay.io/mirror@sha256:0",
    "RetrievePayload",
    "unable to verify sha256:0 against"
)]
#[case::other_release("4.18.5", &releases::image("4.18.4"), "VerifyPayloadVersion", "release image version 4.18.4 does not match")]
#[case::older("4.18.2", &releases::image("4.18.2"), "PreconditionChecks", "LowDesiredVersion")]
#[case::two_minors("4.20.1", &releases::image("4.20.1"), "PreconditionChecks", "MultipleMinorVersionsUpdate")]
#[case::not_upgradeable("4.19.1", &releases::image("4.19.1"), "PreconditionChecks", "\"AdminAckRequired\"")]
fn releases_are_checked_like_the_cluster_version_operator_does(
    #[case] version: &str,
    #[case] image: &str,
    #[case] reason: &str,
    #[case] text: &str,
) {
    let mut fake = Fake::ready();
    fake.control("not-upgradeable", "AdminAckRequired read the notes");
    fake.want(Some(Update {
        version: version.to_owned(),
        image: image.to_owned(),
        ..Update::default()
    }));
    fake.pass("1m");
    let cv = fake.version().unwrap();
    let accepted = condition(cv.conditions(), "ReleaseAccepted").unwrap();
    assert_eq!(accepted.reason.as_deref(), Some(reason));
    assert!(cv.message_of("ReleaseAccepted").contains(text), "{accepted:?}");
    assert_eq!(cv.newest().unwrap().version, "4.18.3");
}

#[test]
fn a_stall_holds_the_control_plane_at_its_percentage() {
    let mut fake = Fake::ready();
    fake.control("stall-at", "80");
    fake.want_version("4.18.5");
    fake.pass("1h");
    assert_eq!(
        fake.progressing(),
        "Working towards 4.18.5: 721 of 901 done (80% complete), waiting on monitoring"
    );
    fake.control("stall-at", "");
    fake.until("60s", |c| is_completed(c, "4.18.5"));
}

#[rstest]
#[case("hold", "all")]
#[case("degraded-operators", "etcd EtcdMembers_Degraded no quorum")]
fn nothing_completes_while_it_is_held_or_an_operator_is_degraded(#[case] key: &str, #[case] value: &str) {
    let mut fake = Fake::ready();
    fake.want_version("4.18.5");
    fake.until("10s", |c| {
        !c.cluster_version
            .as_ref()
            .unwrap()
            .newest()
            .unwrap()
            .is_completed()
    });
    fake.control(key, value);
    fake.pass("1h");
    assert!(
        fake.cluster
            .operators
            .iter()
            .all(|o| o.name_any() == "etcd" || o.operator_version() == Some("4.18.3"))
    );
    assert!(!is_completed(&fake.cluster, "4.18.5"));
    fake.control(key, "");
    fake.until("60s", |c| is_completed(c, "4.18.5"));
}

#[test]
fn failing_is_told_without_stopping_the_upgrade() {
    let mut fake = Fake::ready();
    fake.control("failing", "ClusterOperatorNotAvailable ingress is away");
    fake.settle();
    assert_eq!(
        fake.progressing(),
        "Error while reconciling 4.18.3: ingress is away"
    );
    fake.want_version("4.18.5");
    fake.until("10s", |c| {
        !c.cluster_version
            .as_ref()
            .unwrap()
            .newest()
            .unwrap()
            .is_completed()
    });
    assert_eq!(fake.progressing(), "Unable to apply 4.18.5: ingress is away");
    assert!(is_true(fake.version().unwrap().conditions(), "Failing"));
    fake.until("60s", |c| is_completed(c, "4.18.5"));
}

#[test]
fn updates_are_unknown_while_the_update_service_is_away() {
    let mut fake = Fake::ready();
    fake.control("conditional-offers", "4.18.6 SlowEtcd etcd may be slow");
    fake.settle();
    let status = fake.version().unwrap().status.clone().unwrap();
    let offered: Vec<_> = status
        .available_updates
        .iter()
        .flatten()
        .map(|r| r.version.as_str())
        .collect();
    assert_eq!(offered, ["4.18.5", "4.18.4"]);
    assert_eq!(status.conditional_updates[0].risks[0].name, "SlowEtcd");
    fake.control("update-service", "RemoteFailed no route to host");
    fake.settle();
    let status = fake.version().unwrap().status.clone().unwrap();
    assert_eq!(status.available_updates, None);
    assert!(!is_true(&status.conditions, "RetrievedUpdates"));
    fake.control("update-service", "");
    fake.settle();
    assert!(is_true(fake.version().unwrap().conditions(), "RetrievedUpdates"));
}

#[test]
fn a_paused_master_pool_keeps_the_control_plane_from_completing() {
    let mut fake = Fake::ready();
    fake.pause("master", true);
    fake.want_version("4.18.5");
    fake.pass("1h");
    assert!(!is_completed(&fake.cluster, "4.18.5"));
    assert!(
        fake.progressing().ends_with("waiting on machine-config"),
        "{}",
        fake.progressing()
    );
    fake.pause("master", false);
    fake.until("60s", |c| is_completed(c, "4.18.5"));
}

#[rstest]
#[case(None, 1)]
#[case(Some(IntOrString::Int(2)), 2)]
#[case(Some(IntOrString::String("67%".to_owned())), 2)]
#[case(Some(IntOrString::String("10%".to_owned())), 1)]
fn no_more_nodes_are_away_than_allowed_and_as_many_as_allowed(
    #[case] limit: Option<IntOrString>,
    #[case] most: usize,
) {
    let mut fake = Fake::ready();
    let pool = fake
        .cluster
        .pools
        .iter_mut()
        .find(|p| p.name_any() == "worker")
        .unwrap();
    pool.spec.max_unavailable = limit;
    fake.want_version("4.18.5");
    fake.until("90s", |c| is_completed(c, "4.18.5") && is_updated(c, "worker"));
    assert_eq!(fake.away["worker"], most);
    assert_eq!(fake.away["master"], 1);
}

#[test]
fn a_node_that_somebody_cordoned_uses_up_what_may_be_away() {
    let mut fake = Fake::ready();
    let node = fake
        .cluster
        .nodes
        .iter_mut()
        .find(|n| n.name_any() == "worker-2")
        .unwrap();
    node.spec.get_or_insert_default().unschedulable = Some(true);
    fake.want_version("4.18.5");
    fake.until("90s", |c| is_completed(c, "4.18.5") && is_updated(c, "worker"));
    assert_eq!(fake.away["worker"], 1);
}

#[test]
fn a_degraded_node_degrades_its_pool_until_the_cause_is_gone() {
    let mut fake = Fake::ready();
    fake.control("degraded-nodes", "worker-0 NoSpace disk is full");
    fake.want_version("4.18.5");
    fake.pass("10m");
    let pool = fake.pool("worker");
    assert!(is_true(pool.conditions(), "Degraded") && !is_updated(&fake.cluster, "worker"));
    let message = condition(pool.conditions(), "NodeDegraded")
        .unwrap()
        .message
        .clone();
    assert_eq!(
        message.unwrap(),
        "Node worker-0 is reporting: \"NoSpace: disk is full\""
    );
    assert_eq!(pool.state().degraded_machine_count, 1);
    fake.control("degraded-nodes", "");
    fake.until("60s", |c| is_updated(c, "worker"));
    assert!(!is_true(fake.pool("worker").conditions(), "Degraded"));
}

#[test]
fn every_state_between_two_writes_can_be_carried_on_from() {
    let mut straight = Fake::ready();
    straight.want_version("4.18.5");
    straight.until("90s", |c| {
        is_completed(c, "4.18.5") && is_updated(c, "worker") && is_updated(c, "x-app-night")
    });
    // Only ever one write of what was decided gets through before everything is read and decided again.
    let mut broken = Fake::ready();
    broken.want_version("4.18.5");
    let end = later(broken.now, SignedDuration::from_secs(90));
    let mut writes = 0;
    loop {
        let step = next(&broken.cluster, broken.now, &broken.settings);
        match (step.writes.into_iter().next(), step.wake_at) {
            (Some(write), _) => {
                writes += 1;
                broken.apply(write);
            }
            (None, Some(at)) if at <= end => broken.now = at,
            (None, _) => break,
        }
    }
    assert!(writes > 100, "{writes}");
    assert!(is_completed(&broken.cluster, "4.18.5"));
    let configs = |f: &Fake| {
        f.cluster
            .nodes
            .iter()
            .map(|n| annotation(n, CURRENT_CONFIG).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(configs(&broken), configs(&straight));
}

#[test]
fn a_desired_update_that_is_removed_after_it_was_accepted_goes_on() {
    let mut fake = Fake::ready();
    fake.want_version("4.18.5");
    fake.until("10s", |c| {
        !c.cluster_version
            .as_ref()
            .unwrap()
            .newest()
            .unwrap()
            .is_completed()
    });
    fake.want(None);
    fake.until("60s", |c| is_completed(c, "4.18.5"));
}

#[test]
fn another_target_in_the_middle_takes_over() {
    let mut fake = Fake::ready();
    fake.want_version("4.18.4");
    fake.pass("8s");
    fake.want_version("4.18.5");
    fake.until("90s", |c| is_completed(c, "4.18.5"));
    let history = &fake.version().unwrap().status.as_ref().unwrap().history;
    let states: Vec<_> = history
        .iter()
        .map(|h| (h.version.as_str(), h.state.as_str()))
        .collect();
    assert_eq!(
        states,
        [
            ("4.18.5", "Completed"),
            ("4.18.4", "Partial"),
            ("4.18.3", "Completed")
        ]
    );
    assert!(history.iter().all(|h| h.completion_time.is_some()));
}
