//! Hooks that Argo runs: the copied templates in a Workflow, and the tasks that call them.
//!
//! The step of such a hook stays a `suspend` node that the operator ends. The task after it, `run-<step>`, calls the hook's
//! template if the operator says so in the outputs of that node; there it also finds the event.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{
    inline::{self, ENVIRONMENT, EVENT, Inlined, JOB, Place},
    text,
};
use crate::{
    api::{UpgradeJobHook, annotations, upgrade_job::HookState},
    engine::{
        RenderError, RunContext,
        native::{Start, StartedRun, TemplateKey, environment_name},
    },
    plan::{Part, Plan, PlanStep, StepAction},
};

/// Output of a step: whether the task after it shall run.
const GO: &str = "go";
/// Output of the step of a group of pools: for which of them.
const POOLS: &str = "pools";
/// Outputs by which the operator starts a hook.
pub const OUTPUTS: [&str; 4] = [GO, POOLS, EVENT, JOB];
/// Most bytes of templates that all hooks may bring together.
const MAX_ALL: usize = 640 * 1024;

/// Name of the task that runs the hook of a step. No step of a plan begins so.
pub fn task_name(step: &str) -> String {
    format!("run-{step}")
}

/// The hooks of a plan that Argo is to run.
#[derive(Debug, Default)]
pub struct Natives {
    /// Steps whose hook runs in the Workflow.
    inlined: BTreeMap<String, Inlined>,
    /// Steps whose hook cannot, and why.
    problems: BTreeMap<String, String>,
}

impl Natives {
    /// Copies the templates of a plan's hooks.
    pub fn of(plan: &Plan, context: &RunContext<'_>) -> Self {
        let mut all = Self::default();
        let namespace = context.job.namespace().unwrap_or_default();
        let mut taken: BTreeSet<String> = plan.steps.iter().map(|s| s.name.clone()).collect();
        taken.extend(["main", "exit"].map(str::to_owned));
        let mut size = 0_usize;
        for (step, number) in plan.steps.iter().zip(1..) {
            let Some(reference) = hook_of(step, context).and_then(|h| h.spec.template_ref.as_ref()) else {
                continue;
            };
            if has_ended(step, context) {
                continue;
            }
            let place = Place {
                step: &step.name,
                number,
                namespace: &namespace,
            };
            let lookup = context.templates.get(&TemplateKey::of(reference));
            let inlined = inline::inline(reference, lookup, &place, &mut taken)
                .map_err(|e| e.to_string())
                .and_then(|inlined| all.fits(inlined, &mut size));
            match inlined {
                Ok(inlined) => drop(all.inlined.insert(step.name.clone(), inlined)),
                Err(problem) => drop(all.problems.insert(step.name.clone(), problem)),
            }
        }
        all
    }

    fn fits(&self, inlined: Inlined, size: &mut usize) -> Result<Inlined, String> {
        let own: usize = inlined.templates.iter().map(|t| t.to_string().len()).sum();
        if *size + own > MAX_ALL {
            let most = MAX_ALL / 1024;
            return Err(format!(
                "the templates of all hooks together have more than {most} KiB, which a workflow cannot hold: make them shorter"
            ));
        }
        let repository = |i: &Inlined| i.artifact_repository.clone();
        if let Some(mine) = repository(&inlined)
            && self
                .inlined
                .values()
                .filter_map(repository)
                .any(|other| other != mine)
        {
            return Err(
                "its spec.artifactRepositoryRef is another one than that of another hook of this workflow: use the same"
                    .to_owned(),
            );
        }
        *size += own;
        Ok(inlined)
    }

    /// Whether Argo runs the hook of this step.
    pub fn runs(&self, step: &str) -> bool {
        self.inlined.contains_key(step)
    }

    /// Puts tasks and templates into a rendered Workflow.
    pub fn add_to(&self, workflow: &mut Value, plan: &Plan, name: &str) -> Result<(), RenderError> {
        if !self.problems.is_empty() {
            let problems =
                serde_json::to_string(&self.problems).map_err(|e| RenderError::Output(e.to_string()))?;
            member(workflow, &["metadata", "annotations"])?
                .insert(annotations::HOOKS_NOT_RUN.to_owned(), json!(problems));
        }
        for step in &plan.steps {
            let Some(inlined) = self.inlined.get(&step.name) else {
                continue;
            };
            Adding {
                workflow,
                step,
                inlined,
            }
            .add(name)?;
        }
        Ok(())
    }
}

