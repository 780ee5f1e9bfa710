//! Watches the Lease of the peer, in whatever namespace it is. The rules are in [`crate::outside`].

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    runtime::watcher::{self, Event},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::calls::call;
use crate::{
    leader::{RETRY, Record},
    outside::{PEER_LEASE, Peer, Peers, Presence},
};

/// How long a watch that failed is left alone.
const AGAIN: Duration = Duration::from_secs(5);
/// Most leases of that name that are read: one a namespace.
const LIMIT: u32 = 100;

/// What is known of the peer, for the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It is not known yet whether it is at work: nothing may be done.
    NotYet(String),
    /// It is at work, or it is not.
    Known(Option<Peer>),
}

/// Watches for ever; `changed` is notified after each change of `tell`.
pub async fn watch(client: Client, config: watcher::Config, tell: watch::Sender<News>, changed: Arc<Notify>) {
    let api: Api<Lease> = Api::all(client);
    let selector = format!("metadata.name={PEER_LEASE}");
    let list = ListParams::default().fields(&selector).limit(LIMIT);
    let mut stream = std::pin::pin!(watcher::watcher(api.clone(), config.fields(&selector)));
    let mut listing = Vec::new();
    let mut peers = Peers::default();
    // Until the first list nothing is known.
    let mut is_listed = false;
    loop {
        let now = Instant::now();
        let presence = peers.presence(now);
        if is_listed && say(&tell, news(&presence, now)) {
            changed.notify_one();
        }
        let look = async {
            match presence {
                Presence::Absent => std::future::pending().await,
                Presence::Unknown(t) | Presence::AtWork(_, t) => tokio::time::sleep_until(t).await,
            }
        };
        tokio::select! {
            biased;
            event = stream.next() => match event {
                None => return,
                Some(Ok(event)) => is_listed |= take(&mut peers, &mut listing, event),
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot watch Lease {PEER_LEASE} of openshift-upgrade-controller; trying again");
                    tokio::time::sleep(AGAIN).await;
                }
            },
            // A watch may be late or broken: that nobody renews is asked for, not concluded.
            () = look => peers.listed(look_now(&api, &list).await, Instant::now()),
        }
    }
}

/// Asks until there is an answer: without one it is not known, and nothing could be written either.
async fn look_now(api: &Api<Lease>, list: &ListParams) -> Vec<(String, Record)> {
    loop {
        match call(format!("list Leases {PEER_LEASE}"), api.list(list)).await {
            Ok(leases) => return leases.items.iter().map(of).collect(),
            Err(error) => {
                tracing::warn!(%error, "it is not known whether openshift-upgrade-controller is at work; asking again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

fn of(lease: &Lease) -> (String, Record) {
    (lease.namespace().unwrap_or_default(), Record::from(lease))
}

/// Notes an event; whether it completes a list.
fn take(peers: &mut Peers, listing: &mut Vec<(String, Record)>, event: Event<Lease>) -> bool {
    let now = Instant::now();
    match event {
        Event::Init => listing.clear(),
        Event::InitApply(lease) => listing.push(of(&lease)),
        Event::InitDone => {
            peers.listed(std::mem::take(listing), now);
            return true;
        }
        Event::Apply(lease) => {
            let (namespace, record) = of(&lease);
            peers.see(&namespace, record, now);
        }
        Event::Delete(lease) => peers.forget(&lease.namespace().unwrap_or_default()),
    }
    false
}

fn news(presence: &Presence, now: Instant) -> News {
    match presence {
        Presence::Absent => News::Known(None),
        Presence::AtWork(peer, _) => News::Known(Some(peer.clone())),
        Presence::Unknown(until) => News::NotYet(format!(
            "whether openshift-upgrade-controller is at work: its Lease {PEER_LEASE} was seen, and is watched for {} s",
            until.saturating_duration_since(now).as_secs()
        )),
    }
}

fn say(tell: &watch::Sender<News>, news: News) -> bool {
    tell.send_if_modified(|now| {
        let is_news = *now != news;
        *now = news;
        is_news
    })
}

/// Nothing is known yet.
pub fn unknown() -> News {
    News::NotYet(format!(
        "Lease {PEER_LEASE} of openshift-upgrade-controller is not listed yet"
    ))
}
