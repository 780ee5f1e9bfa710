//! Two replicas, and the one that leads is killed, frozen, cut off and stopped in the middle of an upgrade: the other one
//! takes over in time, warm, and never do two write. By the API server's audit log.

use std::process::{Command, Stdio};

use jiff::{SignedDuration, Timestamp};
use openshift_upgrade_operator::api::{
    upgrade_job::{JobPhase, StepPhase},
    upgrade_job_hook::HookEvent,
};

use crate::{
    SOON, UPGRADE,
    audit_log::{self, Line},
    example::{Delay, hook, job_to},
    is_over, phase, processes, step_phase,
    testbed::{self, NAMESPACE, Testbed, wait_for},
    writers::{Term, lists, strangers, terms, writes},
};

/// Longest time without a leader.
const TAKEOVER: SignedDuration = SignedDuration::from_secs(20);
/// The same where the lease was given back: the others look every 2 s, on a busy machine.
const HANDOVER: SignedDuration = SignedDuration::from_secs(5);
/// How long after a takeover lists are told from those of later.
const WARM: SignedDuration = SignedDuration::from_secs(10);
/// What a process lists when it starts, and no decision lists anew.
const BIG: [&str; 5] = ["nodes", "machineconfigs", "pods", "workflows", "pipelineruns"];
/// An upgrade that tells of its progress meanwhile.
const SIMULATOR: [&str; 2] = ["--duration", "control-plane=75s"];

/// What happens to the leader.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// SIGKILL.
    Killed,
    /// SIGSTOP, until another one leads.
    Frozen,
    /// It and the API server do not reach each other, until another one leads.
    CutOff,
    /// Its pod is deleted in order.
    Stopped,
}

