//! The life of a play's job: decided by the operator's own pure code, on a cluster in memory. Its workflow is elsewhere.

use std::collections::BTreeSet;

use jiff::Timestamp;
use openshift_upgrade_operator::{
    api::{
        UpgradeJob,
        upgrade_job::{EngineChoice, StepPhase, StepStatus, UpgradeJobStatus},
    },
    drain::Drains,
    engine::{Report, Run, StopRequest, Templates, embedded},
    health::answers::Answers,
    hooks::pods::HookPods,
    lifecycle::{EngineState, Input, RunState, decide},
    plan::Plan,
    schedule::Zones,
    settings::Settings,
    steps::Action,
    world::World,
};
use serde_json::{Value, json};

use crate::{
    cluster,
    plays::{Next, Play},
};

/// Most decisions before nothing changes any more.
const MOST: u32 = 200;

/// A job, its cluster and its time.
pub struct Life {
    /// What decisions are made from.
    pub world: World,
    /// The time: it moves only when the play says so.
    pub now: Timestamp,
    /// How often something has happened to it.
    pub moves: u64,
    /// Whether what is special about the play has happened.
    pub is_twisted: bool,
    /// What the cluster does as soon as it is asked for something, once.
    pub upset: Option<Upset>,
    settings: Settings,
    engine: EngineState,
}

/// What the cluster does as soon as it is asked for something: between two steps nothing else may happen.
#[derive(Clone)]
pub struct Upset {
    /// The action, as the log calls it.
    pub asked: &'static str,
    /// What becomes of the cluster.
    pub change: fn(&mut World),
}

/// What a decision asks of the workflow.
pub struct Asked {
    /// Something has changed: there is more to decide.
    pub has_changed: bool,
    /// What to do with it.
    pub actions: Vec<Action>,
    /// What it is to show.
    pub reports: Vec<(String, Report)>,
}

impl Life {
    /// A play on an engine, from the beginning.
    pub fn new(world: World, now: Timestamp, engine: EngineChoice) -> Self {
        Self {
            world,
            now,
            moves: 0,
            is_twisted: false,
            upset: None,
            settings: Settings::new("default", Zones::bundled("UTC").unwrap()),
            engine: EngineState::Ready(engine),
        }
    }

    /// The job.
    pub fn job(&self) -> &UpgradeJob {
        &self.world.jobs[0]
    }

    /// Its status.
    pub fn status(&self) -> UpgradeJobStatus {
        self.job().status.clone().unwrap_or_default()
    }

    /// What its workflow runs.
    pub fn plan(&self) -> Option<Plan> {
        let plan = self.status().plan;
        plan.map(|plan| Plan::from_value(&plan).unwrap())
    }

    /// Whether this step runs, and its text has this in it.
    pub fn is_at(&self, step: &str, said: &str) -> bool {
        let says = |s: &StepStatus| s.message.as_deref().unwrap_or_default().contains(said);
        let steps = self.status().steps;
        steps
            .iter()
            .any(|s| s.name == step && s.phase == StepPhase::Running && says(s))
    }

    /// Decides once, and does what is asked of the cluster.
    pub fn pass(&mut self, run: &RunState) -> Asked {
        let decision = decide(&Input {
            world: &self.world,
            answers: &Answers::NobodyToAsk,
            drains: &Drains::default(),
            hook_pods: &HookPods::default(),
            templates: &Templates::default(),
            job: self.job(),
            run,
            others: &[],
            engine: &self.engine,
            settings: &self.settings,
            now: self.now,
        });
        let has_changed =
            Some(&decision.status) != self.job().status.as_ref() || !decision.actions.is_empty();
        self.world.jobs[0].status = Some(decision.status);
        let mut actions = decision.actions;
        let asks = |upset: &Upset| actions.iter().any(|a| a.to_string() == upset.asked);
        let upset = self.upset.take_if(|upset| asks(upset));
        actions.retain(|action| !cluster::act(&mut self.world, action));
        if let Some(upset) = upset {
            (upset.change)(&mut self.world);
        }
        Asked {
            has_changed,
            actions,
            reports: decision.reports,
        }
    }

    /// All that the job tells, but times and which workflow it follows.
    pub fn told(&self) -> Value {
        let mut status = serde_json::to_value(self.status()).unwrap();
        for key in ["workflow", "judgedEngine", "formerWorkflows", "plan"] {
            status.as_object_mut().unwrap().remove(key);
        }
        without_times(&mut status);
        status
    }

    /// The run as the embedded engine has it; nobody but a test stops that.
    fn embedded_run(&self, stop: Option<StopRequest>) -> RunState {
        self.plan().map_or(RunState::Absent, |plan| RunState::Present {
            uid: "job".to_owned(),
            run: Box::new(Run {
                stop,
                ..embedded::observe(&plan, &self.status())
            }),
        })
    }

    fn settle(&mut self, stop: Option<StopRequest>) {
        for _ in 0..MOST {
            let run = self.embedded_run(stop);
            if !self.pass(&run).has_changed {
                return;
            }
        }
        panic!("no end of decisions: {:#}", self.told());
    }
}

/// What a job has to tell: at each point at which nothing goes on by itself, as the embedded engine has it.
pub fn story(play: &Play, name: &str) -> Vec<Value> {
    let mut life = play.begin(name, EngineChoice::Embedded);
    let (mut told, mut stop) = (Vec::new(), None);
    loop {
        life.settle(stop);
        told.push(life.told());
        match play.next(&mut life) {
            Next::Moved => {}
            Next::Stop(request) => stop = Some(request),
            Next::Nothing => {
                assert!(play.has_happened(&life), "{}: nothing special happens", play.name);
                return told;
            }
        }
    }
}

fn without_times(value: &mut Value) {
    const TIMES: [&str; 4] = ["startedAt", "finishedAt", "lastTransitionTime", "since"];
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !TIMES.contains(&key.as_str()));
            fields.values_mut().for_each(without_times);
        }
        Value::Array(all) => all.iter_mut().for_each(without_times),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is told otherwise than expected, field by field.
pub fn difference(told: &Value, expected: &Value) -> String {
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (told, expected) = (fields(told), fields(expected));
    let keys: BTreeSet<&String> = told.keys().chain(expected.keys()).collect();
    let differ = keys
        .into_iter()
        .filter(|key| told.get(*key) != expected.get(*key));
    let lines = differ.map(|key| {
        let (is, wanted) = (entries(told.get(key)), entries(expected.get(key)));
        let only = |of: &[Value], other: &[Value]| -> Vec<Value> {
            of.iter().filter(|v| !other.contains(v)).cloned().collect()
        };
        format!(
            "{key}: {}\n  not {}\n",
            json!(only(&is, &wanted)),
            json!(only(&wanted, &is))
        )
    });
    lines.collect()
}

/// Those of a list; else the value itself.
fn entries(value: Option<&Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(all)) => all.clone(),
        Some(other) => vec![other.clone()],
        None => Vec::new(),
    }
}
