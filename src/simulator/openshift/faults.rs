//! Faults and offers, switched at run time by a ConfigMap: see `docs/simulated-openshift.md`.
//!
//! A ConfigMap and not annotations of the ClusterVersion, because the operator under test watches the ClusterVersion:
//! switching a fault must not touch what is tested.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use semver::Version;

use super::{Step, graph::Graph, later};
use crate::api::duration;

/// Namespace of the ConfigMap.
pub const NAMESPACE: &str = "openshift-upgrade";
/// Its name.
pub const NAME: &str = "simulated-openshift";

/// Reasons with which a release can be refused: the steps of loading it.
pub const REJECTIONS: [&str; 4] = [
    "RetrievePayload",
    "LoadPayload",
    "VerifyPayloadVersion",
    "PreconditionChecks",
];

/// A line `<subject> [<reason> [<message>]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// Which halves of the simulated cluster stand still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// No ClusterOperator starts or ends its turn, no release is accepted.
    pub control_plane: bool,
    /// No node starts or goes on.
    pub pools: bool,
}

/// The controls, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// `offers.<channel>` or `offers`: releases that the update service recommends.
    offers: BTreeMap<String, Vec<String>>,
    /// Releases offered with a known risk, by version.
    pub conditional_offers: BTreeMap<String, Fault>,
    /// The update service does not answer.
    pub update_service: Option<Fault>,
    /// The update graph, besides the plain offers.
    pub graph: Graph,
    /// What must be acknowledged before the next minor, by its key.
    pub admin_gates: BTreeMap<String, Fault>,
    /// Releases that are refused, by version; `*` is every one.
    reject: BTreeMap<String, Fault>,
    /// ClusterVersion condition Failing.
    failing: Option<Fault>,
    /// It comes and goes.
    failing_period: Option<SignedDuration>,
    /// ClusterVersion condition Upgradeable=False.
    pub not_upgradeable: Option<Fault>,
    /// Degraded ClusterOperators.
    pub degraded_operators: BTreeMap<String, Fault>,
    /// Unavailable ClusterOperators.
    pub unavailable_operators: BTreeMap<String, Fault>,
    /// ClusterOperators that take so much longer.
    pub slow_operators: BTreeMap<String, SignedDuration>,
    /// ClusterOperators that do not end their update.
    pub stuck_operators: BTreeMap<String, Fault>,
    /// Pools whose configuration cannot be rendered.
    pub degraded_pools: BTreeMap<String, Fault>,
    /// Nodes that do not come back from a reboot.
    pub lost_nodes: BTreeMap<String, Fault>,
    /// Nodes whose drain does not end; the reason is the pod that cannot be evicted.
    pub stuck_drains: BTreeMap<String, Fault>,
    /// Nodes whose update fails.
    pub degraded_nodes: BTreeMap<String, Fault>,
    /// Nodes that are NotReady.
    pub not_ready_nodes: BTreeMap<String, Fault>,
    /// The control plane stops at this percentage.
    pub stall_at: Option<u8>,
    /// What stands still.
    pub hold: Hold,
}

impl Faults {
    /// Reads the ConfigMap. What can't be read is ignored and reported: a typing mistake must not stop the cluster.
    pub fn read(controls: Option<&ConfigMap>) -> (Self, Vec<String>) {
        let (mut faults, mut problems) = (Self::default(), Vec::new());
        for (key, text) in controls.and_then(|c| c.data.as_ref()).into_iter().flatten() {
            if let Err(problem) = faults.set(key, text) {
                problems.push(format!(
                    "ConfigMap {NAMESPACE}/{NAME}, key {key}: {problem}; ignored"
                ));
            }
        }
        (faults, problems)
    }

    /// The releases that the update service recommends in this channel.
    pub fn offers(&self, channel: &str) -> &[String] {
        self.offers
            .get(channel)
            .or_else(|| self.offers.get(""))
            .map_or(&[], Vec::as_slice)
    }

    /// Why this release is refused, if it is.
    pub fn rejection(&self, version: &str) -> Option<&Fault> {
        self.reject.get(version).or_else(|| self.reject.get(EVERY))
    }

