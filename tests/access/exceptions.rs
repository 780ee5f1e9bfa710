//! Rights that no test uses, each with the reason to have it all the same.

use crate::judge::{Exception, How};

/// All of them; one that is none any more fails the test.
pub const EXCEPTIONS: &[Exception] = &[
    in_namespace(
        "upgradeconfigs/finalizers.managedupgrade.appuio.io",
        &["update"],
        How::Unused,
        "admission asks for it, without a line in the log: with OwnerReferencesPermissionEnforcement, which OpenShift and the \
         test cluster have on, jobs of a config could not be made without it",
    ),
    in_namespace(
        "upgradejobs/finalizers.managedupgrade.appuio.io",
        &["update"],
        How::Unused,
        "the same for what a job owns: workflows, Jobs of hooks",
    ),
    in_namespace(
        "upgradeconfigs.managedupgrade.appuio.io",
        &["get"],
        How::Unused,
        "to say of one that cannot be read what is wrong with it; on lanes only a window is such a one",
    ),
    in_namespace(
        "upgradejobhooks.managedupgrade.appuio.io",
        &["get"],
        How::Unused,
        "the same for hooks",
    ),
    in_namespace(
        "upgradejobs.managedupgrade.appuio.io",
        &["get"],
        How::Unused,
        "the same for jobs; and to adopt one that was made right before a crash: tests/crashes plays it in simulated time",
    ),
    in_namespace(
        "jobs.batch",
        &["get"],
        How::Rare,
        "to tell a hook's Job that was made right before a crash from a stranger's of its name: it takes that very moment",
    ),
    in_namespace(
        "taskruns.tekton.dev",
        &["get"],
        How::Rare,
        "the same for TaskRuns; and to start again one that a drain killed",
    ),
];

const OPERATOR: &str = "upgrade-operator";

const fn in_namespace(
    resource: &'static str,
    verbs: &'static [&'static str],
    how: How,
    reason: &'static str,
) -> Exception {
    Exception {
        account: OPERATOR,
        of_cluster: false,
        resource,
        verbs,
        how,
        reason,
    }
}
