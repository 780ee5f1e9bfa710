use super::*;

#[rstest]
#[case("External", true, "hosted outside")]
#[case("SingleReplica", false, "no MachineConfigPools")]
fn unsupported_clusters_get_no_jobs(#[case] topology: &str, #[case] pools: bool, #[case] why: &str) {
    let mut world = world();
    world.control_plane_topology = Some(topology.to_owned());
    if !pools {
        world.pools.clear();
    }
    let decision = decide_at(&config(), &world, PIN);
    assert_eq!((&decision.create, last(&decision)), (&None, None));
    assert_eq!(
        condition(&decision, types::VALID),
        ("False", "UnsupportedTopology")
    );
    assert!(message(&decision, types::VALID).contains(why));
    assert!(decision.status.next_possible_schedules.is_empty());
}

#[rstest]
#[case(
    "/spec/schedule/cron",
    "0 22 * * 7",
    "spec.schedule: cron \"0 22 * * 7\": day of week"
)]
#[case(
    "/spec/schedule/location",
    "UTC+2",
    "spec.schedule: location: \"UTC+2\" is an offset"
)]
#[case("/spec/schedule/isoWeek", "odd", "spec.schedule: isoWeek \"odd\"")]
#[case(
    "/spec/pinVersionWindow",
    "4 hours",
    "spec.pinVersionWindow: \"4 hours\" is not a duration"
)]
fn a_bad_config_says_what_is_wrong_and_gets_no_jobs(
    #[case] field: &str,
    #[case] value: &str,
    #[case] why: &str,
) {
    let mut bad = serde_json::to_value(config()).unwrap();
    bad["spec"]["schedule"]["isoWeek"] = json!("");
    *bad.pointer_mut(field).unwrap() = json!(value);
    let (mut config, mut world) = (serde_json::from_value(bad).unwrap(), world());
    let decision = step(&mut config, &mut world, at(PIN));
    assert_eq!((&decision.create, decision.wake_at), (&None, None));
    assert_eq!(condition(&decision, types::VALID), ("False", "Invalid"));
    assert!(
        message(&decision, types::VALID).starts_with(why),
        "{}",
        message(&decision, types::VALID)
    );
    assert_eq!(decision.notices.len(), 1);
    assert_eq!(step(&mut config, &mut world, at(RUN)).notices, [], "said once");
}

#[test]
fn a_schedule_that_never_fires_is_said_once() {
    let (mut config, mut world) = (config(), world());
    config.spec.schedule.cron = "30 2 31 2 *".to_owned();
    let decision = step(&mut config, &mut world, at(PIN));
    assert_eq!(condition(&decision, types::SCHEDULED), ("False", "NeverRuns"));
    assert_eq!((decision.notices.len(), decision.wake_at), (1, None));
    assert_eq!(step(&mut config, &mut world, at(RUN)).notices, []);
}

#[test]
fn warnings_about_the_schedule_are_in_the_condition() {
    let mut config = config();
    config.spec.schedule.cron = "TZ=Asia/Tokyo 0 22 * * 2".to_owned();
    let decision = decide_at(&config, &world(), PIN);
    assert_eq!(condition(&decision, types::VALID).0, "True");
    assert!(message(&decision, types::VALID).contains("Asia/Tokyo"));
}

#[test]
fn a_config_that_is_deleted_is_left_alone() {
    let mut config = config();
    config.metadata.deletion_timestamp = Some(Time(at(PIN)));
    let decision = decide_at(&config, &world(), PIN);
    assert_eq!(
        (decision.create, decision.status, decision.wake_at),
        (None, UpgradeConfigStatus::default(), None)
    );
}

#[test]
fn a_job_that_the_api_server_refuses_is_said_once_and_its_run_stays_open() {
    let mut config = config();
    let first = refused(
        &config,
        at(PIN),
        "cannot create UpgradeJob x: metadata.labels: too long",
    );
    assert_eq!(condition(&first, types::VALID), ("False", "Invalid"));
    assert!(message(&first, types::VALID).contains("metadata.labels"));
    assert_eq!((first.notices.len(), last(&first)), (1, None));
    config.status = Some(first.status.clone());
    let again = refused(
        &config,
        at(PIN),
        "cannot create UpgradeJob x: metadata.labels: too long",
    );
    assert_eq!((again.notices.len(), again.status), (0, first.status));
}
