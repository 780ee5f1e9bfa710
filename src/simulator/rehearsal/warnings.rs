//! What an administrator should change or know, in one sentence each. Pure: from the files and from what was seen.

mod objects;
mod schedules;
mod selectors;
mod windows;

use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{Story, config::Config, config::Fate};
use crate::{cli::manifests::Manifest, text};

/// What besides the story there is to look at.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The objects of the files.
    pub manifests: &'a [Manifest],
    /// The namespace that the operator served.
    pub namespace: &'a str,
    /// Whether something answered for Prometheus.
    pub monitoring: Monitoring,
}

/// Whether something answered for Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitoring {
    /// Nothing did: no alert fires, and nobody looks.
    Absent,
    /// The scenario says what it answers.
    Simulated,
}

/// All warnings: about objects first, then about schedules and windows, in an order that does not change.
pub fn warnings(story: &Story<'_>, input: Input<'_>) -> Vec<String> {
    let mut all = objects::warnings(story, input);
    all.extend(schedules::warnings(story, input));
    all.extend(windows::warnings(story, input));
    all.extend(selectors::warnings(story, input));
    all.extend(story.recording.warnings().iter().cloned());
    all.extend(unaccounted(story));
    all
}

impl<'a> Input<'a> {
    /// The objects of a kind that can be read, with where they stand.
    fn of<K>(self) -> impl Iterator<Item = (&'a Manifest, K)>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let all = self.manifests.iter().filter(|m| m.is::<K>());
        all.filter_map(|m| Some((m, m.parse().ok()?)))
    }

    /// A config for people, with file and line where it comes from the files.
    fn place(self, config: &Config) -> String {
        let (name, namespace) = (config.name(), config.object.namespace());
        let found = self.manifests.iter().find(|m| {
            m.is::<crate::api::UpgradeConfig>()
                && m.object.name_any() == name
                && (m.object.namespace().is_none() || m.object.namespace() == namespace)
        });
        match found {
            Some(manifest) => format!("{}: UpgradeConfig {name}", manifest.location),
            None => format!("UpgradeConfig {name}"),
        }
    }
}

/// Runs that became nothing, without a word: should never happen.
fn unaccounted(story: &Story<'_>) -> Vec<String> {
    let lost = story.skipped.iter().filter(|s| s.fate == Fate::Unaccounted);
    lost.map(|s| {
        let run = text::time(s.run, story.recording.zones.default_zone());
        format!(
            "UpgradeConfig {}: the run at {run} made no UpgradeJob, and nothing says why; please report this as an error \
             of this program",
            s.config
        )
    })
    .collect()
}

/// `1 run`, `2 runs`.
fn count(n: usize, what: &str) -> String {
    if n == 1 {
        format!("1 {what}")
    } else {
        format!("{n} {what}s")
    }
}

#[cfg(test)]
mod tests;
