//! The operator's processes in their pods, as this machine sees them.

use std::{fs, path::Path, process::Command};

/// VmRSS of the operator's process in kB.
pub fn operator_memory() -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", operator().pid)).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// SIGKILL to the operator's process: it has no time to say anything to anybody.
pub fn kill_operator() {
    operator().signal("KILL");
    println!("the operator is killed");
}

/// The process of the one operator.
fn operator() -> Process {
    let mut found = all();
    assert_eq!(found.len(), 1, "processes of the operator: {found:?}");
    found.remove(0)
}

/// The operator's process in the pod of this name.
pub fn of_pod(pod: &str) -> Process {
    let mut found = all();
    found.retain(|p| p.variable("HOSTNAME").as_deref() == Some(pod));
    assert_eq!(
        found.len(),
        1,
        "processes of the operator in pod {pod}: {found:?}"
    );
    found.remove(0)
}

/// Those that run it in a pod's cgroup.
fn all() -> Vec<Process> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .map(|pid| Process { pid })
        .filter(|process| {
            process
                .read("cmdline")
                .starts_with(b"/bin/upgrade-operator\0run\0")
                && String::from_utf8_lossy(&process.read("cgroup")).contains("kubepods")
        })
        .collect()
}

/// A process of the operator.
#[derive(Clone, Debug)]
pub struct Process {
    pid: u32,
}

impl Process {
    fn read(&self, file: &str) -> Vec<u8> {
        fs::read(Path::new("/proc").join(self.pid.to_string()).join(file)).unwrap_or_default()
    }

    /// A variable of its environment.
    fn variable(&self, name: &str) -> Option<String> {
        let environment = self.read("environ");
        String::from_utf8_lossy(&environment)
            .split('\0')
            .filter_map(|pair| pair.split_once('='))
            .find_map(|(key, value)| (key == name).then(|| value.to_owned()))
    }

    /// Sends a signal, such as `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        run("kill", &[&format!("-{name}"), &self.pid.to_string()]);
    }

    /// Lets it stand still until the guard is dropped.
    pub fn freeze(&self) -> Frozen {
        self.signal("STOP");
        Frozen(self.clone())
    }

    /// Drops everything between it and the API server, without telling either, until the guard is dropped. The probes of the
    /// kubelet go on. The rules are in the pod's own network, and go with it.
    pub fn cut_off(&self) -> CutOff {
        let address = self.variable("KUBERNETES_SERVICE_HOST").unwrap();
        let cut = CutOff {
            pid: self.pid,
            address,
        };
        cut.rules("--insert");
        cut
    }
}

/// A process that stands still.
pub struct Frozen(Process);

impl Drop for Frozen {
    fn drop(&mut self) {
        self.0.signal("CONT");
    }
}

/// A process that does not reach the API server.
pub struct CutOff {
    pid: u32,
    address: String,
}

impl CutOff {
    fn rules(&self, change: &str) {
        let network = format!("--net=/proc/{}/ns/net", self.pid);
        for (chain, side) in [("OUTPUT", "--destination"), ("INPUT", "--source")] {
            let rule = [change, chain, side, &self.address, "--jump", "DROP"];
            run(
                "nsenter",
                &[&[&network, "iptables", "--wait"], &rule[..]].concat(),
            );
        }
    }
}

impl Drop for CutOff {
    fn drop(&mut self) {
        self.rules("--delete");
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    let is_done = status.is_ok_and(|s| s.success());
    // A panic in a guard while another one unwinds would hide that one.
    assert!(
        is_done || std::thread::panicking(),
        "{program} {arguments:?} failed"
    );
}
