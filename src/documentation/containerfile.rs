//! The Containerfile copies what the build needs, and says the version that there is. Nothing else builds the image in a change.

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

use regex::Regex;
use serde_json::Value;

/// At run time, since the builder of the image does not have it.
fn containerfile() -> String {
    fs::read_to_string(root().join("Containerfile")).unwrap()
}

/// The repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What is copied for the builder, from the root of the repository.
fn copied() -> Vec<PathBuf> {
    let text = containerfile();
    let lines = text.lines().filter_map(|line| line.strip_prefix("COPY "));
    let of_builder = lines.filter(|line| !line.starts_with("--from="));
    let sources = of_builder.flat_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, sources) = words.split_last().unwrap();
        sources.iter().map(PathBuf::from).collect::<Vec<_>>()
    });
    sources.collect()
}

/// Without `..`, from the root of the repository.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.strip_prefix(root()).unwrap().components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} is not in the repository", path.display()),
            part => plain.push(part),
        }
    }
    plain
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Files that the code of the image holds.
fn included() -> BTreeSet<PathBuf> {
    let include = Regex::new(r#"include_(?:str|bytes)!\(\s*"([^"]+)"\s*,?\s*\)"#).unwrap();
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let mut included = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        // A path that is put together would not be found.
        let all = ["str", "bytes"].map(|kind| text.matches(&format!("include_{kind}!(")).count());
        let here: Vec<&str> = include
            .captures_iter(&text)
            .map(|found| found.get(1).unwrap().as_str())
            .collect();
        assert_eq!(all.iter().sum::<usize>(), here.len(), "{}", file.display());
        let folder = file.parent().unwrap();
        included.extend(here.iter().map(|path| plain(&folder.join(path))));
    }
    included
}

/// Cargo builds nothing of a package that lacks a target which is named.
fn targets() -> BTreeSet<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let targets = metadata["packages"][0]["targets"].as_array().unwrap();
    let path = |target: &Value| plain(Path::new(target["src_path"].as_str().unwrap()));
    targets.iter().map(path).collect()
}

#[test]
fn all_that_the_build_reads_is_copied() {
    let copied = copied();
    let (included, targets) = (included(), targets());
    assert!(included.len() > 5 && targets.len() > 10);
    for path in included.iter().chain(&targets) {
        assert!(root().join(path).is_file(), "{} is not there", path.display());
        let is_copied = copied.iter().any(|folder| path.starts_with(folder));
        assert!(is_copied, "the Containerfile does not COPY {}", path.display());
    }
}

#[test]
fn its_versions_are_that_of_the_operator() {
    let version = Regex::new(r"[0-9]+\.[0-9]+\.[0-9]+").unwrap();
    let text = containerfile();
    let versions: Vec<&str> = version.find_iter(&text).map(|v| v.as_str()).collect();
    assert_eq!(versions, [env!("CARGO_PKG_VERSION"); 3]);
}
