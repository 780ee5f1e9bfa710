//! `upgrade-operator select-pods`: evaluates a `podJQSelector` for the operator, which starts it in a process of its own.

/// Answers the question on standard input.
pub fn run() -> std::io::Result<()> {
    crate::force_drain::jq::serve(std::io::stdin().lock(), std::io::stdout().lock())
}
