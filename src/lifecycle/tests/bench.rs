//! A bench for the life of a job: decisions are carried out on a world in memory, and a stand-in engine follows the plan.

use serde_json::json;

use super::fixtures::{NEW, at, image, object, settings, world};
use crate::{
    api::{
        UpgradeJob, annotations,
        conditions::{self},
        finalizers,
        upgrade_job::{EngineChoice, JobPhase, PauseReason},
    },
    drain::Drains,
    engine::{
        Engine, Native, Node, NodePhase, Repeat, Report, Run, StopRequest, Templates,
        argo::Argo,
        embedded,
        native::{Lookup, NativeRun},
    },
    health::answers::Answers,
    hooks::{
        hook_run::{RunKind, RunName},
        pods::{HookPod, HookPods, Look, PodOwner, Unread},
        task_run,
        tracker::NextTry,
    },
    lifecycle::{Decision, EngineState, Input, OtherState, OtherWorkflow, RunState, decide},
    plan::{Part, Plan, StepAction, When},
    pools,
    settings::Settings,
    steps::Action,
    world::World,
};

/// When an ended workflow was sealed.
pub const SEALED_AT: &str = "2026-11-24T21:03:00Z";

/// What happens to one job; everything it asks for is done at once.
pub struct Bench {
    pub world: World,
    pub answers: Answers,
    pub drains: Drains,
    /// The pods of what runs hooks, or why they cannot be read.
    pub pods: Result<Vec<(PodOwner, HookPod)>, Unread>,
    /// What was seen of them.
    pub hook_pods: HookPods,
    /// How often they were looked at.
    pub looks_at_pods: usize,
    /// The WorkflowTemplates that there are.
    pub templates: Templates,
    pub name: String,
    pub now: i64,
    pub settings: Settings,
    pub engine: EngineState,
    /// The stand-in for the engine's workflow.
    pub workflow: Option<(String, Run)>,
    /// What was last seen of one that was deleted.
    pub gone: Option<Run>,
    /// The engine does nothing, though its objects can be read and written.
    pub is_engine_away: bool,
    /// Other workflows of the job.
    pub others: Vec<OtherWorkflow>,
    /// The engine of all workflows.
    begun_on: EngineChoice,
    /// Every action that was carried out.
    pub acted: Vec<Action>,
    pub reasons: Vec<String>,
    /// How Jobs of hooks end, at once; `None`: they run until told.
    pub hooks_end: Option<&'static str>,
}

impl Bench {
    pub fn new(job: UpgradeJob) -> Self {
        let name = job.metadata.name.clone().unwrap();
        let engine = EngineState::Ready(EngineChoice::Argo);
        let world = World {
            jobs: vec![job],
            ..world()
        };
        Self {
            world,
            answers: Answers::NobodyToAsk,
            drains: Drains::default(),
            pods: Ok(vec![]),
            hook_pods: HookPods::default(),
            looks_at_pods: 0,
            templates: Templates::default(),
            name,
            now: 0,
            settings: settings(),
            engine,
            workflow: None,
            gone: None,
            is_engine_away: false,
            others: vec![],
            begun_on: EngineChoice::Argo,
            acted: vec![],
            reasons: vec![],
            hooks_end: None,
        }
    }

    /// Has set desiredUpdate, and waits for the cluster-version operator.
    pub fn asked(mut self) -> Self {
        self.settle_at(10);
        assert_eq!(self.desired().as_deref(), Some(NEW), "{}", self.message());
        self
    }

    /// The same, and the release is accepted: the upgrade is under way.
    pub fn accepted(mut self) -> Self {
        self = self.asked();
        self.accept();
        self.settle_at(20);
        self
    }

    /// The same, and all is done but what waits for held or foreign pools.
    pub fn completed(mut self) -> Self {
        self = self.accepted();
        self.complete();
        self.settle_at(120);
        self
    }

