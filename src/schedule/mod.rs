//! When runs happen, when they do not, and to which version: pure.
//!
//! - [`cron`]: five-field expressions on wall-clock time, as robfig/cron's `ParseStandard` reads them
//! - [`iso_week`]: the rhythm by ISO 8601 week
//! - [`time_zone`]: zones, and which instant a wall-clock time is
//! - [`occurrences`]: the three together, a [`Schedule`]
//! - [`suspension`]: the windows without upgrades
//! - [`window_status`]: what such a window says of itself
//! - [`forecast`]: what will become of a coming run, and why
//! - `metrics`: what `/metrics` tells of such windows
//! - [`version`]: which of the offered versions

pub mod cron;
pub mod forecast;
pub mod iso_week;
mod metrics;
pub mod occurrences;
pub mod suspension;
pub mod time_zone;
pub mod version;
pub mod window_status;

#[cfg(test)]
pub(crate) mod reference;

pub use metrics::metrics;
pub use occurrences::{Parsed, Schedule, ScheduleError};
pub use time_zone::{ZoneError, Zones};
