//! Our operator in a simulation: started, killed at any instant, and started again.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::mpsc;

use super::api::{ApiServer, Identity};
use crate::{
    clock::Clock,
    controller::{self, Stores, prometheus::Asker},
    settings::Settings,
};

/// What is done to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It is killed, and started again after this long, on a machine whose clock is this far off.
    Restart {
        /// How long it is away.
        down: Duration,
        /// How far the clock is ahead, negative for behind.
        clock_offset: SignedDuration,
    },
}

/// The machine that an operator runs on.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Its number. Two operators that run by accident are on two machines.
    pub number: u32,
    /// How far its clock is ahead, negative for behind.
    pub clock_offset: SignedDuration,
}

impl Machine {
    /// Identities of its operators, one after the other: that of the first, plus this.
    const INCARNATIONS: u32 = 1_000;

    /// The client of an operator on it: the first that is started there is number 1.
    #[must_use]
    pub fn operator(self, incarnation: u32) -> Identity {
        Identity::Operator(self.number * Self::INCARNATIONS + incarnation)
    }
}

/// Keeps one operator running until dropped, or until nobody can give orders any more.
///
/// A killed one is dropped at once with everything that it was about to do (SIGKILL); its client is dead. It starts again
/// after `down`, as a pod does, with nothing but what the API server has, and another name in the election. `prometheus` is who
/// it asks, by the true clock.
pub async fn keep_running(
    server: &ApiServer,
    clock: Clock,
    machine: Machine,
    settings: &Settings,
    prometheus: impl Fn(Clock) -> Asker,
    down: Duration,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let mut offset = machine.clock_offset;
    for incarnation in 1.. {
        let identity = machine.operator(incarnation);
        let name = settings.identity.as_ref();
        let settings = Settings {
            identity: name.map(|n| format!("{n}-{}-{incarnation}", machine.number)),
            ..settings.clone()
        };
        let running = controller::run(
            server.client(identity),
            settings,
            clock.shifted(offset),
            prometheus(clock),
            Stores::default(),
            |_| {},
            std::future::pending(),
        );
        let away = tokio::select! {
            biased;
            () = server.killed(identity) => down,
            order = orders.recv() => match order {
                Some(Order::Restart { down, clock_offset }) => {
                    offset = clock_offset;
                    down
                }
                None => return,
            },
            () = running => return,
        };
        server.kill(identity);
        tokio::time::sleep(away).await;
    }
}
