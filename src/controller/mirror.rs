//! Watches that keep a stripped copy of a kind's objects, sorted by name.
//!
//! Only what is converted is kept: a Node becomes a few hundred bytes. A watch that fails goes on with its last copy and a
//! growing delay; kube's own backoff never grows for list-watches (it is reset by each list that begins).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use tokio::{sync::Notify, time::Instant};

/// What is known of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Not listed yet.
    Unknown,
    /// Listed at least once; the watch keeps it fresh.
    Known,
    /// The API server does not have this kind.
    NoSuchKind,
}

struct Inner<T> {
    objects: BTreeMap<String, T>,
    listing: BTreeMap<String, T>,
    knowledge: Knowledge,
    /// Since when the API server says that it does not have the kind, and until when that counts.
    gone: Option<(Instant, Instant)>,
}

/// A stripped copy of the objects of one kind.
pub struct Mirror<T> {
    inner: Arc<Mutex<Inner<T>>>,
}

impl<T> Clone for Mirror<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<T: Clone> Default for Mirror<T> {
    fn default() -> Self {
        let inner = Inner {
            objects: BTreeMap::new(),
            listing: BTreeMap::new(),
            knowledge: Knowledge::Unknown,
            gone: None,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }
}

impl<T: Clone> Mirror<T> {
    /// How long a look at the API server may take.
    const LOOK_TAKES: Duration = Duration::from_secs(60);

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        // A panic while the lock was held cannot have left a half-made map: every change is one insert or swap.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All objects, sorted by name.
    pub fn all(&self) -> Vec<T> {
        self.lock().objects.values().cloned().collect()
    }

    /// Those of which this holds, sorted by name.
    pub fn matching(&self, holds: impl Fn(&T) -> bool) -> Vec<T> {
        self.lock()
            .objects
            .values()
            .filter(|o| holds(o))
            .cloned()
            .collect()
    }

    /// Whether the API server has said for so long that it does not have the kind, though it had it.
    pub fn is_gone_for(&self, time: Duration) -> bool {
        let gone = self.lock().gone;
        gone.is_some_and(|(since, until)| since.elapsed() >= time && Instant::now() < until)
    }

    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<T> {
        self.lock().objects.get(name).cloned()
    }

    /// What is known.
    pub fn knowledge(&self) -> Knowledge {
        self.lock().knowledge
    }

    fn apply<K: ResourceExt>(&self, event: Event<K>, convert: &impl Fn(K) -> Option<T>) -> bool {
        let mut inner = self.lock();
        match event {
            Event::Init => {
                inner.listing.clear();
                false
            }
            Event::InitApply(object) => {
                let name = object.name_any();
                if let Some(kept) = convert(object) {
                    inner.listing.insert(name, kept);
                }
                false
            }
            Event::InitDone => {
                inner.objects = std::mem::take(&mut inner.listing);
                inner.knowledge = Knowledge::Known;
                inner.gone = None;
                true
            }
            Event::Apply(object) => {
                let name = object.name_any();
                match convert(object) {
                    Some(kept) => inner.objects.insert(name, kept),
                    None => inner.objects.remove(&name),
                };
                true
            }
            Event::Delete(object) => {
                inner.objects.remove(&object.name_any());
                true
            }
        }
    }

    /// Notes that the API server does not have the kind. What was known before is kept: a kind does not vanish, but an
    /// API server that is starting, or being upgraded, says so for a moment.
    ///
    /// A watch that goes on as if nothing had been tells nothing: so what was said counts until the next look, and a little
    /// longer.
    fn missing(&self, next_look: Duration) -> bool {
        let mut inner = self.lock();
        let now = Instant::now();
        let since = inner
            .gone
            .filter(|(_, until)| now < *until)
            .map_or(now, |(since, _)| since);
        inner.gone = Some((since, now + next_look + Self::LOOK_TAKES));
        let news = inner.knowledge == Knowledge::Unknown;
        if news {
            inner.knowledge = Knowledge::NoSuchKind;
        }
        news
    }
}

/// How to watch.
#[derive(Clone, Debug)]
pub struct Config {
    /// For the watch itself.
    pub watch: watcher::Config,
    /// A kind that the API server does not have is looked for at least this often.
    pub absent_kind_poll: Duration,
    /// Whether the operator can do without the kind: then it may lack the right to it, which is as if the API server did not
    /// have it. A cluster without an engine needs no rights for that.
    pub is_optional: bool,
}

impl Config {
    /// For a kind that the operator can do without.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// Only objects with this field selector.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        self.watch = self.watch.fields(selector);
        self
    }

    /// Only objects with this label selector.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.watch = self.watch.labels(selector);
        self
    }
}

/// Delay between attempts: 0.8 s doubling to a longest, back to the start after two quiet minutes.
#[derive(Default)]
struct Backoff {
    last: Option<(Instant, Duration)>,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(800);
    const LONGEST: Duration = Duration::from_secs(10);
    const QUIET: Duration = Duration::from_secs(120);

