//! Why a hook's template cannot be copied.

use crate::engine::native::TemplateKey;

/// A hook whose template cannot be copied into a workflow. Every message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InlineError {
    /// There is none.
    #[error("there is no {of}{}: create it, or correct spec.templateRef.name", in_namespace(namespace.as_ref()))]
    Absent {
        /// Which.
        of: TemplateKey,
        /// Where it was looked for.
        namespace: Option<String>,
    },
    /// The cluster does not know the kind.
    #[error(
        "the API server has no kind {kind} of argoproj.io: install that CustomResourceDefinition of Argo Workflows"
    )]
    KindAbsent {
        /// The kind.
        kind: &'static str,
    },
    /// The operator may not read it.
    #[error(
        "the operator may not read {of}: give its ServiceAccount the verb get on it, as the chart does ({why})"
    )]
    Forbidden {
        /// Which.
        of: TemplateKey,
        /// What the API server said.
        why: String,
    },
    /// The API server refused a workflow with it.
    #[error(
        "the API server refused a workflow with the templates of its hooks, {of} among them: correct what it says ({why})"
    )]
    Refused {
        /// Which.
        of: TemplateKey,
        /// What the API server said.
        why: String,
    },
    /// It is empty.
    #[error("{of} has no spec: give it one with templates")]
    NoSpec {
        /// Which.
        of: TemplateKey,
    },
    /// It is not said which template.
    #[error("{of} has no entrypoint: name one of its templates in spec.templateRef.template")]
    NoEntrypoint {
        /// Which.
        of: TemplateKey,
    },
    /// It has no template of that name.
    #[error(
        "{of} has no template {name}, only {known}: correct spec.templateRef.template, or its entrypoint"
    )]
    NoTemplate {
        /// Which.
        of: TemplateKey,
        /// The template that was asked for.
        name: String,
        /// Those that it has.
        known: String,
    },
    /// One of its templates refers to one that it does not have.
    #[error("template {from} of {of} refers to template {to}, which is not in it: add it there")]
    Dangling {
        /// Which.
        of: TemplateKey,
        /// The template that refers.
        from: String,
        /// The one that is missing.
        to: String,
    },
    /// It says something for a whole workflow that cannot be said for a part of one.
    #[error("{of} has spec.{field}, which a hook cannot take over: {instead}")]
    Field {
        /// Which.
        of: TemplateKey,
        /// The field.
        field: String,
        /// What to write instead.
        instead: &'static str,
    },
    /// Workflow and template both patch the pod, and pods are patched in one way only here.
    #[error(
        "template {template} of {of} has a podSpecPatch, and so has the spec by {fields}: write both into that of the template"
    )]
    TwoPatches {
        /// Which.
        of: TemplateKey,
        /// The template.
        template: String,
        /// The fields of the spec that would be patched in.
        fields: String,
    },
    /// The hook gives an argument that nobody takes.
    #[error(
        "spec.templateRef.arguments gives {name}, but template {template} of {of} takes {known}: remove it, or declare it there"
    )]
    UnknownArgument {
        /// Which.
        of: TemplateKey,
        /// The template.
        template: String,
        /// The argument.
        name: String,
        /// What it takes.
        known: String,
    },
    /// The hook gives an argument twice.
    #[error("spec.templateRef.arguments gives {name} twice: remove one")]
    ArgumentTwice {
        /// The argument.
        name: String,
    },
    /// The template needs an argument.
    #[error("{of} needs a value for {name}: give it in spec.templateRef.arguments, or a default there")]
    MissingArgument {
        /// Which.
        of: TemplateKey,
        /// The parameter.
        name: String,
    },
    /// The template needs an artifact, which a hook cannot give.
    #[error(
        "template {template} of {of} needs the artifact {name}: make it optional, or give it a location there"
    )]
    MissingArtifact {
        /// Which.
        of: TemplateKey,
        /// The template.
        template: String,
        /// The artifact.
        name: String,
    },
    /// A template refers to a parameter of the workflow that is not there.
    #[error(
        "a template of {of} refers to workflow.parameters.{name}, which its spec.arguments does not declare: declare it there"
    )]
    UndeclaredParameter {
        /// Which.
        of: TemplateKey,
        /// The parameter.
        name: String,
    },
    /// A template uses a name of ours.
    #[error("template {template} of {of} has an input {name}, which is the operator's: rename it")]
    Reserved {
        /// Which.
        of: TemplateKey,
        /// The template.
        template: String,
        /// The input.
        name: &'static str,
    },
    /// A field is not what it has to be.
    #[error("template {template} of {of} cannot be read: {field} has the wrong type")]
    Shape {
        /// Which.
        of: TemplateKey,
        /// The template.
        template: String,
        /// The field.
        field: &'static str,
    },
    /// It is too large for a workflow.
    #[error("the templates that {of} brings have {kib} KiB, and a hook may bring {most}: make them shorter")]
    TooLarge {
        /// Which.
        of: TemplateKey,
        /// Their size.
        kib: usize,
        /// The limit.
        most: usize,
    },
}

fn in_namespace(namespace: Option<&String>) -> String {
    namespace.map_or_else(String::new, |n| format!(" in namespace {n}"))
}
