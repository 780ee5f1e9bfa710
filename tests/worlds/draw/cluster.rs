//! The cluster, what is offered to it, and what breaks.

use jiff::ToSpan;
use serde_json::{Value, json};

use super::{NAMESPACE, Sketch, object};
use crate::rng::Rng;

/// A pool of the cluster.
#[derive(Clone, Debug)]
pub struct Pool {
    pub name: String,
    pub machines: i64,
}

const OPERATORS: [&str; 5] = [
    "etcd",
    "kube-apiserver",
    "authentication",
    "ingress",
    "monitoring",
];

impl Sketch {
    /// The cluster, as a scenario has it.
    pub(super) fn cluster(&mut self) -> Value {
        let mut rng = self.rng("cluster");
        let topology = match rng.below(100) {
            0..=5 => "SingleReplica",
            6..=7 => "External",
            _ => "HighlyAvailable",
        };
        let masters = match topology {
            "SingleReplica" => 1,
            "External" => 0,
            _ => 3,
        };
        self.add_pool("master", masters);
        self.add_pool("worker", rng.pick(&[0, 1, 2, 2, 3, 3]));
        for name in ["night", "gpu"] {
            if rng.chance(45) {
                self.add_pool(name, rng.pick(&[0, 1, 1, 2]));
            }
        }
        let pools: Vec<Value> = self
            .pools
            .iter()
            .map(|pool| {
                let Pool { name, machines } = pool;
                let mut it = json!({"name": name, "machines": machines});
                if name != "master" {
                    it["labels"] = json!({"name": format!("{name}-maintenance")});
                    it["paused"] = rng.chance(7).into();
                }
                if rng.chance(20) {
                    it["maxUnavailable"] = rng.pick(&[json!(2), json!("50%")]);
                }
                it
            })
            .collect();
        let count = usize::try_from(rng.between(2, 4)).unwrap();
        let mut scenario = json!({
            "cluster": {
                "version": "4.18.3", "topology": topology, "pools": pools, "operators": OPERATORS[..count],
            },
            "updates": self.updates(),
            "durations": {"controlPlane": rng.pick(&["15m..30m", "40m..60m", "60m..120m"])},
        });
        if rng.chance(40) {
            scenario["cluster"]["channel"] = rng.pick(&["stable-4.19", "stable-4.19", ""]).into();
        }
        if rng.chance(25) {
            scenario["apiServerAwayDuringUpdate"] = rng.minutes(1, 15).into();
        }
        scenario
    }

    fn add_pool(&mut self, name: &str, machines: i64) {
        self.pools.push(Pool {
            name: name.to_owned(),
            machines,
        });
    }

    fn updates(&self) -> Value {
        let mut rng = self.rng("updates");
        let mut updates =
            json!({"every": format!("{}d", rng.between(1, 9)), "minorEvery": rng.pick(&["20d", "120d"])});
        if rng.chance(35) {
            updates["automatic"] = rng.chance(30).into();
            let mut releases = Vec::new();
            for patch in 4..4 + rng.between(1, 4) {
                releases.push(self.release(&mut rng, &format!("4.18.{patch}")));
            }
            if rng.chance(50) {
                releases.push(self.release(&mut rng, "4.19.1"));
            }
            updates["releases"] = releases.into();
        }
        if rng.chance(20) {
            let gate = "ack-4.18-kube-1.32-api-removals-in-4.19";
            updates["adminGates"] = json!([{"key": gate, "message": "Read the notes."}]);
        }
        updates
    }

    fn release(&self, rng: &mut Rng, version: &str) -> Value {
        let mut release = json!({"version": version});
        let hours = self.end.duration_since(self.start).as_hours();
        let from = rng.between(0, hours / 2);
        if rng.chance(60) {
            release["from"] = format!("+{from}h").into();
        }
        if rng.chance(30) {
            release["until"] = format!("+{}h", from + rng.between(1, hours)).into();
        }
        if rng.chance(25) {
            let known = rng.between(0, hours);
            release["risks"] = json!([{
                "name": "SlowEtcd", "message": "etcd may be slow.",
                "from": format!("+{known}h"), "until": format!("+{}h", known + rng.between(1, 200)),
            }]);
        }
        release
    }

