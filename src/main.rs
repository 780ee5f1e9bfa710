//! `upgrade-operator`: arguments and dispatch only.

fn main() {}
