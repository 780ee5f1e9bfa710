//! The life of a job, rule by rule (design 5 and 6).

mod bench;
mod endings;
mod engine_faults;
mod fixtures;
mod health;
mod held;
mod hook_pods;
mod in_every_step;
mod native;
mod pools;
mod removal;
mod seal;
mod table;
mod takeover;
mod task_runs;
mod ttl;
mod unreadable;
mod upgrade;
mod windows;
mod workflow_link;
