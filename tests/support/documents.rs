//! What the documents show: the blocks of code in README.md and below `docs/`, and the files of `docs/examples`.

// Each crate that includes this uses a part of it.
#![allow(dead_code)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// A block between fences.
pub struct Block {
    /// Path of the file, from the root of the repository, and line: `docs/hooks.md:7`.
    pub place: String,
    /// What stands behind the fence, such as `yaml` or `yaml fragment`.
    pub info: String,
    /// The code, without the indentation of the fence.
    pub text: String,
}

/// A complete Kubernetes object that is shown.
pub struct Example {
    /// Where.
    pub place: String,
    /// The object.
    pub object: Value,
}

/// YAML that is no Kubernetes object, and has tests of its own: scenarios (`simulator::scenario`), manifests of kustomize
/// (built by `tests/scenarios`), and files of CI services.
const OTHERS: [&str; 4] = [
    "docs/scenarios.md",
    "docs/examples/scenarios/",
    "docs/examples/ci/",
    "/kustomization.yaml",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a folder of the repository, by path.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(below(&path));
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// The documents, by path.
pub fn documents() -> Vec<(String, String)> {
    let mut files = vec![root().join("README.md")];
    files.extend(below(&root().join("docs")));
    let documents = files
        .into_iter()
        .filter(|f| f.extension().is_some_and(|e| e == "md"));
    documents
        .map(|f| (name(&f), fs::read_to_string(f).unwrap()))
        .collect()
}

/// All blocks between fences.
pub fn blocks() -> Vec<Block> {
    documents()
        .iter()
        .flat_map(|(file, text)| blocks_of(file, text))
        .collect()
}

fn blocks_of(file: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, None) => {}
            (None, Some(info)) => {
                let block = Block {
                    place: format!("{file}:{number}"),
                    info: info.trim().to_owned(),
                    text: String::new(),
                };
                open = Some((line.len() - line.trim_start().len(), block));
            }
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((indent, block)), None) => {
                block.text += line.get(*indent..).unwrap_or_default();
                block.text.push('\n');
            }
        }
    }
    assert!(open.is_none(), "{file}: a block is not closed");
    blocks
}

fn is_other(place: &str) -> bool {
    OTHERS.iter().any(|other| place.contains(other))
}

/// YAML that is shown as complete: where, and the text.
fn complete() -> Vec<(String, String)> {
    let shown = blocks().into_iter().filter(|b| b.info == "yaml");
    let files = below(&root().join("docs/examples")).into_iter();
    let files = files.filter(|f| f.extension().is_some_and(|e| e == "yaml"));
    shown
        .map(|b| (b.place, b.text))
        .chain(files.map(|f| (name(&f), fs::read_to_string(f).unwrap())))
        .filter(|(place, _)| !is_other(place))
        .collect()
}

/// The documents of a stream of YAML.
pub fn objects(place: &str, text: &str) -> Vec<Value> {
    let read = |d| <Value as serde::Deserialize>::deserialize(d).unwrap_or_else(|e| panic!("{place}: {e}"));
    serde_yaml::Deserializer::from_str(text).map(read).collect()
}

/// Every complete object.
pub fn examples() -> Vec<Example> {
    let all = complete().into_iter();
    all.flat_map(|(place, text)| {
        let objects = objects(&place, &text).into_iter();
        let with_place = |object| Example {
            place: place.clone(),
            object,
        };
        objects.map(with_place).collect::<Vec<_>>()
    })
    .collect()
}
