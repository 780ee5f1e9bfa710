//! An API server that is away, as it is in an upgrade: seen by one hook only, through a door of its own.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

use openshift_upgrade_operator::api::upgrade_job_hook::HookEvent;
use serde_json::json;

use crate::{
    cluster::{Cluster, NODE_ADDRESS},
    hook::Hook,
};

/// The API server of the cluster.
const INSIDE: (&str, u16) = (NODE_ADDRESS, 6443);
/// Nobody listens there at first. It is none of the ports that the kernel gives to outgoing connections, or it could be taken then.
const DOOR: (&str, u16) = (NODE_ADDRESS, 19_443);

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        // Either end may hang up.
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn an_api_server_that_is_away_is_waited_for() {
    let cluster = Cluster::ready().await;
    cluster
        .make(json!({
            "apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet",
            "metadata": {"name": "away", "namespace": "openshift-machine-api"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"set": "away"}}, "template": {"metadata": {"labels": {"set": "away"}}, "spec": {}}},
        }))
        .await;
    let hook = Hook::new("remove-capacity", HookEvent::Finish, "away")
        .with("machineset", "away")
        .with_variable("KUBERNETES_SERVICE_HOST", NODE_ADDRESS)
        .with_variable("KUBERNETES_SERVICE_PORT", DOOR.1.to_string());
    let run = hook.start(&cluster).await;
    run.says("was refused").await;

    let listener = TcpListener::bind(DOOR).unwrap();
    // It ends with the tests.
    thread::spawn(move || {
        for outside in listener.incoming() {
            let (outside, inside) = (outside.unwrap(), TcpStream::connect(INSIDE).unwrap());
            pass_on(outside.try_clone().unwrap(), inside.try_clone().unwrap());
            pass_on(inside, outside);
        }
    });
    run.end()
        .await
        .succeeded()
        .said("has no additional nodes: nothing to remove");
}
