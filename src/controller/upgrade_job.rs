//! UpgradeJob: snapshot → decision → fresh snapshot → decision → status, actions, reports.

mod tell;
mod workflow;

use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    Context,
    calls::CallError,
    drains::Looker,
    effects::Effects,
    events,
    hook_pods::PodLooker,
    in_future, journal, live,
    live_texts::{self, LiveTexts},
    others::{self, Other},
    prometheus::Asker,
    workflows,
};
use crate::{
    api::{
        UpgradeJob,
        conditions::{self, types},
        labels,
        upgrade_job::{EngineChoice, UpgradeJobStatus},
    },
    engine::{self, Engine, Templates, Workflow, embedded},
    hooks::select,
    lifecycle::{self, Decision, EngineState, Input, RunState, Stage},
    plan::Plan,
    steps::Action,
    world::World,
};

/// A question that is still open is asked again after so long.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// So long is waited until the watch tells how a workflow ended that is gone.
const WATCH_BEHIND: Duration = Duration::from_secs(2);

/// So often it is looked whether the engine of a job is there, or gone for good, where that is not certain.
const ENGINE_LOOK: Duration = Duration::from_secs(5);

/// What is remembered from pass to pass.
pub struct Memory<'a> {
    /// What was said last, and when.
    pub texts: &'a mut LiveTexts,
    /// What Prometheus said.
    pub prometheus: &'a mut Asker,
    /// What was seen of drains.
    pub drains: &'a mut Looker,
    /// What was seen of the pods of hooks.
    pub hook_pods: &'a mut PodLooker,
}

/// One pass over one job; returns when to look again.
pub async fn reconcile(
    ctx: &Context,
    memory: &mut Memory<'_>,
    world: &World,
    job: &UpgradeJob,
) -> Result<Option<Timestamp>, Error> {
    let began = world.outside.careful(ctx.now());
    // The engine that the job follows, or that its hooks were judged for at the pin.
    let judged = job.status.as_ref().and_then(|s| s.judged_engine);
    if let Some(engine) = job.workflow().map(|w| w.engine).or(judged)
        && ctx.stores.may_be_starting(engine)
    {
        let (job, engine) = (job.name_any(), engine.as_str());
        tracing::info!(
            job,
            engine,
            "the API server does not have the kinds of the job's engine; waiting a while for them"
        );
        return Ok(Some(in_future(ctx.now(), ENGINE_LOOK)));
    }
    let cached = job
        .workflow()
        .and_then(|w| ctx.stores.workflow(w.engine, &w.name));
    let others = others::seen(&ctx.stores, job);
    let mut scene = Pass {
        ctx,
        world,
        job,
        workflow: cached,
        last_seen: last_seen(ctx, job),
        others: others.clone(),
        templates: Templates::default(),
    };
    let decision = scene.decide_informed(memory).await?;
    if !is_change(job, &decision) {
        return Ok(scene.wake(&decision));
    }
    if let Some(stored) = &job.status
        && live_texts::says_only(stored, &decision)
    {
        // Texts decide nothing. The versions of the copies guard them, and a lost race is decided anew.
        scene.carry_out(&decision, memory).await?;
        return Ok(scene.wake(&decision));
    }
    // Health that ends a step is that of now, not of half a minute ago.
    if ends_a_step(job, &decision) {
        memory.prometheus.forget_before(began);
    }
    // The copies may be minutes old: whatever is written is decided on fresh reads.
    let settings = &ctx.settings;
    let fresh = ctx.fresh(world).await?;
    let Some(job) = fresh.job(&job.name_any()).cloned() else {
        return Ok(None);
    };
    let workflow = match job
        .workflow()
        .and_then(|w| Some((engine::of(w.engine)?, &w.name)))
    {
        Some((engine, name)) => {
            match live::workflow(&ctx.client, &settings.namespace, engine, name).await {
                // With its kind, or the right to it, it went itself. For a moment an API server may not know the kind: that is
                // tried again.
                Err(error) if error.is_out_of_reach() && !ctx.stores.installed().has(engine.kind()) => None,
                Err(error) => {
                    if error.is_no_such_kind() {
                        ctx.stores.not_found(engine.kind());
                    }
                    return Err(error.into());
                }
                Ok(found) => {
                    if found.is_none() {
                        // What it showed last is on the way; without it, a stop may look like a deletion.
                        let gone = ctx.stores.until_workflow_is_gone(engine.kind(), name);
                        if tokio::time::timeout(WATCH_BEHIND, gone).await.is_err() {
                            tracing::info!(
                                job = job.name_any(),
                                workflow = name,
                                "gone, and the watch does not tell how it ended"
                            );
                        }
                    }
                    found
                }
            }
        }
        None => None,
    };
    let mut pass = Pass {
        ctx,
        world: &fresh,
        job: &job,
        workflow,
        last_seen: last_seen(ctx, &job),
        others: others::now(ctx, &job, &others).await?,
        templates: scene.templates,
    };
    let mut decision = pass.decide_informed(memory).await?;
    if pass.rests_on_nothing(&decision).await {
        decision = pass.decide_informed(memory).await?;
    }
    pass.carry_out(&decision, memory).await?;
    Ok(pass.wake(&decision))
}