fn hook_of<'a>(step: &PlanStep, context: &RunContext<'a>) -> Option<&'a UpgradeJobHook> {
    let StepAction::Hook { hook, .. } = &step.action else {
        return None;
    };
    let found = context.hooks.iter().find(|h| h.name_any() == *hook)?;
    found.spec.template.is_none().then_some(found)
}

/// Whether the hook of a step ran before, in an earlier workflow of the job, or is known to be none that can run.
fn has_ended(step: &PlanStep, context: &RunContext<'_>) -> bool {
    let StepAction::Hook { event, hook, group } = &step.action else {
        return false;
    };
    let all = context
        .job
        .status
        .as_ref()
        .map_or(&[][..], |s| s.hook_tracker.as_slice());
    all.iter().any(|e| {
        let by_step = e.workflow_step.as_ref().is_some_and(|by| by.step == step.name);
        let same = e.hook_event == *event && e.upgrade_job_hook == *hook;
        same && e.status != HookState::Active && group.map_or(e.tracking_key.is_empty(), |_| by_step)
    })
}

/// Whether the step stands for the pools of a group.
fn is_per_pool(step: &PlanStep) -> bool {
    match &step.action {
        StepAction::Hook { group, .. } => group.is_some(),
        StepAction::PreHealthCheck
        | StepAction::PausePools
        | StepAction::SetDesiredUpdate
        | StepAction::AwaitControlPlane
        | StepAction::AwaitPools
        | StepAction::PostHealthCheck
        | StepAction::FinalHealthCheck
        | StepAction::Hold { .. }
        | StepAction::Unpause { .. }
        | StepAction::AwaitGroup { .. }
        | StepAction::HooksJoin { .. }
        | StepAction::Release => false,
    }
}

/// One hook on its way into a Workflow.
struct Adding<'a> {
    workflow: &'a mut Value,
    step: &'a PlanStep,
    inlined: &'a Inlined,
}

