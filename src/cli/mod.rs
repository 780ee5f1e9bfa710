//! The subcommands: their arguments, and what they do.

pub mod crds;
