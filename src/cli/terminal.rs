//! What a terminal gets that a pipe does not: colours, and how far a long command is.

use std::io::{self, IsTerminal, Write};

use jiff::Timestamp;

/// Whether standard output shows colours: a terminal, and nobody objects (<https://no-color.org>).
pub fn shows_colours() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// How far a simulation is, on standard error while it is a terminal; nothing elsewhere.
#[derive(Debug)]
pub struct Progress {
    from: Timestamp,
    end: Timestamp,
    /// The last percentage that was shown; `None` where nothing is.
    shown: Option<i64>,
}

impl Progress {
    /// Of what lasts from `from` to `end`.
    pub fn on_stderr(from: Timestamp, end: Timestamp) -> Self {
        Self {
            from,
            end,
            shown: io::stderr().is_terminal().then_some(-1),
        }
    }

    /// It is at `now`.
    pub fn tell(&mut self, now: Timestamp) {
        let whole = self.end.duration_since(self.from).as_secs().max(1);
        let part = now.duration_since(self.from).as_secs().clamp(0, whole);
        let percent = part.saturating_mul(100) / whole;
        if let Some(shown) = &mut self.shown
            && *shown != percent
        {
            *shown = percent;
            let day = now.strftime("%Y-%m-%d");
            // Nobody reads it where it cannot be written.
            let _ = write!(io::stderr(), "\r\u{1b}[Krehearsing: {day}, {percent} %");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some_and(|shown| shown >= 0) {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}
