//! What a scenario means in a simulation that begins at a certain time, with a certain seed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{
    Scenario,
    controls::Controls,
    events::{Action, Alert, AlertState, Event, Fault, QueryAnswer, Reference, Restart, What},
    hook_jobs::Outcome,
    stranded::Stranded,
    train::Train,
};
use crate::simulator::{
    batch::{self, End},
    openshift::{
        self, Patience, Settings,
        durations::Range,
        initial::{self, Initial},
    },
    prometheus::{self, Prometheus},
};

/// What a scenario means between two instants.
#[derive(Clone, Debug)]
pub struct Timeline {
    scenario: Scenario,
    start: Timestamp,
    end: Timestamp,
    seed: u64,
    train: Option<Train>,
    /// The events that last, in the order of their beginning.
    spans: Vec<Span>,
    /// What happens, in order.
    due: Vec<Due>,
}

/// When an event begins and ends.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Index of the event.
    event: usize,
    begin: Timestamp,
    end: Option<Timestamp>,
}

impl Span {
    fn is_active(self, now: Timestamp) -> bool {
        self.begin <= now && self.end.is_none_or(|end| now < end)
    }
}

/// Why a scenario has no meaning in this simulation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimelineError {
    /// One of the two times is absolute, the other counted from the start.
    #[error(
        "events[{event}] of the scenario ends at {end}, which is not after {begin}, when it begins in a simulation that starts at {start}; write both times absolute, or both with +"
    )]
    EndsBeforeItBegins {
        /// Which, counted from 0.
        event: usize,
        /// Its beginning.
        begin: Timestamp,
        /// Its end.
        end: Timestamp,
        /// The start of the simulation.
        start: Timestamp,
    },
}

/// Something to be done by who simulates.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// When.
    pub at: Timestamp,
    /// What.
    pub happening: Happening,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// The faults or the offered releases change: write [`Timeline::controls`] of that time into the ConfigMap, past an API
    /// server that is away.
    Controls,
    /// The API server answers nothing until then.
    ApiServerAway(Timestamp),
    /// Alerts or answers to queries change. Nothing needs to be done: [`Timeline::prometheus`] is asked for each query.
    Prometheus,
    /// Create this object, or merge it into the existing one.
    Apply(Box<DynamicObject>),
    /// Change this object by a JSON merge patch.
    Patch(Reference, Value),
    /// Delete this object.
    Delete(Reference),
    /// Put this pod on its node, with its budget, if it is not there.
    Strand(Stranded),
    /// Delete this pod and its budget, if they are there.
    Free(Stranded),
    /// Stop our operator and start it again.
    RestartOperator(Restart),
}

impl Timeline {
    /// The meaning of a scenario from `start` to `end`.
    pub fn new(
        scenario: Scenario,
        start: Timestamp,
        end: Timestamp,
        seed: u64,
    ) -> Result<Self, TimelineError> {
        let train = scenario.updates.is_automatic().then(|| Train {
            seed,
            start,
            installed: scenario.cluster.version.clone(),
            every: scenario.updates.every.0,
            minor_every: scenario.updates.minor_every.0,
        });
        let mut timeline = Self {
            spans: spans(&scenario, start)?,
            scenario,
            start,
            end,
            seed,
            train,
            due: Vec::new(),
        };
        timeline.due = timeline.all_due();
        Ok(timeline)
    }

    /// The cluster at the start, for [`initial::ensure`].
    pub fn initial(&self, with_infrastructure: bool) -> Initial {
        let cluster = &self.scenario.cluster;
        let pools = cluster.pools().into_iter().map(|p| initial::Pool {
            name: p.name.to_string(),
            machines: p.machines,
            max_unavailable: p.max_unavailable,
            labels: p.labels,
            node_labels: p.node_labels,
            paused: p.paused,
        });
        Initial {
            from_version: cluster.version.to_string(),
            channel: Some(cluster.channel()),
            controls: self.controls(self.start),
            pools: pools.collect(),
            operators: cluster.operators(),
            topology: with_infrastructure.then(|| cluster.topology.as_str().to_owned()),
        }
    }

