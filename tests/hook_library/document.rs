//! docs/hook-library.md.

use std::collections::BTreeMap;

use openshift_upgrade_operator::api::UpgradeJobHook;

pub const TEXT: &str = include_str!("../../docs/hook-library.md");

/// The sections of the document, by the template that is their heading.
pub fn sections() -> BTreeMap<String, &'static str> {
    let parts = TEXT.split("\n## `").skip(1);
    let sections = parts.filter_map(|p| p.split_once('`'));
    sections
        .map(|(name, text)| (name.to_owned(), text.split("\n## ").next().unwrap()))
        .collect()
}

/// The examples, by the template that they use.
pub fn examples() -> BTreeMap<String, UpgradeJobHook> {
    let example = |name: &str, text: &str| {
        let block = text
            .split("```yaml\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next());
        let block = block.unwrap_or_else(|| panic!("{name} has no example"));
        serde_yaml::from_str(block).unwrap()
    };
    let sections = sections();
    sections
        .into_iter()
        .map(|(name, text)| {
            let hook = example(&name, text);
            (name, hook)
        })
        .collect()
}
