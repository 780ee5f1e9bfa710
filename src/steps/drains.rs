//! Waiting for nodes that are drained, with a word about what is in the way.

use jiff::Timestamp;
use kube::ResourceExt;

use super::{Scene, Tick};
use crate::{
    drain::{self, Explained},
    pools::{self, Pause},
};

/// Waits for these pools: their names, and what they still have to do.
pub(super) fn wait(scene: &Scene<'_>, unfinished: Vec<(String, String)>) -> Tick {
    let mut all = Explained::default();
    let mut texts = Vec::new();
    for (pool, text) in unfinished {
        let drains = of(scene, &pool);
        texts.push(text);
        texts.extend(drains.text.clone());
        merge(&mut all, drains);
    }
    Tick::wait_for_nodes(texts.join("; "), all)
}

/// Waits for the control plane, while pools that are not paused may be rolling.
pub(super) fn wait_beside(scene: &Scene<'_>, message: String) -> Tick {
    let mut all = Explained::default();
    let mut texts = vec![message];
    for pool in &scene.world.pools {
        if pools::pause(scene.job, pool) == Pause::None {
            let name = pool.name_any();
            let drains = of(scene, &name);
            texts.extend(drains.text.as_ref().map(|text| format!("{name}: {text}")));
            merge(&mut all, drains);
        }
    }
    Tick::wait_for_nodes(texts.join("; "), all)
}

fn of(scene: &Scene<'_>, pool: &str) -> Explained {
    let (nodes, stored) = (&scene.world.nodes, &scene.status.blockers);
    let report_after = scene.settings.drain_report_after;
    drain::explain(scene.drains, nodes, pool, stored, report_after, scene.now)
}

fn merge(all: &mut Explained, one: Explained) {
    let Explained {
        text: _,
        findings,
        looks,
        wake_at,
    } = one;
    all.findings.extend(findings);
    all.looks.extend(looks);
    all.wake_at = earliest(all.wake_at, wake_at);
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}