    /// Condition Failing at this instant.
    pub(super) fn failing(&self, now: Timestamp, step: &mut Step) -> Option<Fault> {
        let failing = self.failing.as_ref()?;
        if let Some(period) = self.failing_period {
            // Halves are counted from 1970, so that nothing has to be kept.
            let half = (period.as_nanos() / 2).max(1);
            let passed = now.as_nanosecond().rem_euclid(2 * half);
            let rest = i64::try_from(half - passed % half).unwrap_or(i64::MAX);
            step.wake(later(now, SignedDuration::from_nanos(rest)));
            if passed >= half {
                return None;
            }
        }
        Some(failing.clone())
    }

    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "releases" => self.graph.set_releases(text)?,
            "risks" => self.graph.set_risks(text)?,
            "always-an-update" => self.graph.always_an_update = truth(text)?,
            "admin-gates" => self.admin_gates = gates(text)?,
            "failing-period" => self.failing_period = length(text)?,
            "slow-operators" => self.slow_operators = lengths(text)?,
            "stuck-operators" => self.stuck_operators = by_subject(text, "SimulatedFault"),
            "degraded-pools" => self.degraded_pools = by_subject(text, "SimulatedFault"),
            "lost-nodes" => self.lost_nodes = by_subject(text, "SimulatedFault"),
            "stuck-drains" => self.stuck_drains = by_subject(text, "simulated-workload/stuck"),
            "conditional-offers" => self.conditional_offers = by_version(text, "SimulatedRisk")?,
            "update-service" => self.update_service = one(text, "RemoteFailed"),
            "reject" => self.reject = rejections(text)?,
            "failing" => self.failing = one(text, "MultipleErrors"),
            "not-upgradeable" => self.not_upgradeable = one(text, "SimulatedFault"),
            "degraded-operators" => self.degraded_operators = by_subject(text, "SimulatedFault"),
            "unavailable-operators" => self.unavailable_operators = by_subject(text, "SimulatedFault"),
            "degraded-nodes" => self.degraded_nodes = by_subject(text, "SimulatedFault"),
            "not-ready-nodes" => self.not_ready_nodes = by_subject(text, "SimulatedFault"),
            "stall-at" => self.stall_at = percentage(text)?,
            "hold" => self.hold = hold(text)?,
            _ => {
                let channel = match key.strip_prefix("offers") {
                    Some("") => Some(""),
                    Some(rest) => rest.strip_prefix('.'),
                    None => None,
                };
                let channel = channel.ok_or("no such control")?;
                self.offers.insert(channel.to_owned(), versions(text)?);
            }
        }
        Ok(())
    }
}

/// Stands for every release.
const EVERY: &str = "*";

pub(super) fn version(text: &str) -> Result<&str, String> {
    Version::parse(text)
        .map(|_| text)
        .map_err(|e| format!("{text:?} is not a version ({e})"))
}

fn versions(text: &str) -> Result<Vec<String>, String> {
    text.split(|c: char| c == ',' || c.is_whitespace())
        .filter(|v| !v.is_empty())
        .map(|v| version(v).map(str::to_owned))
        .collect()
}

pub(super) fn fault(text: &str, reason: &str) -> Fault {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let or = |s: &str, default: &str| if s.is_empty() { default } else { s }.to_owned();
    Fault {
        reason: or(first, reason),
        message: or(rest.trim(), "switched on in the simulator"),
    }
}

fn one(text: &str, reason: &str) -> Option<Fault> {
    let text = text.trim();
    (!text.is_empty()).then(|| fault(text, reason))
}

fn by_subject(text: &str, reason: &str) -> BTreeMap<String, Fault> {
    subjects(text)
        .map(|(subject, rest)| (subject.to_owned(), fault(rest, reason)))
        .collect()
}