    /// How long things take, for [`openshift::next`]. Nodes send no heartbeats: in simulated time that is a lot of writes
    /// which nobody reads.
    pub fn settings(&self) -> Settings {
        let durations = &self.scenario.durations;
        let pools = self.scenario.cluster.pools().into_iter();
        let node_of_pool: BTreeMap<String, Range> = pools
            .filter_map(|p| Some((p.name.to_string(), p.node_update?.0)))
            .collect();
        Settings {
            seed: self.seed,
            retrieve: durations.retrieve.0,
            control_plane: durations.control_plane.0,
            node: durations.node.0,
            node_of_pool,
            evict_retry: durations.evict_retry.0,
            pod_stop: durations.pod_stop.0,
            heartbeat: None,
            api_server_away: self.scenario.api_server_away_during_update.0,
            patience: Some(Patience {
                drain: durations.drain_timeout.0,
                operator: durations.slow_operator.0,
                machine_config: durations.slow_machine_config.0,
                degraded: durations.failing_after.0,
            }),
        }
    }

    /// The data of the ConfigMap that [`openshift::next`] reads faults and offers from, at this instant.
    pub fn controls(&self, now: Timestamp) -> BTreeMap<String, String> {
        let mut controls = Controls::default();
        let updates = &self.scenario.updates;
        for release in &updates.releases {
            controls.release(release, self.start, now);
        }
        if let Some(train) = &self.train {
            controls.set("always-an-update", "true");
            let listed = |v: &semver::Version| updates.releases.iter().any(|r| r.version == *v);
            for version in train.releases(now).iter().filter(|v| !listed(v)) {
                controls.plain_release(version);
            }
        }
        for gate in &updates.admin_gates {
            controls.gate(gate);
        }
        for fault in self.faults(now) {
            controls.fault(fault);
        }
        controls.into_data()
    }

    /// What happens after `after` and not after `until`, in order. Begin with [`Timestamp::MIN`] to get what happens at the
    /// start too; nothing is due before the start or after the end.
    pub fn due(&self, after: Timestamp, until: Timestamp) -> &[Due] {
        let from = self.due.partition_point(|due| due.at <= after);
        let to = self.due.partition_point(|due| due.at <= until);
        self.due.get(from..to).unwrap_or_default()
    }

    /// When something happens next, after `after`.
    pub fn next_due(&self, after: Timestamp) -> Option<Timestamp> {
        let from = self.due.partition_point(|due| due.at <= after);
        self.due.get(from).map(|due| due.at)
    }

    /// What of the scenario never happens, for people.
    pub fn warnings(&self) -> Vec<String> {
        let events = self.scenario.events.iter().enumerate();
        let outside = events.filter_map(|(index, event)| {
            let at = event.at.on(self.start);
            let what = event.what()?;
            let when = if at > self.end {
                "after the end"
            } else if at < self.start && !what.lasts() {
                "before the start"
            } else {
                return None;
            };
            Some(format!(
                "events[{index}] of the scenario is at {at}, {when} of the simulation: it never happens"
            ))
        });
        outside.collect()
    }

    /// The Prometheus of the cluster at this instant.
    pub fn prometheus(&self, now: Timestamp) -> Prometheus {
        let mut prometheus = Prometheus::default();
        for (query, result) in &self.scenario.queries {
            let answer = prometheus::Answer {
                result: result.clone(),
                ..prometheus::Answer::default()
            };
            prometheus.answers.insert(prometheus::normalized(query), answer);
        }
        for (event, _) in self.lasting().filter(|(_, span)| span.is_active(now)) {
            match event.what() {
                Some(What::Alert(alert)) => prometheus.alerts.push(labelled(alert)),
                Some(What::Query(answer)) => {
                    let query = prometheus::normalized(&answer.query);
                    prometheus.answers.insert(query, fixed(answer));
                }
                Some(What::Fault(Fault::PrometheusAway(_))) => prometheus.is_away = true,
                Some(What::Fault(_) | What::Clear(_) | What::Do(_)) | None => {}
            }
        }
        prometheus
    }

