//! Texts of users and of the operator on their way into a Workflow.

use serde_json::Value;

/// Longest message of a node, in bytes: a Workflow is one etcd object and is written at every change.
const MAX_MESSAGE: usize = 1024;

/// Takes Argo's braces out of a text: `{{` opens a variable or an expression wherever Argo substitutes, and an unknown
/// one fails the workflow. A space between the braces leaves the text readable.
pub fn without_variables(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut after_brace = false;
    for c in text.chars() {
        if after_brace && c == '{' {
            out.push(' ');
        }
        after_brace = c == '{';
        out.push(c);
    }
    out
}

/// The same for every text in a value, keys aside.
pub fn value_without_variables(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_variables(text),
        Value::Array(items) => items.iter_mut().for_each(value_without_variables),
        Value::Object(fields) => fields.values_mut().for_each(value_without_variables),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The same for a JSON document, which says the same after it: braces that follow each other are within its texts, where they
/// can be written as escapes.
pub fn json_without_variables(json: &str) -> String {
    json.replace("{{", "\\u007b\\u007b")
}

/// A message of a node: without variables (a template may refer to it) and at most 1 KiB.
pub fn message(text: &str) -> String {
    let text = without_variables(text);
    if text.len() <= MAX_MESSAGE {
        return text;
    }
    let ellipsis = '…';
    let mut end = MAX_MESSAGE.saturating_sub(ellipsis.len_utf8());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end)
        .unwrap_or_default()
        .chars()
        .chain([ellipsis])
        .collect()
}

/// A text as Markdown shows it: on one line, and nothing in it is markup, link or HTML.
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.push(' ');
        } else {
            if matches!(
                c,
                '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '<' | '>' | '#' | '!' | '|' | '~' | '&'
            ) {
                out.push('\\');
            }
            out.push(c);
        }
    }
    out
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
        fn no_text_keeps_a_variable_and_every_message_fits(text in r"([{}a=é😀 ]|\PC){0,1500}") {
            let message = message(&text);
            prop_assert!(!message.contains("{{"));
            prop_assert!(message.len() <= MAX_MESSAGE);
            prop_assert!(text.len() > MAX_MESSAGE / 2 || message.replace(' ', "") == text.replace(' ', ""));
        }
    }

    #[test]
    fn a_long_message_ends_with_an_ellipsis() {
        let message = message(&"é".repeat(1024));
        assert_eq!(message.len(), 1023, "1020 bytes of é and the ellipsis");
        assert!(message.ends_with("é…"));
    }

    #[test]
    fn markdown_is_shown_as_written() {
        assert_eq!(
            markdown("[x](http://evil) <b>\n# *a*_b_ `c`"),
            r"\[x\](http://evil) \<b\> \# \*a\*\_b\_ \`c\`"
        );
    }
}
