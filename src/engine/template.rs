//! Handlebars as the generated workflows need it; Argo and Tekton share it.
//!
//! Values reach YAML only through the helper `json`: what it writes is a JSON string, which is YAML too, so that no text of
//! a user can break or inject YAML. A name that does not exist is an error, not an empty string.

use std::fmt::Write;

use handlebars::{
    Context, Decorator, Handlebars, Helper, HelperResult, Output, RenderContext, RenderError,
    RenderErrorReason, no_escape,
};
use serde_json::Value;

/// A template that does not render, or does not render YAML.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is wrong.
    #[error("{0}")]
    Template(String),
    /// What came out is not one YAML document.
    #[error("what it renders is not YAML: {0}; write every value as {{{{json value}}}}")]
    Yaml(String),
}

/// Renders a template over `data` and reads the result, which is one YAML document, once.
pub fn render(template: &str, data: &Value) -> Result<Value, TemplateError> {
    let text = registry()
        .render_template(template, data)
        .map_err(|e| TemplateError::Template(one_line(&e.to_string())))?;
    // By way of YAML's own value: it refuses duplicate keys, where JSON's would silently take the last.
    let yaml: serde_yaml::Value =
        serde_yaml::from_str(&text).map_err(|e| TemplateError::Yaml(one_line(&e.to_string())))?;
    serde_json::to_value(yaml).map_err(|e| TemplateError::Yaml(one_line(&e.to_string())))
}

fn registry() -> Handlebars<'static> {
    let mut handlebars = Handlebars::new();
    handlebars.set_strict_mode(true);
    // The default escapes for HTML.
    handlebars.register_escape_fn(no_escape);
    handlebars.register_helper("json", Box::new(json));
    // A partial that includes itself would overflow the stack, and the operator with it.
    handlebars.register_decorator("inline", Box::new(refuse_inline));
    handlebars
}

/// `{{json value}}`: the value as JSON on one line.
fn json(
    helper: &Helper<'_>,
    _: &Handlebars<'_>,
    _: &Context,
    _: &mut RenderContext<'_, '_>,
    out: &mut dyn Output,
) -> HelperResult {
    let param = helper
        .param(0)
        .ok_or(RenderErrorReason::ParamNotFoundForIndex("json", 0))?;
    if param.is_value_missing() {
        return Err(RenderErrorReason::MissingVariable(param.relative_path().cloned()).into());
    }
    out.write(&to_json(param.value()))?;
    Ok(())
}

fn refuse_inline(
    _: &Decorator<'_>,
    _: &Handlebars<'_>,
    _: &Context,
    _: &mut RenderContext<'_, '_>,
) -> Result<(), RenderError> {
    Err(RenderErrorReason::Other("inline partials are not allowed".to_owned()).into())
}

/// JSON that is YAML as well.
///
/// YAML takes no control character unescaped and reads some others as line breaks or byte order marks.
fn to_json(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Error messages go into conditions and on one line of a terminal.
fn one_line(text: &str) -> String {
    crate::text::line(text, usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn every_text_comes_out_as_it_went_in(text in any::<String>(), key in "[a-z]{1,8}") {
            let rendered = render("a:\n  {{json key}}: {{json text}}\nb: [{{json text}}]\n", &json!({"key": key, "text": text})).unwrap();
            prop_assert_eq!(rendered, json!({"a": {key: text.clone()}, "b": [text]}));
        }
    }

    #[rstest]
    #[case("\u{7f}\u{80}\u{85}\u{9f}\u{a0}\u{feff}\u{fffe}\u{2028}\u{2029}")]
    #[case("no\nyes: [1]\n---\n- x")]
    #[case("{{name}} {{{{raw}}}} \\{{ &amp; <b>")]
    #[case("😀 \u{0} \u{1b}[31m")]
    fn hard_texts_come_out_as_they_went_in(#[case] text: &str) {
        assert_eq!(
            render("v: {{json text}}", &json!({"text": text})).unwrap(),
            json!({"v": text})
        );
    }

    #[rstest]
    #[case::unknown_name("v: {{json nothing}}", "nothing")]
    #[case::unknown_name_without_helper("v: {{nothing}}", "nothing")]
    #[case::unknown_list("v: {{#each nothing}}{{this}}{{/each}}", "nothing")]
    #[case::unknown_helper("v: {{yaml text}}", "yaml")]
    #[case::no_value("v: {{json}}", "json")]
    #[case::inline_partial(
        "{{#*inline \"x\"}}{{> x}}{{/inline}}{{> x}}",
        "inline partials are not allowed"
    )]
    #[case::partial("{{> x}}", "x")]
    #[case::unclosed("v: {{#if text}}", "")]
    #[case::two_documents("a: 1\n---\nb: 2\n", "more than one document")]
    #[case::duplicate_key("a: 1\na: 2\n", "duplicate")]
    #[case::not_yaml("a: {{text}}", "not YAML")]
    fn bad_templates_are_refused_on_one_line(#[case] template: &str, #[case] part: &str) {
        let message = render(template, &json!({"text": "[1"})).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }

    #[test]
    fn a_partial_block_that_includes_itself_ends() {
        let rendered = render("{{#> x}}a: {{> @partial-block}}{{/x}}", &json!({}));
        assert!(rendered.is_err(), "{rendered:?}");
    }

    #[test]
    fn braces_of_the_engine_are_written_in_raw_blocks() {
        let rendered = render(
            "v: \"{{{{raw}}}}{{workflow.status}}{{{{/raw}}}} == Succeeded\"",
            &json!({}),
        )
        .unwrap();
        assert_eq!(rendered, json!({"v": "{{workflow.status}} == Succeeded"}));
    }
}
