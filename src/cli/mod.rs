//! The subcommands: their arguments, and what they do.

pub mod crds;
//! The subcommands, one file each.

pub mod simulate_openshift;
