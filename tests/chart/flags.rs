//! Every flag of `upgrade-operator run` is a value of the chart, with its default in the comment.

use std::collections::BTreeMap;

use crate::values;

/// The flags of `upgrade-operator run` with their defaults, by its own help.
fn flags() -> BTreeMap<String, Option<String>> {
    let output = assert_cmd::Command::cargo_bin("upgrade-operator")
        .unwrap()
        .args(["run", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let mut flags = BTreeMap::new();
    let mut last = None;
    for line in help.lines() {
        let text = line.trim_start();
        let is_flag = text.starts_with("--") || (text.starts_with('-') && text.contains(", --"));
        if is_flag {
            let name = text.split("--").nth(1).unwrap();
            let name: String = name
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '-')
                .collect();
            flags.insert(name.clone(), None);
            last = Some(name);
        }
        let default = text.split("[default: ").nth(1).and_then(|t| t.split(']').next());
        if let (Some(default), Some(last)) = (default, &last) {
            flags.insert(last.clone(), Some(default.to_owned()));
        }
    }
    flags.remove("help");
    flags
}

/// `default-location` of `defaultLocation`.
fn flag_of(value: &str) -> String {
    let mut flag = String::new();
    for c in value.chars() {
        if c.is_ascii_uppercase() {
            flag.push('-');
        }
        flag.push(c.to_ascii_lowercase());
    }
    flag
}

#[test]
fn every_flag_is_a_value_and_its_default_is_told() {
    let flags = flags();
    assert!(flags.len() > 15, "{flags:?}");
    let values: BTreeMap<String, values::Entry> = values::entries()
        .into_iter()
        .filter_map(|entry| Some((flag_of(entry.path.strip_prefix("operator.")?), entry)))
        .collect();
    assert_eq!(
        values.keys().collect::<Vec<_>>(),
        flags.keys().collect::<Vec<_>>(),
        "values of `operator` and flags"
    );
    for (flag, default) in flags {
        let comment = &values[&flag].comment;
        let told = comment.split("Default: ").nth(1);
        if let Some(default) = default {
            let is_told = told.is_some_and(|t| t.starts_with(&format!("{default}.")));
            assert!(
                is_told,
                "--{flag}: {default} is the default, but the comment says: {comment}"
            );
        }
    }
}
