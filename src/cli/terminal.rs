//! What a terminal gets that a pipe does not: colours, and how far a long command is.

use std::io::{self, IsTerminal, Write};

use jiff::Timestamp;

/// Whether standard output shows colours: a terminal, and nobody objects (<https://no-color.org>).
pub fn shows_colours() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// Standard output, for answers. Once nobody reads it any more, as in `next-runs | head`, what is written goes nowhere: the
/// reader has seen enough, and that is no error.
#[derive(Debug)]
pub struct Answer<W>(W);

/// Standard output.
pub fn stdout() -> Answer<io::StdoutLock<'static>> {
    Answer(io::stdout().lock())
}

impl<W: Write> Write for Answer<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        unless_closed(self.0.write(text), text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(self.0.flush(), ())
    }
}

fn unless_closed<T>(result: io::Result<T>, otherwise: T) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(otherwise),
        result => result,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails at each write.
    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_error_and_a_full_disk_is() {
        let mut closed = Answer(Broken(io::ErrorKind::BrokenPipe));
        closed.write_all(b"text").and_then(|()| closed.flush()).unwrap();
        let mut full = Answer(Broken(io::ErrorKind::StorageFull));
        full.write_all(b"text").unwrap_err();
        full.flush().unwrap_err();
    }
}