    /// `Event:EVENT_reason` of all Jobs of hooks, in the order of their creation.
    pub fn hooks_run(&self) -> Vec<String> {
        let of = |job: &k8s_openapi::api::batch::v1::Job, name: &str| {
            let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
            let all = pod.containers[0].env.as_ref().unwrap();
            let value = all.iter().find(|e| e.name == name).unwrap().value.clone();
            value.unwrap().trim_matches('"').to_owned()
        };
        let jobs = self.world.hook_jobs.iter();
        jobs.map(|j| format!("{}:{}", of(j, "EVENT_name"), of(j, "EVENT_reason")))
            .collect()
    }

    /// Pools that are paused, by whomever.
    pub fn paused(&self) -> Vec<&str> {
        let pools = self.world.pools.iter().filter(|p| p.spec.paused);
        pools.filter_map(|p| p.metadata.name.as_deref()).collect()
    }

    /// Someone else sets desiredUpdate.
    pub fn ask_for(&mut self, version: &str) {
        self.world.cluster_version.as_mut().unwrap().spec.desired_update =
            Some(object(json!({"version": version, "image": image(version)})));
    }

    pub fn job(&self) -> &UpgradeJob {
        self.world.job(&self.name).unwrap()
    }

    pub fn job_mut(&mut self) -> &mut UpgradeJob {
        let name = self.name.clone();
        self.world
            .jobs
            .iter_mut()
            .find(|j| j.metadata.name.as_deref() == Some(&name))
            .unwrap()
    }

    pub fn status(&self) -> crate::api::upgrade_job::UpgradeJobStatus {
        self.job().status.clone().unwrap_or_default()
    }

    pub fn step(&self, name: &str) -> Option<crate::api::upgrade_job::StepStatus> {
        self.status().steps.into_iter().find(|s| s.name == name)
    }

    /// Reason of a condition that is True.
    pub fn is_true(&self, type_: &str) -> Option<String> {
        let status = self.status();
        conditions::get(&status.conditions, type_)
            .filter(|c| c.status == "True")
            .map(|c| c.reason.clone())
    }

    pub fn message(&self) -> String {
        self.status().message.unwrap_or_default()
    }

    /// The job has succeeded; otherwise its message says why not.
    #[track_caller]
    pub fn assert_succeeded(&self) {
        assert_eq!(
            self.status().phase,
            Some(JobPhase::Succeeded),
            "{}",
            self.message()
        );
    }

    /// On a cluster with Tekton.
    pub fn on_tekton(mut self) -> Self {
        self.engine = EngineState::Ready(EngineChoice::Tekton);
        self.begun_on = EngineChoice::Tekton;
        self
    }

    /// Follows the plan without any workflow.
    pub fn embedded(mut self) -> Self {
        self.engine = EngineState::Ready(EngineChoice::Embedded);
        self
    }

    fn is_embedded(&self) -> bool {
        let embedded = EngineChoice::Embedded;
        matches!(self.engine, EngineState::Ready(engine) if engine == embedded)
            || self.status().workflow.is_some_and(|w| w.engine == embedded)
    }

    fn workflow_uid(&self) -> String {
        self.status()
            .workflow
            .map(|w| format!("uid-{}", w.name))
            .unwrap_or_default()
    }

    pub fn decide(&self) -> Decision {
        let status = self.status();
        let plan = status.plan.as_ref().and_then(|p| Plan::from_value(p).ok());
        let run = match (&self.workflow, plan) {
            (_, Some(plan)) if self.is_embedded() => RunState::Present {
                uid: "job".into(),
                run: Box::new(embedded::observe(&plan, &status)),
            },
            (Some((uid, run)), _) if *uid == self.workflow_uid() => RunState::Present {
                uid: uid.clone(),
                run: Box::new(run.clone()),
            },
            _ => match &self.gone {
                Some(run) if status.workflow.is_some_and(|w| w.uid.is_some()) => RunState::Gone {
                    run: Box::new(run.clone()),
                },
                Some(_) | None => RunState::Absent,
            },
        };
        decide(&Input {
            world: &self.world,
            answers: &self.answers,
            drains: &self.drains,
            hook_pods: &self.hook_pods,
            templates: &self.templates,
            job: self.job(),
            run: &run,
            others: &self.others,
            engine: &self.engine,
            settings: &self.settings,
            now: at(self.now),
        })
    }

