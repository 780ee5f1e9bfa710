//! etcd-backup: a real privileged pod, and a real snapshot of the cluster's own etcd. Of OpenShift there is no node here:
//! a folder stands in for its file system, and a script in it for OpenShift's cluster-backup.sh, which leaves the same files.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use kube::{
    ResourceExt,
    api::{EvictParams, ListParams},
};
use openshift_upgrade_operator::api::upgrade_job_hook::HookEvent;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::{
    cluster::{Cluster, command, unique, wait_for},
    hook::{Hook, SOON},
};

const BACKUPS: &str = "openshift-upgrade-backup";
const DIRECTORY: &str = "/home/core/assets/upgrade-backup";

/// Takes the snapshot by etcd's own API; waits while there is /slow, and breaks the snapshot if there is /broken.
const CLUSTER_BACKUP: &str = r#"#!/bin/bash
set -e -o pipefail
while [[ -e /slow ]]; do sleep 0.2; done
stamp=$(date +%F_%H%M%S)
snapshot=$1/snapshot_$stamp.db
curl --silent --fail --data '{}' http://127.0.0.1:2379/v3/maintenance/snapshot | jq --raw-output .result.blob |
    base64 --decode >"$snapshot"
if [[ -e /broken ]]; then
    { printf x; head --bytes -1 "$snapshot"; } >"$1/broken"
    mv "$1/broken" "$snapshot"
fi
tar -czf "$1/static_kuberesources_$stamp.tar.gz" -C /etc passwd
"#;

/// The folder that is the node's file system for the pod.
pub struct Node(TempDir);

impl Node {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let from = format!("{}/.", Cluster::file("hook-library/root").display());
        command("cp", &["-a", &from, &folder.path().display().to_string()]);
        let node = Self(folder);
        node.write("usr/local/bin/cluster-backup.sh", CLUSTER_BACKUP);
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(node.path("usr/local/bin/cluster-backup.sh"), executable).unwrap();
        node.write("var/lib/etcd/member/snap/db", "of this size or so");
        fs::create_dir(node.path("dev")).unwrap();
        node
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Where it is.
    pub fn root(&self) -> String {
        self.0.path().display().to_string()
    }

    fn hook(&self, uid: &str) -> Hook {
        Hook::new("etcd-backup", HookEvent::Start, uid)
            .with("root", self.root())
            .with("node", "real-0")
    }

    /// Names of the folders of backups.
    pub fn backups(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.path(DIRECTORY)).unwrap();
        entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    fn folder(&self, uid: &str) -> PathBuf {
        self.path(DIRECTORY)
            .join(format!("upgrade-cluster-upgrade-{uid}-Start"))
    }
}

/// The one snapshot of a folder, whole.
fn assert_has_a_snapshot(folder: &Path) -> PathBuf {
    let names: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    let mut snapshots = names.iter().filter(|p| p.extension().is_some_and(|e| e == "db"));
    let (Some(snapshot), None) = (snapshots.next(), snapshots.next()) else {
        panic!("not one snapshot: {names:?}")
    };
    assert!(folder.join("complete").exists());
    let bytes = fs::read(snapshot).unwrap();
    let (database, sum) = bytes.split_at(bytes.len() - 32);
    assert_eq!(Sha256::digest(database).as_slice(), sum);
    // The magic number of bbolt's first meta page, after the page's head.
    assert_eq!(database[16..20], 0xED0C_DAED_u32.to_le_bytes());
    snapshot.clone()
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn etcd_is_backed_up_once_and_old_backups_go_whatever_is_killed_meanwhile() {
    let cluster = Cluster::ready().await;
    let node = Node::new();
    let [first, second, third] = &["first", "second", "third"].map(unique);
    node.write("slow", "");
    let hook = node.hook(first);
    let mut run = hook.start(&cluster).await;
    run.says("on node real-0: Running").await;
    run.kill().await;
    // The backup goes on without its hook; then its node is drained, too.
    let ours = ListParams::default().labels("app.kubernetes.io/name=etcd-backup");
    let pods = cluster.pods(BACKUPS);
    let of_job = async || {
        let all = pods.list(&ours).await.unwrap().items;
        all.into_iter().find(|p| {
            p.annotations()["managedupgrade.appuio.io/upgrade-job"] == format!("cluster-upgrade-{first}")
        })
    };
    let begun = of_job().await.unwrap();
    pods.evict(&begun.name_any(), &EvictParams::default())
        .await
        .unwrap();
    wait_for("there is a new pod", SOON, async || {
        of_job().await.filter(|p| p.uid() != begun.uid())
    })
    .await;
    fs::remove_file(node.path("slow")).unwrap();
    run.end()
        .await
        .was_killed_once()
        .said("etcd is backed up on node real-0");
    let snapshot = assert_has_a_snapshot(&node.folder(first));

    node.hook(first).run(&cluster).await.succeeded();
    assert_eq!(
        assert_has_a_snapshot(&node.folder(first)),
        snapshot,
        "a second run takes none"
    );

    // Somebody's own things are never removed.
    node.write(&format!("{DIRECTORY}/mine/snapshot.db"), "precious");
    node.hook(second)
        .with("keep", "1")
        .run(&cluster)
        .await
        .succeeded();
    let left = [
        "mine".to_owned(),
        format!("upgrade-cluster-upgrade-{second}-Start"),
    ];
    assert_eq!(node.backups(), BTreeSet::from(left));
    assert_has_a_snapshot(&node.folder(second));

    node.write("broken", "");
    let ended = node.hook(third).with("keep", "1").run(&cluster).await;
    ended.failed(
        3,
        &["etcd is not backed up on node real-0", "its checksum is wrong"],
    );
    assert_has_a_snapshot(&node.folder(second));
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn what_is_wrong_with_a_backup_is_said() {
    let cluster = Cluster::ready().await;
    let node = Node::new();
    let root = Cluster::file("hook-library/root").display().to_string();
    let hooks = (
        node.hook("bad").with("directory", "backup"),
        node.hook("bad").with("directory", "/home/../etc"),
        node.hook("bad").with("keep", "0"),
        node.hook(&unique("no-node"))
            .with("node", "nowhere")
            // The scheduler has to say so before.
            .with("timeout", "12s"),
        node.hook(&unique("no-script")).with("root", root),
    );
    let ended = tokio::join!(
        hooks.0.run(&cluster),
        hooks.1.run(&cluster),
        hooks.2.run(&cluster),
        hooks.3.run(&cluster),
        hooks.4.run(&cluster),
    );
    ended.0.failed(2, &["parameter directory is 'backup'"]);
    ended.1.failed(2, &["parameter directory is '/home/../etc'"]);
    ended.2.failed(2, &["parameter keep is '0'"]);
    ended.3.failed(
        4,
        &[
            "etcd is not backed up by the deadline of 12s",
            "is on no node",
            "nodes are available",
        ],
    );
    ended
        .4
        .failed(3, &["on node real-0", "no /usr/local/bin/cluster-backup.sh"]);
}
