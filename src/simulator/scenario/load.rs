//! Reads scenario files.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{Scenario, check};

/// Why there is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read scenario {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is no scenario.
    #[error("{}", listed(file, problems))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// What is wrong with it; at least one.
        problems: Vec<Problem>,
    },
}

/// Something wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1, where it is known.
    pub line: Option<usize>,
    /// The field, such as `events[2].at`, and what is wrong with it.
    pub text: String,
}

/// All problems in one line, each as `<file>:<line>: <field>: <problem>`.
fn listed(file: &Path, problems: &[Problem]) -> String {
    let one = |p: &Problem| match p.line {
        Some(line) => format!("{}:{line}: {}", file.display(), p.text),
        None => format!("{}: {}", file.display(), p.text),
    };
    problems.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl Scenario {
    /// Reads a file.
    pub fn load(file: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(file).map_err(|source| Error::Read {
            file: file.to_owned(),
            source,
        })?;
        Self::parse(file, &text)
    }

    /// Reads the text of a file; its name is for messages.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Error> {
        let invalid = |problems| Error::Invalid {
            file: file.to_owned(),
            problems,
        };
        let scenario: Option<Self> =
            serde_yaml::from_str(text).map_err(|error| invalid(vec![Problem::of(&error)]))?;
        let Some(scenario) = scenario else {
            return Err(invalid(vec![Problem {
                line: None,
                text: "is empty; write {} for a healthy cluster that always has an update to go to"
                    .to_owned(),
            }]));
        };
        let problems: Vec<Problem> = check::problems(&scenario)
            .into_iter()
            .map(|found| Problem {
                line: found.path.line(text),
                text: found.to_string(),
            })
            .collect();
        if problems.is_empty() {
            Ok(scenario)
        } else {
            Err(invalid(problems))
        }
    }
}

impl Problem {
    fn of(error: &serde_yaml::Error) -> Self {
        let (text, place) = (error.to_string(), error.location());
        // The line goes in front, with the file.
        let line = place.as_ref().map(serde_yaml::Location::line);
        let place = place.map(|at| format!(" at line {} column {}", at.line(), at.column()));
        let text = place.map_or(text.clone(), |place| text.replacen(&place, "", 1));
        Self { line, text }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
