//! wait-for-approval, answered as Argo's user interface does.

use std::process::{Child, Command, Stdio};

use openshift_upgrade_operator::api::upgrade_job_hook::HookEvent;
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, NAMESPACE, command, wait_for},
    hook::{Hook, Run, SOON},
};

/// The server behind Argo's user interface.
struct Server(Child);

const SERVER: &str = "http://127.0.0.1:12746";

impl Server {
    async fn start() -> Self {
        let server = Command::new("argo")
            .args([
                "server",
                "--namespace",
                "argo",
                "--auth-mode",
                "server",
                "--secure=false",
                "--port",
                "12746",
            ])
            .args(["--browser=false", "--loglevel", "warn"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self(server);
        wait_for("Argo's server answers", SOON, async || {
            let asked = Command::new("curl")
                .args(["--silent", "--fail", &format!("{SERVER}/api/v1/version")])
                .stdout(Stdio::null())
                .status();
            asked.unwrap().success().then_some(())
        })
        .await;
        server
    }

    /// What a click does.
    fn put(run: &Run<'_>, what: &str, body: &Value) {
        let url = format!("{SERVER}/api/v1/workflows/{NAMESPACE}/{}/{what}", run.name);
        command(
            "curl",
            &[
                "--silent",
                "--show-error",
                "--fail",
                "--request",
                "PUT",
                "--data",
                &body.to_string(),
                &url,
            ],
        );
    }

    /// SET AND RESUME of the node, with this choice.
    fn set_and_resume(run: &Run<'_>, choice: &str) {
        let parameters = json!({"approve": choice}).to_string();
        let selector = "displayName=approval";
        Self::put(
            run,
            "set",
            &json!({"nodeFieldSelector": selector, "outputParameters": parameters}),
        );
        Self::put(run, "resume", &json!({"nodeFieldSelector": selector}));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_person_decides_in_time_or_the_hook_fails() {
    let cluster = Cluster::ready().await;
    let server = Server::start().await;
    let hook = Hook::new("wait-for-approval", HookEvent::Start, "approval");
    let yes = hook.start(&cluster).await;
    let no = hook.start(&cluster).await;
    let resumed = hook.start(&cluster).await;
    let whole = hook.start(&cluster).await;
    let short = Hook::new("wait-for-approval", HookEvent::Start, "approval").with("timeout", "5s");
    let nobody = short.start(&cluster).await;
    let wrong = Hook::new("wait-for-approval", HookEvent::Start, "approval").with("timeout", "soon");
    let wrong = wrong.start(&cluster).await;
    for run in [&yes, &no, &resumed, &whole] {
        run.asks().await;
    }
    Server::set_and_resume(&yes, "yes");
    Server::set_and_resume(&no, "no");
    Server::put(
        &resumed,
        "resume",
        &json!({"nodeFieldSelector": "displayName=approval"}),
    );
    Server::put(&whole, "resume", &json!({}));
    let ended = tokio::join!(
        yes.end(),
        no.end(),
        resumed.end(),
        whole.end(),
        nobody.end(),
        wrong.end()
    );
    drop(server);

    ended.0.succeeded().said("approved at");
    ended.1.failed(3, &["refused"]);
    ended.2.succeeded().said("approved at");
    ended.3.succeeded().said("approved at");
    ended.4.failed(4, &["nobody approved the upgrade within 5s"]);
    assert_eq!(ended.5.phase, "Failed");
    let shown = &ended.5.nodes;
    assert!(
        shown
            .iter()
            .any(|n| n.2.contains("unable to parse soon as a duration")),
        "{shown:?}"
    );
}