    /// A pool other than the control plane's, if there is one.
    pub(super) fn any_pool(&self, rng: &mut Rng) -> Pool {
        rng.pick(&self.pools[1..])
    }

    /// Our ClusterVersion with its overlays.
    pub(super) fn overlays(&mut self) {
        let mut rng = self.rng("overlays");
        if !self.has("overlays") || !rng.chance(25) {
            return;
        }
        let overlays: Vec<Value> = (0..rng.between(0, 2))
            .map(|_| {
                let channel = rng.pick(&["stable-4.19", "stable-4.18", "fast-4.18"]);
                // On the second: an overlay has no other times.
                let from = self.moment(&mut rng);
                json!({"from": from.to_string(), "overlay": {"spec": {"channel": channel}}})
            })
            .collect();
        let spec = json!({"template": {"spec": {"channel": "stable-4.18"}}, "overlays": overlays});
        self.objects
            .push(object("ClusterVersion", "version", &json!({}), &spec));
    }

    /// What breaks in the cluster.
    pub(super) fn faults(&mut self) {
        let mut rng = self.rng("faults");
        if !self.has("faults") {
            return;
        }
        for number in 0..rng.pick(&[0, 1, 1, 2, 3, 5]) {
            let at = self.moment(&mut rng);
            if rng.chance(12) {
                let alert = json!({"alertname": format!("Alert{number}"), "labels": {"namespace": "shop"}});
                self.event(at, "alert", &alert);
            } else if rng.chance(10) {
                let result = json!([{"value": 1}]);
                self.event(at, "query", &json!({"query": "queue > 100", "result": result}));
            } else {
                let fault = self.fault(&mut rng);
                self.event(at, "fault", &fault);
            }
            let last = self.events.last_mut().unwrap();
            let minutes = rng.pick(&[2, 10, 20, 45, 120, 500]);
            let is_short = last["fault"].get("apiServerAway").is_some();
            let minutes = if is_short { minutes.min(45) } else { minutes };
            last["for"] = format!("{}m", rng.between(minutes / 2, minutes)).into();
        }
        if rng.chance(15) {
            let at = self.moment(&mut rng);
            let ack = json!({"acknowledge": "ack-4.18-kube-1.32-api-removals-in-4.19"});
            self.happens(at, &ack);
        }
    }

    fn fault(&self, rng: &mut Rng) -> Value {
        let operator = rng.pick(&["etcd", "kube-apiserver", "machine-config"]);
        let pool = self.any_pool(rng);
        let with_nodes: Vec<&Pool> = self.pools.iter().filter(|p| p.machines > 0).collect();
        // A hosted control plane may have no node at all.
        let node = if with_nodes.is_empty() {
            return json!({"updateServiceAway": {}});
        } else {
            let pool = rng.pick(&with_nodes);
            format!("{}-{}", pool.name, rng.between(0, pool.machines - 1))
        };
        match rng.below(17) {
            0 => json!({"releaseRejected": {}}),
            1 => json!({"releaseRejected": {"reason": "RetrievePayload"}}),
            2 => json!({"slowOperator": {"operator": operator, "by": rng.minutes(10, 90)}}),
            3 => json!({"stuckOperator": {"operator": operator}}),
            4 => json!({"stalledAt": {"percent": rng.between(0, 99)}}),
            5 => json!({"failing": {"flapping": rng.minutes(2, 30)}}),
            6 => json!({"failing": {}}),
            7 => json!({"degradedOperator": {"operator": operator}}),
            8 => json!({"unavailableOperator": {"operator": operator}}),
            9 => json!({"degradedPool": {"pool": pool.name}}),
            10 => json!({"degradedNode": {"node": node}}),
            11 => json!({"notReadyNode": {"node": node}}),
            12 => json!({"lostNode": {"node": node}}),
            13 => json!({"stuckDrain": {"node": node}}),
            14 => json!({"updateServiceAway": {}}),
            15 => json!({"notUpgradeable": {}}),
            _ => json!({"apiServerAway": {}}),
        }
    }

