//! Texts of users and of the operator on their way into a workflow.

use serde_json::Value;

/// Longest message of a step, in bytes: a workflow is one etcd object and is written at every change.
const MAX_MESSAGE: usize = 1024;

/// Puts a space between these two characters wherever they follow each other: together they open a variable of an engine,
/// and an unknown one fails the workflow. The text stays readable.
pub fn apart(text: &str, first: char, second: char) -> String {
    let mut out = String::with_capacity(text.len());
    let mut after_first = false;
    for c in text.chars() {
        if after_first && c == second {
            out.push(' ');
        }
        after_first = c == first;
        out.push(c);
    }
    out
}

/// Changes every text in a value, keys aside.
pub fn change_texts(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|v| change_texts(v, change)),
        Value::Object(fields) => fields.values_mut().for_each(|v| change_texts(v, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A message of a step, cut to at most 1 KiB.
pub fn fit(text: String) -> String {
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

    use super::*;

    proptest! {
        #[test]
        fn every_message_fits(text in r"(é|\PC){0,1500}") {
            let message = fit(text.clone());
            prop_assert!(message.len() <= MAX_MESSAGE);
            prop_assert!(text.len() > MAX_MESSAGE || message == text);
        }

        #[test]
        fn nothing_but_spaces_is_added(text in r"([$(]|\PC){0,50}") {
            let without = apart(&text, '$', '(');
            prop_assert!(!without.contains("$("));
            prop_assert_eq!(without.replace(' ', ""), text.replace(' ', ""));
        }
    }

    #[test]
    fn a_long_message_ends_with_an_ellipsis() {
        let message = fit("é".repeat(1024));
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
