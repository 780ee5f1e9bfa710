//! Builds plans.
