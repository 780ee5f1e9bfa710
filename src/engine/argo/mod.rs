//! Argo Workflows.
