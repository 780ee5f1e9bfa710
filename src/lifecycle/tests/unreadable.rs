//! Stored objects that cannot be read, and may be what forbids an upgrade.

use rstest::rstest;
use serde_json::json;

use super::{
    bench::Bench,
    fixtures::{at, job},
};
use crate::{
    api::{conditions::types, labels},
    unreadable::{Kind, Unreadable},
};

/// A job of config `c`.
fn bench() -> Bench {
    let labels = json!({labels::UPGRADE_CONFIG: "c", labels::START: at(0).as_second().to_string()});
    Bench::new(job("j", json!({"metadata": {"labels": labels}})))
}

#[rstest]
#[case::a_window(Kind::UpgradeSuspensionWindow, "w", true)]
#[case::its_config(Kind::UpgradeConfig, "c", true)]
#[case::another_config(Kind::UpgradeConfig, "d", false)]
#[case::a_hook(Kind::UpgradeJobHook, "h", true)]
#[case::another_job(Kind::UpgradeJob, "k", false)]
#[case::our_cluster_version(Kind::ClusterVersion, "version", false)]
fn nothing_starts_while_what_may_forbid_it_cannot_be_read(
    #[case] kind: Kind,
    #[case] name: &str,
    #[case] holds: bool,
) {
    let mut bench = bench();
    bench.world.unreadable = vec![Unreadable::named(kind, name)];
    bench.settle_at(-60);
    let said = format!("{} {name} cannot be read (invalid type)", kind.resource().kind);
    assert_eq!(
        bench.message().contains(&said),
        holds,
        "ahead: {}",
        bench.message()
    );
    bench.settle_at(10);
    assert_eq!(bench.is_true(types::STARTED).is_none(), holds);
    if holds {
        assert!(bench.message().contains(&said), "{}", bench.message());
        assert_eq!(bench.acted, [], "nothing was touched");
        assert_eq!(bench.reasons.last().map(String::as_str), Some("Unreadable"));
        // Mended in time, it starts.
        bench.world.unreadable.clear();
        bench.settle_at(20);
        assert!(bench.is_true(types::STARTED).is_some());
    }
}

#[test]
fn one_that_is_never_mended_is_why_the_job_expires() {
    let mut bench = bench();
    bench.world.unreadable = vec![Unreadable::named(Kind::UpgradeSuspensionWindow, "w")];
    bench.settle_at(10);
    bench.settle_at(3600);
    assert_eq!(bench.is_true(types::SUCCEEDED).as_deref(), Some("Skipped"));
    assert_eq!(bench.is_true(types::EXPIRED).as_deref(), Some("Unreadable"));
    assert!(
        bench
            .message()
            .contains("UpgradeSuspensionWindow w cannot be read"),
        "{}",
        bench.message()
    );
}

#[test]
fn an_upgrade_that_runs_is_not_touched() {
    let mut bench = bench().accepted();
    let acted = bench.acted.len();
    let kinds = [Kind::UpgradeSuspensionWindow, Kind::UpgradeJobHook];
    bench.world.unreadable = kinds.map(|kind| Unreadable::named(kind, "x")).to_vec();
    bench
        .world
        .unreadable
        .push(Unreadable::named(Kind::UpgradeConfig, "c"));
    bench.complete();
    bench.settle_at(120);
    assert_eq!(
        bench.is_true(types::SUCCEEDED).as_deref(),
        Some("Succeeded"),
        "{}",
        bench.message()
    );
    assert!(bench.acted.len() > acted);
}
