//! The upgrades that are disturbed: what the cluster is, what an administrator wrote, and how it ends undisturbed.

use std::{path::Path, sync::Arc};

use jiff::Timestamp;
use kube::api::DynamicObject;
use openshift_upgrade_operator::{
    api::upgrade_job::JobPhase,
    simulator::scenario::{Scenario, Timeline},
};
use serde_json::{Value, json};

use crate::simulated::{self, object};

/// 21:40 in Zurich, a Tuesday. The run is at 22:00, and pinned at 21:50.
pub const BEGIN: &str = "2026-12-01T20:40:00Z";
/// Long after everything, and not at a time at which anything is due.
pub const END: &str = "2026-12-02T03:07:13Z";

/// How the upgrade goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Story {
    /// All is well, and the night pool is unpaused in its time.
    Succeeds,
    /// The cluster rejects the release: nothing was begun, so all is taken back.
    Rejected,
    /// A hook of UpgradeComplete with failurePolicy Abort fails: the control plane is done, the night pool stays paused.
    Aborted,
    /// An operator of the cluster hangs until upgradeTimeout.
    TimedOut,
}

impl Story {
    pub const ALL: [Self; 4] = [Self::Succeeds, Self::Rejected, Self::Aborted, Self::TimedOut];

    /// How the job ends, with the reason of its condition Failed.
    pub fn ending(self) -> (JobPhase, Option<&'static str>) {
        match self {
            Self::Succeeds => (JobPhase::Succeeded, None),
            Self::Rejected => (JobPhase::Failed, Some("UpgradeRejected")),
            Self::Aborted => (JobPhase::Failed, Some("HookFailed")),
            Self::TimedOut => (JobPhase::Failed, Some("TimedOut")),
        }
    }

    fn scenario(self) -> Value {
        let events = match self {
            Self::Succeeds | Self::Aborted => json!([]),
            Self::Rejected => json!([{
                "at": BEGIN, "until": "2026-12-03T00:00:00Z",
                "fault": {"releaseRejected": {"reason": "VerifyPayloadVersion", "message": "the signature is missing"}},
            }]),
            Self::TimedOut => json!([{
                "at": BEGIN, "until": "2026-12-03T00:00:00Z",
                "fault": {"stuckOperator": {"operator": "etcd"}},
            }]),
        };
        let fails = if self == Self::Aborted {
            "Fails"
        } else {
            "Succeeds"
        };
        json!({
            // As small as a cluster with a night pool can be: it is simulated a thousand times.
            "cluster": {
                "version": "4.18.3",
                "operators": ["etcd"],
                "pools": [
                    {"name": "master", "machines": 1}, {"name": "worker", "machines": 1}, {"name": "night", "machines": 1},
                ],
            },
            "updates": {"releases": [{"version": "4.18.5", "channels": ["stable-4.18", "fast-4.18"]}]},
            "durations": {"retrieve": "1m", "controlPlane": "5m", "node": "2m"},
            // Longer than the others of its event, however late those were: which had ended when it failed is in the steps.
            "hookJobs": [{"hook": "guard", "duration": "2m", "outcome": fails}],
            "events": events,
        })
    }

    pub fn timeline(self) -> Arc<Timeline> {
        let text = self.scenario().to_string();
        let scenario = Scenario::parse(Path::new("story.yaml"), &text).unwrap();
        let timeline = Timeline::new(scenario, time(BEGIN), time(END), 1).unwrap();
        Arc::new(timeline)
    }
}

pub fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn hook(name: &str, events: &[&str], change: &Value) -> DynamicObject {
    simulated::hook(name, events, 600, change)
}

/// What an administrator wrote: a config with a pool that waits for the night, hooks of every event, an overlay that
/// changes the channel shortly before the version is chosen, and a suspension window that is over by then.
pub fn manifests() -> Vec<DynamicObject> {
    let every = [
        "Create",
        "Start",
        "UpgradeComplete",
        "MachineConfigPoolUnpause",
        "Finish",
        "Success",
        "Failure",
    ];
    vec![
        object(
            "UpgradeConfig",
            "tuesdays",
            &json!({
                "schedule": {"cron": "0 22 * * 2", "location": "Europe/Zurich"},
                "pinVersionWindow": "10m",
                "jobTemplate": {
                    "metadata": {"labels": {"upgrade": "night"}},
                    "spec": {"config": {
                        "upgradeTimeout": "80m",
                        "machineConfigPools": [{
                            "matchLabels": {"name": "night-maintenance"},
                            "delayUpgrade": {"delayMin": "30m", "delayMax": "90m"},
                        }],
                    }},
                },
            }),
        ),
        hook("tell", &every, &json!({})),
        hook("guard", &["UpgradeComplete"], &json!({"failurePolicy": "Abort"})),
        hook("once", &["Start", "Finish"], &json!({"run": "Next"})),
        object(
            "ClusterVersion",
            "version",
            &json!({
                "template": {"spec": {"channel": "stable-4.18"}},
                "overlays": [{"from": "2026-12-01T20:43:00Z", "overlay": {"spec": {"channel": "fast-4.18"}}}],
            }),
        ),
        object(
            "UpgradeSuspensionWindow",
            "freeze",
            &json!({
                "start": "2026-11-24T00:00:00Z", "end": "2026-12-01T20:45:00Z", "reason": "freeze",
                "configSelector": {}, "jobSelector": {"matchLabels": {"upgrade": "night"}},
            }),
        ),
    ]
}
