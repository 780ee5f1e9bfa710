//! The faults of a scenario as the simulated OpenShift reads them: lines of a ConfigMap, see
//! [`crate::simulator::openshift::faults`].

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    events::{Fault, Reason},
    updates::{AdminGate, Release},
    values::{Moment, Word},
};
use crate::api::duration;

/// The data of the ConfigMap.
#[derive(Debug, Default)]
pub(super) struct Controls(BTreeMap<String, String>);

impl Controls {
    /// The data, as it is written.
    pub(super) fn into_data(self) -> BTreeMap<String, String> {
        self.0
    }

    /// Replaces a key.
    pub(super) fn set(&mut self, key: &str, value: impl Into<String>) {
        self.0.insert(key.to_owned(), value.into());
    }

    /// Adds a line to a key. Line breaks in a message would make two lines of it.
    fn line(&mut self, key: &str, words: &[&str]) {
        let text = self.0.entry(key.to_owned()).or_default();
        if !text.is_empty() {
            text.push('\n');
        }
        let line: Vec<&str> = words.iter().flat_map(|w| w.split_whitespace()).collect();
        text.push_str(&line.join(" "));
    }

    /// A fault of one subject. A message needs a reason before it.
    fn about(&mut self, key: &str, subject: &Word, reason: Option<&Word>, message: &str) {
        let reason = reason.map_or(DEFAULT_REASON, Word::as_str);
        self.line(key, &[subject.as_str(), reason, message]);
    }

    /// A fault of the whole cluster.
    fn one(&mut self, key: &str, default: &str, reason: &Reason) {
        let word = reason.reason.as_ref().map_or(default, Word::as_str);
        self.0.remove(key);
        self.line(key, &[word, &reason.message]);
    }

    /// Switches a fault on.
    pub(super) fn fault(&mut self, fault: &Fault) {
        match fault {
            Fault::ReleaseRejected(f) => {
                let version = f.version.as_ref().map_or("*".to_owned(), ToString::to_string);
                self.line("reject", &[&version, f.reason.as_str(), &f.message]);
            }
            Fault::SlowOperator(f) => {
                self.line(
                    "slow-operators",
                    &[f.operator.as_str(), &duration::format(f.by.0)],
                );
            }
            Fault::StuckOperator(f) => {
                self.about("stuck-operators", &f.operator, f.reason.as_ref(), &f.message);
            }
            Fault::StalledAt(f) => self.set("stall-at", f.percent.to_string()),
            Fault::Failing(f) => {
                let reason = Reason {
                    reason: f.reason.clone(),
                    message: f.message.clone(),
                };
                self.one("failing", "MultipleErrors", &reason);
                if let Some(period) = f.flapping {
                    self.set("failing-period", duration::format(period.0));
                } else {
                    self.0.remove("failing-period");
                }
            }
            Fault::DegradedOperator(f) => {
                self.about("degraded-operators", &f.operator, f.reason.as_ref(), &f.message);
            }
            Fault::UnavailableOperator(f) => {
                self.about(
                    "unavailable-operators",
                    &f.operator,
                    f.reason.as_ref(),
                    &f.message,
                );
            }
            Fault::DegradedPool(f) => {
                self.about("degraded-pools", &f.pool, f.reason.as_ref(), &f.message);
            }
            Fault::DegradedNode(f) => {
                self.about("degraded-nodes", &f.node, f.reason.as_ref(), &f.message);
            }
            Fault::NotReadyNode(f) => {
                self.about("not-ready-nodes", &f.node, f.reason.as_ref(), &f.message);
            }
            Fault::LostNode(f) => self.about("lost-nodes", &f.node, f.reason.as_ref(), &f.message),
            Fault::StuckDrain(f) => {
                let pod = f.pod.as_ref().map_or("", Word::as_str);
                self.line("stuck-drains", &[f.node.as_str(), pod]);
            }
            Fault::UpdateServiceAway(f) => self.one("update-service", "RemoteFailed", f),
            Fault::NotUpgradeable(f) => self.one("not-upgradeable", DEFAULT_REASON, f),
            // These are of no concern to OpenShift's operators.
            Fault::ApiServerAway(_) | Fault::PrometheusAway(_) => {}
        }
    }

    /// Adds a release, with the risks that are known at `now`.
    pub(super) fn release(&mut self, release: &Release, start: Timestamp, now: Timestamp) {
        let version = release.version.to_string();
        let at = |name: &str, moment: Option<Moment>| moment.map(|m| format!("{name}={}", m.on(start)));
        let list = |name: &str, items: Vec<String>| {
            (!items.is_empty()).then(|| format!("{name}={}", items.join(",")))
        };
        let words = [
            at("since", release.from),
            at("until", release.until),
            list(
                "channels",
                release.channels.iter().map(ToString::to_string).collect(),
            ),
            list(
                "from",
                release.updates_from.iter().map(ToString::to_string).collect(),
            ),
        ];
        let mut line = vec![version.as_str()];
        line.extend(words.iter().flatten().map(String::as_str));
        self.line("releases", &line);
        for risk in &release.risks {
            let began = risk.from.is_none_or(|m| m.on(start) <= now);
            let ended = risk.until.is_some_and(|m| m.on(start) <= now);
            if began && !ended {
                self.line("risks", &[&version, risk.name.as_str(), &risk.message]);
            }
        }
    }

    /// Adds a release that appeared by itself.
    pub(super) fn plain_release(&mut self, version: &semver::Version) {
        self.line("releases", &[&version.to_string()]);
    }

    /// Adds something that must be acknowledged.
    pub(super) fn gate(&mut self, gate: &AdminGate) {
        self.line("admin-gates", &[gate.key.as_str(), &gate.message]);
    }
}

const DEFAULT_REASON: &str = "SimulatedFault";
