//! What the cluster-version operator says of an update under way, made short.

use crate::openshift::{self, cluster_version::ClusterVersion};

/// `62% done, waiting on etcd`, out of `Working towards 4.18.5: 500 of 800 done (62% complete), waiting on etcd`; the text
/// as it is where it has another form. Failing=True is appended: it is often transient and no ending by itself.
pub fn control_plane(cluster: &ClusterVersion) -> String {
    let text = cluster.message_of("Progressing");
    let mut line = shorten(text).unwrap_or_else(|| text.to_owned());
    if openshift::is_true(cluster.conditions(), "Failing") {
        line = format!("{line}; Failing: {}", cluster.message_of("Failing"));
    }
    if line.is_empty() {
        "waiting for the cluster-version operator".to_owned()
    } else {
        line
    }
}

fn shorten(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(" done (")?;
    let (percent, tail) = rest.split_once(" complete)")?;
    let tail = tail.trim_start_matches([',', ' ']);
    Some(if tail.is_empty() {
        format!("{percent} done")
    } else {
        format!("{percent} done, {tail}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_made_short() {
        let long = "Working towards 4.18.5: 500 of 800 done (62% complete), waiting on etcd";
        assert_eq!(shorten(long).unwrap(), "62% done, waiting on etcd");
        assert_eq!(
            shorten("Working towards 4.18.5: 1 of 800 done (0% complete)").unwrap(),
            "0% done"
        );
        assert_eq!(shorten("Working towards 4.18.5"), None);
    }
}
