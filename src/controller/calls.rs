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
    #[error("cannot {attempt}: {}", plain(source))]
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

    /// What the API server said, where it refuses what was to be written and would again: the object is wrong, or a
    /// policy is against it.
    pub fn refusal(&self) -> Option<&str> {
        let status = self.status()?;
        // BadRequest, Forbidden, UnprocessableEntity.
        [400, 403, 422]
            .contains(&status.code)
            .then_some(status.message.as_str())
    }
}

/// The API server's own words; kube's text repeats them as a dump of the whole answer.
fn plain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_api_server() {
        let status =
            kube::core::Status::failure("Job \"x\" is invalid: spec: too long", "Invalid").with_code(422);
        let error = CallError::Kube {
            attempt: "create Job x".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        };
        assert_eq!(
            error.to_string(),
            "cannot create Job x: Job \"x\" is invalid: spec: too long"
        );
        assert!(error.is_invalid());
    }
}
