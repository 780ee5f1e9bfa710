//! The operator as a process of its own, and others beside it.

use std::{net::SocketAddr, path::Path};

use super::{Scenario, get, process::Process, strings, until};

impl Scenario {
    /// Starts the operator; its log goes on in the same file.
    pub fn start_operator(&mut self) {
        assert!(self.operator.is_none(), "the operator runs already");
        let log = self.folder.path().join("operator.log");
        self.operator = Some(Process::start("the operator", &self.operator_arguments, &log));
    }

    /// SIGKILL to the operator, and starts it anew with these flags in place of its own.
    pub async fn restart_operator(&mut self, flags: &[&str]) {
        self.kill_operator();
        replace(&mut self.operator_arguments, flags);
        self.start_operator();
        self.until_ready().await;
    }

    /// Starts an operator beside the one that runs, as by accident, and waits until it is ready.
    pub async fn another_operator(&self, flags: &[&str]) -> Process {
        let program = Path::new(env!("CARGO_BIN_EXE_upgrade-operator"));
        self.another_operator_by(program, Vec::new(), flags).await
    }

    /// The same by a program that starts it, with arguments of its own before the operator's.
    pub(super) async fn another_operator_by(
        &self,
        program: &Path,
        mut all: Vec<String>,
        flags: &[&str],
    ) -> Process {
        let listen = format!("127.0.0.1:{}", self.lane.free_port(1));
        let mut arguments = self.operator_arguments.clone();
        replace(&mut arguments, &["--listen", &listen]);
        replace(&mut arguments, flags);
        all.extend(arguments);
        let log = self.folder.path().join("another-operator.log");
        let another = Process::start_program("another operator", program, &all, &log);
        self.until_ready_at(self.lane.free_port(1)).await;
        another
    }

    /// Whether the operator was started and not killed.
    pub fn is_operator_there(&self) -> bool {
        self.operator.is_some()
    }

    /// The operator.
    pub fn operator(&self) -> &Process {
        self.operator.as_ref().expect("the operator does not run")
    }

    /// SIGKILL to the operator.
    pub fn kill_operator(&mut self) {
        self.operator.take().expect("the operator does not run").kill();
    }

    /// Waits until the operator says that it is ready.
    pub async fn until_ready(&self) {
        self.until_ready_at(self.lane.free_port(0)).await;
    }

    async fn until_ready_at(&self, port: u16) {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        until("the operator is ready", async || {
            let answer = get(address, "/readyz").ok()?;
            answer.starts_with("HTTP/1.1 200").then_some(())
        })
        .await;
    }
}

/// Gives flags other values, or adds them: one that is given twice is refused.
fn replace(arguments: &mut Vec<String>, flags: &[&str]) {
    for pair in flags.chunks(2) {
        match arguments.iter().position(|a| a == pair[0]) {
            Some(at) => pair[1].clone_into(&mut arguments[at + 1]),
            None => arguments.extend(strings(pair)),
        }
    }
}
