//! UpgradeSuspensionWindow: says what a window matches, and whether it is one, before the holidays it is written for.

use kube::{Api, ResourceExt};

use super::{Context, calls::CallError, effects, events};
use crate::{api::UpgradeSuspensionWindow, schedule::window_status, world::World};

/// Writes the status where it changed.
pub async fn reconcile(
    ctx: &Context,
    world: &World,
    window: &UpgradeSuspensionWindow,
) -> Result<(), CallError> {
    let (status, notice) = window_status::decide(window, world, ctx.now());
    if window.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let api: Api<UpgradeSuspensionWindow> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    effects::replace_status(&api, window, &status).await?;
    if let Some(notice) = &notice {
        tracing::info!(
            window = window.name_any(),
            verdict = notice.reason,
            "{}",
            notice.note
        );
    }
    events::publish(&ctx.client, window, notice.as_slice(), ctx.now()).await;
    Ok(())
}
