//! Jobs that never start.

use super::*;

fn of_config(cron: &str, suspend: bool) -> Bench {
    let mut bench = bench(
        &json!({"metadata": {"labels": {labels::UPGRADE_CONFIG: "c", "tier": "prod",
        labels::START: at(0).as_second().to_string()}}}),
    );
    bench.world.configs = vec![
        serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "ns", "labels": {"team": "a"}},
            "spec": {"schedule": {"cron": cron, "suspend": suspend}, "jobTemplate": {"spec": {"config": {}}}},
        }))
        .unwrap(),
    ];
    bench
}

fn in_window(selector: &str, labels: &Value) -> Bench {
    let mut bench = of_config("* * * * *", false);
    bench.world.windows = vec![
        serde_json::from_value(json!({
            "metadata": {"name": "freeze", "namespace": "ns"},
            "spec": {"start": at(-60).to_string(), "end": at(60).to_string(), "reason": "holidays",
                selector: {"matchLabels": labels}},
        }))
        .unwrap(),
    ];
    bench.settle_at(10);
    bench
}

fn window_of_job() -> Bench {
    in_window("jobSelector", &json!({"tier": "prod"}))
}

fn window_of_config() -> Bench {
    in_window("configSelector", &json!({"team": "a"}))
}

fn config_suspended() -> Bench {
    let mut bench = of_config("* * * * *", true);
    bench.settle_at(10);
    bench
}

fn config_of_owner_suspended() -> Bench {
    let mut bench = of_config("* * * * *", true);
    bench.world.configs[0].metadata.uid = Some("uid-c".into());
    let job = bench.job_mut();
    job.metadata.labels = None;
    // As the peer writes them.
    job.metadata.owner_references =
        serde_json::from_value(json!([{"apiVersion": "managedupgrade.appuio.io/v1beta1",
        "kind": "UpgradeConfig", "name": "c", "uid": "uid-c", "controller": true}]))
        .unwrap();
    bench.settle_at(10);
    bench
}

fn rescheduled() -> Bench {
    let mut bench = of_config("17 3 1 1 *", false);
    bench.settle_at(10);
    bench
}

fn superseded() -> Bench {
    let mut bench = bench(&json!({"spec": {"desiredVersion": {"version": "4.18.2", "image": "x"}}}));
    bench.settle_at(10);
    bench
}

fn nobody_was_there() -> Bench {
    let mut bench = plain();
    bench.settle_at(3600);
    bench
}

fn expired(mut bench: Bench) -> Bench {
    bench.settle_at(10);
    bench.settle_at(3600);
    bench
}

fn lock_held() -> Bench {
    let mut bench = plain();
    let cluster = bench.world.cluster_version.as_mut().unwrap();
    cluster.metadata.annotations =
        Some([(annotations::UPGRADE_JOB.to_owned(), "ns/other".to_owned())].into());
    bench.world.jobs.push(started("other"));
    bench = expired(bench);
    // Whoever has it keeps it.
    assert!(bench.is_locked());
    bench.world.cluster_version.as_mut().unwrap().metadata.annotations = None;
    bench
}

fn engine_missing() -> Bench {
    let mut bench = plain();
    bench.engine = EngineState::Missing("engine argo is not installed".into());
    expired(bench)
}

fn create_hook_running() -> Bench {
    let mut bench = plain();
    bench.world.hooks.push(hook("ask", "Create", "Ignore"));
    bench.hooks_end = None;
    bench.settle_at(-60);
    bench.settle_at(10);
    bench.hooks_end = Some("Complete");
    bench.settle_at(3600);
    bench
}

fn invalid() -> Bench {
    expired(bench(&json!({"spec": {"desiredVersion": {"force": true}}})))
}

fn version_to_be_completed_by_a_silent_update_server() -> Bench {
    let mut bench = plain();
    bench.job_mut().spec.desired_version.as_mut().unwrap().image = None;
    bench.condition("RetrievedUpdates", "False", "no route to host");
    let cluster = bench.world.cluster_version.as_mut().unwrap();
    cluster.status.as_mut().unwrap().available_updates = None;
    let bench = expired(bench);
    assert_eq!(bench.is_true("Valid").as_deref(), Some("Valid"));
    bench
}

fn no_pools() -> Bench {
    let mut bench = plain();
    bench.world.pools.clear();
    expired(bench)
}

#[rstest]
#[case::window_matched_by_the_job(window_of_job(), "", "UpgradeSuspensionWindow freeze (holidays)")]
#[case::window_matched_by_its_config(window_of_config(), "", "UpgradeSuspensionWindow freeze (holidays)")]
#[case::config_suspended(config_suspended(), "", "UpgradeConfig \"c\" is suspended")]
#[case::config_of_a_job_of_the_peer_suspended(
    config_of_owner_suspended(),
    "",
    "UpgradeConfig \"c\" is suspended"
)]
#[case::rescheduled(rescheduled(), "", "Rescheduled: ")]
#[case::superseded(superseded(), "", "Superseded: the cluster is at 4.18.3")]
#[case::operator_down(nobody_was_there(), "OperatorDown", "the operator was not running")]
#[case::lock_held(lock_held(), "LockHeld", "upgrade job ns/other has the lock")]
#[case::engine_missing(engine_missing(), "EngineMissing", "engine argo is not installed")]
#[case::create_hook_running(
    create_hook_running(),
    "CreateHookRunning",
    "hooks of Create are still running"
)]
#[case::invalid(invalid(), "Invalid", "spec.desiredVersion.force")]
#[case::updates_unknown(
    version_to_be_completed_by_a_silent_update_server(),
    "UpdatesUnknown",
    "no route to host"
)]
#[case::unsupported_topology(no_pools(), "UnsupportedTopology", "no MachineConfigPools")]
fn not_started_is_skipped(#[case] bench: Bench, #[case] expired: &str, #[case] says: &str) {
    assert_eq!(
        bench.status().phase,
        Some(JobPhase::Skipped),
        "{}",
        bench.message()
    );
    assert_eq!(bench.is_true("Succeeded").as_deref(), Some("Skipped"));
    assert_eq!(bench.is_true("Expired").unwrap_or_default(), expired);
    assert!(bench.message().contains(says), "{}", bench.message());
    let reason = if expired.is_empty() { "Skipped" } else { "Expired" };
    let hooks: Vec<String> = bench
        .hooks_run()
        .into_iter()
        .filter(|h| !h.starts_with("Create"))
        .collect();
    assert_eq!(hooks, [format!("Success:{reason}"), format!("Finish:{reason}")]);
    assert_left(&bench, &UNTOUCHED);
    assert!(bench.workflow.is_none() || expired == "CreateHookRunning");
}

/// Nothing is begun for a cluster that is upgraded from outside, and that is said at once.
#[rstest]
#[case::hosted_control_plane(true)]
#[case::no_pools(false)]
fn an_unsupported_topology_is_said_before_the_start_and_runs_no_create_hooks(#[case] hosted: bool) {
    let mut bench = plain();
    bench.world.hooks.push(hook("ask", "Create", "Ignore"));
    if hosted {
        bench.world.control_plane_topology = Some("External".to_owned());
    } else {
        bench.world.pools.clear();
    }
    bench.settle_at(-60);
    let status = bench.status();
    let valid = conditions::get(&status.conditions, "Valid").unwrap();
    assert_eq!(
        (valid.status.as_str(), valid.reason.as_str()),
        ("False", "UnsupportedTopology")
    );
    assert_eq!(bench.hooks_run(), Vec::<String>::new());
}
