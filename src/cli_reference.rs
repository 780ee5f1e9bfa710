//! `docs/cli.md`, made of the arguments; and that every command in the documents is one.

#[path = "../tests/support/documents.rs"]
mod documents;

use std::{fmt::Write, fs, path::Path};

use clap::{Arg, Command, CommandFactory, Parser};

use super::Cli;

const HEAD: &str = "\
# Command line

One binary, `upgrade-operator`. An error is one line on standard error, with nothing on standard output. Exit codes: 0 = done; 1 = the answer is no (`rehearse --fail-on`);
2 = wrong input, or something could not be done.

This page is made of the arguments: run `UPDATE_FILES=1 cargo test --bin upgrade-operator cli_reference`.
";

/// A text that fits into a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

/// clap takes the point of a last sentence away.
fn sentence(text: &str) -> String {
    let text = text.trim();
    let point = if text.is_empty() || text.ends_with('.') {
        ""
    } else {
        "."
    };
    format!("{text}{point}")
}

fn name_of(arg: &Arg) -> String {
    let values: Vec<String> = arg
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(|n| n.as_str().to_owned())
        .collect();
    let takes_values = arg.get_action().takes_values();
    let value = if takes_values {
        values.join(" ")
    } else {
        String::new()
    };
    let flag = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {value}"),
        (None, Some(long)) => format!("--{long} {value}"),
        (Some(short), None) => format!("-{short} {value}"),
        (None, None) => value,
    };
    flag.trim_end().to_owned()
}

fn row(arg: &Arg) -> String {
    let env = arg
        .get_env()
        .map_or_else(String::new, |e| format!("`{}`", e.to_string_lossy()));
    let takes_values = arg.get_action().takes_values();
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .filter(|_| takes_values)
        .map(|v| format!("`{}`", v.to_string_lossy()))
        .collect();
    let help = arg
        .get_long_help()
        .or(arg.get_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let allowed: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| takes_values)
        .map(|v| format!("`{}`", v.get_name()))
        .collect();
    let allowed = if allowed.is_empty() {
        String::new()
    } else {
        format!(" One of {}.", allowed.join(", "))
    };
    let must = if arg.is_required_set() { " Required." } else { "" };
    format!(
        "| `{}` | {} | {env} | {} |",
        cell(&name_of(arg)),
        defaults.join(" "),
        cell(&format!("{}{must}{allowed}", sentence(&help)))
    )
}

fn table(command: &Command) -> String {
    let rows: Vec<String> = command
        .get_arguments()
        .filter(|a| !a.is_hide_set() && !["help", "version"].contains(&a.get_id().as_str()))
        .map(row)
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "\n| argument | default | environment | |\n|---|---|---|---|\n{}\n",
        rows.join("\n")
    )
}

fn reference() -> String {
    let mut all = Cli::command();
    all.build();
    let mut text = HEAD.to_owned();
    writeln!(text, "\n## Everywhere\n{}", table(&all).trim_end()).unwrap();
    let is_shown = |c: &&Command| !c.is_hide_set() && c.get_name() != "help";
    for command in all.get_subcommands().filter(is_shown) {
        let about = command
            .get_long_about()
            .or(command.get_about())
            .map(ToString::to_string)
            .unwrap_or_default();
        writeln!(
            text,
            "\n## upgrade-operator {}\n\n{}",
            command.get_name(),
            sentence(&about)
        )
        .unwrap();
        let mut own = command.clone();
        own = own.mut_args(|a| if a.is_global_set() { a.hide(true) } else { a });
        text += &table(&own);
        if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
            writeln!(text, "\n```text\n{}\n```", after.to_string().trim_end()).unwrap();
        }
    }
    text
}

#[test]
fn the_reference_of_the_command_line_is_that_of_the_arguments() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let expected = reference();
    if std::env::var_os("UPDATE_FILES").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == expected,
        "docs/cli.md is out of date: run `UPDATE_FILES=1 cargo test --bin upgrade-operator cli_reference` and commit"
    );
}

/// The calls of the operator in a script: words, as a shell would take them apart.
fn calls(script: &str) -> Vec<Vec<String>> {
    let lines = script.replace("\\\n", " ");
    let mut calls = Vec::new();
    for line in lines.lines() {
        for (at, _) in line.match_indices("upgrade-operator ") {
            // Only where a command may begin: not in a path, and not a name in an argument of another program.
            let before = line[..at].trim_end();
            let begins = before.is_empty()
                || ["$", "|", ";", "{", "(", "time", "&&", "run:"]
                    .iter()
                    .any(|b| before.ends_with(b));
            if begins {
                calls.push(words(&line[at..]));
            }
        }
    }
    calls
}

fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            (None, '#' | '|' | ';' | ')' | '>' | '<' | '&') => break,
            (None, ' ') => words.push(String::new()),
            (_, c) => words
                .iter_mut()
                .next_back()
                .into_iter()
                .for_each(|word| word.push(c)),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

#[test]
fn every_command_in_the_documents_is_understood() {
    let mut checked = 0;
    for block in documents::blocks() {
        for call in calls(&block.text) {
            // A name of a release or an image, as in `helm install upgrade-operator …`, is no command.
            if let Err(error) = Cli::try_parse_from(&call) {
                let is_answer = [
                    clap::error::ErrorKind::DisplayHelp,
                    clap::error::ErrorKind::DisplayVersion,
                ];
                assert!(
                    is_answer.contains(&error.kind()),
                    "{}: {call:?}: {error}",
                    block.place
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 8, "only {checked} commands are left");
}

#[test]
fn calls_are_taken_apart() {
    let script = "time upgrade-operator next-runs --cron '0 22 * * 2' # weekly\n\
        kubectl logs deploy/upgrade-operator -f\nhelm install upgrade-operator charts/x\n\
        x() { upgrade-operator rehearse \"$1\" \\\n  --for 1y; }\n";
    assert_eq!(
        calls(script),
        [
            vec!["upgrade-operator", "next-runs", "--cron", "0 22 * * 2"],
            vec!["upgrade-operator", "rehearse", "$1", "--for", "1y"],
        ]
    );
}
