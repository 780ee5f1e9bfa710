//! The checks that rest on Prometheus: critical alerts, and queries of the administrator's own.
//!
//! A query without an answer is never healthy by itself: "cannot tell" blocks where the check blocks.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    Look,
    answers::{Said, Sample, Vector},
    findings::{Findings, Standing},
};
use crate::{
    api::health_check::{HealthChecks, Severity},
    text,
};

/// All firing critical alerts; excludes are applied here, so that they mean the same everywhere.
pub const CRITICAL_ALERTS: &str = r#"ALERTS{alertstate="firing",severity="critical"}"#;
/// Since when alerts are active: the value is a Unix time. Only for the order of the offenders.
pub const ALERTS_SINCE: &str = r#"ALERTS_FOR_STATE{severity="critical"}"#;
/// The label of our own alerts. One that says that a job does not get on must not keep the job from getting on.
pub const OWN_ALERT: (&str, &str) = ("component", "openshift-upgrade-operator");

/// Labels that say what an alert without a pod is about; the first that it has is shown.
const ABOUT: [&str; 11] = [
    "name",
    "node",
    "deployment",
    "statefulset",
    "daemonset",
    "job_name",
    "persistentvolumeclaim",
    "persistentvolume",
    "service",
    "instance",
    "job",
];
/// Longest text of a query, a label or an error in a message.
const MAX_TEXT: usize = 120;
/// Most samples of a query in a message.
const MAX_SAMPLES: usize = 3;
/// Most labels of a sample in a message.
const MAX_LABELS: usize = 6;

/// Checks that got no result, by severity and cause: a Prometheus that is away is said once, not for each query.
type Untold = BTreeMap<(bool, String), Vec<String>>;

pub(super) fn check(checks: &HealthChecks, look: &Look<'_>, findings: &mut Findings) {
    let mut untold = Untold::new();
    if let Some(severity) = checks.critical_alerts() {
        alerts(checks, severity, look, findings, &mut untold);
    }
    for custom in &checks.custom_queries {
        let severity = custom.severity();
        let name = format!("query {}", text::line(&custom.query, MAX_TEXT));
        match said(&custom.query, look, findings) {
            Said::NotYet => {}
            Said::NobodyToAsk => nobody_to_ask(&mut untold, severity, name),
            Said::CannotTell(why) => cannot_tell(&mut untold, severity, why, name),
            Said::Vector(vector) => {
                warn(vector, findings);
                if !vector.samples.is_empty() {
                    let found = describe_samples(vector);
                    findings.add(severity, Standing::Unknown, format!("{name} finds {found}"));
                }
            }
        }
    }
    for ((blocks, why), names) in untold {
        let names = join(&names);
        if blocks {
            let finding = format!("cannot tell about {names}: {why}");
            findings.add(Severity::Block, Standing::Overall, finding);
        } else {
            let finding = format!("not checked: {names} ({why})");
            findings.add(Severity::Warn, Standing::Overall, finding);
        }
    }
}

/// The answer to a query that still counts; one that does not is asked for.
fn said<'a>(query: &str, look: &Look<'a>, findings: &mut Findings) -> Said<'a> {
    let (said, until) = look.answers.to(query, look.now);
    if let Some(until) = until {
        findings.look_again_at(until);
    }
    match said {
        Said::NotYet => {
            findings.asks.insert(query.to_owned());
        }
        Said::NobodyToAsk | Said::CannotTell(_) | Said::Vector(_) => {}
    }
    said
}

fn nobody_to_ask(untold: &mut Untold, severity: Severity, name: String) {
    let why = match severity {
        Severity::Block => {
            "the operator has no Prometheus to ask: give it --prometheus-url, or take the check out"
        }
        Severity::Warn => "no --prometheus-url",
    };
    cannot_tell(untold, severity, why, name);
}

fn cannot_tell(untold: &mut Untold, severity: Severity, why: &str, name: String) {
    let blocks = severity == Severity::Block;
    let names = untold.entry((blocks, why.to_owned())).or_default();
    names.push(name);
}

fn warn(vector: &Vector, findings: &mut Findings) {
    for warning in &vector.warnings {
        let warning = text::line(warning, MAX_TEXT);
        let warning = format!("Prometheus warns: {warning}");
        findings.add(Severity::Warn, Standing::Overall, warning);
    }
}

