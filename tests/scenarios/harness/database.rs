//! A real PostgreSQL, in which Argo Workflows can keep the steps of its workflows.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{lane::Lane, process::Process, strings, until};

/// Its superuser.
const USER: &str = "argo";

/// A server with an empty database. Dropping it leaves nothing behind.
pub struct Database {
    server: Process,
    port: u16,
    password: String,
    _folder: TempDir,
}

impl Database {
    /// Starts one from the lane's binaries, and waits until it is ready.
    pub async fn start(lane: &Lane) -> Self {
        let folder = tempfile::tempdir().expect("making a folder for PostgreSQL");
        let programs = std::env::split_paths(lane.variable("PATH"))
            .map(|module| module.join("postgres"))
            .find(|programs| programs.join("initdb").exists())
            .expect("the lane's modules have PostgreSQL");
        let password = std::fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a random number");
        let password = password.trim().to_owned();
        let data = initialize(&programs, folder.path(), &password);
        let port = lane.free_port(2);
        let mut arguments = not_root(&programs.join("postgres"));
        arguments.extend(["-D".to_owned(), data.display().to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            &format!("port={port}"),
            "unix_socket_directories=",
            "dynamic_shared_memory_type=mmap",
            "shared_buffers=8MB",
            "fsync=off",
            "jit=off",
        ] {
            arguments.extend(strings(&["-c", setting]));
        }
        let log = folder.path().join("server.log");
        let server = Process::start_program("PostgreSQL", Path::new("unshare"), &arguments, &log);
        let mut database = Self {
            server,
            port,
            password,
            _folder: folder,
        };
        until("PostgreSQL is ready", async || {
            let output = database.server.output();
            assert!(!database.server.has_ended(), "PostgreSQL has ended: {output}");
            output.contains("ready to accept connections").then_some(())
        })
        .await;
        database
    }

    /// `persistence` of Argo's configuration, with which it keeps all steps here. It reads who it is from [`Self::secret`].
    pub fn persistence(&self) -> Value {
        let from = |key: &str| json!({"name": "database", "key": key});
        json!({
            "nodeStatusOffLoad": true,
            "postgresql": {
                "host": "127.0.0.1", "port": self.port, "database": "postgres", "tableName": "argo_workflows",
                "userNameSecret": from("user"), "passwordSecret": from("password"),
            },
        })
    }

    /// The Secret for Argo's namespace.
    pub fn secret(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"},
            "stringData": {"user": USER, "password": self.password},
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Its processes write into its folder until they have ended: all of them do when it is asked, some when it is killed.
        self.server.end_by("QUIT");
    }
}

/// It refuses to be root; in a user namespace it is not, and owns the same files. What it shares in memory goes with its
/// namespace.
fn not_root(program: &Path) -> Vec<String> {
    let mut all = strings(&["--user", "--map-user=1000", "--ipc", "--"]);
    all.push(program.display().to_string());
    all
}

/// Makes the files of an empty database, and returns their folder.
fn initialize(programs: &Path, folder: &Path, password: &str) -> PathBuf {
    let (data, secret) = (folder.join("data"), folder.join("password"));
    std::fs::write(&secret, password).expect("writing a password");
    let made = Command::new("unshare")
        .args(not_root(&programs.join("initdb")))
        .arg(format!("--pgdata={}", data.display()))
        .arg(format!("--pwfile={}", secret.display()))
        .arg(format!("--username={USER}"))
        .args([
            "--auth=scram-sha-256",
            "--locale=C",
            "--encoding=UTF8",
            "--no-sync",
        ])
        .output()
        .expect("starting initdb");
    let told = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "making a database: {told}");
    data
}
