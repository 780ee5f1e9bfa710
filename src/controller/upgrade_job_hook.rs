//! UpgradeJobHook: says whether a hook can be acted upon, before the night it is needed.

use kube::{Api, ResourceExt, api::Patch};
use serde_json::json;

use super::{
    Context,
    calls::{CallError, call},
    effects, events,
};
use crate::{
    api::{
        UpgradeJobHook,
        conditions::{self, reasons, types},
        upgrade_job_hook::UpgradeJobHookStatus,
        validation,
    },
    lifecycle::Notice,
};

/// Writes the condition `Valid` where it changed.
pub async fn reconcile(ctx: &Context, hook: &UpgradeJobHook) -> Result<(), CallError> {
    let before = hook.status.clone().unwrap_or_default();
    let (status, notice) = decide(hook, &before, ctx.now());
    if status == before {
        return Ok(());
    }
    let name = hook.name_any();
    // The claim is not ours to write here: only what changed goes into the patch.
    let patch = json!({
        "metadata": {"resourceVersion": hook.resource_version()},
        "status": {"observedGeneration": status.observed_generation, "conditions": status.conditions},
    });
    let api: Api<UpgradeJobHook> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    call(
        format!("write the status of UpgradeJobHook {name}"),
        api.patch_status(&name, &effects::params(), &Patch::Merge(patch)),
    )
    .await?;
    events::publish(&ctx.client, hook, notice.as_slice(), ctx.now()).await;
    Ok(())
}

fn decide(
    hook: &UpgradeJobHook,
    before: &UpgradeJobHookStatus,
    now: jiff::Timestamp,
) -> (UpgradeJobHookStatus, Option<Notice>) {
    let mut status = before.clone();
    let generation = hook.metadata.generation;
    status.observed_generation = generation;
    let problems = validation::upgrade_job_hook(hook);
    let valid = problems.is_empty();
    let message = if valid {
        "the hook is valid".to_owned()
    } else {
        validation::summary(&problems)
    };
    let reason = if valid { reasons::VALID } else { reasons::INVALID };
    let all = &mut status.conditions;
    let changed = conditions::set(all, types::VALID, valid, reason, message.clone(), generation, now);
    let notice = (changed && !valid).then(|| Notice {
        warning: true,
        reason: reason.to_owned(),
        note: message,
    });
    (status, notice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(events: &serde_json::Value) -> UpgradeJobHook {
        serde_json::from_value(json!({
            "metadata": {"name": "h", "generation": 3},
            "spec": {"events": events, "template": {"spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}},
        }))
        .unwrap()
    }

    #[test]
    fn a_bad_hook_is_said_once() {
        let hook = hook(&json!([]));
        let now = "2026-11-21T00:00:00Z".parse().unwrap();
        let (status, notice) = decide(&hook, &UpgradeJobHookStatus::default(), now);
        assert!(notice.unwrap().note.contains("spec.events"));
        assert!(!conditions::is_true(&status.conditions, types::VALID));
        let (again, notice) = decide(&hook, &status, now);
        assert_eq!((again, notice), (status, None));
    }

    #[test]
    fn a_good_hook_is_valid() {
        let now = "2026-11-21T00:00:00Z".parse().unwrap();
        let (status, notice) = decide(&hook(&json!(["Start"])), &UpgradeJobHookStatus::default(), now);
        assert!(conditions::is_true(&status.conditions, types::VALID) && notice.is_none());
        assert_eq!(status.observed_generation, Some(3));
        assert_eq!(status.conditions[0].message, "the hook is valid");
    }
}