    fn delay(&mut self, longest: Duration) -> Duration {
        let now = Instant::now();
        let delay = match self.last {
            Some((at, delay)) if now.duration_since(at) <= delay.saturating_add(Self::QUIET) => {
                delay.saturating_mul(2).min(longest)
            }
            Some(_) | None => Self::FIRST.min(longest),
        };
        self.last = Some((now, delay));
        delay
    }
}

/// Watches a kind for ever and keeps `mirror` up to date; `changed` is notified after every change.
pub async fn watch<K, T>(
    api: Api<K>,
    config: Config,
    mirror: Mirror<T>,
    changed: Arc<Notify>,
    convert: impl Fn(K) -> Option<T>,
) where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    T: Clone,
{
    let kind = api.resource_url().to_owned();
    let mut backoff = Backoff::default();
    let mut stream = std::pin::pin!(watcher::watcher(api, config.watch));
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                let was_absent = mirror.knowledge() == Knowledge::NoSuchKind;
                if mirror.apply(event, &convert) {
                    if was_absent && mirror.knowledge() == Knowledge::Known {
                        tracing::info!(kind, "the API server has this kind now");
                    }
                    changed.notify_one();
                }
            }
            Err(error) => {
                let code = refusal(&error);
                let is_forbidden = config.is_optional && code == Some(403);
                let is_absent = code == Some(404) || is_forbidden;
                let longest = if is_absent {
                    config.absent_kind_poll
                } else {
                    Backoff::LONGEST
                };
                let delay = backoff.delay(longest);
                if is_absent && mirror.missing(delay) {
                    let why = if is_forbidden {
                        "the operator has no right to this kind and does without"
                    } else {
                        "the API server does not have this kind"
                    };
                    tracing::info!(kind, "{why}; looking again from time to time");
                    changed.notify_one();
                } else if is_absent {
                    tracing::debug!(kind, %error, "still does without this kind");
                } else {
                    tracing::warn!(kind, %error, "watch failed; trying again");
                }
                tokio::time::sleep(delay).await;
            }
        }
    }
}

/// What the API server answered, where a list or watch did not begin.
///
/// Of a kind without CustomResourceDefinition it says 404 with a line of text, no Status, so that there is no reason to go by;
/// and 403 to who has no right to it, whether the kind is there or not.
fn refusal(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_grow_and_begin_anew_after_quiet_minutes() {
        let mut backoff = Backoff::default();
        let longest = Duration::from_secs(300);
        let mut delays = Vec::new();
        for _ in 0..11 {
            let delay = backoff.delay(longest);
            delays.push(delay.as_millis());
            tokio::time::sleep(delay).await;
        }
        assert_eq!(delays[..4], [800, 1_600, 3_200, 6_400]);
        assert_eq!(delays[9..], [300_000, 300_000], "a long delay is no quiet time");
        tokio::time::sleep(Backoff::QUIET + Duration::from_secs(1)).await;
        assert_eq!(backoff.delay(longest), Backoff::FIRST);
    }

    /// What is known of a kind when the API server answers every list with this code.
    async fn knowledge_after(code: u16, is_optional: bool) -> Knowledge {
        let refuse = move |_: http::Request<kube::client::Body>| async move {
            let status = kube::core::Status::failure("no", "Reason").with_code(code);
            let body = serde_json::to_vec(&status).unwrap_or_default();
            let answer = http::Response::builder()
                .status(code)
                .body(http_body_util::Full::from(body));
            answer.map_err(std::io::Error::other)
        };
        let client = kube::Client::new(tower::service_fn(refuse), "default");
        let api: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client, "default");
        let config = Config {
            watch: watcher::Config::default(),
            absent_kind_poll: Duration::from_secs(300),
            is_optional,
        };
        let (mirror, changed) = (Mirror::default(), Arc::new(Notify::new()));
        let watching = watch(api, config, mirror.clone(), changed, Some);
        let _ = tokio::time::timeout(Duration::from_secs(5), watching).await;
        mirror.knowledge()
    }

    #[rstest::rstest]
    #[case::no_such_kind(404, false, Knowledge::NoSuchKind)]
    #[case::no_right_to_what_it_needs(403, false, Knowledge::Unknown)]
    #[case::no_right_to_what_it_can_do_without(403, true, Knowledge::NoSuchKind)]
    #[case::broken(500, true, Knowledge::Unknown)]
    #[tokio::test(start_paused = true)]
    async fn a_kind_without_rights_is_absent_if_the_operator_can_do_without(
        #[case] code: u16,
        #[case] is_optional: bool,
        #[case] expected: Knowledge,
    ) {
        assert_eq!(knowledge_after(code, is_optional).await, expected);
    }
}