/// What was last seen of the job's workflow, for one that was deleted. A watch that is behind has it still.
fn last_seen(ctx: &Context, job: &UpgradeJob) -> Option<Workflow> {
    let followed = job.workflow()?;
    let copy = ctx.stores.workflow(followed.engine, &followed.name);
    copy.or_else(|| ctx.stores.last_of_workflow(followed.engine, &followed.name))
}

fn ends_a_step(job: &UpgradeJob, decision: &Decision) -> bool {
    let ended = |status: &UpgradeJobStatus| status.steps.iter().filter(|s| s.finished_at.is_some()).count();
    job.status.as_ref().map_or(0, ended) != ended(&decision.status)
}

fn is_change(job: &UpgradeJob, decision: &Decision) -> bool {
    job.status.as_ref() != Some(&decision.status)
        || !decision.actions.is_empty()
        || !decision.reports.is_empty()
}

struct Pass<'a> {
    ctx: &'a Context,
    world: &'a World,
    job: &'a UpgradeJob,
    workflow: Option<Workflow>,
    /// What was last seen of one of its name that was deleted.
    last_seen: Option<Workflow>,
    /// Those of the job that it does not follow.
    others: Vec<Other>,
    /// Those that the decision asked for.
    templates: Templates,
}

impl Pass<'_> {
    /// Decides, with the templates of hooks, the answers of Prometheus and the looks at nodes and pods that the decision needs.
    async fn decide_informed(&mut self, memory: &mut Memory<'_>) -> Result<Decision, Error> {
        let mut decision = self.decide(memory);
        if !decision.lacks.is_empty() {
            let (client, namespace) = (&self.ctx.client, &self.ctx.settings.namespace);
            self.templates = workflows::templates(client, namespace, &decision.lacks).await?;
            decision = self.decide(memory);
        }
        if decision.asks.is_empty() && decision.looks.is_empty() && decision.hook_pods.is_empty() {
            return Ok(decision);
        }
        // Dated by the clock that decisions go by.
        let at = self.world.outside.careful(self.ctx.now());
        if !decision.asks.is_empty() {
            memory.prometheus.ask(&decision.asks, at).await;
        }
        let (client, zone) = (&self.ctx.client, self.ctx.settings.zone());
        memory
            .drains
            .look(client, zone, &decision.looks, at)
            .boxed()
            .await;
        let namespace = &self.ctx.settings.namespace;
        let hook_pods = memory.hook_pods.look(client, namespace, &decision.hook_pods, at);
        hook_pods.boxed().await;
        Ok(self.decide(memory))
    }

    fn decide(&self, memory: &Memory<'_>) -> Decision {
        let run = self.run();
        let engine = self.engine();
        let others: Vec<_> = self.others.iter().map(Other::view).collect();
        let input = Input {
            world: self.world,
            answers: memory.prometheus.answers(),
            drains: memory.drains.drains(),
            hook_pods: memory.hook_pods.pods(),
            templates: &self.templates,
            job: self.job,
            run: &run,
            others: &others,
            engine: &engine,
            settings: &self.ctx.settings,
            now: self.ctx.now(),
        };
        let mut decision = lifecycle::decide(&input);
        if self.is_embedded() {
            // The record is the workflow: there is nothing else to tell.
            decision.reports.clear();
        }
        self.drop_idle_reports(&mut decision);
        memory.texts.limit(
            self.job,
            &mut decision,
            self.ctx.settings.live_message_interval,
            self.ctx.now(),
        );
        decision
    }

    /// Reports that would change nothing in the workflow as it is: its texts are cut and escaped, and ended nodes stay.
    fn drop_idle_reports(&self, decision: &mut Decision) {
        // Most passes have none, and a plan takes long to read.
        if decision.reports.is_empty() {
            return;
        }
        let plan = decision
            .status
            .plan
            .as_ref()
            .and_then(|p| Plan::from_value(p).ok());
        let (Some((engine, workflow)), Some(plan)) = (self.workflow(), plan) else {
            decision.reports.clear();
            return;
        };
        let now = self.ctx.now();
        decision.reports.retain(|r| {
            !engine
                .report(workflow, &plan, std::slice::from_ref(r), now)
                .is_empty()
        });
    }

    fn uid(&self) -> String {
        self.job.metadata.uid.clone().unwrap_or_default()
    }

    /// The job's workflow with its engine.
    fn workflow(&self) -> Option<(&'static dyn Engine, &Workflow)> {
        let recorded = self.job.workflow()?;
        Some((engine::of(recorded.engine)?, self.workflow.as_ref()?))
    }

    fn is_embedded(&self) -> bool {
        self.job
            .workflow()
            .is_some_and(|w| w.engine == EngineChoice::Embedded)
    }

    fn run(&self) -> RunState {
        let plan = self
            .job
            .status
            .as_ref()
            .and_then(|s| s.plan.as_ref())
            .and_then(|p| Plan::from_value(p).ok());
        if let (true, Some(plan), Some(status)) = (self.is_embedded(), &plan, &self.job.status) {
            return RunState::Present {
                uid: self.uid(),
                run: Box::new(embedded::observe(plan, status)),
            };
        }
        let (Some(engine), Some(plan)) = (self.job.workflow().and_then(|w| engine::of(w.engine)), plan)
        else {
            return RunState::Absent;
        };
        let run = |workflow: &Workflow| Box::new(engine.observe(workflow, &plan));
        match (&self.workflow, &self.last_seen) {
            (Some(workflow), _) if self.is_known(workflow) => RunState::Present {
                uid: workflow.object.metadata.uid.clone().unwrap_or_default(),
                run: run(workflow),
            },
            (Some(_), _) => RunState::Foreign,
            (None, Some(last)) if self.is_known(last) => RunState::Gone { run: run(last) },
            (None, _) => RunState::Absent,
        }
    }

    /// Whether it is the run of this job that is on record. One that was deleted and made again under the same name is not.
    fn is_known(&self, workflow: &Workflow) -> bool {
        let object = &workflow.object;
        let recorded = self.job.workflow().and_then(|w| w.uid.as_ref());
        object.labels().get(labels::UPGRADE_JOB_UID) == self.job.metadata.uid.as_ref()
            && recorded.is_none_or(|r| object.metadata.uid.as_ref() == Some(r))
    }

    /// The engine of the job. A job keeps the one that it began with.
    fn engine(&self) -> EngineState {
        let begun = self.job.workflow().map(|w| w.engine);
        let configured = self.job.spec.config.engine().unwrap_or(self.ctx.settings.engine);
        let hooks = select::of_job(&self.world.hooks, self.job);
        let installed = self.ctx.stores.installed();
        match engine::choose(begun.unwrap_or(configured), installed, &hooks) {
            Err(why) => EngineState::Missing(why),
            // A workflow that cannot be made would cost the job the patience that it has with engines.
            Ok(engine) if begun.is_none() && self.ctx.stores.may_be_gone(engine) => {
                EngineState::Missing(engine::in_doubt(engine))
            }
            Ok(engine) => EngineState::Ready(engine),
        }
    }

    /// Whether this rests on an engine that the API server does not have any more: the job would take the lock for it, begin on
    /// it, or find that it cannot run the job's hooks. Then that is known from here on; the watch of a kind that is removed may not
    /// tell it for minutes.
    async fn rests_on_nothing(&self, decision: &Decision) -> bool {
        let EngineState::Ready(engine) = self.engine() else {
            return false;
        };
        let UpgradeJobStatus {
            workflow,
            judged_engine,
            conditions: told,
            ..
        } = &decision.status;
        let judged = self.job.status.as_ref().and_then(|s| s.judged_engine);
        let rests = workflow.is_some()
            || decision.actions.contains(&Action::TakeLock)
            || *judged_engine != judged
            || conditions::is_true(told, types::FAILED);
        let Context {
            client,
            stores,
            settings,
            ..
        } = self.ctx;
        self.job.workflow().is_none()
            && !self.job.is_finished()
            && rests
            && stores.misses(client, &settings.namespace, engine).await
    }

    /// When to look again. A question that is open although it was asked took too long to answer: ask again, but not all the
    /// time. Nothing tells when an engine is missed for long enough.
    fn wake(&self, decision: &Decision) -> Option<Timestamp> {
        let is_open =
            !decision.asks.is_empty() || !decision.looks.is_empty() || !decision.hook_pods.is_empty();
        let soon = is_open.then_some(ASK_AGAIN);
        let is_in_doubt = self.job.workflow().is_none() && self.ctx.stores.may_any_be_gone();
        let look = is_in_doubt.then_some(ENGINE_LOOK);
        let after = soon.into_iter().chain(look).min();
        let later = after.map(|after| in_future(self.ctx.now(), after));
        decision.wake_at.into_iter().chain(later).min()
    }

    async fn carry_out(&self, decision: &Decision, memory: &mut Memory<'_>) -> Result<(), Error> {
        let Decision {
            status,
            actions,
            reports,
            notices,
            asks: _,
            looks: _,
            hook_pods: _,
            blocked,
            lacks: _,
            wake_at: _,
        } = decision;
        let texts = &mut *memory.texts;
        let mut effects = Effects {
            client: &self.ctx.client,
            world: self.world,
            job: self.job.clone(),
        };
        // Intent first: after a crash the record says what was about to happen.
        if self.job.status.as_ref() != Some(status) {
            effects.write_status(status).await?;
            journal::steps(self.job, status);
            texts.recorded(self.job, self.ctx.now());
        }
        // Each action stands for itself: one that fails must not keep the others from happening.
        let mut failed = None;
        for action in actions {
            let result = match action {
                Action::CreateWorkflow => self.create_workflow(&effects.job).await,
                Action::DeleteWorkflow => match self.workflow() {
                    Some((engine, workflow)) => self.delete(&engine.resource(), &workflow.object).await,
                    None => Ok(()),
                },
                Action::DeleteOtherWorkflow { name } => {
                    match self.others.iter().find(|o| o.name() == *name) {
                        Some(other) => self.delete(&other.resource(), other.object()).await,
                        None => Ok(()),
                    }
                }
                Action::StopWorkflow => {
                    workflow::write(&effects, self.workflow().and_then(|(e, w)| e.stop(w))).await
                }
                Action::StopOtherWorkflow { name } => {
                    let other = self.others.iter().find(|o| o.name() == *name);
                    let writes = other.map(|o| o.stop(self.ctx.now())).unwrap_or_default();
                    workflow::write(&effects, writes).await
                }
                Action::WakeWorkflow => {
                    let now = self.ctx.now();
                    workflow::write(&effects, self.workflow().and_then(|(e, w)| e.wake(w, now))).await
                }
                Action::SealWorkflow => {
                    let now = self.ctx.now();
                    let writes = self.workflow().and_then(|(e, w)| e.seal(w, now));
                    sealed(workflow::write(&effects, writes).await)
                }
                Action::SealOtherWorkflow { name } => {
                    let other = self.others.iter().find(|o| o.name() == *name);
                    let writes = other.and_then(|o| o.seal(self.ctx.now()));
                    sealed(workflow::write(&effects, writes).await)
                }
                Action::ResumeWorkflow => {
                    workflow::write(&effects, self.workflow().and_then(|(e, w)| e.resume(w))).await
                }
                Action::EndMainPart => {
                    workflow::write(&effects, self.workflow().and_then(|(e, w)| e.end_main_part(w))).await
                }
                Action::SetDesiredUpdate(_)
                | Action::WithdrawDesiredUpdate { .. }
                | Action::PausePool { .. }
                | Action::UnpausePool { .. }
                | Action::CreateHookJob(_)
                | Action::CreateHookTaskRun(_)
                | Action::RepeatHookTaskRun(_)
                | Action::ReleaseHookRun(_)
                | Action::CancelHookTaskRun(_)
                | Action::ClaimHook { .. }
                | Action::Protect
                | Action::Unprotect
                | Action::TakeLock
                | Action::ReleaseLock => effects.carry_out(action).await.map_err(Error::from),
            };
            if let Err(error) = result {
                failed.get_or_insert(error);
            }
        }
        self.report(&mut effects, reports, texts).await?;
        if Stage::of(self.job) != Stage::Deleting || !notices.is_empty() {
            events::publish(&self.ctx.client, self.job, notices, self.ctx.now()).await;
        }
        self.tell_blocked(blocked, memory.drains).await;
        journal::notices(self.job, notices);
        let Some(error) = failed else { return Ok(()) };
        self.tell_failure(&error, memory.texts).await;
        Err(error)
    }
}

/// A seal that is refused is no failure: the workflow has ended, and nothing of the job depends on it.
fn sealed(written: Result<(), Error>) -> Result<(), Error> {
    match written {
        Err(Error::Call(error)) if error.refusal().is_some() => {
            tracing::warn!(%error, "cannot seal a workflow that has ended: its engine would run hooks again if somebody retried it");
            Ok(())
        }
        other => other,
    }
}

/// A pass that did not go through; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call did not go through.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The workflow cannot be rendered.
    #[error(transparent)]
    Render(#[from] engine::RenderError),
    /// The stored plan cannot be read.
    #[error(transparent)]
    Plan(#[from] crate::plan::BadPlan),
    /// There is no template of the user's own where one is named; what is wrong.
    #[error("cannot make a workflow: {0}")]
    OwnTemplate(String),
}

impl Error {
    /// Somebody else wrote first: decide again at once.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Call(error) => error.is_conflict(),
            Self::Render(_) | Self::Plan(_) | Self::OwnTemplate(_) => false,
        }
    }
}
