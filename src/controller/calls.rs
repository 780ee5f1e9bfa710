//! Every call to the API server: under a timeout, with an error that says what was attempted.

use std::{future::Future, time::Duration};

/// No call may take longer: the API server itself is upgraded under us.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A call that did not go through.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer in time; the call may have gone through.
    #[error("cannot {attempt}: no answer within {} s", limit.as_secs())]
    Timeout {
        /// What was attempted, on which object.
        attempt: String,
        /// How long it was waited for.
        limit: Duration,
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

    /// The API server has no such kind.
    pub fn is_no_such_kind(&self) -> bool {
        self.status().is_some_and(|s| s.code == 404) && !self.is_not_found()
    }

    /// What the API server said, where the operator lacks the right.
    pub fn forbidden(&self) -> Option<String> {
        let status = self.status().filter(|s| s.code == 403)?;
        Some(concise(&status.message))
    }

    /// Nothing of the kind can be reached: it is not there, or the operator has no right to it any more.
    pub fn is_out_of_reach(&self) -> bool {
        self.is_no_such_kind() || self.forbidden().is_some()
    }

    /// The API server finds the object wrong, and always will.
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_invalid)
    }

    /// An admission webhook is against the object, as Tekton's own is against one that it could not run.
    ///
    /// Source: knative.dev/pkg webhook `MakeErrorStatus`, which answers 400.
    pub fn is_denied(&self) -> bool {
        let status = self.status().filter(|s| s.code == 400);
        status.is_some_and(|s| s.message.contains("denied the request"))
    }

    /// What was said, where the eviction of a pod is refused by anything but our own lack of rights.
    ///
    /// Sources of the texts: k8s.io/apiserver pkg/admission (webhook errors, validating policies) and pkg/registry/core/pod
    /// storage/eviction.go.
    pub fn refused_eviction(&self) -> Option<String> {
        let status = self.status()?;
        let causes = status.details.iter().flat_map(|d| &d.causes);
        let of_budget = causes
            .filter(|c| c.reason == "DisruptionBudget")
            .map(|c| &c.message);
        if let Some(said) = of_budget.into_iter().next() {
            return Some(said.clone());
        }
        let said = &status.message;
        // A webhook with side effects cannot be asked what it would say; it is not against anything.
        let is_not_asked = said.contains("does not support dry run");
        let is_ours = status.code == 403 && said.contains(" cannot create resource \"pods/eviction\"");
        // Not 429 without a budget: that is an API server under load.
        let is_answer = [400, 403, 422].contains(&status.code);
        let is_webhook = said.contains("failed calling webhook");
        (((is_answer && !is_ours) || is_webhook) && !is_not_asked).then(|| said.clone())
    }

    /// What the API server said, where it refuses what was to be written and would again: the object is wrong, or a
    /// policy is against it.
    pub fn refusal(&self) -> Option<String> {
        let status = self.status()?;
        // BadRequest, Forbidden, UnprocessableEntity.
        let would_again = [400, 403, 422].contains(&status.code);
        would_again.then(|| concise(&status.message))
    }
}

/// The API server's own words; kube's text repeats them as a dump of the whole answer.
fn plain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

/// Longest refusal that is shown, in characters.
const MAX_REFUSAL: usize = 1_000;

/// A refusal without the object in it: of an unknown field the API server repeats the whole object first.
fn concise(message: &str) -> String {
    let from = message.find("strict decoding error: ").unwrap_or_default();
    let message = message.get(from..).unwrap_or(message);
    if message.chars().count() <= MAX_REFUSAL {
        return message.to_owned();
    }
    let short: String = message.chars().take(MAX_REFUSAL).collect();
    format!("{short}…")
}

/// Runs one call under the timeout. `attempt` completes the sentence "cannot …".
pub async fn call<T>(
    attempt: impl Into<String>,
    future: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    call_within(TIMEOUT, attempt, future).await
}

/// The same, with a timeout of its own.
pub async fn call_within<T>(
    limit: Duration,
    attempt: impl Into<String>,
    future: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(CallError::Kube {
            attempt: attempt.into(),
            source: Box::new(source),
        }),
        Err(_) => Err(CallError::Timeout {
            attempt: attempt.into(),
            limit,
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
    use rstest::rstest;

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

    fn answer(code: u16, message: &str) -> CallError {
        let status = kube::core::Status {
            code,
            message: message.to_owned(),
            ..kube::core::Status::default()
        };
        CallError::Kube {
            attempt: "write".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[rstest]
    #[case::by_a_webhook(403, "admission webhook \"guard\" denied the request: not at night", true)]
    #[case::by_a_webhook_that_is_away(
        500,
        "Internal error occurred: failed calling webhook \"guard\": timeout",
        true
    )]
    #[case::several_budgets(500, "This pod has more than one PodDisruptionBudget", false)]
    #[case::a_webhook_that_cannot_be_asked(
        400,
        "admission webhook \"guard\" does not support dry run",
        false
    )]
    #[case::no_right(
        403,
        "pods \"x\" is forbidden: User \"o\" cannot create resource \"pods/eviction\"",
        false
    )]
    #[case::an_api_server_under_load(429, "too many requests, please try again later", false)]
    #[case::nobody_we_know(401, "Unauthorized", false)]
    fn an_eviction_is_refused_by_what_is_against_it(
        #[case] code: u16,
        #[case] said: &str,
        #[case] refused: bool,
    ) {
        let expected = refused.then(|| said.to_owned());
        assert_eq!(answer(code, said).refused_eviction(), expected);
    }

    #[test]
    fn a_budget_says_itself_why_it_refuses_an_eviction() {
        let CallError::Kube { attempt, source } = answer(429, "Cannot evict pod") else {
            panic!("an answer");
        };
        let kube::Error::Api(mut status) = *source else {
            panic!("a status");
        };
        status.details = serde_json::from_value(serde_json::json!({"causes": [
            {"reason": "DisruptionBudget", "message": "The disruption budget db needs 2 healthy pods and has 2 currently"}]}))
        .unwrap();
        let source = Box::new(kube::Error::Api(status));
        let said = CallError::Kube { attempt, source }.refused_eviction();
        assert_eq!(
            said.as_deref(),
            Some("The disruption budget db needs 2 healthy pods and has 2 currently")
        );
    }

    #[rstest]
    #[case::wrong(422, "spec.channel: no", Some("spec.channel: no"))]
    #[case::by_a_policy(403, "admission webhook said no", Some("admission webhook said no"))]
    #[case::not_understood(400, "bad", Some("bad"))]
    #[case::an_unknown_field(
        422,
        " \"\" is invalid: patch: Invalid value: \"{…}\": strict decoding error: unknown field \"spec.x\"",
        Some("strict decoding error: unknown field \"spec.x\"")
    )]
    #[case::somebody_was_first(409, "the object has been modified", None)]
    #[case::too_many(429, "later", None)]
    #[case::broken(500, "etcd", None)]
    fn only_what_would_be_refused_again_is_a_refusal(
        #[case] code: u16,
        #[case] message: &str,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(answer(code, message).refusal().as_deref(), expected);
    }

    #[test]
    fn a_long_refusal_is_cut() {
        let refusal = answer(422, &"ä".repeat(5_000)).refusal().unwrap();
        assert_eq!(refusal.chars().count(), MAX_REFUSAL + 1);
    }
}