    /// One pass: decide, and carry it out. Returns whether there was anything to do.
    pub fn pass(&mut self) -> bool {
        let mut decision = self.decide();
        for key in std::mem::take(&mut decision.lacks) {
            self.templates.0.entry(key).or_insert(Lookup::Absent);
            decision = self.decide();
        }
        if !decision.hook_pods.is_empty() {
            for owner in std::mem::take(&mut decision.hook_pods) {
                self.look_at_pods(owner);
            }
            decision = self.decide();
            assert!(decision.hook_pods.is_empty(), "asked at once again");
        }
        for condition in &decision.status.conditions {
            assert!(
                !condition.reason.is_empty() && !condition.message.is_empty(),
                "nobody understands {condition:?}"
            );
        }
        let changed = Some(&decision.status) != self.job().status.as_ref()
            || !decision.actions.is_empty()
            || (!decision.reports.is_empty() && !self.is_embedded());
        self.reasons
            .extend(decision.notices.iter().map(|n| n.reason.clone()));
        self.job_mut().status = Some(decision.status);
        // What the job left is another workflow from now on.
        if self.is_embedded()
            || self
                .workflow
                .as_ref()
                .is_some_and(|(uid, _)| *uid != self.workflow_uid())
        {
            let engine = self.begun_on;
            self.others
                .extend(self.workflow.take().map(|(uid, run)| OtherWorkflow {
                    name: uid.trim_start_matches("uid-").to_owned(),
                    engine,
                    state: if run.finished {
                        OtherState::Ended
                    } else {
                        OtherState::GoesOn
                    },
                }));
        }
        for action in decision.actions {
            self.act(&action);
            self.acted.push(action);
        }
        self.advance(&decision.reports);
        changed
    }

