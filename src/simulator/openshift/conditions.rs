//! Conditions as OpenShift writes them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{api::conditions::whole_seconds, openshift::StatusCondition};

/// Sets a condition; the transition time moves only when `status` does. Empty reason and message are left out, as
/// OpenShift does.
pub fn set(
    conditions: &mut Vec<StatusCondition>,
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let text = |s: &str| (!s.is_empty()).then(|| s.to_owned());
    let old = conditions.iter_mut().find(|c| c.type_ == type_);
    let since = old
        .as_ref()
        .filter(|c| c.status == status)
        .and_then(|c| c.last_transition_time.clone());
    let wanted = StatusCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: text(reason),
        message: text(message),
        last_transition_time: Some(since.unwrap_or_else(|| time(now))),
    };
    match old {
        Some(old) => *old = wanted,
        None => conditions.push(wanted),
    }
}

/// Removes the condition of this type.
pub fn remove(conditions: &mut Vec<StatusCondition>, type_: &str) {
    conditions.retain(|c| c.type_ != type_);
}

/// `now` as it is written: whole seconds.
pub fn time(now: Timestamp) -> Time {
    Time(whole_seconds(now))
}

/// `True` or `False`.
pub use crate::api::conditions::status as truth;
