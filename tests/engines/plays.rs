//! The suite: jobs, and what becomes of them.

use std::collections::{BTreeMap, BTreeSet};

use openshift_upgrade_operator::{
    api::{
        UpgradeJob, UpgradeJobHook, finalizers,
        upgrade_job::{EngineChoice, JobPhase},
    },
    engine::StopRequest,
    openshift::machine_config_pool::MachineConfigPool,
    plan::{Part, Plan, PlanStep, StepAction, build},
    world::World,
};
use serde_json::{Value, json};

use crate::{
    cluster::{self, Move, NEW, at, object},
    failures,
    life::{Life, Upset},
    rng::Rng,
};

/// How many random plans there are.
const RANDOM: u64 = 12;
/// When held pools have their time.
const HELD_UNTIL: &str = "22:00";
/// When whatever waited for health from then on, or for at most half an hour more, has waited long enough.
const LATE: &str = "23:00";
/// What looks like a variable to Argo, and to Tekton.
pub const HOSTILE: &str = "\"{{workflow.name}}\" of $(context.pipelineRun.name)";

/// A job, and what becomes of it.
#[derive(Clone)]
pub struct Play {
    /// Part of the job's name.
    pub name: String,
    /// How it ends: the reason of its condition Succeeded or Failed.
    pub ends: &'static str,
    /// The job's spec.
    pub spec: Value,
    hooks: Vec<UpgradeJobHook>,
    pools: Vec<&'static str>,
    /// What is run; `None`: what the operator makes of the job.
    plan: Option<Plan>,
    /// Hooks that fail: `hook@Event`.
    failing: BTreeSet<String>,
    /// What the cluster never does, by its title.
    never: Option<&'static str>,
    twist: Option<Twist>,
    upset: Option<Upset>,
    /// Which of the things that may happen does next.
    seed: u64,
}

/// What happens once besides.
#[derive(Clone)]
struct Twist {
    /// When this step runs.
    at: String,
    /// And says this.
    said: &'static str,
    what: What,
}

/// What that is.
#[derive(Clone, Copy)]
pub enum What {
    /// A person stops the workflow.
    Stop(StopRequest),
    /// The job's time is over.
    TimeOut,
    /// The cluster does something of its own, or somebody changes it.
    Changes(fn(&mut World)),
    /// Somebody deletes the last hook.
    HookIsDeleted,
    /// Somebody makes another hook, of all events.
    HookAppears,
}

/// What happens next.
pub enum Next {
    /// Something has.
    Moved,
    /// A person stops the workflow.
    Stop(StopRequest),
    /// Nothing any more.
    Nothing,
}

impl Play {
    /// One that ends well, of what the operator makes of the job.
    fn new(name: &str, spec: Value) -> Self {
        Self {
            name: name.to_owned(),
            ends: "Succeeded",
            spec,
            hooks: Vec::new(),
            pools: vec!["master"],
            plan: None,
            failing: BTreeSet::new(),
            never: None,
            twist: None,
            upset: None,
            seed: 0,
        }
    }