    /// Passes until nothing changes any more; a decision that never settles is a defect.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            if !self.pass() {
                return;
            }
        }
        panic!("no end of decisions: {:#?}", self.decide());
    }

    pub fn settle_at(&mut self, now: i64) {
        self.now = now;
        self.settle();
    }

    fn look_at_pods(&mut self, owner: PodOwner) {
        self.looks_at_pods += 1;
        let mine = |all: &Vec<(PodOwner, HookPod)>| {
            let mine = all.iter().filter(|(of, _)| *of == owner);
            mine.map(|(_, pod)| pod.clone()).collect()
        };
        let said = self.pods.as_ref().map(mine).map_err(|e| *e);
        let at = at(self.now);
        self.hook_pods.keep(owner, Look { at, said });
    }

    fn act(&mut self, action: &Action) {
        let (key, uid) = (pools::key(self.job()), self.job().metadata.uid.clone().unwrap());
        let cluster = self.world.cluster_version.as_mut().unwrap();
        match action {
            Action::SetDesiredUpdate(target) => {
                cluster.spec.desired_update =
                    Some(object(json!({"version": target.version, "image": target.image})));
            }
            Action::WithdrawDesiredUpdate { restore, .. } => {
                cluster.spec.desired_update = restore
                    .as_ref()
                    .map(|t| object(json!({"version": t.version, "image": t.image})));
            }
            Action::TakeLock => {
                let all = cluster.metadata.annotations.get_or_insert_default();
                all.insert(annotations::UPGRADE_JOB.into(), key);
                all.insert(annotations::UPGRADE_JOB_UID.into(), uid);
            }
            Action::ReleaseLock => cluster.metadata.annotations = None,
            Action::PausePool { pool, reason } => {
                let reason = if *reason == PauseReason::Failure {
                    "failure"
                } else {
                    "delay"
                };
                let pool = self.pool_mut(pool);
                pool.spec.paused = true;
                let all = pool.metadata.annotations.get_or_insert_default();
                all.insert(annotations::UPGRADE_JOB.into(), key);
                all.insert(annotations::UPGRADE_JOB_UID.into(), uid);
                all.insert(annotations::PAUSE_REASON.into(), reason.into());
            }
            Action::UnpausePool { pool } => {
                let pool = self.pool_mut(pool);
                pool.spec.paused = false;
                pool.metadata.annotations = None;
            }
            Action::CreateHookJob(job) => {
                self.world.hook_jobs.push((**job).clone());
                if let Some(type_) = self.hooks_end {
                    self.end_hook_jobs(type_);
                }
            }
            Action::CreateHookTaskRun(run) => {
                let mut run: task_run::TaskRun = (**run).clone().into();
                run.metadata.creation_timestamp = Some(object(json!(at(self.now))));
                self.world.hook_task_runs.push(run);
            }
            Action::RepeatHookTaskRun(next) => self.repeat_task_run(next),
            Action::CancelHookTaskRun(name)
            | Action::ReleaseHookRun(RunName {
                kind: RunKind::TaskRun,
                name,
            }) => {
                let mut runs = self.world.hook_task_runs.iter_mut();
                let run = runs.find(|r| r.metadata.name.as_deref() == Some(name));
                run.unwrap().metadata.finalizers = None;
            }
            Action::ReleaseHookRun(RunName {
                kind: RunKind::Job,
                name,
            }) => {
                let job = self
                    .world
                    .hook_jobs
                    .iter_mut()
                    .find(|j| j.metadata.name.as_deref() == Some(name));
                job.unwrap().metadata.finalizers = None;
            }
            Action::Protect => {
                self.job_mut().metadata.finalizers = Some(vec![finalizers::UPGRADE_JOB.into()]);
            }
            Action::Unprotect => self.job_mut().metadata.finalizers = None,
            Action::CreateWorkflow => {
                let name = self.status().workflow.unwrap().name;
                let native = self.natives();
                let run = Run {
                    native,
                    picked_up: !self.is_engine_away,
                    ..empty_run()
                };
                self.workflow = Some((format!("uid-{name}"), run));
            }
            Action::StopWorkflow => {
                if let Some((_, run)) = &mut self.workflow {
                    run.finished = true;
                }
            }
            Action::StopOtherWorkflow { name } | Action::SealOtherWorkflow { name } => self.end_other(name),
            Action::WakeWorkflow => self.run_mut().woken_at = Some(at(self.now)),
            Action::SealWorkflow => self.run_mut().repeat = Repeat::Harmless,
            Action::ResumeWorkflow => self.run_mut().suspended = false,
            Action::EndMainPart => self.end_main_part(),
            Action::DeleteWorkflow => self.workflow = None,
            Action::DeleteOtherWorkflow { name } => self.others.retain(|o| o.name != *name),
            Action::ClaimHook { .. } => {}
        }
    }

    fn repeat_task_run(&mut self, next: &NextTry) {
        let mut runs = self.world.hook_task_runs.iter();
        let killed = runs.find(|r| r.metadata.name.as_ref() == Some(&next.after.name));
        let mut object = kube::api::DynamicObject::new("", &task_run::resource());
        object.metadata = killed.unwrap().metadata.clone();
        self.world
            .hook_task_runs
            .push(task_run::next(&object, next).into());
    }

    fn end_other(&mut self, name: &str) {
        for other in self.others.iter_mut().filter(|o| o.name == name) {
            other.state = OtherState::Ended;
        }
    }

    fn end_main_part(&mut self) {
        let (_, run) = self.workflow.as_mut().unwrap();
        run.stop = Some(StopRequest::Stop);
        for native in run.native.values_mut() {
            for one in native.runs.iter_mut().filter(|r| r.phase == NodePhase::Running) {
                one.phase = NodePhase::Failed;
                one.message = "Stopped with strategy 'Stop'".into();
            }
            native.finished = true;
        }
    }

    /// What the engine renders for the hooks of templates.
    fn natives(&self) -> std::collections::BTreeMap<String, Native> {
        let plan = Plan::from_value(&self.status().plan.unwrap()).unwrap();
        let mut all = std::collections::BTreeMap::new();
        for step in &plan.steps {
            let StepAction::Hook { hook, event, .. } = &step.action else {
                continue;
            };
            let found = self
                .world
                .hooks
                .iter()
                .find(|h| h.metadata.name.as_ref() == Some(hook));
            let tracked = self.status().hook_tracker;
            let known = tracked
                .iter()
                .any(|e| e.upgrade_job_hook == *hook && e.hook_event == *event);
            if let Some(hook) = found.filter(|h| h.spec.template_ref.is_some() && !known) {
                let problem = Argo.problem_of(hook, &self.templates);
                let finished = problem.is_some();
                let runs = vec![];
                all.insert(
                    step.name.clone(),
                    Native {
                        problem,
                        finished,
                        runs,
                    },
                );
            }
        }
        all
    }

    /// Runs of the engine for this step, by key, whether started or ended.
    pub fn native_runs(&self, step: &str) -> Vec<(String, NodePhase)> {
        let (_, run) = self.workflow.as_ref().unwrap();
        let native = run.native.get(step);
        let runs = native.map_or(&[][..], |n| n.runs.as_slice());
        runs.iter().map(|r| (r.key.clone(), r.phase)).collect()
    }

    /// A run of a hook in the engine ends, or says something.
    pub fn native(&mut self, step: &str, key: &str, phase: NodePhase, message: &str) {
        let (_, run) = self.workflow.as_mut().unwrap();
        let native = run.native.get_mut(step).unwrap();
        let one = native
            .runs
            .iter_mut()
            .find(|r| r.key == key)
            .expect("a run that was started");
        one.phase = phase;
        one.message = message.into();
        native.finished = !native.is_running();
    }

    pub fn pool_mut(&mut self, name: &str) -> &mut crate::openshift::machine_config_pool::MachineConfigPool {
        self.world
            .pools
            .iter_mut()
            .find(|p| p.metadata.name.as_deref() == Some(name))
            .unwrap()
    }

    /// The engine: ends the nodes that were reported, and reaches those whose predecessors ended well.
    fn advance(&mut self, reports: &[(String, Report)]) {
        let Some(plan) = self.status().plan.map(|p| Plan::from_value(&p).unwrap()) else {
            return;
        };
        let Some((_, run)) = &mut self.workflow else {
            return;
        };
        for (step, report) in reports {
            let node = run
                .nodes
                .iter_mut()
                .find(|n| n.step == *step)
                .expect("a report for a node that runs");
            assert_eq!(node.phase, NodePhase::Running, "report for ended node {step}");
            let (phase, text) = match report {
                Report::Message(text) => (NodePhase::Running, text),
                Report::Succeeded(text) => (NodePhase::Succeeded, text),
                Report::Failed(text) => (NodePhase::Failed, text),
                Report::Start(start) => {
                    let native = run
                        .native
                        .get_mut(step)
                        .expect("a hook that the workflow can run");
                    native.runs = start
                        .runs
                        .iter()
                        .map(|r| NativeRun {
                            key: r.key.clone(),
                            phase: NodePhase::Running,
                            message: String::new(),
                            wait: None,
                        })
                        .collect();
                    (NodePhase::Succeeded, &start.message)
                }
            };
            if let (NodePhase::Succeeded, Some(native)) = (phase, run.native.get_mut(step)) {
                native.finished = native.runs.is_empty();
            }
            node.phase = phase;
            node.message = Some(text.clone());
        }
        if self.is_engine_away {
            return;
        }
        run.picked_up = true;
        let phase_of = |run: &Run, name: &str| run.nodes.iter().find(|n| n.step == name).map(|n| n.phase);
        let failed = run.nodes.iter().any(|n| n.phase == NodePhase::Failed);
        let idle = run.nodes.iter().all(|n| n.phase != NodePhase::Running)
            && !run.native.values().any(Native::is_running);
        let main_done = plan.part(Part::Main).all(|s| phase_of(run, &s.name).is_some());
        if !run.finished && !failed {
            reach(run, &plan, Part::Main, |_| true);
        }
        if !run.finished && idle && (failed || main_done) {
            reach(run, &plan, Part::Exit, |when| match when {
                When::Always => true,
                When::Succeeded => !failed,
                When::Failed => failed,
            });
        }
    }

    /// Every hook Job that runs ends so.
    pub fn end_hook_jobs(&mut self, type_: &str) {
        let running = |j: &&mut k8s_openapi::api::batch::v1::Job| j.status.is_none();
        for job in self.world.hook_jobs.iter_mut().filter(running) {
            job.status = Some(object(json!({"conditions": [
                {"type": type_, "status": "True", "message": "told to"}]})));
        }
    }

    /// What the engine shows.
    pub fn run_mut(&mut self) -> &mut Run {
        &mut self.workflow.as_mut().expect("a workflow").1
    }

    /// The cluster-version operator accepts the new release.
    pub fn accept(&mut self) {
        let cluster = self.world.cluster_version.as_mut().unwrap();
        let status = cluster.status.as_mut().unwrap();
        status.history.insert(
            0,
            object(
                json!({"state": "Partial", "startedTime": at(0).to_string(), "completionTime": null,
                "version": NEW, "image": image(NEW)}),
            ),
        );
        status.available_updates = Some(vec![]);
        self.condition(
            "Progressing",
            "True",
            "Working towards 4.18.5: 500 of 800 done (62% complete), waiting on etcd",
        );
    }

    pub fn condition(&mut self, type_: &str, status: &str, message: &str) {
        let cluster = self.world.cluster_version.as_mut().unwrap();
        let all = &mut cluster.status.as_mut().unwrap().conditions;
        all.retain(|c| c.type_ != type_);
        all.push(object(
            json!({"type": type_, "status": status, "message": message, "reason": "PreconditionChecks"}),
        ));
    }

    /// The control plane is done; every pool that is not paused is, too.
    pub fn complete(&mut self) {
        let cluster = self.world.cluster_version.as_mut().unwrap();
        cluster.status.as_mut().unwrap().history[0].state = "Completed".into();
        self.condition("Progressing", "False", "Cluster version is 4.18.5");
        for operator in &mut self.world.operators {
            operator.status.as_mut().unwrap().versions[0].version = NEW.into();
        }
        for pool in &mut self.world.pools {
            let name = format!("rendered-{}-2", pool.metadata.name.clone().unwrap());
            pool.spec.configuration.name.clone_from(&name);
            self.world.rendered.insert(name.clone(), NEW.into());
            let status = pool.status.as_mut().unwrap();
            if pool.spec.paused {
                status.updated_machine_count = 0;
            } else {
                status.configuration.name = name;
            }
        }
    }

    /// The nodes of a pool are updated.
    pub fn roll(&mut self, pool: &str) {
        let pool = self.pool_mut(pool);
        assert!(!pool.spec.paused, "a paused pool does not roll");
        let wanted = pool.spec.configuration.name.clone();
        let status = pool.status.as_mut().unwrap();
        status.configuration.name = wanted;
        status.updated_machine_count = status.machine_count;
    }

    pub fn desired(&self) -> Option<String> {
        self.world
            .cluster_version
            .as_ref()
            .unwrap()
            .spec
            .desired_update
            .as_ref()
            .map(|u| u.version.clone())
    }

    pub fn is_locked(&self) -> bool {
        self.world
            .cluster_version
            .as_ref()
            .unwrap()
            .metadata
            .annotations
            .is_some()
    }

    pub fn count(&self, wanted: impl Fn(&Action) -> bool) -> usize {
        self.acted.iter().filter(|a| wanted(a)).count()
    }
}

fn empty_run() -> Run {
    Run {
        phase: "Running".into(),
        picked_up: true,
        finished: false,
        message: None,
        stop: None,
        stopped_by: None,
        woken_at: None,
        suspended: false,
        repeat: Repeat::Harmless,
        sealed_at: None,
        nodes: vec![],
        native: std::collections::BTreeMap::new(),
        unsupported: None,
    }
}

fn reach(run: &mut Run, plan: &Plan, part: Part, holds: impl Fn(When) -> bool) {
    for step in plan.part(part) {
        let ended = |name: &String| {
            let native = run.native.get(name).is_none_or(|n| n.finished);
            native
                && run
                    .nodes
                    .iter()
                    .any(|n| n.step == *name && matches!(n.phase, NodePhase::Succeeded | NodePhase::Skipped))
        };
        if run.nodes.iter().any(|n| n.step == step.name) || !step.after.iter().all(ended) {
            continue;
        }
        let phase = if holds(step.action.when()) {
            NodePhase::Running
        } else {
            NodePhase::Skipped
        };
        run.nodes.push(Node {
            step: step.name.clone(),
            phase,
            message: None,
            started_at: None,
            finished_at: None,
            ended_by: None,
            broken: None,
        });
    }
}
