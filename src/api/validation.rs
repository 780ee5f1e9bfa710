//! What a schema cannot catch: pure checks of stored objects, for the condition `Valid`.
