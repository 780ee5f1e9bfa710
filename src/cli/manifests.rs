//! Kubernetes manifests from files and folders: multi-document YAML (or JSON), each object with its file and line.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use kube::{Resource, ResourceExt, api::DynamicObject};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Where a document begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file, as the user named it or its folder.
    pub file: PathBuf,
    /// Line of the document, counted from 1.
    pub line: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// One object of a file.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Where it stands.
    pub location: Location,
    /// The object; `types` is always set.
    pub object: DynamicObject,
}

/// Something that is no object.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file or folder holds no object at all.
    #[error("{} holds no Kubernetes object", path.display())]
    Empty {
        /// The file or folder.
        path: PathBuf,
    },
    /// A document is not YAML; the line is the one of the error.
    #[error("{location}: not valid YAML: {problem}")]
    Yaml {
        /// Where the error is.
        location: Location,
        /// What the parser said.
        problem: String,
    },
    /// A document is YAML, but no Kubernetes object.
    #[error("{location}: not a Kubernetes object: {problem}")]
    NotAnObject {
        /// Where the document begins.
        location: Location,
        /// What is wrong or missing.
        problem: String,
    },
    /// An object is not what its kind says.
    #[error("{location}: {kind} {name} is not valid: {problem}")]
    Invalid {
        /// Where the object begins.
        location: Location,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

/// All that was found, in the order of the paths, of file names, and of the documents.
#[derive(Debug, Default)]
pub struct Manifests {
    /// The objects.
    pub objects: Vec<Manifest>,
    /// What is no object: the caller decides whether that is an error or a warning.
    pub problems: Vec<Problem>,
}

impl Manifests {
    /// Reads files and folders; `-` is standard input. Folders are read with all folders below: `*.yaml`, `*.yml` and `*.json`; names that begin
    /// with a dot are passed over.
    pub fn load(paths: &[PathBuf]) -> Self {
        let mut all = Self::default();
        for path in paths {
            let before = all.objects.len() + all.problems.len();
            all.load_path(path);
            if all.objects.len() + all.problems.len() == before {
                all.problems.push(Problem::Empty { path: path.clone() });
            }
        }
        all
    }

    fn load_path(&mut self, path: &Path) {
        let read = |source| Problem::Read {
            path: path.to_owned(),
            source,
        };
        if path == Path::new("-") {
            let name = Path::new("standard input");
            match std::io::read_to_string(std::io::stdin()) {
                Ok(text) => self.add(name, &text),
                Err(source) => self.problems.push(Problem::Read {
                    path: name.to_owned(),
                    source,
                }),
            }
        } else if path.is_dir() {
            match entries(path).map_err(read) {
                Ok(entries) => entries.iter().for_each(|entry| self.load_path(entry)),
                Err(problem) => self.problems.push(problem),
            }
        } else {
            match std::fs::read_to_string(path).map_err(read) {
                Ok(text) => self.add(path, &text),
                Err(problem) => self.problems.push(problem),
            }
        }
    }

    /// Adds the documents of one file.
    pub fn add(&mut self, file: &Path, text: &str) {
        for document in documents(text) {
            let at = |line| Location {
                file: file.to_owned(),
                line,
            };
            match document.parse() {
                Ok(objects) => {
                    let location = at(document.line());
                    self.objects.extend(objects.into_iter().map(|object| Manifest {
                        location: location.clone(),
                        object,
                    }));
                }
                Err(Bad::Yaml { line, problem }) => {
                    self.problems.push(Problem::Yaml {
                        location: at(line),
                        problem,
                    });
                }
                Err(Bad::Object(problem)) => {
                    self.problems.push(Problem::NotAnObject {
                        location: at(document.line()),
                        problem,
                    });
                }
            }
        }
    }

    /// The objects of a kind, typed; the version is not looked at beyond the group.
    pub fn of<K>(&self) -> Result<Vec<K>, Problem>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.objects
            .iter()
            .filter(|m| m.is::<K>())
            .map(Manifest::parse)
            .collect()
    }
}

impl Manifest {
    /// Whether the object is of this group and kind.
    pub fn is<K: Resource<DynamicType = ()>>(&self) -> bool {
        self.object.types.as_ref().is_some_and(|t| {
            let group = t.api_version.split_once('/').map_or("", |(group, _)| group);
            t.kind == K::kind(&()) && group == K::group(&())
        })
    }

    /// The object, typed.
    pub fn parse<K: DeserializeOwned>(&self) -> Result<K, Problem> {
        serde_json::to_value(&self.object)
            .and_then(serde_json::from_value)
            .map_err(|e| Problem::Invalid {
                location: self.location.clone(),
                kind: self
                    .object
                    .types
                    .as_ref()
                    .map(|t| t.kind.clone())
                    .unwrap_or_default(),
                name: self.object.name_any(),
                problem: e.to_string(),
            })
    }
}

/// What is to be read in a folder, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with('.'));
        let wanted = path
            .extension()
            .is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
        if !hidden && (wanted || path.is_dir()) {
            entries.push(path);
        }
    }
    entries.sort();
    Ok(entries)
}

/// One document of a file.
struct Document<'a> {
    /// Line of the file that it begins at, counted from 1; its `---` is part of it.
    first_line: usize,
    text: &'a str,
}

/// What is wrong with a document.
enum Bad {
    Yaml { line: usize, problem: String },
    Object(String),
}

/// Splits a stream at its `---` lines.
///
/// Done here because the parser counts lines from the start of a document of the stream, not of the file. In YAML such a
/// line ends a document wherever it stands, even in a block of text.
fn documents(text: &str) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let (mut start, mut first_line, mut offset) = (0, 1, 0);
    for (line, number) in text.split_inclusive('\n').zip(1..) {
        if line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        {
            documents.push(Document {
                first_line,
                text: text.get(start..offset).unwrap_or_default(),
            });
            (start, first_line) = (offset, number);
        }
        offset += line.len();
    }
    documents.push(Document {
        first_line,
        text: text.get(start..).unwrap_or_default(),
    });
    documents
}

