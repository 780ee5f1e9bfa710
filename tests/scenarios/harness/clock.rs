//! An operator on a machine whose clock is wrong.

use std::{path::Path, process::Command};

use super::{Scenario, process::Process, strings};

const SOURCE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/scenarios/harness/wrong_clock.c"
);

impl Scenario {
    /// Starts an operator beside the one that runs, whose clock is so many seconds ahead, and waits until it is ready.
    pub async fn another_operator_ahead(&self, seconds: i64, flags: &[&str]) -> Process {
        let library = self.folder.path().join("wrong_clock.so");
        // Whoever can build the operator has a C compiler: Rust links with it.
        let built = Command::new("cc")
            .args([
                "-shared",
                "-fPIC",
                "-Wall",
                "-Werror",
                &format!("-DAHEAD={seconds}"),
                SOURCE,
                "-o",
            ])
            .arg(&library)
            .status();
        assert!(built.is_ok_and(|s| s.success()), "building {SOURCE}");
        let preload = format!("LD_PRELOAD={}", library.display());
        let operator = strings(&[&preload, env!("CARGO_BIN_EXE_upgrade-operator")]);
        self.another_operator_by(Path::new("env"), operator, flags).await
    }
}
