//! What a schema cannot say of a scenario.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::DynamicObject;
use serde_json::Value;

use super::{
    Scenario,
    cluster::{Cluster, Topology},
    events::{Action, Event, Fault, What},
    locate::Path,
    updates::Updates,
    values::Moment,
};
use crate::simulator::openshift::faults;

/// Most nodes of a pool. More is a slip of the pen, and would take for ever.
const MAX_MACHINES: u32 = 5000;

/// Something wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) path: Path,
    problem: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

/// Everything that is wrong.
pub(super) fn problems(scenario: &Scenario) -> Vec<Found> {
    let root = Path::default();
    let mut check = Check::default();
    check.cluster(&scenario.cluster, &root.field("cluster"));
    check.updates(&scenario.updates, &root.field("updates"));
    for (index, rule) in scenario.hook_jobs.iter().enumerate() {
        let path = root.field("hookJobs").item(index);
        if rule.hook.is_empty() {
            check.add(
                &path.field("hook"),
                "is empty; name an UpgradeJobHook, or write \"*\" for all",
            );
        }
        check.order(rule.from, rule.until, &path);
    }
    check.events(scenario, &root.field("events"));
    check.found
}

#[derive(Default)]
struct Check {
    found: Vec<Found>,
}

impl Check {
    fn add(&mut self, path: &Path, problem: impl Into<String>) {
        self.found.push(Found {
            path: path.clone(),
            problem: problem.into(),
        });
    }

