//! UpgradeJob + hooks + pools → plan.
//!
//! The order is that of the design: hooks of Start, pre-health, pauses, desiredUpdate, control plane, pools that are not
//! held, post-health, hooks of UpgradeComplete; beside it a branch per held group of pools; then a last health check.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::{Part, Plan, PlanStep, RunKind, StepAction, VERSION};
use crate::{
    api::{UpgradeJob, UpgradeJobHook, names, upgrade_job_hook::HookEvent},
    hooks::select,
    openshift::machine_config_pool::MachineConfigPool,
    pools,
};

/// The plan of the upgrade itself.
///
/// Without `spec.desiredVersion` the steps of the control plane are left out: hooks and pools only.
pub fn main_plan(
    job: &UpgradeJob,
    hooks: &[UpgradeJobHook],
    pools: &[MachineConfigPool],
    attempt: u32,
) -> Plan {
    let mut builder = Builder::new(job, hooks);
    let start = builder.hooks(HookEvent::Start, None, &[], Part::Main);
    let healthy = builder.step(
        "pre-health-check",
        "Check health before the upgrade",
        StepAction::PreHealthCheck,
        &[start],
    );
    let mut last = builder.step(
        "pause-pools",
        "Pause held pools",
        StepAction::PausePools,
        &[healthy],
    );
    if let Some(desired) = &job.spec.desired_version {
        let version = desired.version.as_deref().unwrap_or("the given image");
        last = builder.step(
            "set-desired-update",
            &format!("Start the upgrade to {version}"),
            StepAction::SetDesiredUpdate,
            &[last],
        );
        last = builder.step(
            "await-control-plane",
            &format!("Wait for the control plane to reach {version}"),
            StepAction::AwaitControlPlane,
            &[last],
        );
    }
    let ready_for_groups = last.clone();
    last = builder.step(
        "await-pools",
        "Wait for the pools that are not held",
        StepAction::AwaitPools,
        &[last],
    );
    last = builder.step(
        "post-health-check",
        "Check health after the upgrade",
        StepAction::PostHealthCheck,
        &[last],
    );
    last = builder.hooks(HookEvent::UpgradeComplete, None, &[last], Part::Main);

    let mut ends = vec![last];
    for group in pools::held_groups(job, pools) {
        ends.push(builder.group(&group, &ready_for_groups));
    }
    if ends.len() > 1 {
        builder.step(
            "final-health-check",
            "Check health after the last pool",
            StepAction::FinalHealthCheck,
            &ends,
        );
    }
    builder.exit_part();
    builder.finish(RunKind::Main { attempt })
}

/// The plan of the hooks of Create that have not run yet; `None` if there is none.
pub fn create_plan(job: &UpgradeJob, hooks: &[UpgradeJobHook], number: u32) -> Option<Plan> {
    let mut builder = Builder::new(job, hooks);
    if select::matching(hooks, job, HookEvent::Create).is_empty() {
        return None;
    }
    builder.hooks(HookEvent::Create, None, &[], Part::Main);
    Some(builder.finish(RunKind::Create { number }))
}

/// The step that runs the hooks of an event of the end, for a job that never had a plan.
pub fn exit_step(event: HookEvent) -> PlanStep {
    PlanStep {
        name: format!("hooks-{}", slug(event)),
        title: format!("Hooks of {} are done", event.as_str()),
        action: StepAction::HooksJoin { event, group: None },
        after: Vec::new(),
        part: Part::Exit,
    }
}

/// Collects steps; names stay unique.
struct Builder<'a> {
    job: &'a UpgradeJob,
    hooks: &'a [UpgradeJobHook],
    steps: Vec<PlanStep>,
    taken: BTreeSet<String>,
}

impl<'a> Builder<'a> {
    fn new(job: &'a UpgradeJob, hooks: &'a [UpgradeJobHook]) -> Self {
        Self {
            job,
            hooks,
            steps: Vec::new(),
            taken: BTreeSet::new(),
        }
    }

