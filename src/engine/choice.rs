//! Which engine a job gets.

use super::of;
use crate::api::{UpgradeJobHook, job_config::EngineChoice};

/// Engines whose kinds the API server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// Argo Workflows.
    pub argo: bool,
    /// Tekton Pipelines.
    pub tekton: bool,
}

impl Installed {
    /// Whether the kinds of this engine are there; it may have none.
    pub fn has(self, choice: EngineChoice) -> bool {
        match choice {
            EngineChoice::Argo => self.argo,
            EngineChoice::Tekton => self.tekton,
            EngineChoice::Embedded | EngineChoice::Auto => true,
        }
    }
}

/// The engine of a job, or why it has none. Design, section 2.6: `auto` is Argo, then Tekton, then embedded; where both are
/// installed, the kinds of the job's hooks decide: with Tasks and without Argo templates among them, Tekton.
///
/// `hooks` are those that match the job.
pub fn choose(
    wanted: EngineChoice,
    installed: Installed,
    hooks: &[&UpgradeJobHook],
) -> Result<EngineChoice, String> {
    let choice = match wanted {
        EngineChoice::Auto => automatic(installed, hooks),
        EngineChoice::Argo | EngineChoice::Tekton | EngineChoice::Embedded => wanted,
    };
    match of(choice) {
        Some(engine) if !installed.has(choice) => {
            let (resource, title) = (engine.resource(), engine.title());
            Err(format!(
                "engine {} is not installed (the API server has no kind {} of {}): install {title}, or choose another engine",
                choice.as_str(),
                resource.kind,
                resource.group
            ))
        }
        Some(_) | None => Ok(choice),
    }
}

/// What a job says that would begin on an engine of which it is not certain that it is still there.
pub fn in_doubt(choice: EngineChoice) -> String {
    let kinds = of(choice).map_or_else(String::new, |engine| {
        let group = engine.resource().group;
        format!(" (the API server does not have all of its kinds in {group} any more)")
    });
    format!(
        "engine {} may just have been removed{kinds}: the job waits for up to two minutes until that is certain",
        choice.as_str()
    )
}

fn automatic(installed: Installed, hooks: &[&UpgradeJobHook]) -> EngineChoice {
    let has_tasks = hooks.iter().any(|h| h.spec.task_ref.is_some());
    let has_templates = hooks.iter().any(|h| h.spec.template_ref.is_some());
    match installed {
        Installed {
            argo: true,
            tekton: true,
        } if has_tasks && !has_templates => EngineChoice::Tekton,
        Installed { argo: true, .. } => EngineChoice::Argo,
        Installed { tekton: true, .. } => EngineChoice::Tekton,
        Installed { .. } => EngineChoice::Embedded,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn hook(spec: &Value) -> UpgradeJobHook {
        let mut all = json!({"events": ["Start"]});
        json_patch::merge(&mut all, spec);
        serde_json::from_value(json!({
            "apiVersion": "managedupgrade.appuio.io/v1beta1", "kind": "UpgradeJobHook",
            "metadata": {"name": "h", "namespace": "n"}, "spec": all,
        }))
        .unwrap()
    }

    #[test]
    fn what_is_in_doubt_is_said() {
        assert_eq!(
            in_doubt(EngineChoice::Tekton),
            "engine tekton may just have been removed (the API server does not have all of its kinds in tekton.dev any more): the \
             job waits for up to two minutes until that is certain"
        );
    }

    const NONE: Installed = Installed {
        argo: false,
        tekton: false,
    };
    const ARGO: Installed = Installed {
        argo: true,
        tekton: false,
    };
    const TEKTON: Installed = Installed {
        argo: false,
        tekton: true,
    };
    const BOTH: Installed = Installed {
        argo: true,
        tekton: true,
    };

    #[rstest]
    #[case::nothing(NONE, json!([]), EngineChoice::Embedded)]
    #[case::argo(ARGO, json!([]), EngineChoice::Argo)]
    #[case::tekton(TEKTON, json!([]), EngineChoice::Tekton)]
    #[case::both(BOTH, json!([]), EngineChoice::Argo)]
    #[case::both_and_a_task(BOTH, json!([{"taskRef": {"name": "t"}}]), EngineChoice::Tekton)]
    #[case::both_and_a_template(BOTH, json!([{"templateRef": {"name": "t"}}]), EngineChoice::Argo)]
    #[case::both_and_each(BOTH, json!([{"taskRef": {"name": "t"}}, {"templateRef": {"name": "t"}}]), EngineChoice::Argo)]
    #[case::argo_and_a_task(ARGO, json!([{"taskRef": {"name": "t"}}]), EngineChoice::Argo)]
    #[case::tekton_and_a_template(TEKTON, json!([{"templateRef": {"name": "t"}}]), EngineChoice::Tekton)]
    fn auto_is_the_first_that_is_there(
        #[case] installed: Installed,
        #[case] hooks: Value,
        #[case] expected: EngineChoice,
    ) {
        let hooks: Vec<_> = hooks.as_array().unwrap().iter().map(hook).collect();
        let hooks: Vec<_> = hooks.iter().collect();
        assert_eq!(choose(EngineChoice::Auto, installed, &hooks), Ok(expected));
    }

    #[rstest]
    #[case(
        EngineChoice::Argo,
        TEKTON,
        "no kind Workflow of argoproj.io): install Argo Workflows"
    )]
    #[case(
        EngineChoice::Tekton,
        ARGO,
        "no kind PipelineRun of tekton.dev): install Tekton Pipelines"
    )]
    fn what_was_chosen_and_is_not_there_is_said(
        #[case] wanted: EngineChoice,
        #[case] installed: Installed,
        #[case] part: &str,
    ) {
        let problem = choose(wanted, installed, &[]).unwrap_err();
        assert!(problem.contains(part), "{problem}");
        assert_eq!(choose(wanted, BOTH, &[]), Ok(wanted));
        assert_eq!(
            choose(EngineChoice::Embedded, installed, &[]),
            Ok(EngineChoice::Embedded)
        );
    }
}