/// The first word of each line, and the rest.
pub(super) fn subjects(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    lines.map(|line| {
        let (subject, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        (subject, rest.trim())
    })
}

fn truth(text: &str) -> Result<bool, String> {
    match text.trim() {
        "true" => Ok(true),
        "" | "false" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

fn length(text: &str) -> Result<Option<SignedDuration>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let length = duration::with_days(text).map_err(|e| e.to_string())?;
    Ok(Some(length).filter(SignedDuration::is_positive))
}

fn lengths(text: &str) -> Result<BTreeMap<String, SignedDuration>, String> {
    let each = subjects(text).map(|(subject, rest)| {
        let length = duration::with_days(rest).map_err(|e| format!("{subject}: {e}"))?;
        Ok((subject.to_owned(), length))
    });
    each.collect()
}

/// Lines `<key> <message>`.
fn gates(text: &str) -> Result<BTreeMap<String, Fault>, String> {
    let each = subjects(text).map(|(key, message)| {
        gated_minor(key)?;
        let message = if message.is_empty() {
            format!("the simulator wants {key} acknowledged")
        } else {
            message.to_owned()
        };
        let reason = "AdminAckRequired".to_owned();
        Ok((key.to_owned(), Fault { reason, message }))
    });
    each.collect()
}

/// The minor that an admin gate is about, such as `4.18` of `ack-4.18-kube-1.32-api-removals-in-4.19`.
pub fn gated_minor(key: &str) -> Result<(u64, u64), String> {
    let minor = key
        .strip_prefix("ack-")
        .and_then(|rest| rest.split_once('-'))
        .filter(|(_, what)| !what.is_empty())
        .and_then(|(minor, _)| minor.split_once('.'))
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    minor.ok_or_else(|| format!("{key:?} is no key of an admin gate, such as ack-4.18-api-removals"))
}

pub(super) fn by_version(text: &str, reason: &str) -> Result<BTreeMap<String, Fault>, String> {
    let faults = by_subject(text, reason);
    faults.keys().try_for_each(|v| version(v).map(drop))?;
    Ok(faults)
}

fn rejections(text: &str) -> Result<BTreeMap<String, Fault>, String> {
    let faults = by_subject(text, "PreconditionChecks");
    let mut versions = faults.keys().filter(|v| *v != EVERY);
    versions.try_for_each(|v| version(v).map(drop))?;
    match faults.values().find(|f| !REJECTIONS.contains(&f.reason.as_str())) {
        None => Ok(faults),
        Some(f) => Err(format!("{:?} is none of {}", f.reason, REJECTIONS.join(", "))),
    }
}

fn percentage(text: &str) -> Result<Option<u8>, String> {
    let text = text.trim().trim_end_matches('%');
    if text.is_empty() {
        return Ok(None);
    }
    let percent = text.parse().ok().filter(|p| *p < 100);
    percent
        .map(Some)
        .ok_or_else(|| format!("{text:?} is not a percentage from 0 to 99"))
}

fn hold(text: &str) -> Result<Hold, String> {
    let mut hold = Hold::default();
    for word in text
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|w| !w.is_empty())
    {
        match word {
            "control-plane" => hold.control_plane = true,
            "pools" => hold.pools = true,
            "all" => (hold.control_plane, hold.pools) = (true, true),
            _ => return Err(format!("{word:?} is none of control-plane, pools, all")),
        }
    }
    Ok(hold)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read(key: &str, text: &str) -> (Faults, Vec<String>) {
        let data = BTreeMap::from([(key.to_owned(), text.to_owned())]);
        Faults::read(Some(&ConfigMap {
            data: Some(data),
            ..ConfigMap::default()
        }))
    }

    #[rstest]
    #[case("stall-at", "100")]
    #[case("stall-at", "half")]
    #[case("hold", "everything")]
    #[case("reject", "4.18.5 NoSuchStep")]
    #[case("reject", "latest RetrievePayload")]
    #[case("offers", "4.18")]
    #[case("offer", "4.18.4")]
    #[case("offersx", "4.18.4")]
    #[case("releases", "4.18.5 since=tomorrow")]
    #[case("releases", "4.18.5 forever")]
    #[case("releases", "4.18")]
    #[case("risks", "latest SlowEtcd")]
    #[case("always-an-update", "yes")]
    #[case("admin-gates", "ack-4.18")]
    #[case("failing-period", "often")]
    #[case("slow-operators", "etcd")]
    fn a_control_that_cannot_be_read_is_reported_and_ignored(#[case] key: &str, #[case] text: &str) {
        let (faults, problems) = read(key, text);
        assert_eq!(faults, Faults::default());
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(&format!("key {key}:")), "{problems:?}");
    }

    #[test]
    fn offers_of_the_channel_go_before_the_general_ones() {
        let data = [
            ("offers", "4.18.4,4.18.5"),
            ("offers.stable-4.19", "4.19.1"),
            ("offers.empty", ""),
        ];
        let (faults, problems) = Faults::read(Some(&ConfigMap {
            data: Some(data.map(|(k, v)| (k.to_owned(), v.to_owned())).into()),
            ..ConfigMap::default()
        }));
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(faults.offers("stable-4.18"), ["4.18.4", "4.18.5"]);
        assert_eq!(faults.offers("stable-4.19"), ["4.19.1"]);
        assert!(faults.offers("empty").is_empty());
    }

    #[test]
    fn a_fault_has_subject_reason_and_message_with_defaults() {
        let (faults, _) = read(
            "degraded-operators",
            "etcd EtcdMembers_Degraded 1 of 3 members\n\ningress\n",
        );
        assert_eq!(faults.degraded_operators["etcd"].reason, "EtcdMembers_Degraded");
        assert_eq!(faults.degraded_operators["etcd"].message, "1 of 3 members");
        assert_eq!(faults.degraded_operators["ingress"].reason, "SimulatedFault");
        assert_eq!(read("stall-at", "80%").0.stall_at, Some(80));
        assert_eq!(read("failing", " ").0.failing, None);
    }

    #[test]
    fn a_failing_that_flaps_is_there_for_half_of_each_period() {
        let (mut faults, _) = read("failing", "MultipleErrors now and then");
        faults.set("failing-period", "10m").unwrap();
        let start: Timestamp = "2026-11-24T21:00:00Z".parse().unwrap();
        for (minute, is_failing) in [(0, true), (4, true), (5, false), (9, false), (10, true)] {
            let mut step = Step::default();
            let now = later(start, SignedDuration::from_mins(minute));
            assert_eq!(faults.failing(now, &mut step).is_some(), is_failing, "{minute}");
            let next = later(start, SignedDuration::from_mins((minute / 5 + 1) * 5));
            assert_eq!(step.wake_at, Some(next));
        }
    }

    #[rstest]
    #[case("ack-4.18-kube-1.32-api-removals-in-4.19", Some((4, 18)))]
    #[case("ack-4.18-", None)]
    #[case("4.18-x", None)]
    #[case("ack-4-x", None)]
    fn an_admin_gate_says_its_minor(#[case] key: &str, #[case] expected: Option<(u64, u64)>) {
        assert_eq!(gated_minor(key).ok(), expected);
    }
}
