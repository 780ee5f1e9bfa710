//! Every call to the API server: under a timeout, with an error that says what was attempted.

use std::{future::Future, time::Duration};

/// No call may take longer: the API server itself is upgraded under us.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A call that did not go through.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer in time; the call may have gone through.
    #[error("cannot {attempt}: no answer within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// What was attempted, on which object.
        attempt: String,
    },
    /// The API server refused, or was not reached.
    #[error("cannot {attempt}: {source}")]
    Kube {
        /// What was attempted, on which object.
        attempt: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// A patch of ours could not be written.
    #[error("cannot {attempt}: {problem}")]
    Own {
        /// What was attempted, on which object.
        attempt: String,
        /// Why not.
        problem: String,
    },
}

impl CallError {
    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Kube { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            Self::Timeout { .. } | Self::Own { .. } => None,
        }
    }

    /// Somebody else wrote first: read again.
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_conflict)
    }

    /// The object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_already_exists)
    }

    /// The object does not exist. Not: its kind does not, which is what an API server says of kinds it has yet to load.
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|s| s.reason == "NotFound")
    }

    /// The API server finds the object wrong, and always will.
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_invalid)
    }
}

/// Runs one call under the timeout. `attempt` completes the sentence "cannot …".
pub async fn call<T>(
    attempt: impl Into<String>,
    future: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(CallError::Kube {
            attempt: attempt.into(),
            source: Box::new(source),
        }),
        Err(_) => Err(CallError::Timeout {
            attempt: attempt.into(),
        }),
    }
}

/// The same, with `None` for an object that does not exist.
pub async fn found<T>(
    attempt: impl Into<String>,
    future: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Option<T>, CallError> {
    match call(attempt, future).await {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
