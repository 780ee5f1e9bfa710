//! What a pass over a job tells people besides its status: Events.

use kube::ResourceExt;

use super::{
    super::{drains::Looker, events, live_texts::LiveTexts},
    Error, Pass,
};
use crate::{drain::Finding, lifecycle::Notice};

impl Pass<'_> {
    /// Pods that keep a node from being drained are Events on the job and on what controls them: its owner reads those.
    pub(super) async fn tell_blocked(&self, blocked: &[Finding], drains: &mut Looker) {
        for finding in blocked {
            let Some(note) = finding.note().filter(|_| drains.is_new(finding)) else {
                continue;
            };
            tracing::warn!(job = self.job.name_any(), "{note}");
            let notice = [Notice {
                warning: true,
                reason: "DrainBlocked".to_owned(),
                note,
            }];
            let (client, now) = (&self.ctx.client, self.ctx.now());
            events::publish(client, self.job, &notice, now).await;
            if let Some(controller) = &finding.controller {
                events::publish_on(client, &controller.into(), &notice, now).await;
            }
        }
    }

    /// What cannot be done is an Event, once per text: an administrator does not read our log first.
    pub(super) async fn tell_failure(&self, error: &Error, texts: &mut LiveTexts) {
        let note = error.to_string();
        if error.is_conflict() || !texts.is_new_failure(self.job, &note) {
            return;
        }
        let notice = Notice {
            warning: true,
            reason: "CannotAct".to_owned(),
            note,
        };
        events::publish(&self.ctx.client, self.job, &[notice], self.ctx.now()).await;
    }
}
