//! What an answer must contain.
//!
//! An expected object names the fields that matter, others may be there; a list is compared as a whole. In place of a value:
//!
//! | | the value must |
//! |---|---|
//! | `$any` | be there |
//! | `$absent`, or null | not be there, or be null |
//! | `$empty` | be `{}` |
//! | `$null` | be null |
//! | `$has TEXT` | be a text that contains TEXT |
//! | `$like REGEX` | be a text that matches |
//! | `$not TEXT` | be there, and another text |
//! | `$later TEXT` | be a resourceVersion later than this one |
//! | `$save NAME` | be there; later steps know it as `{NAME}` |

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

/// What is known by name.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// Remembers a text.
    pub fn set(&mut self, name: &str, text: &str) {
        self.0.insert(name.to_owned(), text.to_owned());
    }

    /// The text with all names in braces replaced that are known.
    pub fn fill(&self, text: &str) -> String {
        let name = Regex::new(r"\{(\w+)\}").unwrap();
        let many = Regex::new(r"^a(\d+)$").unwrap();
        name.replace_all(text, |found: &regex::Captures<'_>| {
            let word = &found[1];
            match (self.0.get(word), many.captures(word)) {
                (Some(known), _) => known.clone(),
                (None, Some(times)) => "a".repeat(times[1].parse().unwrap()),
                (None, None) => found[0].to_owned(),
            }
        })
        .into_owned()
    }

    /// A document with all names replaced, in keys too.
    pub fn fill_all(&self, document: &Value) -> Value {
        match document {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(list) => list.iter().map(|v| self.fill_all(v)).collect(),
            Value::Object(map) => {
                let filled = map.iter().map(|(k, v)| (self.fill(k), self.fill_all(v)));
                Value::Object(filled.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => document.clone(),
        }
    }

    /// Compares, and remembers what is to be saved. The error says where they differ.
    pub fn compare(&mut self, expected: &Value, found: Option<&Value>, path: &str) -> Result<(), String> {
        let differs = || {
            let found = found.map_or("nothing".to_owned(), Value::to_string);
            Err(format!("{path}: expected {expected}, found {found}"))
        };
        let found = found.filter(|v| !v.is_null() || *expected == "$null");
        match (expected, found) {
            (Value::Null, None) => Ok(()),
            (Value::String(text), _) if text.starts_with('$') => {
                if self.is_met(text, found) {
                    Ok(())
                } else {
                    differs()
                }
            }
            (Value::Object(fields), Some(Value::Object(_))) => {
                for (name, field) in fields {
                    let name = self.fill(name);
                    self.compare(field, found.and_then(|f| f.get(&name)), &format!("{path}.{name}"))?;
                }
                Ok(())
            }
            (Value::Array(items), Some(Value::Array(those))) if items.len() == those.len() => {
                for (index, (item, that)) in items.iter().zip(those).enumerate() {
                    self.compare(item, Some(that), &format!("{path}[{index}]"))?;
                }
                Ok(())
            }
            (Value::String(text), Some(Value::String(that))) if self.fill(text) == *that => Ok(()),
            (scalar, Some(that)) if !scalar.is_string() && !scalar.is_array() && scalar == that => Ok(()),
            _ => differs(),
        }
    }

    fn is_met(&mut self, wish: &str, found: Option<&Value>) -> bool {
        let (wish, rest) = wish.split_once(' ').unwrap_or((wish, ""));
        let rest = self.fill(rest);
        let text = found.and_then(Value::as_str);
        let number = |t: &str| t.parse::<u64>().ok();
        match wish {
            "$any" => found.is_some(),
            "$absent" => found.is_none(),
            "$null" => found == Some(&Value::Null),
            "$empty" => found
                .and_then(Value::as_object)
                .is_some_and(serde_json::Map::is_empty),
            "$has" => text.is_some_and(|t| t.contains(&rest)),
            "$like" => text.is_some_and(|t| Regex::new(&rest).unwrap().is_match(t)),
            "$not" => text.is_some_and(|t| t != rest),
            "$later" => text.and_then(number) > number(&rest),
            "$save" => {
                if let Some(text) = text {
                    self.set(&rest, text);
                }
                text.is_some()
            }
            other => panic!("an expectation wants {other}, which is none of those known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({"a": 1}), json!({"a": 1, "b": 2}), true)]
    #[case(json!({"a": null}), json!({}), true)]
    #[case(json!({"a": null}), json!({"a": 1}), false)]
    #[case(json!({"a": "$absent"}), json!({"a": null}), true)]
    #[case(json!({"a": "$null"}), json!({"a": null}), true)]
    #[case(json!({"a": "$null"}), json!({}), false)]
    #[case(json!({"a": "$empty"}), json!({"a": {}}), true)]
    #[case(json!({"a": {}}), json!({}), false)]
    #[case(json!({"a": "x"}), json!({}), false)]
    #[case(json!([1]), json!([1, 2]), false)]
    #[case(json!([]), json!([1]), false)]
    #[case(json!("$has b"), json!("abc"), true)]
    #[case(json!("$has x"), json!("abc"), false)]
    #[case(json!("$like ^a.c$"), json!("abc"), true)]
    #[case(json!("$later 9"), json!("10"), true)]
    #[case(json!("$later {old}"), json!("7"), false)]
    #[case(json!("{old}"), json!("7"), true)]
    #[case(json!("{a3}"), json!("aaa"), true)]
    #[case(json!("$not {old}"), json!("7"), false)]
    #[case(json!("$any"), json!("7"), true)]
    fn an_answer_is_compared(#[case] expected: Value, #[case] found: Value, #[case] meets: bool) {
        let mut names = Names::default();
        names.set("old", "7");
        assert_eq!(names.compare(&expected, Some(&found), "").is_ok(), meets);
    }
}
