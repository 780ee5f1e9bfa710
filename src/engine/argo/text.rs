//! Texts of users and of the operator on their way into a Workflow.

use serde_json::Value;

use crate::engine::text;

/// Takes Argo's braces out of a text: `{{` opens a variable or an expression wherever Argo substitutes, and an unknown
/// one fails the workflow. A space between the braces leaves the text readable.
pub fn without_variables(text: &str) -> String {
    text::apart(text, '{', '{')
}

/// The same for every text in a value, keys aside.
pub fn value_without_variables(value: &mut Value) {
    text::change_texts(value, &without_variables);
}

/// The same for a JSON document, which says the same after it: braces that follow each other are within its texts, where they
/// can be written as escapes.
pub fn json_without_variables(json: &str) -> String {
    json.replace("{{", "\\u007b\\u007b")
}

/// A message of a node: without variables (a template may refer to it) and at most 1 KiB.
pub fn message(text: &str) -> String {
    text::fit(without_variables(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("a {{workflow.name}} b", "a { {workflow.name}} b")]
    #[case("{{{=1}}}", "{ { {=1}}}")]
    #[case("{ {x}}", "{ {x}}")]
    #[case("plain", "plain")]
    fn variables_of_argo_are_taken_apart(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(without_variables(text), expected);
    }

    #[test]
    fn variables_are_taken_apart_in_nested_values() {
        let mut value = json!({"a": ["{{x}}", 1, null, true], "b": {"c": "{{{{"}});
        value_without_variables(&mut value);
        assert_eq!(
            value,
            json!({"a": ["{ {x}}", 1, null, true], "b": {"c": "{ { { {"}})
        );
    }

    proptest! {
        #[test]
        fn a_document_says_the_same_without_variables(key in r"([{}a\\\\]){0,9}", text in r#"([{}a=é"\\\\ ]|\PC){0,50}"#) {
            let document = json!({key.clone(): {key: [text, {}]}});
            let without = json_without_variables(&document.to_string());
            prop_assert!(!without.contains("{{"));
            prop_assert_eq!(serde_json::from_str::<Value>(&without).unwrap(), document);
        }

        #[test]
        fn no_message_keeps_a_variable(text in r"([{}a=é😀 ]|\PC){0,1500}") {
            prop_assert!(!message(&text).contains("{{"));
        }
    }
}