fn alerts(
    checks: &HealthChecks,
    severity: Severity,
    look: &Look<'_>,
    findings: &mut Findings,
    untold: &mut Untold,
) {
    let name = || "critical alerts".to_owned();
    let vector = match said(CRITICAL_ALERTS, look, findings) {
        // Nobody asked for this check: without a Prometheus there is nothing to say about it.
        Said::NobodyToAsk if severity == Severity::Warn && checks.check_critical_alerts.is_none() => return,
        Said::NobodyToAsk => return nobody_to_ask(untold, severity, name()),
        Said::CannotTell(why) => return cannot_tell(untold, severity, why, name()),
        Said::NotYet => None,
        Said::Vector(vector) => Some(vector),
    };
    // Asked together with the alerts, and not needed: without it their order is by name.
    let since = match said(ALERTS_SINCE, look, findings) {
        Said::Vector(vector) => Since::of(vector),
        Said::NobodyToAsk | Said::NotYet | Said::CannotTell(_) => Since::default(),
    };
    let Some(vector) = vector else { return };
    warn(vector, findings);
    let mut offenders: BTreeMap<String, Standing> = BTreeMap::new();
    for alert in vector.samples.iter().filter(|a| !is_excluded(checks, a)) {
        let standing = Standing::since(since.get(alert));
        let oldest = offenders.entry(describe_alert(alert)).or_insert(standing);
        *oldest = standing.min(*oldest);
    }
    for (text, standing) in offenders {
        findings.add(severity, standing, text);
    }
    if vector.more > 0 {
        let more = format!("{} more critical alerts that were not looked at", vector.more);
        findings.add(severity, Standing::Unknown, more);
    }
}

/// Whether an alert is ours, or excluded by its labels or its namespace.
fn is_excluded(checks: &HealthChecks, alert: &Sample) -> bool {
    // An entry without labels is refused by validation; here it excludes nothing.
    let matches = |labels: &BTreeMap<String, String>| {
        !labels.is_empty() && labels.iter().all(|(name, value)| alert.label(name) == value)
    };
    let namespace = alert.label("namespace");
    let (name, value) = OWN_ALERT;
    alert.label(name) == value
        || checks.exclude_alerts.iter().any(matches)
        || (!namespace.is_empty() && checks.exclude_namespaces.iter().any(|n| n == namespace))
}

/// Such as `critical alert KubePodCrashLooping in shop/cart-7`, or `critical alert ClusterOperatorDown (name etcd)`.
fn describe_alert(alert: &Sample) -> String {
    let label = |name| text::line(alert.label(name), MAX_TEXT);
    let place = match (alert.label("namespace"), alert.label("pod")) {
        ("", _) => String::new(),
        (_, "") => format!(" in {}", label("namespace")),
        (_, _) => format!(" in {}/{}", label("namespace"), label("pod")),
    };
    let about = ABOUT.into_iter().find(|name| !alert.label(name).is_empty());
    let about = match about.filter(|_| alert.label("pod").is_empty()) {
        Some(name) => format!(" ({name} {})", label(name)),
        None => String::new(),
    };
    format!("critical alert {}{place}{about}", label("alertname"))
}

/// Since when alerts are active, by their labels.
#[derive(Default)]
struct Since(BTreeMap<BTreeMap<String, String>, Timestamp>);

impl Since {
    fn of(vector: &Vector) -> Self {
        let times = vector.samples.iter().filter_map(|sample| {
            #[allow(clippy::cast_possible_truncation)] // Saturates, and a time beyond the calendar is none.
            let seconds = sample.value.parse::<f64>().ok()? as i64;
            Some((Self::key(sample), Timestamp::from_second(seconds).ok()?))
        });
        Self(times.collect())
    }

    fn get(&self, alert: &Sample) -> Option<Timestamp> {
        self.0.get(&Self::key(alert)).copied()
    }

    /// `ALERTS` has the labels of `ALERTS_FOR_STATE` and the state.
    fn key(sample: &Sample) -> BTreeMap<String, String> {
        let mut labels = sample.labels.clone();
        labels.retain(|name, _| name != "__name__" && name != "alertstate");
        labels
    }
}

/// Such as `2 results: {job="argocd-server"} = 0, {job="argocd-repo"} = 0`.
fn describe_samples(vector: &Vector) -> String {
    let shown: Vec<String> = vector
        .samples
        .iter()
        .take(MAX_SAMPLES)
        .map(|sample| {
            let labels: Vec<String> = sample
                .labels
                .iter()
                .take(MAX_LABELS)
                .map(|(name, value)| format!("{name}=\"{}\"", text::line(value, MAX_TEXT)))
                .collect();
            format!("{{{}}} = {}", labels.join(", "), sample.value)
        })
        .collect();
    let all = vector.samples.len() + vector.more;
    let (results, tail) = match all {
        1 => ("1 result".to_owned(), ""),
        n if n > MAX_SAMPLES => (format!("{n} results"), ", …"),
        n => (format!("{n} results"), ""),
    };
    format!("{results}: {}{tail}", shown.join(", "))
}

fn join(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}