/// What keeps a leader from leading, until it is dropped.
enum Ailment {
    None,
    Frozen(#[expect(dead_code, reason = "to be dropped")] processes::Frozen),
    CutOff(#[expect(dead_code, reason = "to be dropped")] processes::CutOff),
}

/// Scales the operator back when it is dropped.
struct TwoReplicas;

impl TwoReplicas {
    async fn ready(cluster: &Testbed) -> Self {
        let guard = Self;
        scale(2);
        wait_for("two replicas are ready", SOON, async || {
            let pods = cluster.operator_pods().await;
            (pods.len() == 2 && pods.iter().all(testbed::is_ready)).then_some(())
        })
        .await;
        guard
    }

    /// Back to one, for the tests to come.
    async fn end(self, cluster: &Testbed) {
        drop(self);
        wait_for("there is one replica", SOON, async || {
            let pods = cluster.operator_pods().await;
            (pods.len() == 1 && pods.iter().all(testbed::is_ready)).then_some(())
        })
        .await;
    }
}

impl Drop for TwoReplicas {
    fn drop(&mut self) {
        scale(1);
    }
}

fn scale(replicas: u8) {
    let count = format!("--replicas={replicas}");
    let status = Command::new("kubectl")
        .args([
            "--namespace",
            NAMESPACE,
            "scale",
            "deployment/upgrade-operator",
            &count,
        ])
        .stdin(Stdio::null())
        .status();
    let is_done = status.is_ok_and(|s| s.success());
    assert!(
        is_done || std::thread::panicking(),
        "kubectl scale {count} failed"
    );
}

fn log() -> Vec<Line> {
    audit_log::read(&audit_log::of_cluster())
}

/// Does it to the leader, waits for the next one and undoes it; returns when it happened, and the next one's term.
async fn happens(cluster: &Testbed, happening: Happening) -> (Timestamp, Term) {
    let job = cluster.job("two").await;
    assert_eq!(phase(&job), Some(JobPhase::Running), "the upgrade is under way");
    let old = cluster.leader().await.expect("somebody leads");
    let pod = old.split('_').next().unwrap();
    let at = Timestamp::now();
    println!("{happening:?}: {old}");
    let ailment = match happening {
        Happening::Killed => {
            processes::of_pod(pod).signal("KILL");
            Ailment::None
        }
        Happening::Frozen => Ailment::Frozen(processes::of_pod(pod).freeze()),
        Happening::CutOff => Ailment::CutOff(processes::of_pod(pod).cut_off()),
        Happening::Stopped => {
            cluster.delete_operator_pod(pod).await;
            Ailment::None
        }
    };
    let new = wait_for("another one leads", SOON, async || {
        cluster.leader().await.filter(|new| *new != old)
    })
    .await;
    is_back(&old, ailment).await;
    // A line of the log may come a moment after what it is about.
    let (term, given) = wait_for("the log has the claim of the new leader", SOON, async || {
        let later = terms(&writes(&log())).into_iter().filter(|t| t.from >= at);
        let (given, claims): (Vec<Term>, Vec<Term>) = later.partition(|t| t.holder.is_none());
        let claim = claims.into_iter().find(|t| t.holder.as_deref() == Some(&new));
        Some((claim?, given.into_iter().next()))
    })
    .await;
    // How long a pod takes to hear that it is to end is not the operator's.
    let (since, at_most) = match happening {
        Happening::Killed | Happening::Frozen | Happening::CutOff => (at, TAKEOVER),
        Happening::Stopped => (given.expect("it gave the Lease back").from, HANDOVER),
    };
    let took = term.from.duration_since(since);
    println!("{happening:?}: {new} leads after {took:.1?}");
    assert!(took <= at_most, "{happening:?}: nobody led for {took:#}");
    (at, term)
}

/// Undoes it, and waits until the old leader asks for the Lease again: then it has gone on with whatever it was doing.
async fn is_back(old: &str, ailment: Ailment) {
    match &ailment {
        Ailment::None => return,
        Ailment::Frozen(_) | Ailment::CutOff(_) => drop(ailment),
    }
    let healed = Timestamp::now();
    wait_for("the old leader looks who leads", SOON, async || {
        let is_it = |line: &Line| {
            line.process() == old
                && line.request_received_timestamp > healed
                && line.verb == "get"
                && line.object_ref.as_ref().is_some_and(|o| o.resource == "leases")
                && line.was_accepted()
        };
        log().iter().any(is_it).then_some(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn of_two_replicas_one_writes_whatever_happens_to_the_other() {
    let cluster = Testbed::fresh(&SIMULATOR).await;
    let replicas = TwoReplicas::ready(&cluster).await;
    let events = [HookEvent::Start, HookEvent::Success, HookEvent::Finish];
    cluster.apply(&hook("notify", &events)).await;
    let began = Timestamp::now();
    let to = cluster.offered("4.18.5").await;
    // It outlasts all that happens.
    cluster.fault("stall-at", "90").await;
    let delay = Delay { min: 5, max: 600 };
    cluster.apply(&job_to("two", &to, began, &delay)).await;
    wait_for("the control plane updates", SOON, async || {
        let job = cluster.job("two").await;
        step_phase(&job, "await-control-plane").filter(|p| *p == StepPhase::Running)
    })
    .await;

    let mut taken_over = Vec::new();
    for happening in [
        Happening::Killed,
        Happening::Frozen,
        Happening::CutOff,
        Happening::Stopped,
    ] {
        taken_over.push(happens(&cluster, happening).await);
    }
    cluster.fault("stall-at", "").await;
    let job = wait_for("the upgrade ends", UPGRADE, async || {
        Some(cluster.job("two").await).filter(is_over)
    })
    .await;
    assert_eq!(phase(&job), Some(JobPhase::Succeeded));
    replicas.end(&cluster).await;

    let mut log = log();
    log.retain(|line| line.request_received_timestamp >= began);
    let desired = log.iter().filter(|l| is_of_desired_update(l)).count();
    assert_eq!(desired, 1, "writes of desiredUpdate");
    for (at, term) in &taken_over {
        assert_warm(&log, *at, term);
    }
    let strangers = strangers(&writes(&audit_log::read(&audit_log::of_cluster())));
    assert!(strangers.is_empty(), "two writers:\n{}", strangers.join("\n"));
    let mut ran: Vec<String> = cluster.hook_pods().await.iter().map(testbed::event_of).collect();
    ran.sort();
    assert_eq!(ran, ["Finish", "Start", "Success"], "no hook ran twice");
    cluster.assert_installed("4.18.5").await;
    cluster.assert_nothing_is_held().await;
}

/// Who follows has warm watches. A pod that was made in place of one that stopped may be the first to take the Lease: it has
/// just begun.
fn assert_warm(log: &[Line], happened: Timestamp, term: &Term) {
    let holder = term.holder.as_deref().unwrap();
    let is_its = |line: &&Line| line.process() == holder;
    let mut before = log.iter().filter(is_its).map(|l| l.request_received_timestamp);
    if before.any(|t| t < happened) {
        let cold = lists(log, holder, &BIG, term.from, term.from + WARM);
        assert!(cold.is_empty(), "{holder} was cold: it listed {cold:?}");
    }
}

fn is_of_desired_update(line: &Line) -> bool {
    let object = line.object_ref.as_ref();
    object.is_some_and(|o| o.resource == "clusterversions" && o.api_group == "config.openshift.io")
        && line.was_accepted()
        && audit_log::changes_desired_update(&line.request_object)
}
