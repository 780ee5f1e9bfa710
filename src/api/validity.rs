//! Whether objects of our kinds can be acted upon, as metrics.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};

use super::{
    NodeForceDrain,
    conditions::{self, types},
};
use crate::{
    metrics::{Family, Series},
    world::World,
};

/// Every object by its condition `Valid`, and those that cannot be read. Jobs that have ended and windows that are over are
/// left out: nobody acts upon those any more.
pub fn metrics(world: &World, force_drains: &[NodeForceDrain], now: Timestamp) -> Vec<Family> {
    let mut series = Vec::new();
    macro_rules! of {
        ($objects:expr) => {
            series.extend($objects.filter_map(|o| told(o, &o.status.as_ref()?.conditions)));
        };
    }
    of!(world.managed_versions.iter());
    of!(force_drains.iter());
    of!(world.configs.iter());
    of!(world.jobs.iter().filter(|job| !job.is_finished()));
    of!(world.hooks.iter());
    of!(world.windows.iter().filter(|window| window.spec.end.0 > now));
    let unreadable = world.unreadable.iter();
    series.extend(unreadable.map(|o| one(o.kind.resource().kind, o.name().to_owned(), false)));
    vec![Family::gauge(
        "openshift_upgrade_controller_resource_valid",
        "Whether the object can be read and acted upon, as its condition Valid says: 1 or 0. The kinds are those of this operator.",
        series,
    )]
}

fn told<K: Resource<DynamicType = ()>>(object: &K, all: &[Condition]) -> Option<Series> {
    // One that was not looked at yet says nothing.
    let valid = conditions::get(all, types::VALID)?;
    let kind = K::kind(&()).into_owned();
    Some(one(kind, object.name_any(), valid.status == "True"))
}

fn one(kind: String, name: String, is_valid: bool) -> Series {
    Series::new(vec![("kind", kind), ("name", name)], is_valid)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{metrics::told, unreadable};

    fn status(valid: bool, more: &Value) -> Value {
        let time = "2026-01-01T00:00:00Z";
        let mut all = vec![
            json!({"type": "Valid", "status": if valid { "True" } else { "False" }, "reason": "x", "message": "m",
            "lastTransitionTime": time}),
        ];
        all.extend(more.as_array().unwrap().clone());
        json!({"conditions": all})
    }

    fn window(name: &str, end: &str, valid: bool) -> Value {
        json!({"metadata": {"name": name}, "spec": {"start": "2026-01-01T00:00:00Z", "end": end}, "status": status(valid, &json!([]))})
    }

    fn job(name: &str, more: &Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {"startAfter": "2026-01-01T00:00:00Z", "startBefore": "2026-01-01T01:00:00Z"},
            "status": status(false, more)})
    }

    #[test]
    fn what_is_told_of_each_kind() {
        let config = |name: &str, status: Value| json!({"metadata": {"name": name}, "spec": {"schedule": {"cron": "x"}, "jobTemplate": {"spec": {}}}, "status": status});
        let ended = json!([{"type": "Failed", "status": "True", "reason": "x", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let world = World {
            configs: serde_json::from_value(json!([
                config("bad", status(false, &json!([]))),
                config("good", status(true, &json!([]))),
                config("new", json!({}))
            ]))
            .unwrap(),
            jobs: serde_json::from_value(json!([job("ended", &ended), job("waiting", &json!([]))])).unwrap(),
            windows: serde_json::from_value(json!([
                window("over", "2026-02-01T00:00:00Z", false),
                window("to-come", "2026-03-01T00:00:00Z", false)
            ]))
            .unwrap(),
            unreadable: vec![unreadable::Unreadable::named(
                unreadable::Kind::UpgradeJobHook,
                "odd",
            )],
            ..World::default()
        };
        let lines = told(&metrics(&world, &[], "2026-02-01T00:00:00Z".parse().unwrap()));
        assert_eq!(
            lines,
            [
                "resource_valid UpgradeConfig,bad 0",
                "resource_valid UpgradeConfig,good 1",
                "resource_valid UpgradeJob,waiting 0",
                "resource_valid UpgradeSuspensionWindow,to-come 0",
                "resource_valid UpgradeJobHook,odd 0",
            ]
        );
    }
}
