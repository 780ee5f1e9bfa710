//! What people and machines do in mid-run: edits, deletions, kills.

use std::collections::BTreeMap;

use jiff::ToSpan;
use openshift_upgrade_operator::simulator::api::Fault;
use serde_json::{Value, json};

use super::{Deed, Sketch, ours, resources::schedule};
use crate::rng::Rng;

const PHASES: [&str; 4] = ["Pending", "Running", "Running", "Paused"];

impl Sketch {
    /// Edits of resources in mid-run.
    pub(super) fn edits(&mut self) {
        let mut rng = self.rng("edits");
        if !self.has("edits") {
            return;
        }
        for _ in 0..rng.pick(&[0, 0, 1, 1, 2]) {
            let at = self.moment(&mut rng);
            let name = rng.pick(&self.configs.clone());
            match rng.below(6) {
                0 => self.merge(
                    at,
                    &ours("UpgradeConfig", &name),
                    &json!({"schedule": schedule(&mut rng)}),
                ),
                1 => {
                    let config = ours("UpgradeConfig", &name);
                    self.merge(at, &config, &json!({"schedule": {"suspend": true}}));
                    if rng.chance(70) {
                        let later = (at + rng.between(10, 6_000).minutes()).min(self.end - 6.hours());
                        self.merge(later, &config, &json!({"schedule": {"suspend": false}}));
                    }
                }
                2 => {
                    let spec = json!({"maxUpgradeStartDelay": "2h", "pinVersionWindow": rng.minutes(0, 600)});
                    self.merge(at, &ours("UpgradeConfig", &name), &spec);
                }
                3 => self
                    .deeds
                    .push((at, Deed::Timeout(rng.pick(&PHASES), rng.between(30, 900)))),
                4 => self
                    .deeds
                    .push((at, Deed::DelayMin(rng.pick(&PHASES), rng.between(0, 400)))),
                _ => self.replace_hook(&mut rng, at),
            }
        }
    }

    /// The first hook is another one from now on; where there was none, it is new.
    fn replace_hook(&mut self, rng: &mut Rng, at: jiff::Timestamp) {
        if !self.has("hooks") {
            return;
        }
        let hook = Self::hook(rng, "hook-0");
        self.happens(at, &json!({"apply": hook}));
    }

    fn merge(&mut self, at: jiff::Timestamp, reference: &Value, spec: &Value) {
        let mut patch = reference.clone();
        patch["merge"] = json!({"spec": spec});
        self.happens(at, &json!({"patch": patch}));
    }

    /// Things are deleted; some are made again.
    pub(super) fn deletions(&mut self) {
        let mut rng = self.rng("deletions");
        if !self.has("deletions") {
            return;
        }
        if rng.chance(20) {
            let at = self.moment(&mut rng);
            self.deeds.push((at, Deed::Delete(rng.pick(&PHASES))));
        }
        if rng.chance(10) {
            let at = self.moment(&mut rng);
            self.deeds
                .push((at, Deed::Delete(rng.pick(&["Succeeded", "Failed", "Skipped"]))));
        }
        let of_kind = |kind: &str| {
            let all = self.objects.iter().filter(|o| o["kind"] == kind);
            all.cloned().collect::<Vec<_>>()
        };
        let (hooks, windows) = (of_kind("UpgradeJobHook"), of_kind("UpgradeSuspensionWindow"));
        let configs = of_kind("UpgradeConfig");
        for (some, percent, again) in [(hooks, 15, 30), (windows, 15, 30), (configs, 12, 80)] {
            if some.is_empty() || !rng.chance(percent) {
                continue;
            }
            let object = rng.pick(&some);
            let at = self.moment(&mut rng);
            let kind = object["kind"].as_str().unwrap();
            let name = object["metadata"]["name"].as_str().unwrap();
            // A later edit would find nothing, or something half.
            self.events.retain(|e| !is_edit_of(e, kind, name));
            self.happens(at, &json!({"delete": ours(kind, name)}));
            if rng.chance(again) {
                let later = at + rng.between(1, 20).minutes();
                self.happens(later, &json!({"apply": object}));
            }
        }
    }

    /// Our operator is killed, and comes back on another machine.
    pub(super) fn restarts(&mut self) {
        let mut rng = self.rng("restarts");
        let mut chosen = BTreeMap::new();
        for _ in 0..rng.pick(&[0, 0, 1, 2, 4]) {
            let at = self.moment(&mut rng);
            let down = rng.pick(&[1, 30, 300, 2_400]);
            let offset = rng.pick(&[0, 0, -300, -61, 45, 180, 300]);
            chosen.insert(at, (down, offset));
        }
        // Hours apart: which clock counts at a time is then certain, and none is killed that is not there.
        let mut last = None;
        chosen.retain(|at, _| {
            let is_apart = last.is_none_or(|last| at.duration_since(last).as_hours() >= 3);
            if is_apart {
                last = Some(*at);
            }
            is_apart
        });
        if !self.has("restarts") {
            return;
        }
        for (at, (down, offset)) in chosen {
            let offset = if self.has("offsets") { offset } else { 0 };
            let restart = json!({"down": format!("{down}s"), "clockOffset": format!("{offset}s")});
            self.happens(at, &json!({"restartOperator": restart}));
        }
    }

    /// Writes that go wrong.
    pub(super) fn api_faults(&self) -> Vec<(u64, Fault)> {
        let mut rng = self.rng("api");
        if !self.has("api") {
            return Vec::new();
        }
        (0..rng.pick(&[0, 0, 2, 5, 10]))
            .map(|_| (1 + rng.below(300), rng.pick(&Fault::ALL)))
            .collect()
    }
}

fn is_edit_of(event: &Value, kind: &str, name: &str) -> bool {
    let action = &event["do"];
    let patched = &action["patch"];
    let applied = &action["apply"];
    (patched["kind"] == kind && patched["name"] == name)
        || (applied["kind"] == kind && applied["metadata"]["name"] == name)
}
