//! Objects that were refused, or that are not served.

use std::collections::BTreeSet;

use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::Input;
use crate::{
    api::{
        NodeForceDrain, UpgradeConfig, UpgradeJob, UpgradeJobHook, UpgradeSuspensionWindow, cluster_version,
        validation::{self, Problem},
    },
    cli::{manifests::Manifest, review},
    simulator::rehearsal::Story,
};

pub(super) fn warnings(story: &Story<'_>, input: Input<'_>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let refusals = story.recording.refusals();
    all.extend(
        refusals
            .iter()
            .map(|r| format!("{}: {}: {}", r.location, r.object, r.problem)),
    );
    // Objects of one list have the same line.
    let refused: BTreeSet<(&str, &str)> = refusals
        .iter()
        .map(|r| (r.location.as_str(), r.object.as_str()))
        .collect();
    let taken = |m: &Manifest| {
        let (location, object) = (m.location.to_string(), name(m));
        !refused.contains(&(location.as_str(), object.as_str()))
    };

    for (_, config) in story.configs() {
        if let Some(problem) = config.problem() {
            all.push(format!(
                "{} is not valid, and has no runs: {problem}",
                input.place(config)
            ));
        }
    }
    for told in &story.jobs {
        if let Some(problem) = &told.job.invalid {
            all.push(format!("UpgradeJob {} is not valid: {problem}", told.job.name));
        }
    }
    all.extend(problems::<UpgradeJobHook>(
        input,
        &taken,
        validation::upgrade_job_hook,
    ));
    all.extend(problems::<UpgradeSuspensionWindow>(
        input,
        &taken,
        validation::upgrade_suspension_window,
    ));
    all.extend(problems::<NodeForceDrain>(input, &taken, |d| {
        validation::node_force_drain(d, None)
    }));
    all.extend(problems::<cluster_version::ClusterVersion>(
        input,
        &taken,
        validation::cluster_version,
    ));
    all.extend(
        input
            .manifests
            .iter()
            .filter(|m| taken(m))
            .filter_map(review::unknown_fields),
    );
    all.extend(elsewhere(input));
    all
}

/// What is wrong with the objects of a kind; one that cannot even be read was refused, and is told there.
fn problems<K>(
    input: Input<'_>,
    taken: &impl Fn(&Manifest) -> bool,
    check: impl Fn(&K) -> Vec<Problem>,
) -> Vec<String>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    input
        .of::<K>()
        .filter(|(manifest, _)| taken(manifest))
        .filter_map(|(manifest, object)| {
            let found = check(&object);
            (!found.is_empty()).then(|| {
                let (location, name) = (&manifest.location, name(manifest));
                format!("{location}: {name} is not valid: {}", validation::summary(&found))
            })
        })
        .collect()
}

/// Objects that the operator does not look at because of their namespace.
fn elsewhere(input: Input<'_>) -> Vec<String> {
    let served = |m: &&Manifest| {
        m.is::<UpgradeConfig>()
            || m.is::<UpgradeJob>()
            || m.is::<UpgradeJobHook>()
            || m.is::<UpgradeSuspensionWindow>()
    };
    let found = input.manifests.iter().filter(served).filter_map(|m| {
        let namespace = m.object.namespace().filter(|n| n != input.namespace)?;
        let (location, name) = (&m.location, name(m));
        Some(format!(
            "{location}: {name} is in namespace {namespace}, and the operator serves {}: give --namespace {namespace} \
             to rehearse it",
            input.namespace
        ))
    });
    found.collect()
}

/// Kind and name, as [`super::super::Recording::refused`] is told them.
fn name(manifest: &Manifest) -> String {
    let kind = manifest.object.types.as_ref().map(|t| t.kind.as_str());
    format!("{} {}", kind.unwrap_or_default(), manifest.object.name_any())
}