    /// Until when the API server does not answer because of an event. It can also be away because of the upgrade:
    /// [`openshift::Step::api_server_back_at`].
    pub fn api_server_away(&self, now: Timestamp) -> Option<Timestamp> {
        let away = self.lasting().filter(|(event, span)| {
            matches!(event.what(), Some(What::Fault(Fault::ApiServerAway(_)))) && span.is_active(now)
        });
        away.map(|(_, span)| span.end.unwrap_or(self.end)).max()
    }

    /// How a Job of this hook goes that starts `now`; `job` is its name, so that each one takes a time of its own.
    pub fn hook_job(&self, hook: &str, job: &str, now: Timestamp) -> batch::Outcome {
        let mut rules = self.scenario.hook_jobs.iter();
        match rules.find(|rule| rule.is_for(hook, self.start, now)) {
            Some(rule) => batch::Outcome {
                runs: rule.duration.0.draw(self.seed, &["hook job", hook, job]),
                end: match rule.outcome {
                    Outcome::Succeeds => End::Complete,
                    Outcome::Fails => End::Failed,
                    Outcome::Hangs => End::Never,
                },
            },
            None => batch::Outcome {
                runs: SignedDuration::from_secs(30),
                end: End::Complete,
            },
        }
    }

    fn lasting(&self) -> impl Iterator<Item = (&Event, Span)> {
        let event = |index: usize| self.scenario.events.get(index);
        self.spans
            .iter()
            .filter_map(move |span| Some((event(span.event)?, *span)))
    }

    fn faults(&self, now: Timestamp) -> impl Iterator<Item = &Fault> {
        let active = self.lasting().filter(move |(_, span)| span.is_active(now));
        active.filter_map(|(event, _)| event.fault.as_ref())
    }

    fn all_due(&self) -> Vec<Due> {
        let mut all: Vec<Due> = Vec::new();
        for (event, span) in self.lasting() {
            all.extend(self.due_of(event, span));
        }
        for event in &self.scenario.events {
            if let Some(What::Do(action)) = event.what() {
                let at = event.at.on(self.start);
                all.extend(happening(action).map(|happening| Due { at, happening }));
            }
        }
        let changes = self.changes_of_releases().into_iter();
        all.extend(changes.map(|at| Due {
            at,
            happening: Happening::Controls,
        }));
        all.retain(|due| due.at >= self.start && due.at <= self.end);
        // Stable: at one instant, the order of the file.
        all.sort_by_key(|due| due.at);
        all.dedup();
        all
    }

    /// The beginning and the end of an event that lasts; what began before the start is there at the start.
    fn due_of(&self, event: &Event, span: Span) -> Vec<Due> {
        if span.end.is_some_and(|end| end <= self.start) {
            return Vec::new();
        }
        let begin = span.begin.max(self.start);
        let both = |happening: &Happening| {
            let instants = std::iter::once(begin).chain(span.end);
            instants
                .map(|at| Due {
                    at,
                    happening: happening.clone(),
                })
                .collect()
        };
        match event.what() {
            Some(What::Fault(Fault::ApiServerAway(_))) => vec![Due {
                at: begin,
                happening: Happening::ApiServerAway(span.end.unwrap_or(self.end)),
            }],
            Some(What::Fault(Fault::PrometheusAway(_)) | What::Alert(_) | What::Query(_)) => {
                both(&Happening::Prometheus)
            }
            Some(What::Fault(Fault::StuckDrain(fault))) => {
                let pod = Stranded::from(fault);
                let end = span.end.map(|at| (at, Happening::Free(pod.clone())));
                let pods = std::iter::once((begin, Happening::Strand(pod))).chain(end);
                let pods = pods.map(|(at, happening)| Due { at, happening });
                both(&Happening::Controls).into_iter().chain(pods).collect()
            }
            Some(What::Fault(_)) => both(&Happening::Controls),
            Some(What::Clear(_) | What::Do(_)) | None => Vec::new(),
        }
    }

