//! Leads a workflow through a play, as the operator would, and compares it with the model at each step.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use openshift_upgrade_operator::{
    api::job_config::WorkflowConfig,
    engine::{
        Engine, NodePhase, Place, Report, Run, RunContext, StopRequest, Workflow, Write, native::NO_TEMPLATES,
    },
    plan::Part,
};
use serde_json::json;

use crate::{
    model::{Model, NOT_FINISHED},
    plays::{self, Play, Stop},
};

const NAMESPACE: &str = "default";
/// So long an engine may take for one step. It takes a second or two; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// So long a run that was stopped may take to end by itself.
const FORGOTTEN: Duration = Duration::from_secs(20);
/// So often it is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// A client of the cluster that the environment names.
pub async fn client() -> Client {
    // An error says that another test has installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::try_default().await.expect("a cluster")
}

/// A workflow on the cluster.
struct Live<'a> {
    client: &'a Client,
    engine: &'static dyn Engine,
    play: &'a Play,
    name: String,
}

/// Plays it; an error says what went otherwise.
pub async fn play(client: &Client, engine: &'static dyn Engine, play: Play) -> Result<(), String> {
    let live = Live::create(client, engine, &play).await;
    let mut model = Model::new(&play.plan);
    if let Some(stop) = live.lead(&mut model).await? {
        return live.stopped(&model, stop).await;
    }
    let failed = model.has_failed();
    live.exit(model.exit(failed)).await?;
    let run = live.wait("ended", |run| run.finished).await?;
    let succeeded = ["Succeeded", "Completed"].contains(&run.phase.as_str());
    if succeeded == failed || run.stop.is_some() || run.unsupported.is_some() {
        return Err(format!("a failure? {failed}; it ended so: {run:#?}"));
    }
    let (expected, shown) = (model.ends(), live.ends(&run));
    if shown != expected {
        return Err(format!("it shows\n{shown:#?}\nnot\n{expected:#?}"));
    }
    Ok(())
}

impl<'a> Live<'a> {
    async fn create(client: &'a Client, engine: &'static dyn Engine, play: &'a Play) -> Self {
        // Without UID, so nothing owns the workflow.
        let job = plays::job(&play.name, &json!({}));
        let name = format!("{}-{}", play.name, Timestamp::now().as_millisecond());
        let context = RunContext {
            job: &job,
            name: name.clone(),
            config: WorkflowConfig::default(),
            template: None,
            default_service_account: None,
            active_deadline_seconds: 3_600,
            hooks: &[],
            templates: &NO_TEMPLATES,
        };
        let object = engine.render(&play.plan, &context).expect("a plan that renders");
        let live = Self {
            client,
            engine,
            play,
            name,
        };
        live.api(&engine.resource())
            .create(&PostParams::default(), &object)
            .await
            .expect("the API server takes it");
        live
    }

    fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, kind)
    }

    async fn read(&self) -> Workflow {
        let object = self
            .api(&self.engine.resource())
            .get(&self.name)
            .await
            .expect("the workflow");
        let (Some(kind), Some(label)) = (self.engine.step_resource(), self.engine.step_label()) else {
            return object.into();
        };
        let list = ListParams::default().labels(&format!("{label}={}", self.name));
        let steps = self.api(&kind).list(&list).await.expect("its steps").items;
        Workflow { object, steps }
    }

    async fn observe(&self) -> Run {
        self.engine.observe(&self.read().await, &self.play.plan)
    }

    /// Waits until a run looks as wanted.
    async fn wait(&self, what: &str, wanted: impl Fn(&Run) -> bool) -> Result<Run, String> {
        let begun = tokio::time::Instant::now();
        loop {
            let run = self.observe().await;
            if wanted(&run) {
                return Ok(run);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("not {what} after {PATIENCE:?}: {run:#?}"));
            }
            // As the operator does with a run that was stopped and does not end.
            if run.stop.is_some() && run.woken_at.is_none() && begun.elapsed() > FORGOTTEN {
                let write = self.engine.wake(&self.read().await, Timestamp::now());
                if let Some(write) = write {
                    // One that somebody else was quicker than is not needed.
                    self.write(&write).await?;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Steps of a part that wait for the operator.
    fn waiting(&self, run: &Run, part: Part) -> BTreeSet<String> {
        let of_part = |name: &str| self.play.plan.step(name).is_some_and(|s| s.part == part);
        let running = run.nodes.iter().filter(|n| n.phase == NodePhase::Running);
        let waiting = running.filter(|n| of_part(&n.step));
        waiting.map(|n| n.step.clone()).collect()
    }

    /// The main part; ends with the stop of a person, if there is one.
    async fn lead(&self, model: &mut Model<'_>) -> Result<Option<&'a Stop>, String> {
        while let Some(step) = model.next(self.play) {
            let expected: BTreeSet<String> = model.waiting().into_iter().collect();
            let what = format!("waiting at {expected:?}");
            self.wait(&what, |run| self.waiting(run, Part::Main) == expected)
                .await?;
            if let Some(stop) = self.play.stop.as_ref().filter(|s| expected.contains(&s.at)) {
                return Ok(Some(stop));
            }
            self.message(&step).await?;
            model.end(&step, self.play.verdict(&step));
            let (phase, text) = model.ends().remove(&step).expect("it has just ended");
            let report = if phase == NodePhase::Succeeded {
                Report::Succeeded(text)
            } else {
                Report::Failed(text)
            };
            self.report(&step, &report).await?;
        }
        Ok(None)
    }

    /// A live text is shown, and changes nothing else.
    async fn message(&self, step: &str) -> Result<(), String> {
        let text = format!("{step}: 62% done, waiting on etcd");
        self.report(step, &Report::Message(text.clone())).await?;
        let run = self.observe().await;
        let node = run.nodes.iter().find(|n| n.step == step);
        let shown = node.and_then(|n| n.message.clone());
        if shown.as_ref() != Some(&text) || node.is_none_or(|n| n.phase != NodePhase::Running) {
            return Err(format!("{step} shows {node:?}, not {text:?}"));
        }
        Ok(())
    }

    /// Reports until the API server takes it; a conflict is a re-read.
    async fn report(&self, step: &str, report: &Report) -> Result<(), String> {
        let reports = [(step.to_owned(), report.clone())];
        for _ in 0..50 {
            let workflow = self.read().await;
            let now = Timestamp::now();
            let writes = self.engine.report(&workflow, &self.play.plan, &reports, now);
            let [write] = writes.as_slice() else {
                return Err(format!("{report:?} of {step} makes {writes:?}"));
            };
            if self.write(write).await? {
                return Ok(());
            }
        }
        Err("50 conflicts in a row".to_owned())
    }

    /// Whether it went through; false is a conflict.
    async fn write(&self, write: &Write) -> Result<bool, String> {
        let api = self.api(&write.resource);
        let (params, patch) = (PatchParams::default(), Patch::Merge(&write.patch));
        let result = match write.place {
            Place::Object => api.patch(&write.name, &params, &patch).await,
            Place::Status => api.patch_status(&write.name, &params, &patch).await,
        };
        match result {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(e)) if e.code == 409 => Ok(false),
            Err(other) => Err(other.to_string()),
        }
    }

    /// The exit part: the operator ends its steps in their order, also where the engine begins all at once.
    async fn exit(&self, reached: Vec<String>) -> Result<(), String> {
        for step in reached {
            let what = format!("waiting at {step}");
            self.wait(&what, |run| self.waiting(run, Part::Exit).contains(&step))
                .await?;
            self.report(&step, &Report::Succeeded(format!("{step} is done")))
                .await?;
        }
        Ok(())
    }

    fn ends(&self, run: &Run) -> BTreeMap<String, (NodePhase, String)> {
        let is_main = |name: &str| self.play.plan.step(name).is_some_and(|s| s.part == Part::Main);
        let ended = |p: NodePhase| p == NodePhase::Succeeded || p == NodePhase::Failed;
        let nodes = run.nodes.iter().filter(|n| is_main(&n.step) && ended(n.phase));
        nodes
            .map(|n| (n.step.clone(), (n.phase, n.message.clone().unwrap_or_default())))
            .collect()
    }

    /// A person stops it: what runs is ended as the operator does, and the exit part runs, or does not.
    async fn stopped(&self, model: &Model<'_>, stop: &Stop) -> Result<(), String> {
        let expected = if stop.hard {
            StopRequest::Terminate
        } else {
            StopRequest::Stop
        };
        self.stop(stop).await?;
        let run = self.wait("stopped", |run| run.stop.is_some()).await?;
        if run.stop != Some(expected) {
            return Err(format!("shows {:?}, not {expected:?}", run.stop));
        }
        // An engine may be quicker to end them, so not every report finds a step that waits.
        for step in self.waiting(&run, Part::Main) {
            self.end_if_it_waits(&step).await?;
        }
        if !stop.hard {
            self.exit(model.exit(true)).await?;
        }
        let run = self
            .wait("ended", |run| {
                run.finished && self.waiting(run, Part::Main).is_empty()
            })
            .await?;
        if ["Succeeded", "Completed"].contains(&run.phase.as_str()) {
            return Err(format!("it ended so: {run:#?}"));
        }
        Ok(())
    }

    async fn stop(&self, stop: &Stop) -> Result<(), String> {
        for _ in 0..50 {
            let workflow = self.read().await;
            let write = if stop.hard {
                self.engine.stop(&workflow)
            } else {
                self.engine.end_main_part(&workflow)
            };
            if self.write(&write.expect("a workflow that runs")).await? {
                return Ok(());
            }
        }
        Err("50 conflicts in a row".to_owned())
    }

    async fn end_if_it_waits(&self, step: &str) -> Result<(), String> {
        let reports = [(step.to_owned(), Report::Failed(NOT_FINISHED.to_owned()))];
        loop {
            let workflow = self.read().await;
            let writes = self
                .engine
                .report(&workflow, &self.play.plan, &reports, Timestamp::now());
            let Some(write) = writes.first() else {
                return Ok(());
            };
            if self.write(write).await? {
                return Ok(());
            }
        }
    }
}
