//! What people write for our operator: UpgradeConfigs, and jobs by hand.

use jiff::ToSpan;
use serde_json::{Value, json};

use super::{Sketch, object};
use crate::rng::Rng;

const ZONES: [&str; 6] = [
    "UTC",
    "Europe/Zurich",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Pacific/Auckland",
];

impl Sketch {
    pub(super) fn configs(&mut self) {
        let mut rng = self.rng("configs");
        for number in 0..rng.pick(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 3]) {
            let name = format!("config-{number}");
            let config = self.config(&mut rng, &name);
            self.expect_runs(&config);
            self.configs.push(name);
            self.objects.push(config);
        }
    }

    pub(super) fn config(&self, rng: &mut Rng, name: &str) -> Value {
        let team = rng.pick(&["a", "b"]);
        let labels = json!({"team": team});
        let mut spec = json!({
            "schedule": schedule(rng),
            "jobTemplate": {
                "metadata": {"labels": labels.clone()},
                "spec": {"config": self.job_config(rng)},
            },
        });
        for (field, values) in [
            ("pinVersionWindow", ["30m", "4h", "26h"]),
            ("maxUpgradeStartDelay", ["10m", "1h", "4h"]),
            ("maxSchedulingDelay", ["5m", "1h", "6h"]),
        ] {
            if rng.chance(65) {
                spec[field] = rng.pick(&values).into();
            }
        }
        for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
            if rng.chance(30) {
                spec[field] = rng.between(0, 2).into();
            }
        }
        object("UpgradeConfig", name, &labels, &spec)
    }

    fn job_config(&self, rng: &mut Rng) -> Value {
        let hours = rng.pick(&[1, 2, 4, 6, 12]);
        let mut config = json!({"upgradeTimeout": format!("{hours}h")});
        for field in ["preUpgradeHealthChecks", "postUpgradeHealthChecks"] {
            let mut checks = json!({"timeout": rng.pick(&["5m", "30m", "1h"])});
            if rng.chance(30) {
                checks["checkCriticalAlerts"] = rng.chance(60).into();
            }
            if rng.chance(20) {
                checks["customQueries"] = json!([{"query": "queue > 100"}]);
            }
            if rng.chance(10) {
                checks["checkMachineConfigPools"] = false.into();
            }
            if rng.chance(80) {
                config[field] = checks;
            }
        }
        let mut groups = Vec::new();
        for pool in &self.pools[1..] {
            if !rng.chance(55) {
                continue;
            }
            let mut group = json!({"matchLabels": {"name": format!("{}-maintenance", pool.name)}});
            if rng.chance(90) {
                group["delayUpgrade"] = delay(rng, hours);
            }
            groups.push(group);
        }
        if rng.chance(8) {
            groups.push(json!({"matchLabels": {}, "delayUpgrade": delay(rng, hours)}));
        }
        config["machineConfigPools"] = groups.into();
        if rng.chance(25) {
            let pool = self.any_pool(rng).name;
            let selector = json!({"matchLabels": {"name": format!("{pool}-maintenance")}});
            config["pauseMachineConfigPoolsOnFailure"] = json!({"enabled": true, "selector": selector});
        }
        config
    }

    pub(super) fn jobs_by_hand(&mut self) {
        let mut rng = self.rng("byhand");
        if !self.has("byhand") {
            return;
        }
        for number in 0..rng.pick(&[0, 0, 0, 1, 2]) {
            let start = self.moment(&mut rng);
            let until = start + rng.pick(&[5, 60, 300]).minutes();
            let mut spec = json!({
                "startAfter": start.to_string(), "startBefore": until.to_string(), "config": self.job_config(&mut rng),
            });
            if rng.chance(80) {
                spec["desiredVersion"] =
                    json!({"version": rng.pick(&["4.18.4", "4.18.5", "4.18.6", "4.17.9"])});
            }
            if rng.chance(15) {
                spec["desiredVersionCheckAvailability"] = false.into();
            }
            let team = rng.pick(&["a", "b"]);
            let name = format!("by-hand-{number}");
            let job = object("UpgradeJob", &name, &json!({"team": team}), &spec);
            self.runs.push(start);
            if rng.chance(50) {
                self.objects.push(job);
            } else {
                let at = (start - rng.between(-30, 3_000).minutes()).max(self.start + 1.minute());
                self.happens(at, &json!({"apply": job}));
            }
        }
    }
}

/// `spec.schedule`; only forms that the calendar of the tests knows.
pub fn schedule(rng: &mut Rng) -> Value {
    let days = match rng.below(100) {
        0..=79 => rng.below(7).to_string(),
        80..=96 => {
            let first = rng.below(6);
            format!("{first},{}", first + 1)
        }
        _ => "*".to_owned(),
    };
    let minute = rng.pick(&[0, 0, 30, 7]);
    let mut schedule = json!({"cron": format!("{minute} {} * * {days}", rng.below(24))});
    if rng.chance(80) {
        schedule["location"] = rng.pick(&ZONES).into();
    }
    if rng.chance(25) {
        schedule["isoWeek"] = rng.pick(&["@odd", "@even"]).into();
    }
    if rng.chance(4) {
        schedule["suspend"] = true.into();
    }
    schedule
}

/// How long a pool is held; mostly a delay that makes sense.
fn delay(rng: &mut Rng, timeout_hours: i64) -> Value {
    let most = if rng.chance(95) {
        timeout_hours * 60 - 10
    } else {
        timeout_hours * 70
    };
    let least = rng.between(5, most);
    let mut delay = json!({"delayMin": format!("{least}m")});
    if rng.chance(60) {
        delay["delayMax"] = format!("{}m", least + rng.pick(&[1, 15, 60, 240])).into();
    }
    delay
}
