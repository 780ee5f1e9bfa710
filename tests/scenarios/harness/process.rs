//! Simulator, operator and Prometheus as child processes: killed by the handle that started them, never by name.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// How long a process may take to end when it is asked to.
const PATIENCE_AT_END: Duration = Duration::from_secs(30);

/// A child process with its output in a file.
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the operator's binary with these arguments; output is added to the end of `log`.
    pub fn start(name: &'static str, arguments: &[String], log: &Path) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_upgrade-operator"));
        Self::start_program(name, program, arguments, log)
    }

    /// Starts any program.
    pub fn start_program(name: &'static str, program: &Path, arguments: &[String], log: &Path) -> Self {
        let file = File::options()
            .append(true)
            .create(true)
            .open(log)
            .expect("opening a log");
        let twin = file.try_clone().expect("opening a log");
        // It dies with the thread of its test, also when that is killed and no guard can run.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .env("RUST_LOG", "info")
            .env("NO_COLOR", "1")
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(twin)
            .spawn()
            .unwrap_or_else(|e| panic!("starting {name}: {e}"));
        Self {
            name,
            child,
            log: log.to_owned(),
        }
    }

    /// Sends a signal, such as `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(done.is_ok_and(|s| s.success()), "sending {name} to {}", self.name);
    }

    /// Asks it to end by a signal, and waits until it has; one that does not is killed when it is dropped.
    pub fn end_by(&mut self, signal: &str) {
        let pid = self.child.id().to_string();
        // An error says that it has ended already.
        let _ = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
        let deadline = Instant::now() + PATIENCE_AT_END;
        while !self.has_ended() {
            if Instant::now() > deadline {
                let patience = PATIENCE_AT_END.as_secs();
                eprintln!(
                    "{} has not ended {patience} s after SIG{signal}: it is killed",
                    self.name
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) {
        self.child
            .kill()
            .unwrap_or_else(|e| panic!("killing {}: {e}", self.name));
        self.child
            .wait()
            .unwrap_or_else(|e| panic!("waiting for {}: {e}", self.name));
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// What it has written.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of what it has written.
    pub fn tail(&self) -> String {
        const LENGTH: u64 = 12_000;
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(&self.log) {
            let length = file.metadata().map_or(0, |m| m.len());
            let _ = file.seek(SeekFrom::Start(length.saturating_sub(LENGTH)));
            let _ = file.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
