//! Names of jobs that are left on pools.

use kube::ResourceExt;

use super::{Stage, is_protected};
use crate::{api::annotations, openshift::machine_config_pool::MachineConfigPool, world::World};

/// Whether a pool carries the name of a job of this namespace that can have no use for it: the pool is not paused, and the
/// job is not under way. A person has unpaused what the job left paused (design 5, *Pauses*). With that name on it, the next
/// pause by a person would pass for ours, and a later job would lift it.
pub fn is_stale(world: &World, namespace: &str, pool: &MachineConfigPool) -> bool {
    let owner = pool.annotations().get(annotations::UPGRADE_JOB);
    // Jobs of other namespaces are served by other operators.
    let name = owner
        .and_then(|o| o.split_once('/'))
        .and_then(|(ns, name)| (ns == namespace).then_some(name));
    !pool.spec.paused && name.is_some_and(|name| !is_under_way(world, pool, name))
}

fn is_under_way(world: &World, pool: &MachineConfigPool, name: &str) -> bool {
    // The peer writes no uid.
    let uid = pool.annotations().get(annotations::UPGRADE_JOB_UID);
    let job = world
        .job(name)
        .filter(|job| uid.is_none_or(|uid| Some(uid) == job.metadata.uid.as_ref()));
    world.has_unreadable_job(name)
        || job.is_some_and(|job| is_protected(job) || Stage::of(job) == Stage::Started)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::finalizers;
    use crate::unreadable::{Kind, Unreadable};

    fn world(pool: &Value, job: &Value) -> World {
        let mut pool = pool.clone();
        pool["metadata"]["name"] = "night".into();
        let mut job = job.clone();
        job["metadata"]["name"] = "up".into();
        job["metadata"]["namespace"] = "ns".into();
        job["spec"] = json!({"startAfter": "2026-12-01T21:00:00Z", "startBefore": "2026-12-01T22:00:00Z"});
        World {
            pools: vec![serde_json::from_value(pool).unwrap()],
            jobs: vec![serde_json::from_value(job).unwrap()],
            ..World::default()
        }
    }

    fn owned(paused: bool, owner: &str) -> Value {
        let annotations = json!({annotations::UPGRADE_JOB: owner, annotations::UPGRADE_JOB_UID: "1"});
        json!({"metadata": {"annotations": annotations}, "spec": {"paused": paused}})
    }

    fn job(uid: &str, finalizer: bool) -> Value {
        let finalizers = if finalizer {
            vec![finalizers::UPGRADE_JOB]
        } else {
            vec![]
        };
        json!({"metadata": {"uid": uid, "finalizers": finalizers}})
    }

    fn is_stale_in(world: &World) -> bool {
        is_stale(world, "ns", &world.pools[0])
    }

    #[rstest]
    #[case::ended(owned(false, "ns/up"), job("1", false), true)]
    #[case::under_way(owned(false, "ns/up"), job("1", true), false)]
    #[case::gone(owned(false, "ns/gone"), job("1", true), true)]
    #[case::made_again(owned(false, "ns/up"), job("2", true), true)]
    #[case::still_paused(owned(true, "ns/up"), job("1", false), false)]
    #[case::of_others(owned(false, "other/up"), job("1", false), false)]
    #[case::of_the_peer(json!({"metadata": {"annotations": {annotations::UPGRADE_JOB: "ns/up"}}, "spec": {"paused": false}}), job("1", true), false)]
    #[case::nobodys(json!({"metadata": {}, "spec": {"paused": false}}), job("1", false), false)]
    fn a_name_is_stale_when_its_job_is_not_under_way(
        #[case] pool: Value,
        #[case] job: Value,
        #[case] expected: bool,
    ) {
        assert_eq!(is_stale_in(&world(&pool, &job)), expected);
    }

    #[test]
    fn a_job_that_cannot_be_read_may_be_under_way() {
        let mut world = world(&owned(false, "ns/new-kind"), &job("1", false));
        assert!(is_stale_in(&world));
        world.unreadable = vec![Unreadable::named(Kind::UpgradeJob, "new-kind")];
        assert!(!is_stale_in(&world));
    }
}