impl Adding<'_> {
    fn add(mut self, workflow: &str) -> Result<(), RenderError> {
        let templates = list(self.workflow, &["spec", "templates"])?;
        templates.extend(self.inlined.templates.iter().cloned());
        if !self.inlined.workflow_parameters.is_empty() {
            list(self.workflow, &["spec", "arguments", "parameters"])?
                .extend(self.inlined.workflow_parameters.iter().cloned());
        }
        if let Some(repository) = &self.inlined.artifact_repository {
            member(self.workflow, &["spec"])?
                .entry("artifactRepositoryRef")
                .or_insert_with(|| repository.clone());
        }
        let task = self.task(workflow);
        let called = self.add_task(task)?;
        self.add_outputs(&called)
    }

    fn missing(&self) -> RenderError {
        RenderError::StepMissing {
            step: self.step.name.clone(),
        }
    }

    fn output(&self, name: &str) -> String {
        format!("{{{{tasks.{}.outputs.parameters.{name}}}}}", self.step.name)
    }

    /// The task that calls the hook's template.
    fn task(&self, workflow: &str) -> Value {
        let step = &self.step.name;
        let per_pool = is_per_pool(self.step);
        let environment = if per_pool {
            format!("{workflow}.{step}.{{{{item}}}}")
        } else {
            environment_name(workflow, step, "")
        };
        let mut parameters = vec![json!({"name": ENVIRONMENT, "value": environment})];
        if self.inlined.takes_event {
            let event = self.output(EVENT);
            // The fields without the braces around them: the pool is known here only. Three braces would be none of Argo's
            // variables.
            let pool = if per_pool { "\"pool\":\"{{item}}\"," } else { "" };
            parameters.push(json!({"name": EVENT, "value": format!("{{{pool} {event}}}")}));
        }
        if self.inlined.takes_job {
            parameters.push(json!({"name": JOB, "value": self.output(JOB)}));
        }
        parameters.extend(self.inlined.arguments.iter().cloned());
        let mut task = json!({
            "name": task_name(step),
            "template": self.inlined.entry,
            "depends": format!("{step}.Succeeded"),
            "arguments": {"parameters": parameters},
        });
        if let Some(fields) = task.as_object_mut() {
            if per_pool {
                fields.insert("withParam".to_owned(), json!(self.output(POOLS)));
            } else {
                fields.insert("when".to_owned(), json!(format!("{} == true", self.output(GO))));
            }
        }
        task
    }

    /// Adds the task to the DAG of its step; returns the template of that step.
    fn add_task(&mut self, task: Value) -> Result<String, RenderError> {
        let part = match self.step.part {
            Part::Main => "entrypoint",
            Part::Exit => "onExit",
        };
        let missing = self.missing();
        let dag_name = self.workflow.pointer(&format!("/spec/{part}")).cloned();
        let tasks = list(self.workflow, &["spec", "templates"])?
            .iter_mut()
            .find(|t| t.get("name") == dag_name.as_ref())
            .and_then(|t| t.get_mut("dag")?.get_mut("tasks")?.as_array_mut())
            .ok_or(missing)?;
        if tasks.iter().any(|t| t.get("name") == task.get("name")) {
            return Err(RenderError::Output(format!(
                "it has a task {}, which is the name of one of the operator's: rename it",
                task_name(&self.step.name)
            )));
        }
        let at = tasks
            .iter()
            .position(|t| t.get("name").and_then(Value::as_str) == Some(&self.step.name));
        let at = at.ok_or_else(|| RenderError::StepMissing {
            step: self.step.name.clone(),
        })?;
        let own = tasks
            .get(at)
            .and_then(|t| t.get("template")?.as_str().map(str::to_owned));
        tasks.insert(at + 1, task);
        own.ok_or_else(|| self.missing())
    }

    /// What the operator supplies when it ends the step; a person who ends it supplies nothing, and nothing runs.
    fn add_outputs(&mut self, template: &str) -> Result<(), RenderError> {
        let missing = self.missing();
        let supplied = self.outputs();
        let template = list(self.workflow, &["spec", "templates"])?
            .iter_mut()
            .find(|t| t.get("name").and_then(Value::as_str) == Some(template))
            .ok_or(missing)?;
        let parameters = list(template, &["outputs", "parameters"])?;
        for (name, default) in supplied {
            if !parameters
                .iter()
                .any(|p| p.get("name").and_then(Value::as_str) == Some(name))
            {
                parameters.push(json!({"name": name, "valueFrom": {"supplied": {}, "default": default}}));
            }
        }
        Ok(())
    }

    /// The outputs of the step, with their values while nothing runs.
    fn outputs(&self) -> Vec<(&'static str, &'static str)> {
        let run = if is_per_pool(self.step) {
            (POOLS, "[]")
        } else {
            (GO, "false")
        };
        let event = self.inlined.takes_event.then_some((EVENT, ""));
        let job = self.inlined.takes_job.then_some((JOB, "{}"));
        [Some(run), event, job].into_iter().flatten().collect()
    }
}

/// Values of the outputs that start a hook.
pub fn outputs(start: &Start) -> BTreeMap<&'static str, String> {
    let pools: Vec<&str> = start.runs.iter().map(|r: &StartedRun| r.key.as_str()).collect();
    let fields = start.event.trim();
    let fields = fields
        .strip_prefix('{')
        .and_then(|f| f.strip_suffix('}'))
        .unwrap_or(fields);
    BTreeMap::from([
        (GO, "true".to_owned()),
        (POOLS, json!(pools).to_string()),
        (EVENT, text::json_without_variables(fields)),
        (JOB, text::json_without_variables(&start.job)),
    ])
}

/// The object at this path, made where it is not there.
fn member<'a>(value: &'a mut Value, path: &[&str]) -> Result<&'a mut Map<String, Value>, RenderError> {
    let mut at = value.as_object_mut().ok_or_else(|| no_object(path))?;
    for name in path {
        let next = at.entry(*name).or_insert_with(|| json!({}));
        at = next.as_object_mut().ok_or_else(|| no_object(path))?;
    }
    Ok(at)
}

fn list<'a>(value: &'a mut Value, path: &[&str]) -> Result<&'a mut Vec<Value>, RenderError> {
    let (last, parents) = path.split_last().unwrap_or((&"", &[]));
    let found = member(value, parents)?.entry(*last).or_insert_with(|| json!([]));
    found
        .as_array_mut()
        .ok_or_else(|| RenderError::Output(format!("{} is not a list", path.join("."))))
}

fn no_object(path: &[&str]) -> RenderError {
    RenderError::Output(format!("{} is not an object", path.join(".")))
}

#[cfg(test)]
mod tests;
