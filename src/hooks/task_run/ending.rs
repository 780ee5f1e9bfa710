//! Whether the pod of a TaskRun was killed, as in a drain, or failed by itself.
//!
//! What Tekton 1.15 shows (`pkg/pod/status.go`, `getFailureInfo`): a reason that tells whose container failed, and how that
//! ended. A pod that vanished before Tekton saw it end is made again by Tekton itself. Otherwise:
//!
//! - `PodEvicted` is the kubelet that wants memory or disk back, never the eviction of a drain.
//! - A program that is killed by a signal makes Tekton's entrypoint end with 255 (`os.Exit(-1)`, since `ExitStatus` of a
//!   signalled process is -1), not with 143 or 137. A script may end with 255 by itself, so the pod tells: one that failed by
//!   itself stays, one that was deleted is gone or going. Tekton deletes pods only when it cancels or gives up a TaskRun,
//!   which has reasons of its own.
//! - The condition `DisruptionTarget` of a pod that is still there is proof, whatever the exit code: it is what
//!   `podFailurePolicy` goes by for Jobs.

use k8s_openapi::api::core::v1::Pod;

use super::Exit;

/// What was seen of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodSight {
    /// Nobody looked.
    #[default]
    NotLooked,
    /// It is gone, or is being deleted.
    Deleted,
    /// Its condition `DisruptionTarget` says that it was to go.
    Disrupted,
    /// It is there, and nobody wants it away.
    There,
}

impl PodSight {
    /// What this pod, which is still there, tells.
    pub fn of(pod: &Pod) -> Self {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        let disrupted = conditions
            .into_iter()
            .flatten()
            .any(|c| c.type_ == "DisruptionTarget" && c.status == "True");
        if disrupted {
            Self::Disrupted
        } else if pod.metadata.deletion_timestamp.is_some() {
            Self::Deleted
        } else {
            Self::There
        }
    }
}

/// A container ended badly: its reason says no more.
const BY_CONTAINER: [&str; 4] = ["Failed", "StepFailed", "SidecarFailed", "InitContainerFailed"];

/// Codes of 128 and a signal: SIGKILL, SIGTERM. Scripts have to leave them to whatever kills a pod, as with Argo.
const BY_SIGNAL: [i64; 2] = [137, 143];

/// What Tekton's entrypoint ends with when a signal ended its program.
const SIGNALLED: i64 = 255;

/// Whether reason and exit do not tell, and the pod has to be looked at.
pub(super) fn is_open(reason: &str, exit: Option<&Exit>) -> bool {
    BY_CONTAINER.contains(&reason) && !exit.is_some_and(|e| is_oom(e) || BY_SIGNAL.contains(&e.code))
}

/// What killed the pod of a TaskRun that failed for this reason; `None`: it failed by itself.
pub(super) fn killed(reason: &str, exit: Option<&Exit>, pod: PodSight) -> Option<String> {
    if reason == "PodEvicted" {
        return Some("evicted by its node".to_owned());
    }
    // More memory than its limit is a failure: it would happen again.
    if !BY_CONTAINER.contains(&reason) || exit.is_some_and(is_oom) {
        return None;
    }
    let code = exit.map(|e| e.code);
    if let Some(code) = code.filter(|c| BY_SIGNAL.contains(c)) {
        return Some(format!("exit code {code}"));
    }
    match pod {
        PodSight::Disrupted => Some("disrupted".to_owned()),
        // Before a step ran there is no exit of one.
        PodSight::Deleted if code.is_none_or(|c| c == SIGNALLED) => Some("deleted".to_owned()),
        PodSight::Deleted | PodSight::There | PodSight::NotLooked => None,
    }
}

fn is_oom(exit: &Exit) -> bool {
    exit.reason == "OOMKilled"
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::node_wants_memory("PodEvicted", None, PodSight::NotLooked, true)]
    #[case::term("StepFailed", Some((143, "Error")), PodSight::NotLooked, true)]
    #[case::kill("StepFailed", Some((137, "Error")), PodSight::There, true)]
    #[case::older_tekton("Failed", Some((143, "Error")), PodSight::NotLooked, true)]
    #[case::too_much_memory("StepOOM", Some((137, "OOMKilled")), PodSight::Deleted, false)]
    #[case::too_much_memory_in_an_older_tekton("Failed", Some((137, "OOMKilled")), PodSight::Deleted, false)]
    #[case::signalled_and_gone("StepFailed", Some((255, "Error")), PodSight::Deleted, true)]
    #[case::signalled_and_evicted("StepFailed", Some((255, "Error")), PodSight::Disrupted, true)]
    #[case::says_255_itself("StepFailed", Some((255, "Error")), PodSight::There, false)]
    #[case::nobody_looked("StepFailed", Some((255, "Error")), PodSight::NotLooked, false)]
    #[case::caught_the_signal_in_a_drain("StepFailed", Some((3, "Error")), PodSight::Disrupted, true)]
    #[case::failed_and_was_deleted_afterwards("StepFailed", Some((3, "Error")), PodSight::Deleted, false)]
    #[case::failed("StepFailed", Some((3, "Error")), PodSight::There, false)]
    #[case::killed_before_its_first_step("InitContainerFailed", None, PodSight::Deleted, true)]
    #[case::init_container_failed("InitContainerFailed", None, PodSight::There, false)]
    #[case::node_shut_down("Failed", None, PodSight::Disrupted, true)]
    #[case::took_too_long("TaskRunTimeout", Some((1, "TaskRunTimeout")), PodSight::Deleted, false)]
    #[case::cancelled("TaskRunCancelled", Some((255, "Error")), PodSight::Deleted, false)]
    #[case::no_image("TaskRunImagePullFailed", None, PodSight::Deleted, false)]
    #[case::no_task("TaskRunResolutionFailed", None, PodSight::Deleted, false)]
    fn a_killed_pod_is_told_from_one_that_failed(
        #[case] reason: &str,
        #[case] exit: Option<(i64, &str)>,
        #[case] pod: PodSight,
        #[case] expected: bool,
    ) {
        let exit = exit.map(|(code, reason)| Exit {
            code,
            reason: reason.to_owned(),
        });
        assert_eq!(killed(reason, exit.as_ref(), pod).is_some(), expected);
        // Nobody has to look where the answer does not depend on it.
        let all = [PodSight::Deleted, PodSight::Disrupted, PodSight::There];
        let answers = all.map(|p| killed(reason, exit.as_ref(), p).is_some());
        let depends = answers.iter().any(|a| *a != answers[0]);
        assert_eq!(is_open(reason, exit.as_ref()), depends);
    }
}
