//! The release that a job upgrades to, and how it compares with what the cluster has.

use crate::{
    api::{UpgradeJob, upgrade_job::DesiredVersion},
    openshift::cluster_version::{ClusterVersion, History, Update},
};

/// A release by version and image: what is written to `spec.desiredUpdate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Version.
    pub version: String,
    /// Image.
    pub image: String,
}

impl Target {
    /// The target of a job; what it leaves out is looked up in availableUpdates, conditionalUpdates and the history.
    ///
    /// `None` if the job has no desired version, or if version or image cannot be found.
    pub fn of(job: &UpgradeJob, cluster: &ClusterVersion) -> Option<Self> {
        let DesiredVersion { version, image, .. } = job.spec.desired_version.as_ref()?;
        let version = version.clone().filter(|v| !v.is_empty());
        let image = image.clone().filter(|i| !i.is_empty());
        if let (Some(version), Some(image)) = (&version, &image) {
            return Some(Self {
                version: version.clone(),
                image: image.clone(),
            });
        }
        let known = known_releases(cluster);
        known
            .into_iter()
            .find(|known| {
                version.as_ref().is_none_or(|v| *v == known.version)
                    && image.as_ref().is_none_or(|i| *i == known.image)
            })
            .filter(|known| !known.version.is_empty() && !known.image.is_empty())
    }

    /// Whether a history entry is this release.
    pub fn is(&self, entry: &History) -> bool {
        entry.version == self.version && (entry.image == self.image || entry.image.is_empty())
    }

    /// Whether `spec.desiredUpdate` asks for this release and for nothing else (no `force`, no architecture).
    pub fn is_exactly(&self, update: &Update) -> bool {
        update.version == self.version
            && update.image == self.image
            && update
                .other
                .values()
                .all(|v| v.is_null() || v == &serde_json::Value::Bool(false) || v == "")
    }

    /// Whether `spec.desiredUpdate` asks for this release.
    pub fn is_asked_by(&self, update: &Update) -> bool {
        (update.version.is_empty() || update.version == self.version)
            && (update.image.is_empty() || update.image == self.image)
            && !(update.version.is_empty() && update.image.is_empty())
    }
}

fn known_releases(cluster: &ClusterVersion) -> Vec<Target> {
    let Some(status) = &cluster.status else {
        return Vec::new();
    };
    let offered = status.available_updates.iter().flatten();
    let conditional = status.conditional_updates.iter().map(|c| &c.release);
    let installed = status.history.iter().map(|h| Target {
        version: h.version.clone(),
        image: h.image.clone(),
    });
    offered
        .chain(conditional)
        .map(|r| Target {
            version: r.version.clone(),
            image: r.image.clone(),
        })
        .chain(installed)
        .collect()
}

/// Whether `spec.desiredUpdate` asks for what a history entry has; an empty one asks for nothing.
pub fn asks_for(update: &Update, entry: &History) -> bool {
    (update.version.is_empty() || update.version == entry.version)
        && (update.image.is_empty() || entry.image.is_empty() || update.image == entry.image)
}

/// For people: `desiredUpdate` is no longer what we set.
pub fn changed_by_someone(ours: &Target, desired: &Update) -> String {
    format!(
        "someone changed spec.desiredUpdate of the ClusterVersion from {} to {}",
        ours.version,
        desired.asked_for()
    )
}

/// Why a cluster cannot be started on: an update that is not ours is under way. `None` if it stands still.
///
/// Rule: design 5, "never start on a moving cluster".
pub fn movement(cluster: &ClusterVersion, ours: Option<&Target>) -> Option<String> {
    let newest = cluster.newest()?;
    if !newest.is_completed() {
        return Some(format!(
            "update to {} in progress, started by someone else",
            newest.version
        ));
    }
    if let Some(desired) = &cluster.spec.desired_update
        && !asks_for(desired, newest)
        && !ours.is_some_and(|t| t.is_asked_by(desired))
    {
        let what = desired.asked_for();
        return Some(format!(
            "update to {what} is asked for by someone else (spec.desiredUpdate of the ClusterVersion)"
        ));
    }
    if crate::openshift::is_true(cluster.conditions(), "Progressing") {
        return Some(format!(
            "the ClusterVersion is progressing: {}",
            cluster.message_of("Progressing")
        ));
    }
    None
}