    /// An upgrade that holds these pools.
    pub fn upgrade(name: &str, held: &[&'static str]) -> Self {
        let entry = |p: &&str| json!({"matchLabels": {"pool": p}, "delayUpgrade": {"delayMin": "1h"}});
        let entries: Vec<Value> = held.iter().map(entry).collect();
        let mut play = Self::new(
            name,
            json!({"desiredVersion": {"version": NEW}, "config": {"machineConfigPools": entries}}),
        );
        play.pools.extend(held);
        play
    }

    /// With hooks of these names, at each event.
    fn with_hooks(mut self, names: &[&str]) -> Self {
        self.hooks = names.iter().map(|name| hook(name)).collect();
        self
    }

    /// The same order of steps, but each step of the main part is a hook: so each may run for a while, and fail.
    fn of_hooks(mut self) -> Self {
        let mut plan = self.made_plan();
        for step in plan.steps.iter_mut().filter(|s| s.part == Part::Main) {
            step.action = hook_action(&step.name);
        }
        self.hooks = plan
            .part(Part::Main)
            .map(|s| hook(&s.name))
            .map(only_start)
            .collect();
        self.pools.clear();
        self.spec["config"] = json!({});
        self.plan = Some(plan);
        self
    }

    /// What the operator would make of the job.
    fn made_plan(&self) -> Plan {
        let pools: Vec<MachineConfigPool> =
            cluster::world(self.job(&self.name), Vec::new(), &self.pools).pools;
        build::main_plan(&self.job(&self.name), &self.hooks, &pools, 1)
    }

    /// How it ends.
    pub fn ends(mut self, reason: &'static str) -> Self {
        self.ends = reason;
        self
    }

    fn failing(mut self, hook_at_event: &str) -> Self {
        self.failing.insert(hook_at_event.to_owned());
        self
    }

    /// This happens when that step runs.
    pub fn twist(mut self, at: &str, what: What) -> Self {
        let (at, said) = (at.to_owned(), "");
        self.twist = Some(Twist { at, said, what });
        self
    }

    /// The twist waits until its step says this.
    pub fn once_said(mut self, said: &'static str) -> Self {
        self.twist.as_mut().unwrap().said = said;
        self
    }

    /// The cluster changes as soon as it is asked for this.
    pub fn once_asked(mut self, asked: &'static str, change: fn(&mut World)) -> Self {
        self.upset = Some(Upset { asked, change });
        self
    }

    /// This never happens: a move of the cluster, by its title.
    pub fn without(mut self, title: &'static str) -> Self {
        self.never = Some(title);
        self
    }

    fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The job by this name, as a person makes it.
    pub fn job(&self, name: &str) -> UpgradeJob {
        let mut spec = json!({"startAfter": at("21:00"), "startBefore": at("22:00"), "config": {}});
        json_patch::merge(&mut spec, &self.spec);
        object(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJob",
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1,
                "creationTimestamp": at("20:00")},
            "spec": spec,
        }))
    }

    /// The job on its cluster, before its start; with a plan of the play's, just after.
    pub fn begin(&self, name: &str, engine: EngineChoice) -> Life {
        let mut job = self.job(name);
        let is_started = self.plan.is_some();
        if let Some(plan) = &self.plan {
            let started = json!({"type": "Started", "status": "True", "reason": "Started", "message": "it has started",
                "lastTransitionTime": at("21:00")});
            job.metadata.finalizers = Some(vec![finalizers::UPGRADE_JOB.to_owned()]);
            job.status = Some(object(
                json!({"plan": plan, "conditions": [started], "startedAt": at("21:00")}),
            ));
        }
        let mut world = cluster::world(job, self.hooks.clone(), &self.pools);
        if is_started {
            cluster::lock(&mut world);
        }
        let begins = at(if is_started { "21:00" } else { "20:55" });
        let mut life = Life::new(world, begins, engine);
        life.upset.clone_from(&self.upset);
        life
    }

    /// Whether all that is special about it has.
    pub fn has_happened(&self, life: &Life) -> bool {
        life.upset.is_none() && (life.is_twisted || self.twist.is_none())
    }

    /// Lets happen what happens next.
    pub fn next(&self, life: &mut Life) -> Next {
        if let Some(twist) = self
            .twist
            .as_ref()
            .filter(|t| !life.is_twisted && life.is_at(&t.at, t.said))
        {
            life.is_twisted = true;
            return twist.what.happen(life);
        }
        let is_over = life.job().is_finished();
        let mut moves = cluster::moves(&life.world);
        moves.retain(|m| !is_over || matches!(m, Move::HookEnds(_)));
        moves.retain(|m| self.never != Some(cluster::title(&life.world, m).as_str()));
        if moves.is_empty() {
            return pass_time(life);
        }
        life.moves += 1;
        let next = Rng::of(self.seed + life.moves, "next").pick(&moves);
        cluster::make(&mut life.world, &next, |hook| {
            let fails = self.failing.contains(hook);
            fails.then(|| format!("etcd is Degraded, says {HOSTILE}"))
        });
        Next::Moved
    }
}

impl What {
    fn happen(self, life: &mut Life) -> Next {
        match self {
            Self::Stop(request) => return Next::Stop(request),
            Self::TimeOut => life.now = life.job().spec.upgrade_deadline(),
            Self::Changes(change) => change(&mut life.world),
            Self::HookIsDeleted => drop(life.world.hooks.pop()),
            Self::HookAppears => life.world.hooks.push(hook("late")),
        }
        Next::Moved
    }
}

/// Nothing happens but that time passes, for what waits for it.
fn pass_time(life: &mut Life) -> Next {
    let spec = &life.job().spec;
    let times = match life.status().phase {
        Some(JobPhase::Pending) => vec![spec.start_after.0, spec.start_before.0],
        Some(JobPhase::Running | JobPhase::Paused) => {
            vec![at(HELD_UNTIL), at(LATE), spec.upgrade_deadline()]
        }
        Some(JobPhase::Succeeded | JobPhase::Failed | JobPhase::Skipped) | None => Vec::new(),
    };
    let Some(until) = times.into_iter().find(|t| *t > life.now) else {
        return Next::Nothing;
    };
    life.now = until;
    Next::Moved
}

fn hook_action(name: &str) -> StepAction {
    object(json!({"kind": "hook", "event": "Start", "hook": name}))
}

/// A hook of all events, which all may fail the job.
fn hook(name: &str) -> UpgradeJobHook {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    object(json!({
        "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJobHook",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {
            "events": ["Create", "Start", "UpgradeComplete", "MachineConfigPoolUnpause", "Success", "Failure", "Finish"],
            "failurePolicy": "Abort", "selector": {},
            "template": {"spec": {"template": {"spec": pod}}},
        },
    }))
}

fn only_start(mut hook: UpgradeJobHook) -> UpgradeJobHook {
    hook.spec.events = object(json!(["Start"]));
    hook
}

