//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

/// How often is looked; each look is a few requests.
const LOOK: Duration = Duration::from_millis(300);

/// Looks until there is something, or fails.
pub async fn wait_for<T>(what: &str, at_most: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    println!("waiting until {what}");
    loop {
        if let Some(found) = look().await {
            println!("{what}: after {:.1} s", began.elapsed().as_secs_f64());
            return found;
        }
        assert!(
            began.elapsed() < at_most,
            "gave up after {} s waiting until {what}",
            at_most.as_secs()
        );
        tokio::time::sleep(LOOK).await;
    }
}