impl Document<'_> {
    /// The line where its content begins.
    fn line(&self) -> usize {
        let empty = |line: &&str| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line == "---"
        };
        self.first_line + self.text.lines().take_while(empty).count()
    }

    /// The objects: none if it is empty, several if it is a list.
    fn parse(&self) -> Result<Vec<DynamicObject>, Bad> {
        let yaml: serde_yaml::Value = serde_yaml::from_str(self.text).map_err(|e| {
            let line = e.location().map_or(1, |l| l.line());
            Bad::Yaml {
                line: self.first_line + line.saturating_sub(1),
                problem: e.to_string(),
            }
        })?;
        if yaml.is_null() {
            return Ok(Vec::new());
        }
        let value = serde_json::to_value(yaml).map_err(|e| Bad::Object(e.to_string()))?;
        match value.get("items").and_then(Value::as_array) {
            Some(items) if kind(&value).is_some_and(|k| k.ends_with("List")) => {
                items.iter().cloned().map(object).collect()
            }
            Some(_) | None => Ok(vec![object(value)?]),
        }
    }
}

fn kind(value: &Value) -> Option<&str> {
    value.get("kind")?.as_str()
}

fn object(value: Value) -> Result<DynamicObject, Bad> {
    for field in ["apiVersion", "kind"] {
        if !value.get(field).is_some_and(Value::is_string) {
            return Err(Bad::Object(format!("it has no {field}")));
        }
    }
    serde_json::from_value(value).map_err(|e| Bad::Object(e.to_string()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{api::UpgradeJob, openshift::machine_config_pool::MachineConfigPool};

    const POOL: &str = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: worker}\nspec: {}\n";

    fn loaded(text: &str) -> Manifests {
        let mut all = Manifests::default();
        all.add(Path::new("f.yaml"), text);
        all
    }

    #[test]
    fn documents_know_their_line() {
        let all = loaded(&format!(
            "# a comment\n\n{POOL}---\n# only a comment\n---\n{POOL}--- \n\n{POOL}"
        ));
        let lines: Vec<_> = all.objects.iter().map(|m| m.location.to_string()).collect();
        assert_eq!(lines, ["f.yaml:3", "f.yaml:10", "f.yaml:16"]);
        assert!(all.problems.is_empty());
        let pools: Vec<MachineConfigPool> = all.of().unwrap();
        assert_eq!(pools.len(), 3);
        assert!(all.of::<UpgradeJob>().unwrap().is_empty());
    }

    #[rstest]
    #[case::yaml("a: 1\n---\n\nb: [1\n", "f.yaml:5: not valid YAML")]
    #[case::duplicate_key("a: 1\n---\nb: 1\nb: 2\n", "not valid YAML")]
    #[case::no_kind("\napiVersion: v1\n", "f.yaml:2: not a Kubernetes object: it has no kind")]
    #[case::a_list_item_without_kind(
        "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1}]\n",
        "f.yaml:1: not a Kubernetes object: it has no kind"
    )]
    #[case::text("hello", "f.yaml:1: not a Kubernetes object: it has no apiVersion")]
    #[case::bad_metadata(
        "apiVersion: v1\nkind: A\nmetadata: {name: 4.2}\n",
        "f.yaml:1: not a Kubernetes object: invalid type"
    )]
    fn problems_name_file_and_line(#[case] text: &str, #[case] expected: &str) {
        let all = loaded(text);
        let problem = all.problems.last().unwrap().to_string();
        assert!(
            problem.starts_with(expected) || problem.contains(expected),
            "{problem}"
        );
    }

    #[test]
    fn a_bad_document_does_not_hide_the_others() {
        let all = loaded(&format!("a: [\n---\n{POOL}"));
        assert_eq!((all.objects.len(), all.problems.len()), (1, 1));
    }

    #[test]
    fn lists_are_taken_apart() {
        let all = loaded(&format!(
            "apiVersion: v1\nkind: List\nitems:\n- {}",
            POOL.trim_end().replace('\n', "\n  ")
        ));
        assert_eq!(all.of::<MachineConfigPool>().unwrap().len(), 1);
    }

    #[test]
    fn an_object_that_is_not_what_its_kind_says_is_named() {
        let job = "apiVersion: managedupgrade.appuio.io/v1beta1\nkind: UpgradeJob\nmetadata: {name: j}\nspec: {startAfter: soon}\n";
        let problem = loaded(job).of::<UpgradeJob>().unwrap_err().to_string();
        assert!(
            problem.starts_with("f.yaml:1: UpgradeJob j is not valid: "),
            "{problem}"
        );
    }

    #[test]
    fn folders_are_read_in_order_and_hidden_names_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("b/pool.yml", &POOL.replace("worker", "b"));
        write("a.yaml", &POOL.replace("worker", "a"));
        write(
            "c.json",
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}"#,
        );
        write("notes.txt", "no: [yaml");
        write(".git/x.yaml", "no: [yaml");
        let all = Manifests::load(&[folder.path().to_owned()]);
        let names: Vec<_> = all.objects.iter().map(|m| m.object.name_any()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(all.problems.is_empty(), "{:?}", all.problems);
    }

    #[test]
    fn a_path_without_objects_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("missing.yaml")] {
            let all = Manifests::load(std::slice::from_ref(&path));
            let problem = all.problems.first().unwrap().to_string();
            assert!(problem.contains(&path.display().to_string()), "{problem}");
        }
    }
}
