//! Our operator in a simulation: started, killed at any instant, and started again.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::mpsc;

use super::api::{ApiServer, Identity};
use crate::{
    clock::Clock,
    controller::{self, prometheus::Asker},
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

/// Keeps one operator running until dropped, or until nobody can give orders any more.
///
/// A killed one is dropped at once with everything that it was about to do (SIGKILL); its client is dead. It starts again
/// after `down`, as a pod does, with nothing but what the API server has. `prometheus` is who it asks, by the true clock.
pub async fn keep_running(
    server: &ApiServer,
    clock: Clock,
    settings: &Settings,
    prometheus: impl Fn(Clock) -> Asker,
    down: Duration,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let mut offset = SignedDuration::ZERO;
    for incarnation in 1.. {
        let identity = Identity::Operator(incarnation);
        let running = controller::run(
            server.client(identity),
            settings.clone(),
            clock.shifted(offset),
            prometheus(clock),
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
