use super::*;

/// One letter a job, oldest first: Succeeded, sKipped, Failed, Running, Exit hook running, Pools
/// left paused; returns those deleted.
fn kept_of(outcomes: &str, successful: Option<i32>, failed: Option<i32>) -> String {
    let (mut config, mut world) = (config(), world());
    config.spec.successful_jobs_history_limit = successful;
    config.spec.failed_jobs_history_limit = failed;
    for (n, outcome) in outcomes.chars().enumerate() {
        let run = at(RUN)
            .checked_sub(SignedDuration::from_hours(
                24 * 7 * (40 - i64::try_from(n).unwrap()),
            ))
            .unwrap();
        let mut job = job::of_run(&config, run, None, None);
        job.metadata.uid = Some(n.to_string());
        match outcome {
            'S' => finish(&mut job, types::SUCCEEDED, "Succeeded"),
            'K' => finish(&mut job, types::SUCCEEDED, "Skipped"),
            'F' => finish(&mut job, types::FAILED, "TimedOut"),
            'P' => {
                finish(&mut job, types::FAILED, "TimedOut");
                finish(&mut job, types::POOLS_LEFT_PAUSED, "Delayed");
            }
            'E' => {
                finish(&mut job, types::SUCCEEDED, "Succeeded");
                let hook = json!({"hookEvent": "Finish", "upgradeJobHook": "h", "status": "active"});
                job.status
                    .get_or_insert_default()
                    .hook_tracker
                    .push(serde_json::from_value(hook).unwrap());
            }
            _ => {}
        }
        world.jobs.push(job);
    }
    let deleted = decide_at(&config, &world, "2026-11-21T00:00:00Z").delete_jobs;
    let deleted: BTreeSet<usize> = deleted.iter().map(|(_, uid)| uid.parse().unwrap()).collect();
    outcomes
        .chars()
        .enumerate()
        .map(|(n, o)| if deleted.contains(&n) { '-' } else { o })
        .collect()
}

#[rstest]
#[case::four_by_default("SSSSSS", None, None, "--SSSS")]
#[case::failed_are_kept_by_default("FFFFFFF", None, None, "FFFFFFF")]
#[case::skipped_counts_as_successful("SSKSKS", Some(2), None, "----KS")]
#[case::the_last_real_success_stays("SSKKK", Some(2), None, "-S-KK")]
#[case::zero_is_unlimited("SSSSSS", Some(0), Some(-1), "SSSSSS")]
#[case::failed("FSFSF", Some(1), Some(1), "---SF")]
#[case::running_is_never_deleted("RSS", Some(1), None, "R-S")]
#[case::exit_hook_is_waited_for("ESS", Some(1), None, "E-S")]
#[case::what_tells_of_a_paused_pool_stays("FPFF", None, Some(1), "-P-F")]
fn old_jobs_go(
    #[case] jobs: &str,
    #[case] successful: Option<i32>,
    #[case] failed: Option<i32>,
    #[case] kept: &str,
) {
    assert_eq!(kept_of(jobs, successful, failed), kept);
}