    /// People who do things to the cluster without asking us.
    pub(super) fn foreign_hands(&mut self) {
        let mut rng = self.rng("foreign");
        if !self.has("foreign") {
            return;
        }
        if rng.chance(15) {
            let at = self.moment(&mut rng);
            let version = rng.pick(&["4.18.4", "4.18.5", "4.19.1"]);
            let desired = rng.pick(&[json!({"version": version}), Value::Null]);
            self.patch_cluster(at, &desired);
        }
        for _ in 0..rng.pick(&[0, 0, 1, 2]) {
            let at = self.moment(&mut rng);
            let pool = self.any_pool(&mut rng).name;
            let paused = rng.chance(70);
            self.patch_pool(at, &pool, paused);
            if paused && rng.chance(70) {
                let later = at + rng.between(5, 2_000).minutes();
                self.patch_pool(later.min(self.end - 6.hours()), &pool, false);
            }
        }
    }

    fn patch_cluster(&mut self, at: jiff::Timestamp, desired: &Value) {
        let patch = json!({"patch": {
            "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "name": "version",
            "merge": {"spec": {"desiredUpdate": desired}},
        }});
        self.happens(at, &patch);
    }

    fn patch_pool(&mut self, at: jiff::Timestamp, pool: &str, paused: bool) {
        let patch = json!({"patch": {
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": pool,
            "merge": {"spec": {"paused": paused}},
        }});
        self.happens(at, &patch);
    }

    /// A suspension window of that name; most come in mid-run.
    pub(super) fn windows(&mut self) {
        let mut rng = self.rng("windows");
        if !self.has("windows") {
            return;
        }
        for number in 0..rng.pick(&[0, 0, 1, 2]) {
            let start = self.moment(&mut rng);
            let end = start + rng.pick(&[30, 240, 24 * 60, 5 * 24 * 60]).minutes();
            let mut spec = json!({"start": start.to_string(), "end": end.to_string(), "reason": "Holidays"});
            let selectors = [json!({}), json!({"matchLabels": {"team": "a"}}), Value::Null];
            for field in ["configSelector", "jobSelector"] {
                let selector = rng.pick(&selectors);
                if !selector.is_null() {
                    spec[field] = selector;
                }
            }
            let window = object(
                "UpgradeSuspensionWindow",
                &format!("window-{number}"),
                &json!({}),
                &spec,
            );
            if rng.chance(50) {
                self.objects.push(window);
            } else {
                let at = (start - rng.between(-60, 600).minutes()).max(self.start + 1.minute());
                self.happens(at, &json!({"apply": window}));
            }
        }
    }

    pub(super) fn hooks(&mut self) -> Value {
        let mut rng = self.rng("hooks");
        let mut rules = Vec::new();
        if !self.has("hooks") {
            return rules.into();
        }
        for number in 0..rng.pick(&[0, 0, 1, 1, 2, 3]) {
            let name = format!("hook-{number}");
            let hook = Self::hook(&mut rng, &name);
            self.objects.push(hook);
            let outcome = rng.pick(&["Succeeds", "Succeeds", "Succeeds", "Fails", "Hangs"]);
            rules.push(json!({
                "hook": name, "outcome": outcome, "duration": rng.pick(&["5s", "30s", "1m..5m", "20m..50m"]),
            }));
        }
        rules.into()
    }

    /// A hook of this name.
    pub(super) fn hook(rng: &mut Rng, name: &str) -> Value {
        let all = [
            "Create",
            "Start",
            "UpgradeComplete",
            "MachineConfigPoolUnpause",
            "Success",
            "Failure",
            "Finish",
        ];
        let events: Vec<&str> = all.into_iter().filter(|_| rng.chance(35)).collect();
        let events = if events.is_empty() { vec!["Start"] } else { events };
        let container = json!({"name": "main", "image": "busybox"});
        let mut job = json!({"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}});
        if rng.chance(80) {
            job["activeDeadlineSeconds"] = rng.pick(&[60, 600, 5_400]).into();
        }
        if rng.chance(40) {
            job["ttlSecondsAfterFinished"] = rng.pick(&[0, 60, 43_200]).into();
        }
        let mut spec = json!({"events": events, "template": {"spec": job}});
        if rng.chance(30) {
            spec["run"] = "Next".into();
        }
        if rng.chance(40) {
            spec["failurePolicy"] = "Abort".into();
        }
        if rng.chance(30) {
            spec["selector"] = json!({"matchLabels": {"team": "a"}});
        }
        let mut hook = object("UpgradeJobHook", name, &json!({}), &spec);
        hook["metadata"]["namespace"] = NAMESPACE.into();
        hook
    }
}
