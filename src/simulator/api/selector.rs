//! Label and field selectors of lists and watches.

use serde_json::Value;

use super::{
    kinds::Kind,
    metadata::{is_label_value, is_qualified_name},
    refusal::Refusal,
    request::Request,
};

/// Which objects a list or watch is about.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    namespace: Option<String>,
    labels: Vec<Requirement>,
    /// Path and value; `false` = must differ.
    fields: Vec<(String, String, bool)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    Exists(String),
    DoesNotExist(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Greater(String, i64),
    Less(String, i64),
}

impl Filter {
    /// What the request asks for.
    pub fn of(request: &Request, namespace: Option<&str>, kind: &Kind) -> Result<Self, Refusal> {
        let fields = fields(request.parameter("fieldSelector").unwrap_or_default())?;
        for (path, ..) in &fields {
            let is_known = matches!(path.as_str(), "metadata.name" | "metadata.namespace")
                || kind
                    .built_in()
                    .is_some_and(|b| b.selectable.contains(&path.as_str()));
            if !is_known {
                return Err(unknown_field(path, kind));
            }
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            labels: labels(request.parameter("labelSelector").unwrap_or_default())?,
            fields,
        })
    }

    /// Whether nothing but a namespace is asked for.
    pub fn is_of_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the object is one of them.
    pub fn matches(&self, object: &Value) -> bool {
        let metadata = object.get("metadata");
        let text = |key: &str| metadata.and_then(|m| m.get(key)).and_then(Value::as_str);
        let label = |key: &str| {
            let labels = metadata.and_then(|m| m.get("labels"));
            labels.and_then(|l| l.get(key)).and_then(Value::as_str)
        };
        self.namespace
            .as_deref()
            .is_none_or(|n| text("namespace") == Some(n))
            && self.labels.iter().all(|r| r.matches(&label))
            && self.fields.iter().all(|(path, value, equal)| {
                let found = object.pointer(&format!("/{}", path.replace('.', "/")));
                let found = match found {
                    Some(Value::String(text)) => text.clone(),
                    Some(other) => other.to_string(),
                    None => String::new(),
                };
                (found == *value) == *equal
            })
    }
}

impl Requirement {
    fn matches<'a>(&self, label: &impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Exists(key) => label(key).is_some(),
            Self::DoesNotExist(key) => label(key).is_none(),
            Self::In(key, values) => label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Self::NotIn(key, values) => label(key).is_none_or(|v| values.iter().all(|w| w != v)),
            Self::Greater(key, than) => label(key)
                .and_then(|v| v.parse().ok())
                .is_some_and(|v: i64| v > *than),
            Self::Less(key, than) => label(key)
                .and_then(|v| v.parse().ok())
                .is_some_and(|v: i64| v < *than),
        }
    }
}

/// In the words of the real server, which has others for its own kinds than for those of CRDs.
fn unknown_field(path: &str, kind: &Kind) -> Refusal {
    Refusal::bad_request(if kind.built_in().is_some_and(|b| b.selectable.is_empty()) {
        format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {path}")
    })
}

fn labels(selector: &str) -> Result<Vec<Requirement>, Refusal> {
    terms(selector).into_iter().map(requirement).collect()
}

/// Splits at commas that stand in no parentheses.
fn terms(selector: &str) -> Vec<&str> {
    let (mut terms, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, c) in selector.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.extend(selector.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.extend(selector.get(start..));
    terms
        .into_iter()
        .map(str::trim)
        .filter(|t| !t.is_empty())
        .collect()
}

fn requirement(term: &str) -> Result<Requirement, Refusal> {
    let bad = || Refusal::bad_request(format!("unable to parse requirement: {term}"));
    let own = |s: &str| s.trim().to_owned();
    let set = |list: &str| -> Option<Vec<String>> {
        let inner = list.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(own).collect())
    };
    let found = if let Some((key, list)) = term.split_once(" notin ") {
        Requirement::NotIn(own(key), set(list).ok_or_else(bad)?)
    } else if let Some((key, list)) = term.split_once(" in ") {
        Requirement::In(own(key), set(list).ok_or_else(bad)?)
    } else if let Some((key, than)) = term.split_once('>') {
        Requirement::Greater(own(key), than.trim().parse().map_err(|_| bad())?)
    } else if let Some((key, than)) = term.split_once('<') {
        Requirement::Less(own(key), than.trim().parse().map_err(|_| bad())?)
    } else if let Some((key, value)) = term.split_once("!=") {
        Requirement::NotIn(own(key), vec![own(value)])
    } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        Requirement::In(own(key), vec![own(value)])
    } else if let Some(key) = term.strip_prefix('!') {
        Requirement::DoesNotExist(own(key))
    } else {
        Requirement::Exists(own(term))
    };
    let (key, values): (_, &[String]) = match &found {
        Requirement::Exists(key)
        | Requirement::DoesNotExist(key)
        | Requirement::Greater(key, _)
        | Requirement::Less(key, _) => (key, &[]),
        Requirement::In(key, values) | Requirement::NotIn(key, values) => (key, values),
    };
    if is_qualified_name(key) && values.iter().all(|v| is_label_value(v)) {
        Ok(found)
    } else {
        Err(bad())
    }
}

fn fields(selector: &str) -> Result<Vec<(String, String, bool)>, Refusal> {
    terms(selector)
        .into_iter()
        .map(|term| {
            let differs = term.split_once("!=").map(|pair| (pair, false));
            let equals = || term.split_once("==").or_else(|| term.split_once('='));
            let ((path, value), equal) = differs
                .or_else(|| equals().map(|pair| (pair, true)))
                .ok_or_else(|| Refusal::bad_request(format!("invalid field selector: {term}")))?;
            Ok((path.to_owned(), value.to_owned(), equal))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("", true)]
    #[case("a=1", true)]
    #[case("a==1,b=2", true)]
    #[case("a=2", false)]
    #[case("a!=2", true)]
    #[case("c!=2", true)]
    #[case("a", true)]
    #[case("c", false)]
    #[case("!c", true)]
    #[case("!a", false)]
    #[case("a in (1, 2),b", true)]
    #[case("a in (2)", false)]
    #[case("a notin (2,3)", true)]
    #[case("c notin (2,3)", true)]
    #[case("a > 0", true)]
    #[case("a > 1", false)]
    #[case("a < 2", true)]
    #[case("c < 2", false)]
    #[case("a notin (1)", false)]
    fn label_selectors_match(#[case] selector: &str, #[case] expected: bool) {
        let filter = Filter {
            labels: labels(selector).unwrap(),
            ..Filter::default()
        };
        assert_eq!(
            filter.matches(&json!({"metadata": {"labels": {"a": "1", "b": "2"}}})),
            expected
        );
    }

    #[rstest]
    #[case("metadata.name=x", true)]
    #[case("metadata.name==y", false)]
    #[case("metadata.name!=y,metadata.namespace=n", true)]
    fn field_selectors_match(#[case] selector: &str, #[case] expected: bool) {
        let filter = Filter {
            fields: fields(selector).unwrap(),
            ..Filter::default()
        };
        assert_eq!(
            filter.matches(&json!({"metadata": {"name": "x", "namespace": "n"}})),
            expected
        );
    }

    #[rstest]
    #[case("a in 1")]
    #[case("=1")]
    #[case("a b")]
    #[case("a=no blanks")]
    #[case("a > x")]
    fn a_bad_selector_is_refused(#[case] selector: &str) {
        assert_eq!(labels(selector).unwrap_err().code, 400);
        assert_eq!(fields("name").unwrap_err().code, 400);
    }
}
