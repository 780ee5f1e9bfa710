//! The endings that `docs/concepts.md` tells administrators are those that are reached here, each of them.

use std::collections::BTreeSet;

const CONCEPTS: &str = include_str!("../../docs/concepts.md");
/// Where the rows are.
const ROWS: [&str; 5] = [
    include_str!("any_step.rs"),
    include_str!("failed.rs"),
    include_str!("skipped.rs"),
    include_str!("stopped.rs"),
    include_str!("versions.rs"),
];
/// The API server does not store an object that cannot be read: only another release's definitions do. On a real one:
/// `tests/scenarios/bad_input.rs`.
const NOT_HERE: &str = "Unreadable";

/// The first words in backticks of each row in a part of the document, from a column on.
fn words(heading: &str, column: usize) -> BTreeSet<&'static str> {
    let (_, part) = CONCEPTS.split_once(heading).unwrap();
    let rows = part
        .split("\n#")
        .next()
        .unwrap()
        .lines()
        .filter(|l| l.starts_with("| "));
    let cells = rows.filter_map(|row| row.split(" | ").nth(column));
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

#[test]
fn every_ending_of_the_document_is_reached() {
    let mut documented = words("## How a job can end", 1);
    let types = ["Succeeded", "Failed", "Expired"];
    assert!(types.iter().all(|t| documented.contains(t)));
    documented.extend(words("### Jobs that could not start", 0));
    documented.retain(|reason| !types.contains(reason) && *reason != NOT_HERE);
    assert!(documented.len() > 20, "{documented:?}");
    let is_reached = |reason: &&&str| {
        let names = [format!("\"{reason}\""), format!("/{reason}\"")];
        ROWS.iter()
            .any(|rows| names.iter().any(|name| rows.contains(name)))
    };
    let missing: Vec<_> = documented.iter().filter(|r| !is_reached(r)).collect();
    assert!(missing.is_empty(), "not reached: {missing:?}");
}