/// A main part of any shape: each step comes after some of those before it.
fn random(seed: u64) -> Play {
    let mut rng = Rng::of(seed, "plan");
    let count = 3 + rng.below(7);
    let name = |n: u64| format!("step-{n}");
    let mut made = Play::new(&format!("random-{seed}"), json!({})).seed(seed);
    let mut plan = made.made_plan();
    plan.steps.retain(|s| s.part == Part::Exit);
    for n in 0..count {
        plan.steps.push(PlanStep {
            name: name(n),
            title: format!("Step {n}"),
            action: hook_action(&name(n)),
            after: (0..n).filter(|_| rng.chance(35)).map(name).collect(),
            part: Part::Main,
        });
    }
    plan.steps.sort_by_key(|s| s.part == Part::Exit);
    made.hooks = (0..count).map(|n| only_start(hook(&name(n)))).collect();
    made.plan = Some(plan);
    let at = name(rng.below(count));
    match rng.below(5) {
        0 | 1 => made.failing(&format!("{at}@Start")).ends("HookFailed"),
        2 => made
            .twist(&at, What::Stop(StopRequest::Stop))
            .ends("WorkflowStopped"),
        3 => made.twist(&at, What::TimeOut).ends("TimedOut"),
        _ => made,
    }
}

/// All plays. A step takes a second of an engine's time, so few of them have all that there is.
pub fn all() -> Vec<Play> {
    let mut all = vec![
        Play::upgrade("no-pools", &[]),
        Play::upgrade("one-pool", &["infra"]),
        Play::upgrade("everything", &["infra", "worker"]).with_hooks(&["backup", "notify"]),
        maintenance("maintenance"),
    ];
    all.extend(hooks_that_fail());
    all.extend(twists());
    all.extend(failures::all());
    let plan = of_hooks("fails").plan.unwrap();
    for step in plan.part(Part::Main) {
        let failing = format!("{}@Start", step.name);
        all.push(
            of_hooks(&format!("fails-{}", step.name))
                .failing(&failing)
                .ends("HookFailed"),
        );
    }
    all.extend((1..=RANDOM).map(random));
    all
}

/// An upgrade that holds a pool and has a hook.
pub fn guarded(name: &str) -> Play {
    Play::upgrade(name, &["infra"]).with_hooks(&["notify"])
}

/// The same without a version: nothing is pending for the pool, so it is not held.
fn maintenance(name: &str) -> Play {
    let mut play = guarded(name);
    play.spec["desiredVersion"] = Value::Null;
    play
}

/// One in which each step may be told how to end.
fn of_hooks(name: &str) -> Play {
    Play::upgrade(name, &["infra"]).of_hooks()
}

/// Hooks abort the job, or do not.
fn hooks_that_fail() -> Vec<Play> {
    let aborted = |name: &str, at: &str| guarded(name).failing(at).ends("HookFailed");
    let mut ignored = guarded("hook-fails-ignored")
        .failing("notify@Start")
        .failing("notify@Finish");
    ignored.hooks[0].spec.failure_policy = object(json!("Ignore"));
    vec![
        aborted("hook-fails-create", "notify@Create"),
        aborted("hook-fails-start", "notify@Start").failing("notify@Failure"),
        aborted("hook-fails-complete", "notify@UpgradeComplete"),
        aborted("hook-fails-unpause", "notify@MachineConfigPoolUnpause"),
        ignored,
    ]
}

/// What people do, and what time does.
fn twists() -> Vec<Play> {
    let (stop, terminate) = (What::Stop(StopRequest::Stop), What::Stop(StopRequest::Terminate));
    let stopped = |play: Play, at: &str, what| play.twist(at, what).ends("WorkflowStopped");
    vec![
        stopped(guarded("stop-before-the-start"), "hook-create-notify", stop),
        stopped(of_hooks("stop-at-the-start"), "hooks-start", stop),
        stopped(of_hooks("stop-in-branches"), "hold-infra", stop),
        stopped(guarded("stop-with-hooks"), "hold-infra", stop),
        stopped(
            guarded("terminate-before-the-start"),
            "hook-create-notify",
            terminate,
        ),
        stopped(of_hooks("terminate-at-the-start"), "hooks-start", terminate),
        stopped(of_hooks("terminate-in-branches"), "hold-infra", terminate),
        stopped(guarded("terminate-with-hooks"), "hold-infra", terminate),
        guarded("timed-out")
            .twist("hold-infra", What::TimeOut)
            .ends("TimedOut"),
        guarded("passed-by")
            .twist("hook-start-notify", What::Changes(cluster::is_passed_by))
            .ends("Skipped"),
        guarded("hook-deleted").twist("await-control-plane", What::HookIsDeleted),
        guarded("hook-appears").twist("await-control-plane", What::HookAppears),
    ]
}

/// How often each phase of steps is in what was told.
pub fn phases(told: &Value) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for step in told["steps"].as_array().into_iter().flatten() {
        *all.entry(step["phase"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    all
}

/// The steps that failed in what was told.
pub fn failed_steps(told: &Value) -> impl Iterator<Item = &str> {
    let steps = told["steps"].as_array().into_iter().flatten();
    let failed = steps.filter(|s| s["phase"] == "Failed");
    failed.map(|s| s["name"].as_str().unwrap())
}
