//! What a health check found: offenders by name, the longest-standing first.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::api::health_check::Severity;

/// Longest list of offenders in a message.
const MAX_SHOWN: usize = 8;

/// How long an offender stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It concerns the check as a whole: nothing matters more.
    Overall,
    /// Since then.
    Since(Timestamp),
    /// Nobody says.
    Unknown,
}

impl Standing {
    /// As told by whoever watches it.
    pub fn since(t: Option<Timestamp>) -> Self {
        t.map_or(Self::Unknown, Self::Since)
    }
}

/// One offender.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    text: String,
    standing: Standing,
    /// It may be gone before anybody has read of it: it holds, and fails nothing.
    young: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    blocking: Vec<Finding>,
    warnings: Vec<Finding>,
    /// Queries that Prometheus is to be asked before there is a verdict.
    pub asks: BTreeSet<String>,
    /// When time alone may change the verdict, or an answer that it rests on is too old.
    pub look_again: Option<Timestamp>,
}

impl Findings {
    /// Whether nothing blocks, and everything is known.
    pub fn is_healthy(&self) -> bool {
        self.blocking.is_empty() && self.asks.is_empty()
    }

    /// Whether nothing blocks but what may be gone in a moment.
    pub fn is_only_young(&self) -> bool {
        !self.blocking.is_empty() && self.blocking.iter().all(|f| f.young)
    }

    /// The offenders in one line.
    pub fn describe(&self) -> String {
        match (self.blocking.is_empty(), self.warnings.is_empty()) {
            (true, _) if !self.asks.is_empty() => "asking Prometheus".to_owned(),
            (true, true) => "healthy".to_owned(),
            (true, false) => format!("healthy; {}", list(&self.warnings)),
            (false, _) => format!("not healthy: {}", list(&self.blocking)),
        }
    }

    pub(super) fn add(&mut self, severity: Severity, standing: Standing, text: impl Into<String>) {
        self.push(severity, standing, text.into(), false);
    }

    /// An offender that counts from `matures` on, and only holds until then.
    pub(super) fn add_young(
        &mut self,
        severity: Severity,
        standing: Standing,
        text: impl Into<String>,
        matures: Timestamp,
    ) {
        self.push(severity, standing, text.into(), true);
        self.look_again_at(matures);
    }

    fn push(&mut self, severity: Severity, standing: Standing, text: String, young: bool) {
        let found = Finding {
            text,
            standing,
            young,
        };
        match severity {
            Severity::Block => self.blocking.push(found),
            Severity::Warn => self.warnings.push(found),
        }
    }

    pub(super) fn look_again_at(&mut self, t: Timestamp) {
        self.look_again = Some(self.look_again.map_or(t, |now| now.min(t)));
    }

    /// The longest-standing first; offenders that stand equally long stay in the order of the checks.
    pub(super) fn sort(&mut self) {
        self.blocking.sort_by_key(|f| f.standing);
        self.warnings.sort_by_key(|f| f.standing);
    }
}

fn list(all: &[Finding]) -> String {
    let shown: Vec<&str> = all.iter().take(MAX_SHOWN).map(|f| f.text.as_str()).collect();
    let more = all.len().saturating_sub(MAX_SHOWN);
    let tail = if more > 0 {
        format!("; and {more} more")
    } else {
        String::new()
    };
    format!("{}{tail}", shown.join("; "))
}
