//! Workflows of a job besides the one that it follows: earlier ones, and copies that people make (`argo resubmit`, `argo retry`
//! of an earlier one, a saved object). Nothing acts on their nodes, so they would wait for ever: they are stopped.

use super::draft::Draft;
use crate::{api::upgrade_job::EngineChoice, engine::run_name, plan::RunKind, steps::Action};

/// A workflow that carries the job's name, or is on record as one of its earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherWorkflow {
    /// Its name.
    pub name: String,
    /// Whose it is; never `Auto` or `Embedded`.
    pub engine: EngineChoice,
    /// Where it is.
    pub state: OtherState,
}

/// Where a workflow is that its job does not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherState {
    /// It still has to be stopped: it has not ended, and nobody has asked for that.
    GoesOn,
    /// It had ended and was sealed, and somebody lets its engine run it again: it has to be stopped.
    Repeated,
    /// It was asked to end.
    Ending,
    /// It has ended, with all of its steps; but whoever retries it lets the engine run things of its own again.
    EndedUnsealed,
    /// It has ended, with all of its steps.
    Ended,
}

/// Stops those that go on. An earlier one is off the record as soon as it is seen stopped, or gone.
pub(super) fn stop(draft: &mut Draft<'_>) {
    let going: Vec<&str> = draft
        .input
        .others
        .iter()
        .filter(|o| match o.state {
            OtherState::GoesOn => !is_ending(draft, &o.name),
            OtherState::Repeated => true,
            OtherState::Ending | OtherState::EndedUnsealed | OtherState::Ended => false,
        })
        .map(|o| o.name.as_str())
        .collect();
    for name in &going {
        let is_former = draft.status.former_workflows.iter().any(|f| f.name == *name);
        if !is_former {
            let note = format!(
                "workflow {name} carries the name of this job and is not the one that it follows: was it submitted or retried by \
                 hand? It is stopped, and nothing of it is done"
            );
            draft.notice(true, "OtherWorkflowStopped", note);
        }
        let name = (*name).to_owned();
        draft.actions.push(Action::StopOtherWorkflow { name });
    }
    draft
        .status
        .former_workflows
        .retain(|f| going.contains(&f.name.as_str()));
}

/// A run of Create hooks that came to its end: the engine closes it in a moment.
fn is_ending(draft: &Draft<'_>, name: &str) -> bool {
    let is_left = draft.status.former_workflows.iter().any(|f| f.name == name);
    let number = name.rsplit('-').next().and_then(|n| n.parse().ok());
    let is_create = |number| run_name(draft.input.job, RunKind::Create { number }) == name;
    !is_left && number.is_some_and(is_create)
}
