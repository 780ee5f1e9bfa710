//! The operator's settings, as given on the command line.

use jiff::{SignedDuration, tz::TimeZone};

use crate::{api::upgrade_job::EngineChoice, controller::pod_selector::PodSelector, schedule::Zones};

/// The operator's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace that is served.
    pub namespace: String,
    /// Name of this process in the election, different for each one; `None` = no election: it is known to be the only one.
    pub identity: Option<String>,
    /// Time zones; the default is for schedules without `location` and for times in messages.
    pub zones: Zones,
    /// Default workflow engine.
    pub engine: EngineChoice,
    /// ServiceAccount of the workflows' pods where a job names none.
    pub workflow_service_account: Option<String>,
    /// `status.workflow.url`, with `{namespace}` and `{name}`.
    pub workflow_url_template: Option<String>,
    /// How long a workflow engine may be silent before the embedded one takes over; `None` = for ever.
    pub engine_handover_after: Option<SignedDuration>,
    /// Live text of a step is written to the engine at most this often.
    pub live_message_interval: SignedDuration,
    /// Deadline of hook Jobs that set none; `None` = none is set.
    pub default_hook_deadline: Option<SignedDuration>,
    /// How long a release may be rejected because it cannot be fetched or verified.
    pub retrieval_grace: SignedDuration,
    /// How long a release may be rejected because of failed preconditions.
    pub precondition_grace: SignedDuration,
    /// Who evaluates `podJQSelector` of a NodeForceDrain.
    pub pod_selector: PodSelector,
    /// From how long a drain takes on it is told which pods are in its way.
    pub drain_report_after: SignedDuration,
    /// How long a watch stays open before it is renewed.
    pub watch_timeout: SignedDuration,
    /// Even without any event everything is looked at this often.
    pub heartbeat: SignedDuration,
    /// A kind that the API server does not have, such as that of an engine, is looked for this often.
    pub absent_kind_poll: SignedDuration,
}

impl Settings {
    /// `watch_timeout` against a real API server: below the five minutes after which one closes a watch by itself.
    pub const WATCH_TIMEOUT: SignedDuration = SignedDuration::from_secs(290);
    /// `heartbeat` against a real API server: what a lost event may cost.
    pub const HEARTBEAT: SignedDuration = SignedDuration::from_secs(30);
    /// `absent_kind_poll` against a real API server: a cluster without Argo Workflows must not be asked for it all the time,
    /// and an engine that is installed is found within minutes.
    pub const ABSENT_KIND_POLL: SignedDuration = SignedDuration::from_mins(5);

    /// Default of `engine_handover_after`.
    pub const ENGINE_HANDOVER_AFTER: SignedDuration = SignedDuration::from_mins(15);

    /// The defaults of `upgrade-operator run` for a process that nobody elects.
    pub fn new(namespace: impl Into<String>, zones: Zones) -> Self {
        Self {
            namespace: namespace.into(),
            identity: None,
            zones,
            engine: EngineChoice::Auto,
            workflow_service_account: None,
            workflow_url_template: None,
            engine_handover_after: Some(Self::ENGINE_HANDOVER_AFTER),
            live_message_interval: SignedDuration::from_secs(30),
            default_hook_deadline: None,
            retrieval_grace: SignedDuration::from_mins(30),
            precondition_grace: SignedDuration::from_mins(10),
            pod_selector: PodSelector::Here,
            drain_report_after: SignedDuration::from_mins(5),
            watch_timeout: Self::WATCH_TIMEOUT,
            heartbeat: Self::HEARTBEAT,
            absent_kind_poll: Self::ABSENT_KIND_POLL,
        }
    }

    /// Zone for times in messages.
    pub fn zone(&self) -> &TimeZone {
        self.zones.default_zone()
    }
}
