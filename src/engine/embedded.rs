//! No workflow object: the order of the plan is followed over `status.steps` of the UpgradeJob itself.
//!
//! For clusters without Argo Workflows (and Tekton), and where no other object is wanted. What there is to see is in the
//! UpgradeJob; there is nothing that a person could stop, pause or resume but the job itself.

use std::collections::BTreeMap;

use super::{Node, NodePhase, Repeat, Run};
use crate::{
    api::upgrade_job::{StepPhase, StepStatus, UpgradeJobStatus},
    plan::{Part, Plan, PlanStep},
};

/// The run as the recorded steps show it: a step of the main part is reached when all before it have ended well.
///
/// Steps of the exit part have no node: the life cycle executes them whether or not an engine shows them.
pub fn observe(plan: &Plan, status: &UpgradeJobStatus) -> Run {
    let nodes: Vec<Node> = plan
        .part(Part::Main)
        .filter_map(|step| node(plan, status, step))
        .collect();
    let finished = plan
        .part(Part::Main)
        .all(|s| recorded(status, &s.name).is_some_and(|s| s.phase.is_finished()));
    let failed = nodes.iter().any(|n| n.phase == NodePhase::Failed);
    let phase = match (finished, failed) {
        (false, _) => "Running",
        (true, false) => "Succeeded",
        (true, true) => "Failed",
    };
    Run {
        phase: phase.to_owned(),
        picked_up: true,
        finished,
        message: None,
        stop: None,
        stopped_by: None,
        woken_at: None,
        suspended: false,
        repeat: Repeat::Harmless,
        sealed_at: None,
        nodes,
        native: BTreeMap::new(),
        unsupported: None,
    }
}

fn recorded<'a>(status: &'a UpgradeJobStatus, name: &str) -> Option<&'a StepStatus> {
    status.steps.iter().find(|s| s.name == name)
}

fn node(plan: &Plan, status: &UpgradeJobStatus, step: &PlanStep) -> Option<Node> {
    let record = recorded(status, &step.name);
    let phase = match record.map_or(StepPhase::Pending, |s| s.phase) {
        StepPhase::Succeeded | StepPhase::Overridden => NodePhase::Succeeded,
        StepPhase::Failed => NodePhase::Failed,
        StepPhase::Skipped => NodePhase::Skipped,
        StepPhase::Pending | StepPhase::Running if is_reached(plan, status, step) => NodePhase::Running,
        StepPhase::Pending | StepPhase::Running => return None,
    };
    Some(Node {
        step: step.name.clone(),
        phase,
        message: record.and_then(|s| s.message.clone()),
        started_at: record.and_then(|s| s.started_at.as_ref()).map(|t| t.0),
        finished_at: record.and_then(|s| s.finished_at.as_ref()).map(|t| t.0),
        ended_by: None,
        broken: None,
    })
}

fn is_reached(plan: &Plan, status: &UpgradeJobStatus, step: &PlanStep) -> bool {
    let ended_well = |name: &String| {
        recorded(status, name).is_some_and(|s| match s.phase {
            StepPhase::Succeeded | StepPhase::Overridden | StepPhase::Skipped => true,
            StepPhase::Pending | StepPhase::Running | StepPhase::Failed => false,
        })
    };
    step.after
        .iter()
        .filter(|name| plan.step(name).is_some())
        .all(ended_well)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan() -> Plan {
        let step = |name: &str, after: &[&str], part: &str| json!({"name": name, "title": name, "after": after, "part": part, "action": {"kind": "pausePools"}});
        Plan::from_value(&json!({"version": 1, "run": {"kind": "main", "attempt": 1}, "steps": [
            step("a", &[], "main"), step("b", &["a"], "main"), step("c", &["a"], "main"), step("d", &["b", "c"], "main"),
            step("z", &[], "exit"),
        ]}))
        .unwrap()
    }

    fn status(steps: &[(&str, &str)]) -> UpgradeJobStatus {
        let steps: Vec<_> = steps
            .iter()
            .map(|(name, phase)| json!({"name": name, "kind": "k", "phase": phase}))
            .collect();
        serde_json::from_value(json!({"steps": steps})).unwrap()
    }

    fn phases(run: &Run) -> Vec<(&str, NodePhase)> {
        run.nodes.iter().map(|n| (n.step.as_str(), n.phase)).collect()
    }

    #[test]
    fn a_step_is_reached_when_all_before_it_have_ended_well() {
        use NodePhase::{Failed, Running, Skipped, Succeeded};
        let run = |steps| observe(&plan(), &status(steps));
        assert_eq!(phases(&run(&[])), [("a", Running)]);
        assert_eq!(
            phases(&run(&[("a", "Succeeded"), ("b", "Running")])),
            [("a", Succeeded), ("b", Running), ("c", Running)]
        );
        assert_eq!(
            phases(&run(&[("a", "Overridden"), ("b", "Skipped"), ("c", "Succeeded")])),
            [("a", Succeeded), ("b", Skipped), ("c", Succeeded), ("d", Running)]
        );
        assert_eq!(phases(&run(&[("a", "Failed")])), [("a", Failed)]);
    }

    #[test]
    fn it_ends_with_the_last_step() {
        let all = [
            ("a", "Succeeded"),
            ("b", "Succeeded"),
            ("c", "Succeeded"),
            ("d", "Succeeded"),
        ];
        let run = observe(&plan(), &status(&all));
        assert!(run.finished && run.phase == "Succeeded");
        assert!(!observe(&plan(), &status(&all[..3])).finished);
    }
}
