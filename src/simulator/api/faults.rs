//! What goes wrong between a client and the server.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{Identity, kinds::Resource, refusal::Refusal};

/// What happens to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The client dies before the write reaches the server.
    KillBefore,
    /// The client dies after the server did it.
    KillAfter,
    /// 409: somebody else wrote first.
    Conflict,
    /// 500, and nothing was done.
    InternalError,
    /// 503, and nothing was done.
    Unavailable,
    /// The server did it, but its answer never comes.
    AnswerLost,
    /// It never reaches the server, which the client cannot know.
    RequestLost,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::KillBefore,
        Self::KillAfter,
        Self::Conflict,
        Self::InternalError,
        Self::Unavailable,
        Self::AnswerLost,
        Self::RequestLost,
    ];
}

/// What a fault does before and after the server acts.
pub enum Course {
    /// The server acts and answers.
    Normal,
    /// The server refuses.
    Refuse(Refusal),
    /// The server does not act, and no answer comes.
    Nothing,
    /// The server acts, and no answer comes.
    Silent,
}

/// Faults to come, writes so far, and who is dead.
#[derive(Default)]
pub struct Faults {
    /// By number of the write, counted from 1 over all clients but the tests' own.
    planned: BTreeMap<u64, Fault>,
    /// Writes so far.
    pub writes: u64,
    /// Faults that struck.
    pub struck: u64,
    dead: BTreeSet<Identity>,
    /// Until when the server answers no operator.
    pub away_until: Option<Timestamp>,
    /// Until when nothing of this client reaches the server, and no answer reaches it.
    pub cut_off_until: BTreeMap<Identity, Timestamp>,
    /// Kinds that no operator finds.
    pub hidden: BTreeSet<Resource>,
}

impl Faults {
    /// Lets a write go wrong.
    pub fn plan(&mut self, write: u64, fault: Fault) {
        self.planned.insert(write, fault);
    }

    /// Nothing of this client gets through any more.
    pub fn kill(&mut self, identity: Identity) {
        self.dead.insert(identity);
    }

    /// Whether the client is dead.
    pub fn is_dead(&self, identity: Identity) -> bool {
        self.dead.contains(&identity)
    }

    /// What becomes of a request.
    pub fn course(&mut self, identity: Identity, is_write: bool) -> Course {
        if self.is_dead(identity) {
            return Course::Nothing;
        }
        if !is_write || !identity.is_counted() {
            return Course::Normal;
        }
        self.writes += 1;
        let Some(fault) = self.planned.remove(&self.writes) else {
            return Course::Normal;
        };
        self.struck += 1;
        match fault {
            Fault::KillBefore => {
                self.kill(identity);
                Course::Nothing
            }
            Fault::KillAfter => {
                self.kill(identity);
                Course::Silent
            }
            Fault::Conflict => {
                let message = "Operation cannot be fulfilled: the object has been modified (injected)";
                Course::Refuse(Refusal::new(409, "Conflict", message))
            }
            Fault::InternalError => Course::Refuse(Refusal::new(
                500,
                "InternalError",
                "an error on the server (injected)",
            )),
            Fault::Unavailable => {
                let message = "the server is currently unable to handle the request (injected)";
                Course::Refuse(Refusal::new(503, "ServiceUnavailable", message))
            }
            Fault::AnswerLost => Course::Silent,
            Fault::RequestLost => Course::Nothing,
        }
    }
}