    /// Reports names that come twice.
    fn unique<'a>(&mut self, names: impl Iterator<Item = (Path, &'a str)>) {
        let mut seen = BTreeSet::new();
        for (path, name) in names {
            if !seen.insert(name) {
                self.add(&path, format!("{name} is there twice"));
            }
        }
    }

    fn order(&mut self, from: Option<Moment>, until: Option<Moment>, path: &Path) {
        if let (Some(from), Some(until)) = (from, until)
            && from.is_before(until) == Some(false)
        {
            let problem = format!("{until} is not after {from}, when it begins");
            self.add(&path.field("until"), problem);
        }
    }

    fn cluster(&mut self, cluster: &Cluster, path: &Path) {
        let operators = path.field("operators");
        let names = cluster.operators.iter().enumerate();
        self.unique(names.map(|(i, name)| (operators.item(i), name.as_str())));
        let Some(pools) = &cluster.pools else { return };
        let path = path.field("pools");
        self.unique(
            pools
                .iter()
                .enumerate()
                .map(|(i, p)| (path.item(i).field("name"), p.name.as_str())),
        );
        for (index, pool) in pools.iter().enumerate() {
            let path = path.item(index);
            if pool.machines > MAX_MACHINES {
                self.add(&path.field("machines"), format!("is more than {MAX_MACHINES}"));
            }
            if !pool.max_unavailable.as_ref().is_none_or(is_max_unavailable) {
                let problem = "is neither a number from 1 nor a percentage such as \"10%\"";
                self.add(&path.field("maxUnavailable"), problem);
            }
        }
        let masters = pools.iter().find(|p| p.name.as_str() == "master");
        let masters = masters.map_or(0, |p| p.machines);
        let problem = match cluster.topology {
            Topology::HighlyAvailable if masters == 0 => {
                "there is no pool master with machines; the control plane needs them"
            }
            Topology::SingleReplica if masters != 1 => {
                "topology SingleReplica has exactly one machine in pool master"
            }
            Topology::HighlyAvailable | Topology::SingleReplica | Topology::External => return,
        };
        self.add(&path, problem);
    }

    fn updates(&mut self, updates: &Updates, path: &Path) {
        for (name, length) in [("every", updates.every), ("minorEvery", updates.minor_every)] {
            if length.0 < jiff::SignedDuration::from_hours(1) {
                self.add(&path.field(name), "must be an hour at least");
            }
        }
        let mut seen = BTreeSet::new();
        for (index, release) in updates.releases.iter().enumerate() {
            let path = path.field("releases").item(index);
            if !seen.insert(&release.version) {
                let problem = format!("{} is there twice", release.version);
                self.add(&path.field("version"), problem);
            }
            self.order(release.from, release.until, &path);
            for (index, risk) in release.risks.iter().enumerate() {
                let path = path.field("risks").item(index);
                let name = risk.name.as_str();
                let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                if !is_name {
                    let problem = format!(
                        "{name:?} is no name of a risk; use letters, digits and _, beginning with a letter"
                    );
                    self.add(&path.field("name"), problem);
                }
                self.order(risk.from, risk.until, &path);
            }
        }
        let gates = path.field("adminGates");
        for (index, gate) in updates.admin_gates.iter().enumerate() {
            if let Err(problem) = faults::gated_minor(gate.key.as_str()) {
                self.add(&gates.item(index).field("key"), problem);
            }
        }
    }

    fn events(&mut self, scenario: &Scenario, path: &Path) {
        let named = scenario.events.iter().enumerate();
        let named = named.filter_map(|(i, e)| Some((path.item(i).field("name"), e.name.as_ref()?.as_str())));
        self.unique(named);
        for (index, event) in scenario.events.iter().enumerate() {
            let path = path.item(index);
            match event.all().as_slice() {
                [what] => self.event(scenario, event, *what, &path),
                [] => self.add(
                    &path,
                    "says nothing; write one of fault, alert, query, clear and do",
                ),
                _ => self.add(
                    &path,
                    "says more than one of fault, alert, query, clear and do; make it several events",
                ),
            }
        }
    }

    fn event(&mut self, scenario: &Scenario, event: &Event, what: What<'_>, path: &Path) {
        if event.until.is_some() && event.lasts.is_some() {
            self.add(&path.field("for"), "is there besides until; write one of them");
        }
        if !what.lasts() {
            let fields = [
                ("until", event.until.is_some()),
                ("for", event.lasts.is_some()),
                ("name", event.name.is_some()),
            ];
            for (field, _) in fields.iter().filter(|(_, is_set)| *is_set) {
                let problem = "is only for fault, alert and query, which last; this is done once";
                self.add(&path.field(field), problem);
            }
        }
        self.order(Some(event.at), event.until, path);
        match what {
            What::Fault(fault) => self.fault(scenario, event, fault, &path.field("fault")),
            What::Query(answer) if answer.query.trim().is_empty() => {
                self.add(&path.field("query").field("query"), "is empty");
            }
            What::Clear(name) => {
                let found = scenario.events.iter().find(|e| e.name.as_ref() == Some(name));
                if found.is_none() {
                    let problem = format!("there is no event with name {name}");
                    self.add(&path.field("clear"), problem);
                } else if found.is_some_and(|e| e.at.is_before(event.at) == Some(false)) {
                    let problem = format!("{name} begins only then, or later");
                    self.add(&path.field("clear"), problem);
                }
            }
            What::Do(Action::Apply(object)) => self.object(object, &path.field("do").field("apply")),
            What::Alert(_) | What::Query(_) | What::Do(_) => {}
        }
    }

    fn object(&mut self, object: &Value, path: &Path) {
        for (pointer, field) in [
            ("/apiVersion", path.field("apiVersion")),
            ("/kind", path.field("kind")),
            ("/metadata/name", path.field("metadata").field("name")),
        ] {
            let text = object.pointer(pointer).and_then(Value::as_str);
            if text.is_none_or(str::is_empty) {
                self.add(
                    &field,
                    "is missing; an object has apiVersion, kind and metadata.name",
                );
                return;
            }
        }
        if let Err(error) = serde_json::from_value::<DynamicObject>(object.clone()) {
            self.add(path, format!("is no object: {error}"));
        }
    }

    fn fault(&mut self, scenario: &Scenario, event: &Event, fault: &Fault, path: &Path) {
        match fault {
            Fault::SlowOperator(f) => {
                self.operator(scenario, f.operator.as_str(), &path.field("slowOperator"));
            }
            Fault::StuckOperator(f) => {
                self.operator(scenario, f.operator.as_str(), &path.field("stuckOperator"));
            }
            Fault::DegradedOperator(f) => {
                self.operator(scenario, f.operator.as_str(), &path.field("degradedOperator"));
            }
            Fault::UnavailableOperator(f) => {
                self.operator(scenario, f.operator.as_str(), &path.field("unavailableOperator"));
            }
            Fault::StalledAt(f) if f.percent > 99 => {
                self.add(
                    &path.field("stalledAt").field("percent"),
                    "is not a percentage from 0 to 99",
                );
            }
            Fault::Failing(f) if f.flapping.is_some_and(|p| !p.0.is_positive()) => {
                self.add(
                    &path.field("failing").field("flapping"),
                    "must be longer than nothing",
                );
            }
            Fault::DegradedPool(f) => {
                let pools = scenario.cluster.pools();
                if !pools.iter().any(|p| p.name == f.pool) {
                    let names: Vec<_> = pools.iter().map(|p| p.name.as_str()).collect();
                    let problem = format!(
                        "there is no pool {}; cluster.pools has {}",
                        f.pool,
                        names.join(", ")
                    );
                    self.add(&path.field("degradedPool").field("pool"), problem);
                }
            }
            Fault::DegradedNode(f) => self.node(scenario, f.node.as_str(), &path.field("degradedNode")),
            Fault::NotReadyNode(f) => self.node(scenario, f.node.as_str(), &path.field("notReadyNode")),
            Fault::LostNode(f) => self.node(scenario, f.node.as_str(), &path.field("lostNode")),
            Fault::StuckDrain(f) => self.node(scenario, f.node.as_str(), &path.field("stuckDrain")),
            Fault::ApiServerAway(_) => {
                let is_cleared = event.name.as_ref().is_some_and(|name| {
                    let clears = |e: &Event| e.clear.as_ref() == Some(name);
                    scenario.events.iter().any(clears)
                });
                if event.until.is_none() && event.lasts.is_none() && !is_cleared {
                    let problem =
                        "has no end; without an API server nothing happens any more: write for or until";
                    self.add(&path.field("apiServerAway"), problem);
                }
            }
            Fault::ReleaseRejected(_)
            | Fault::StalledAt(_)
            | Fault::Failing(_)
            | Fault::UpdateServiceAway(_)
            | Fault::NotUpgradeable(_)
            | Fault::PrometheusAway(_) => {}
        }
    }

    fn operator(&mut self, scenario: &Scenario, name: &str, path: &Path) {
        let all = scenario.cluster.operators();
        if !all.iter().any(|o| o == name) {
            let problem = format!(
                "there is no operator {name}; cluster.operators has {}",
                all.join(", ")
            );
            self.add(&path.field("operator"), problem);
        }
    }

    fn node(&mut self, scenario: &Scenario, name: &str, path: &Path) {
        let exists = scenario.cluster.pools().iter().any(|pool| {
            let number = name
                .strip_prefix(pool.name.as_str())
                .and_then(|rest| rest.strip_prefix('-'));
            let number = number
                .filter(|n| *n == "0" || !n.starts_with('0'))
                .and_then(|n| n.parse::<u32>().ok());
            number.is_some_and(|n| n < pool.machines)
        });
        if !exists {
            let problem = format!(
                "there is no node {name}; nodes are named <pool>-0 and so on, up to the machines of the pool"
            );
            self.add(&path.field("node"), problem);
        }
    }
}

fn is_max_unavailable(value: &IntOrString) -> bool {
    match value {
        IntOrString::Int(n) => *n > 0,
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|n| n.parse::<u32>().ok());
            percent.is_some_and(|n| (1..=100).contains(&n))
        }
    }
}
