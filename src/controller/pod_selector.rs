//! Evaluates `podJQSelector`: in a process of its own, since an expression may never end, or fill the memory.

use std::{path::PathBuf, process::Stdio, time::Duration};

use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use crate::force_drain::jq::{self, Answer, Question};

/// Longest time for the pods of a node.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who evaluates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSelector {
    /// This process: for simulations, whose clock does not wait for another one.
    Here,
    /// This program (ourselves), by its subcommand `select-pods`.
    Program(PathBuf),
}

/// An expression could not be evaluated.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("cannot start {} to evaluate podJQSelector: {error}", program.display())]
    Start { program: PathBuf, error: std::io::Error },
    #[error("podJQSelector takes longer than {} s; make it simpler", PATIENCE.as_secs())]
    TooLong,
    #[error("podJQSelector takes too much time, memory or stack ({0}); make it simpler")]
    Died(std::process::ExitStatus),
    #[error("cannot evaluate podJQSelector: {0}")]
    Broken(String),
}

impl PodSelector {
    /// Asks the expression about these pods.
    pub async fn ask(&self, question: &Question) -> Answer {
        match self {
            Self::Here => jq::evaluate(question),
            Self::Program(program) => match timeout(PATIENCE, run(program.clone(), question)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(Failed::TooLong.to_string()),
            },
        }
    }
}

/// Dropped, it kills the process.
async fn run(program: PathBuf, question: &Question) -> Result<Answer, Failed> {
    let broken = |e: &dyn std::error::Error| Failed::Broken(e.to_string());
    let question = serde_json::to_vec(question).map_err(|e| broken(&e))?;
    let mut child = Command::new(&program)
        .arg("select-pods")
        // An expression can read the environment, and say what it found.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Failed::Start { program, error })?;
    let mut input = child.stdin.take();
    let write = async move {
        if let Some(input) = &mut input {
            // One that died early closed its end; its status tells more.
            let _ = input.write_all(&question).await;
        }
        drop(input);
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    let output = output.map_err(|e| broken(&e))?;
    if !output.status.success() {
        return Err(Failed::Died(output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| broken(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_is_not_there_is_said() {
        let selector = PodSelector::Program("/nowhere/upgrade-operator".into());
        let question = Question {
            program: "true".to_owned(),
            pods: Vec::new(),
        };
        let error = selector.ask(&question).await.unwrap_err();
        assert!(
            error.starts_with("cannot start /nowhere/upgrade-operator"),
            "{error}"
        );
    }
}
