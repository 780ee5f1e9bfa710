//! ClusterVersion (ours): snapshot → decision → fresh snapshot → decision → questions and write → decision → status,
//! Events.

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, ValidationDirective},
};
use serde_json::Value;

use super::{
    Context,
    calls::{CallError, call},
    effects, events, live,
};
use crate::{
    api::cluster_version::ClusterVersion as ManagedClusterVersion,
    openshift::cluster_version::{self, ClusterVersion},
    overlay::{Change, Decision, Input, Memory, Outcome, Refusal, decide},
    world::World,
};

/// One pass over one object; returns when to look again.
pub async fn reconcile(
    ctx: &Context,
    memory: &mut Memory,
    world: &World,
    managed: &ManagedClusterVersion,
) -> Result<Option<Timestamp>, CallError> {
    let pass = Pass { ctx, memory };
    let decision = pass.decide(managed, world, None);
    if !pass.is_anything_to_do(managed, &decision) {
        return Ok(pass.wake_at(&decision));
    }
    let Some((managed, fresh)) =
        live::managed_version(&ctx.client, &ctx.settings.namespace, &managed.name_any()).await?
    else {
        return Ok(None);
    };
    let fresh = World {
        outside: ctx.outside(),
        ..fresh
    };
    if fresh.outside.peer.is_some() {
        return Ok(None);
    }
    pass.carry_out(&managed, fresh).await
}

struct Pass<'a> {
    ctx: &'a Context,
    memory: &'a mut Memory,
}

impl Pass<'_> {
    fn decide(&self, managed: &ManagedClusterVersion, world: &World, applied: Option<Change>) -> Decision {
        // An overlay falls due when both clocks say so.
        let now = world.outside.careful(self.ctx.now());
        let outcome = Outcome {
            applied,
            ..self.memory.outcome(managed, world, now)
        };
        decide(&Input {
            managed,
            world,
            outcome: &outcome,
            zone: self.ctx.settings.zone(),
            now,
        })
    }

    fn is_due(&self, change: &Change) -> bool {
        let not_before = self.memory.not_before(change);
        not_before.is_none_or(|t| self.ctx.now() >= t)
    }

    fn is_anything_to_do(&self, managed: &ManagedClusterVersion, decision: &Decision) -> bool {
        managed.status.as_ref() != Some(&decision.status)
            || !decision.rehearse.is_empty()
            || decision.change.as_ref().is_some_and(|c| self.is_due(c))
    }

    fn wake_at(&self, decision: &Decision) -> Option<Timestamp> {
        let again = decision
            .change
            .as_ref()
            .and_then(|change| self.memory.not_before(change));
        let due = decision.wake_at.map(|t| self.ctx.outside().by_our_clock(t));
        [due, again].into_iter().flatten().min()
    }

    async fn carry_out(
        mut self,
        managed: &ManagedClusterVersion,
        mut world: World,
    ) -> Result<Option<Timestamp>, CallError> {
        let mut decision = self.decide(managed, &world, None);
        if !decision.rehearse.is_empty() {
            self.rehearse(managed, &world, &decision).await?;
            decision = self.decide(managed, &world, None);
        }
        if let Some(change) = decision.change.clone().filter(|c| self.is_due(c)) {
            let applied = self.write(&mut world, change).await?;
            decision = self.decide(managed, &world, applied);
            if let (Some(left), Some(rest)) = (&decision.change, self.left_over(&decision)) {
                self.memory.refused(left, rest, self.ctx.now());
                decision = self.decide(managed, &world, None);
            }
        }
        self.tell(managed, &decision).await?;
        Ok(self.wake_at(&decision))
    }

    /// Something that was written and is not there: nobody refused it, and trying again at once would not help.
    fn left_over(&self, decision: &Decision) -> Option<String> {
        let change = decision.change.as_ref()?;
        let known = self.memory.not_before(change).is_some();
        (!known).then(|| {
            "it takes the write and keeps something else; an admission webhook may be at work".to_owned()
        })
    }

    /// Writes to the cluster's ClusterVersion; a refusal is remembered, and no error.
    async fn write(&mut self, world: &mut World, change: Change) -> Result<Option<Change>, CallError> {
        let what = change.describe();
        tracing::info!(change = what, "writing to the ClusterVersion");
        let attempt = format!("write to the ClusterVersion: {what}");
        let now = self.ctx.now();
        match self.patch(attempt, world, &change, false).await {
            Ok(written) => {
                self.memory.applied(&change, now);
                world.cluster_version = Some(written);
                Ok(Some(change))
            }
            Err(error) => {
                let why = error.refusal().ok_or(error)?;
                tracing::warn!(
                    change = what,
                    why,
                    "the API server refuses a change of the ClusterVersion"
                );
                self.memory.refused(&change, why, now);
                Ok(None)
            }
        }
    }

    /// Asks the API server about overlays to come: better now than at night.
    async fn rehearse(
        &mut self,
        managed: &ManagedClusterVersion,
        world: &World,
        decision: &Decision,
    ) -> Result<(), CallError> {
        let mut refusals = Vec::new();
        for (from, change) in &decision.rehearse {
            let attempt = format!("try the overlay from {from} on the ClusterVersion");
            if let Err(error) = self.patch(attempt, world, change, true).await {
                let why = error.refusal().ok_or(error)?;
                refusals.push(Refusal { from: *from, why });
            }
        }
        self.memory.rehearsed(managed, world, refusals);
        Ok(())
    }

    async fn patch(
        &self,
        attempt: String,
        world: &World,
        change: &Change,
        dry_run: bool,
    ) -> Result<ClusterVersion, CallError> {
        let Some(cluster) = &world.cluster_version else {
            return Err(CallError::Own {
                attempt,
                problem: "the ClusterVersion is gone".to_owned(),
            });
        };
        let patch: Patch<Value> = effects::json_patch(change.patch(cluster, self.ctx.now()), &attempt)?;
        let params = PatchParams {
            dry_run,
            // A misspelt field is refused; otherwise it would be dropped, missed, and written again for ever.
            field_validation: Some(ValidationDirective::Strict),
            ..effects::params()
        };
        let api: Api<ClusterVersion> = Api::all(self.ctx.client.clone());
        call(attempt, api.patch(cluster_version::NAME, &params, &patch)).await
    }

    async fn tell(&self, managed: &ManagedClusterVersion, decision: &Decision) -> Result<(), CallError> {
        let ctx = self.ctx;
        if managed.status.as_ref() != Some(&decision.status) {
            let api: Api<ManagedClusterVersion> =
                Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
            effects::replace_status(&api, managed, &decision.status).await?;
        }
        for notice in &decision.notices {
            tracing::info!(verdict = notice.reason, "{}", notice.note);
        }
        events::publish(&ctx.client, managed, &decision.notices, ctx.now()).await;
        Ok(())
    }
}