    /// When the list of releases in the controls changes; those that say themselves since when they are there do not count.
    fn changes_of_releases(&self) -> Vec<Timestamp> {
        let risks = self.scenario.updates.releases.iter().flat_map(|r| &r.risks);
        let moments = risks.flat_map(|r| [r.from, r.until]).flatten();
        let mut all: Vec<Timestamp> = moments.map(|m| m.on(self.start)).collect();
        all.extend(self.train.iter().flat_map(|train| train.changes(self.end)));
        all
    }
}

/// When the events that last begin and end.
fn spans(scenario: &Scenario, start: Timestamp) -> Result<Vec<Span>, TimelineError> {
    let mut spans = Vec::new();
    for (index, event) in scenario.events.iter().enumerate() {
        if !event.what().is_some_and(What::lasts) {
            continue;
        }
        let begin = event.at.on(start);
        let told = told_end(event, begin, start);
        if let Some(end) = told.filter(|end| *end <= begin) {
            return Err(TimelineError::EndsBeforeItBegins {
                event: index,
                begin,
                end,
                start,
            });
        }
        let clears = |e: &&Event| e.clear.is_some() && e.clear == event.name;
        let cleared = scenario.events.iter().filter(clears).map(|e| e.at.on(start));
        let cleared = cleared.filter(|at| *at > begin);
        spans.push(Span {
            event: index,
            begin,
            end: told.into_iter().chain(cleared).min(),
        });
    }
    spans.sort_by_key(|span| (span.begin, span.event));
    Ok(spans)
}

fn told_end(event: &Event, begin: Timestamp, start: Timestamp) -> Option<Timestamp> {
    let lasts = event
        .lasts
        .map(|d| begin.checked_add(d.0).unwrap_or(Timestamp::MAX));
    event.until.map(|m| m.on(start)).or(lasts)
}

/// What an action means; `None` for an object that is none, which a checked scenario does not have.
fn happening(action: &Action) -> Option<Happening> {
    let apply = |value: Value| Some(Happening::Apply(serde_json::from_value(value).ok()?));
    match action {
        Action::Apply(value) => apply(value.clone()),
        Action::Patch(p) => {
            let object = Reference {
                api_version: p.api_version.clone(),
                kind: p.kind.clone(),
                namespace: p.namespace.clone(),
                name: p.name.clone(),
            };
            Some(Happening::Patch(object, p.merge.clone()))
        }
        Action::Delete(object) => Some(Happening::Delete(object.clone())),
        Action::Acknowledge(gate) => {
            let data = BTreeMap::from([(gate.as_str(), "true")]);
            apply(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": openshift::ADMIN_ACKS, "namespace": openshift::CONFIG_NAMESPACE},
                "data": data,
            }))
        }
        Action::RestartOperator(restart) => Some(Happening::RestartOperator(*restart)),
    }
}

fn labelled(alert: &Alert) -> prometheus::Alert {
    let state = match alert.state {
        AlertState::Firing => "firing",
        AlertState::Pending => "pending",
    };
    let own = [
        ("alertname", alert.alertname.as_str()),
        ("severity", &alert.severity),
        ("alertstate", state),
    ];
    let mut labels = alert.labels.clone();
    labels.extend(own.map(|(k, v)| (k.to_owned(), v.to_owned())));
    prometheus::Alert { labels }
}

fn fixed(answer: &QueryAnswer) -> prometheus::Answer {
    prometheus::Answer {
        result: answer.result.clone(),
        warnings: answer.warnings.clone(),
        error: answer.error.clone(),
    }
}
