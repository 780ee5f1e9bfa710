//! Templates of the user's own that leave the operator without a step, or keep the workflow from beginning.

use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use openshift_upgrade_operator::{
    api::upgrade_job::EngineChoice,
    engine::{Engine, argo, tekton},
};
use serde_json::{Value, json};

use crate::{
    engine_faults::{engine_of, is_over},
    harness::{
        NAMESPACE, Scenario, assert_succeeded, condition, has, is_at,
        objects::{hook, in_seconds, job, job_between, now},
        status, until,
    },
};

fn template(engine: &dyn Engine) -> &'static str {
    match engine.kind() {
        EngineChoice::Tekton => tekton::TEMPLATE,
        EngineChoice::Argo | EngineChoice::Embedded | EngineChoice::Auto => argo::TEMPLATE,
    }
}

/// Once, where it must be.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} in the template");
    text.replacen(from, to, 1)
}

/// Without `await-pools`.
fn with_a_step_dropped(template: &str) -> String {
    let begun = replaced(
        template,
        "{{#each mainSteps}}\n",
        "{{#each mainSteps}}\n{{#unless (eq name \"await-pools\")}}\n",
    );
    replaced(&begun, "{{/if}}\n{{/each}}", "{{/if}}\n{{/unless}}\n{{/each}}")
}

/// All steps of the main part with names of the user's own.
fn with_steps_renamed(template: &str) -> String {
    let (head, tasks) = template.split_once("{{#each mainSteps}}").expect("the main part");
    format!(
        "{head}{{{{#each mainSteps}}}}{}",
        replaced(tasks, "- name: {{json name}}", "- name: \"my-{{name}}\"")
    )
}

/// The ConfigMap with the template, made or changed.
pub async fn give(s: &Scenario, text: &str) {
    let maps: Api<DynamicObject> = s.dynamic("v1", "ConfigMap");
    let map: Value = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "own", "namespace": NAMESPACE}, "data": {s.engine.template_key(): text},
    });
    let params = PatchParams::apply("a person").force();
    maps.patch("own", &params, &Patch::Apply(map))
        .await
        .expect("writing the template");
}

/// A maintenance job by the template.
pub async fn create(s: &Scenario, name: &str) {
    let config = json!({"workflow": {"template": {"name": "own"}}});
    s.create(&job(name, None, config)).await;
}

async fn until_told(s: &Scenario, name: &str, step: &str) {
    let told = format!("leaves out step {step}");
    s.until_job(name, &told, |j| {
        let conditions = status(j).conditions;
        let found = conditions.iter().find(|c| c.type_ == "TemplateValid");
        found.is_some_and(|c| c.status == "False" && c.message.contains(&told))
    })
    .await;
}

/// It lacks a step. The engine hand-over must be a matter of seconds.
pub async fn one_that_is_never_mended_is_told_and_the_job_goes_on(s: &Scenario) {
    give(s, &with_a_step_dropped(template(s.engine))).await;
    create(s, "dropped").await;
    until_told(s, "dropped", "await-pools").await;
    let done = s.until_over("dropped").await;
    assert_succeeded(&done);
    assert_eq!(engine_of(&done), Some(EngineChoice::Embedded));
    let message = &has(&done, "EngineStalled").unwrap().message;
    assert!(
        message.contains("workflow dropped-run-1 could not be made"),
        "{message}"
    );
}

/// Its steps have other names, until somebody mends it. The engine hand-over must be far off.
pub async fn one_that_is_mended_in_time_is_told_and_taken(s: &Scenario) {
    let ours = template(s.engine);
    give(s, &with_steps_renamed(ours)).await;
    create(s, "renamed").await;
    until_told(s, "renamed", "hooks-start").await;
    give(s, ours).await;
    let done = s.until_over("renamed").await;
    assert_succeeded(&done);
    assert_eq!(engine_of(&done), Some(s.engine.kind()));
    assert_eq!(condition(&done, "TemplateValid"), "TemplateValid=True/Valid");
}

/// A run that is made pending waits for a person. The command that the job tells lets it begin.
pub async fn one_that_is_made_to_wait_says_so(s: &Scenario) {
    give(s, &made_to_wait(s.engine)).await;
    create(s, "pending").await;
    until_suspended(s, "pending").await;
    resume_as_told(s, "pending").await;
    let done = s.until_over("pending").await;
    assert_succeeded(&done);
    assert_eq!(engine_of(&done), Some(s.engine.kind()));
}

fn made_to_wait(engine: &dyn Engine) -> String {
    let pause = match engine.kind() {
        EngineChoice::Tekton => "status: PipelineRunPending",
        EngineChoice::Argo | EngineChoice::Embedded | EngineChoice::Auto => "suspend: true",
    };
    replaced(template(engine), "\nspec:\n", &format!("\nspec:\n  {pause}\n"))
}

async fn until_suspended(s: &Scenario, name: &str) {
    s.until_job(name, "says that it is suspended", |j| {
        status(j)
            .message
            .is_some_and(|m| m.contains("suspended by a person"))
    })
    .await;
}

/// The same, but the person comes after `startBefore`, while the operator is away: nothing of it is begun.
pub async fn one_that_is_made_to_wait_too_long_is_skipped(s: &mut Scenario) {
    give(s, &made_to_wait(s.engine)).await;
    s.create(&hook("at-start", &["Start"])).await;
    // Long enough for the job to be started, and for nothing else.
    let latest = in_seconds(12);
    let own = json!({"workflow": {"template": {"name": "own"}}});
    s.create(&job_between("late", None, own, now(), latest)).await;
    until_suspended(s, "late").await;
    s.kill_operator();
    // It gets two minutes to begin, whatever startBefore says.
    let jobs = s.dynamic("managedupgrade.appuio.io/v1beta1", "UpgradeJob");
    let long_ago = Patch::Merge(json!({"status": {"startedAt": in_seconds(-600)}}));
    jobs.patch_status("late", &PatchParams::default(), &long_ago)
        .await
        .expect("dating the start back");
    s.edit_workflow("late-run-1", json!({"spec": {"suspend": null}}))
        .await;
    s.until_workflow("late-run-1", "waits for the operator", |w| {
        is_at(w, "hook-start-at-start")
    })
    .await;
    until("startBefore is over", async || (now() > latest).then_some(())).await;
    s.start_operator();
    let done = s.until_over("late").await;
    assert_eq!(condition(&done, "Succeeded"), "Succeeded=True/Skipped");
    assert!(has(&done, "Expired").is_some_and(|c| c.status == "True"));
    let run: Vec<_> = status(&done).hook_tracker;
    assert!(run.is_empty(), "no hook of Start may run: {run:#?}");
    s.until_workflow("late-run-1", "has ended", is_over).await;
}

/// Takes a pause back by the command that the job tells.
pub async fn resume_as_told(s: &Scenario, name: &str) {
    let message = status(&s.job(name).await).message.unwrap_or_default();
    let (_, command) = message.split_once("to go on: oc ").expect("a command");
    let (command, _) = command.split_once("; the job fails").expect("a command");
    let (is_well, text) = s.lane.program("bash", &["-c", &format!("kubectl {command}")]);
    assert!(is_well, "kubectl {command}: {text}");
}
