//! What is offered in the course of time, and what must be acknowledged first.

use rstest::rstest;

use super::{
    super::{releases, *},
    Fake, is_completed,
};
use crate::openshift::{condition, is_true};

fn offered(cluster: &Cluster) -> Vec<String> {
    let status = cluster.cluster_version.as_ref().unwrap().status.clone();
    let updates = status.unwrap().available_updates.unwrap_or_default();
    updates.into_iter().map(|r| r.version).collect()
}

#[test]
fn a_release_appears_and_is_withdrawn_without_anybody_doing_anything() {
    let mut fake = Fake::of_scenario(
        "
updates:
  releases:
  - {version: 4.18.4}
  - {version: 4.18.5, from: +1h, until: +3h}
",
        1,
    );
    assert_eq!(offered(&fake.cluster), ["4.18.4"]);
    fake.until("1h", |c| offered(c) == ["4.18.5", "4.18.4"]);
    let withdrawn = fake.settle().unwrap();
    assert_eq!(withdrawn.to_string(), "2026-11-25T00:00:00Z");
    fake.now = withdrawn;
    fake.settle();
    assert_eq!(offered(&fake.cluster), ["4.18.4"]);
}

#[test]
fn there_is_always_an_update_to_go_to_however_often_one_goes() {
    let mut fake = Fake::of_scenario("cluster: {version: 4.17.30}", 1);
    for _ in 0..12 {
        let newest = offered(&fake.cluster).first().cloned().unwrap();
        fake.want_version(&newest);
        fake.until("4h", |c| is_completed(c, &newest));
        fake.settle();
    }
    assert!(!offered(&fake.cluster).is_empty());
}

#[test]
fn the_same_release_is_found_by_its_version_alone_where_it_is_offered() {
    let mut fake = Fake::of_scenario("updates: {releases: [{version: 4.18.5}]}", 1);
    fake.want(Some(crate::openshift::cluster_version::Update {
        version: "4.18.5".to_owned(),
        ..Default::default()
    }));
    fake.until("4h", |c| is_completed(c, "4.18.5"));
    assert_eq!(
        fake.version().unwrap().newest().unwrap().image,
        releases::image("4.18.5")
    );
}

const GATED: &str = "
cluster: {channel: stable-4.19}
updates:
  releases: [{version: 4.18.5}, {version: 4.19.1}]
  adminGates:
  - {key: ack-4.18-api-removals-in-4.19, message: read the notes}
  - {key: ack-4.19-other-removals, message: later}
";

fn acknowledge(fake: &mut Fake, key: &str, value: &str) {
    let data = [(key.to_owned(), value.to_owned())].into();
    fake.cluster.admin_acks = Some(ConfigMap {
        data: Some(data),
        ..ConfigMap::default()
    });
}

#[test]
fn an_admin_gate_refuses_the_next_minor_until_it_is_acknowledged() {
    let mut fake = Fake::of_scenario(GATED, 1);
    let upgradeable = |fake: &Fake| {
        let version = fake.version().unwrap();
        let found = condition(version.conditions(), "Upgradeable").cloned();
        found.map(|c| (c.status, c.reason.unwrap(), c.message.unwrap()))
    };
    let closed = (
        "False".to_owned(),
        "AdminAckRequired".to_owned(),
        "read the notes".to_owned(),
    );
    assert_eq!(upgradeable(&fake), Some(closed.clone()));
    assert_eq!(offered(&fake.cluster), ["4.19.1", "4.18.5"]);
    fake.want_version("4.19.1");
    fake.pass("1h");
    let accepted = condition(fake.version().unwrap().conditions(), "ReleaseAccepted").cloned();
    let told = accepted.unwrap().message.unwrap();
    assert!(
        told.contains("\"AdminAckRequired\"") && told.contains("read the notes"),
        "{told}"
    );
    acknowledge(&mut fake, "ack-4.18-api-removals-in-4.19", "yes");
    fake.settle();
    assert_eq!(upgradeable(&fake), Some(closed), "only \"true\" counts");
    acknowledge(&mut fake, "ack-4.18-api-removals-in-4.19", "true");
    fake.until("4h", |c| is_completed(c, "4.19.1"));
    // Now that 4.19 is installed, its own gate counts.
    fake.settle();
    assert_eq!(upgradeable(&fake).unwrap().2, "later");
}

#[test]
fn an_admin_gate_does_not_hold_up_a_patch() {
    let mut fake = Fake::of_scenario(GATED, 1);
    fake.want_version("4.18.5");
    fake.until("4h", |c| is_completed(c, "4.18.5"));
}

#[test]
fn a_gate_and_a_fault_are_several_reasons() {
    let mut fake = Fake::of_scenario(GATED, 1);
    fake.control("not-upgradeable", "OverridesSet there are overrides");
    fake.settle();
    let version = fake.version().unwrap();
    let upgradeable = condition(version.conditions(), "Upgradeable").unwrap();
    assert_eq!(upgradeable.reason.as_deref(), Some("MultipleReasons"));
    let message = upgradeable.message.clone().unwrap();
    assert_eq!(message, "read the notes; there are overrides");
}

#[rstest]
#[case("stable-4.18", true)]
#[case("stable-4.21", false)]
fn updates_are_unknown_in_a_channel_without_the_installed_version(
    #[case] channel: &str,
    #[case] is_known: bool,
) {
    let scenario = format!("cluster: {{channel: {channel}}}\nupdates: {{releases: [{{version: 4.18.5}}]}}\n");
    let fake = Fake::of_scenario(&scenario, 1);
    let version = fake.version().unwrap();
    assert_eq!(is_true(version.conditions(), "RetrievedUpdates"), is_known);
    let status = version.status.as_ref().unwrap();
    assert_eq!(status.available_updates.is_some(), is_known);
    if !is_known {
        let told = version.message_of("RetrievedUpdates");
        assert!(
            told.contains("4.18.3 not found in the \"stable-4.21\" channel"),
            "{told}"
        );
    }
}

#[test]
fn several_risks_of_a_release_are_all_told() {
    let mut fake = Fake::of_scenario("updates: {releases: [{version: 4.18.5}]}", 1);
    fake.control(
        "risks",
        "4.18.5 SlowEtcd etcd may be slow\n4.18.5 NoDns names may fail",
    );
    fake.settle();
    assert_eq!(offered(&fake.cluster), Vec::<String>::new());
    let status = fake.version().unwrap().status.clone().unwrap();
    let update = &status.conditional_updates[0];
    let names: Vec<&str> = update.risks.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["SlowEtcd", "NoDns"]);
    let recommended = condition(&update.conditions, "Recommended").unwrap();
    assert_eq!(recommended.reason.as_deref(), Some("MultipleReasons"));
    let message = recommended.message.as_deref().unwrap();
    assert!(
        message.contains("may be slow") && message.contains("may fail"),
        "{message}"
    );
}
