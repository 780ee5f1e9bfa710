//! The documents' commands of Helm: subcommand and flags are known to the real helm, values to the chart, and paths are there.
//! Those of the quick start are run by `tests/cluster_upgrade/quick_start.rs`; the life of a release is played in `chart.rs` there.

use std::collections::BTreeMap;

use crate::{
    documents::blocks,
    path,
    rendering::{helm, template},
};

/// The words of each command of Helm in the documents, with its place.
fn commands() -> Vec<(String, Vec<String>)> {
    let scripts = blocks().into_iter().filter(|b| b.info == "sh");
    let mut found = Vec::new();
    for block in scripts {
        let joined = block.text.replace("\\\n", " ");
        for line in joined.lines().filter(|l| l.trim_start().starts_with("helm ")) {
            let words = line.split_whitespace().skip(1).map(str::to_owned).collect();
            found.push((block.place.clone(), words));
        }
    }
    found
}

fn help_of(subcommand: &str) -> String {
    let output = helm(&[subcommand, "--help"]);
    assert!(output.status.success(), "helm has no {subcommand}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs helm: tests/run"]
fn helm_knows_every_command_of_the_documents() {
    let mut helps = BTreeMap::new();
    let commands = commands();
    assert!(commands.len() >= 7, "only {} commands are left", commands.len());
    for (place, words) in commands {
        let subcommand = words[0].clone();
        let help = helps
            .entry(subcommand.clone())
            .or_insert_with(|| help_of(&subcommand));
        let flags = words
            .iter()
            .filter_map(|w| w.split('=').next().filter(|w| w.starts_with('-')));
        for flag in flags {
            let is_known = help.split([' ', ',', '\n', '\t']).any(|word| word == flag);
            assert!(is_known, "{place}: helm {subcommand} has no {flag}");
        }
        for at in (1..words.len()).filter(|at| words[at - 1] == "--set") {
            let (key, value) = words[at].split_once('=').expect("--set KEY=VALUE");
            let is_word = value.parse::<bool>().is_ok();
            // As JSON: refused by the schema of the values where it is wrong.
            template(&[&if is_word {
                words[at].clone()
            } else {
                format!("{key}={value:?}")
            }]);
        }
        for word in words.iter().filter(|w| w.starts_with("charts/")) {
            assert!(path(word).exists(), "{place}: no {word}");
        }
    }
}