    fn step(&mut self, name: &str, title: &str, action: StepAction, after: &[String]) -> String {
        self.add(name, title, action, after, Part::Main)
    }

    fn add(&mut self, name: &str, title: &str, action: StepAction, after: &[String], part: Part) -> String {
        let fitted = names::fit(name, names::MAX);
        let mut unique = fitted.clone();
        let mut n = 2;
        while !self.taken.insert(unique.clone()) {
            unique = names::fit(&format!("{fitted}-{n}"), names::MAX);
            n += 1;
        }
        self.steps.push(PlanStep {
            name: unique.clone(),
            title: title.to_owned(),
            action,
            after: after.to_vec(),
            part,
        });
        unique
    }

    /// One node per matching hook, then the node that joins them.
    fn hooks(
        &mut self,
        event: HookEvent,
        group: Option<(usize, &str)>,
        after: &[String],
        part: Part,
    ) -> String {
        let (index, suffix) = match group {
            Some((index, name)) => (Some(index), format!("{}-{name}", slug(event))),
            None => (None, slug(event).to_owned()),
        };
        // Each group has the event of its own; their titles stand side by side in Tekton's UI.
        let of = group.map_or_else(
            || event.as_str().to_owned(),
            |(_, name)| format!("{} of {name}", event.as_str()),
        );
        let selected: Vec<String> = select::matching(self.hooks, self.job, event)
            .iter()
            .map(|h| h.name_any())
            .collect();
        let mut before_join: Vec<String> = Vec::new();
        for hook in selected {
            let name = format!("hook-{suffix}-{}", names::dns_label(&hook));
            let title = format!("Hook {hook} ({of})");
            let action = StepAction::Hook {
                event,
                hook,
                group: index,
            };
            before_join.push(self.add(&name, &title, action, after, part));
        }
        if before_join.is_empty() {
            before_join = after.to_vec();
        }
        let action = StepAction::HooksJoin { event, group: index };
        let title = format!("Hooks of {of} are done");
        self.add(&format!("hooks-{suffix}"), &title, action, &before_join, part)
    }

    fn group(&mut self, group: &pools::HeldGroup, after: &String) -> String {
        let pools::HeldGroup { index, name, .. } = group;
        let (index, name) = (*index, name.as_str());
        let hold = self.step(
            &format!("hold-{name}"),
            &format!("Hold {name} until its time"),
            StepAction::Hold { group: index },
            std::slice::from_ref(after),
        );
        let hooks = self.hooks(
            HookEvent::MachineConfigPoolUnpause,
            Some((index, name)),
            &[hold],
            Part::Main,
        );
        let unpause = self.step(
            &format!("unpause-{name}"),
            &format!("Unpause {name}"),
            StepAction::Unpause { group: index },
            &[hooks],
        );
        self.step(
            &format!("await-{name}"),
            &format!("Wait for {name}"),
            StepAction::AwaitGroup { group: index },
            &[unpause],
        )
    }

    fn exit_part(&mut self) {
        let release = self.add(
            "release",
            "Give back pauses and lock",
            StepAction::Release,
            &[],
            Part::Exit,
        );
        for event in [HookEvent::Success, HookEvent::Failure, HookEvent::Finish] {
            self.hooks(event, None, std::slice::from_ref(&release), Part::Exit);
        }
    }

    fn finish(self, run: RunKind) -> Plan {
        Plan {
            version: VERSION,
            run,
            steps: self.steps,
        }
    }
}

fn slug(event: HookEvent) -> &'static str {
    match event {
        HookEvent::Create => "create",
        HookEvent::Start => "start",
        HookEvent::UpgradeComplete => "upgrade-complete",
        HookEvent::MachineConfigPoolUnpause => "unpause",
        HookEvent::Success => "success",
        HookEvent::Failure => "failure",
        HookEvent::Finish => "finish",
    }
}
