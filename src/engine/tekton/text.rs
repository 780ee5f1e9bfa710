//! Texts of users and of the operator on their way into a PipelineRun.

use serde_json::Value;

use crate::engine::text;

/// Takes Tekton's variables out of a text: `$(` opens one, and one that is not known fails the run. A space leaves the text
/// readable.
pub fn without_variables(text: &str) -> String {
    text::apart(text, '$', '(')
}

/// The same for every text in a value, keys aside.
pub fn value_without_variables(value: &mut Value) {
    text::change_texts(value, &without_variables);
}

/// A message of a step: without variables (a task may refer to it) and at most 1 KiB.
pub fn message(text: &str) -> String {
    text::fit(without_variables(text))
}
