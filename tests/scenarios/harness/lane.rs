//! A lane of the test cluster for one test alone: brought up fresh, always taken down.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, Write},
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

/// Lanes that tests may take: one more than `tests/run` has scenarios at a time, as one of them may be a person's. It has 6 and 7
/// for other tests.
const LANES: std::ops::Range<u8> = 0..5;
/// How long a test waits for others to give a lane back.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// What the lock file holds while a test has its lane up: one that was killed leaves it behind.
const IN_USE: &str = "in use by a scenario test\n";

/// A version of Argo Workflows that lanes can have (`LANE_ARGO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgoVersion {
    /// With full CRDs.
    V4_1,
    /// With minimal CRDs.
    V3_7,
}

impl ArgoVersion {
    fn as_str(self) -> &'static str {
        match self {
            Self::V4_1 => "4.1",
            Self::V3_7 => "3.7",
        }
    }
}

/// A lane that is up, and nobody else's.
pub struct Lane {
    engines: &'static str,
    argo: ArgoVersion,
    number: u8,
    lock: File,
    environment: BTreeMap<String, String>,
}

impl Lane {
    /// Takes a free lane and brings it up with these workflow engines (`LANE_ENGINES`), Argo in this version, and an audit log of
    /// all requests.
    pub async fn take(engines: &'static str, argo: ArgoVersion) -> Self {
        tokio::task::spawn_blocking(move || {
            let (number, lock) = lock_one();
            // From here on the guard takes it down, whatever happens.
            let mut lane = Self {
                engines,
                argo,
                number,
                lock,
                environment: BTreeMap::new(),
            };
            lane.mark(IN_USE);
            lane.run(&["up"], &[]);
            lane.environment = lane.read_environment();
            lane
        })
        .await
        .expect("bringing a lane up")
    }

    fn mark(&mut self, text: &str) {
        let done = self
            .lock
            .set_len(0)
            .and_then(|()| self.lock.rewind())
            .and_then(|()| self.lock.write_all(text.as_bytes()));
        done.expect("writing to the lock file of a lane");
    }

    fn run(&self, before: &[&str], after: &[&str]) {
        let output = self
            .command(before, after)
            .output()
            .expect("starting tests/cluster/lane");
        assert!(
            output.status.success(),
            "tests/cluster/lane {before:?} {} {after:?} failed:\n{}",
            self.number,
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn command(&self, before: &[&str], after: &[&str]) -> Command {
        let mut command = Command::new(script());
        command
            .args(before)
            .arg(self.number.to_string())
            .args(after)
            .env("TESTBED_AUDIT", "Request")
            .env("LANE_ENGINES", self.engines)
            .env("LANE_ARGO", self.argo.as_str());
        command
    }

    fn read_environment(&self) -> BTreeMap<String, String> {
        let script = format!(
            "eval \"$('{}' env {})\" && env -0",
            script().display(),
            self.number
        );
        let output = Command::new("bash")
            .args(["-c", &script])
            .output()
            .expect("starting bash");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split('\0')
            .filter_map(|l| l.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }

    /// A variable of `tests/cluster/lane env`.
    pub fn variable(&self, name: &str) -> &str {
        self.environment
            .get(name)
            .unwrap_or_else(|| panic!("tests/cluster/lane env does not set {name}"))
    }

    /// The audit log of the API server.
    pub fn audit_log(&self) -> PathBuf {
        PathBuf::from(self.variable("TESTBED_LOGS")).join("audit.log")
    }

    /// A port that no other lane and no part of this one uses: there are five, from 0.
    pub fn free_port(&self, n: u16) -> u16 {
        assert!(n < 5, "no such port");
        21_009 + 10 * u16::from(self.number) - n
    }

    /// `stop`, `kill` or `start` of a component.
    pub async fn component(&self, verb: &'static str, name: &'static str) {
        self.component_with(verb, name, &[]).await;
    }

    /// The same, with variables for the environment of what is started.
    pub async fn component_with(&self, verb: &'static str, name: &'static str, variables: &[(&str, &str)]) {
        let mut command = self.command(&[verb], &[name]);
        command.envs(variables.iter().copied());
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .expect("waiting for a component");
        let output = output.expect("starting tests/cluster/lane");
        assert!(
            output.status.success(),
            "{verb} {name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// What `kubectl` prints, for the report of a failure.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let all = [&["--request-timeout=5s"], arguments].concat();
        self.program("kubectl", &all).1
    }

    /// `kubectl` as a person would call it, where it must go well.
    pub fn must(&self, arguments: &[&str]) {
        let (is_well, text) = self.program("kubectl", arguments);
        assert!(is_well, "kubectl {arguments:?}: {text}");
    }

    /// A program as a person would call it: whether it went well, and what it prints.
    pub fn program(&self, name: &str, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(name);
        command.args(arguments).envs(&self.environment);
        match command.output() {
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                (
                    output.status.success(),
                    String::from_utf8_lossy(&text).into_owned(),
                )
            }
            Err(error) => (false, format!("{name}: {error}")),
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Not `run`: a panic while another one unwinds would abort all tests.
        match self.command(&["down"], &[]).output() {
            Ok(output) if output.status.success() => {
                let emptied = self.lock.set_len(0);
                if let Err(error) = emptied {
                    eprintln!("lane {}: cannot empty the lock file: {error}", self.number);
                }
            }
            Ok(output) => eprintln!(
                "lane {} is still up: {}",
                self.number,
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(error) => eprintln!("lane {} is still up: {error}", self.number),
        }
    }
}

fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/lane")
}

/// Waits for a lane that no test has locked and nobody else has brought up.
fn lock_one() -> (u8, File) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = LANES.into_iter().find_map(|n| Some((n, try_lock(n)?))) {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "no lane of {LANES:?} came free within {} s",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn try_lock(number: u8) -> Option<File> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    let cache = cache.expect("HOME or XDG_CACHE_HOME must be set");
    let folder = cache.join("openshift-upgrade-operator/locks");
    std::fs::create_dir_all(&folder).expect("making the folder of locks");
    let path = folder.join(format!("scenario-lane-{number}"));
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("opening a lock file");
    file.try_lock().ok()?;
    let mut text = String::new();
    file.read_to_string(&mut text).expect("reading a lock file");
    // One that is up although no test has it: left by a killed test, which may be cleared away, or a person's.
    let status = Command::new(script())
        .args(["status", &number.to_string()])
        .output()
        .expect("asking for a lane");
    let is_up = String::from_utf8_lossy(&status.stdout).contains(": runs,");
    if is_up && text != IN_USE {
        return None;
    }
    if is_up {
        let down = Command::new(script())
            .args(["down", &number.to_string()])
            .status()
            .expect("taking a lane down");
        assert!(
            down.success(),
            "lane {number} was left by a killed test and cannot be taken down"
        );
    }
    Some(file)
}
