//! Watches that keep a stripped copy of a kind's objects, sorted by name.
//!
//! Only what is converted is kept: a Node becomes a few hundred bytes. A watch that fails goes on with its last copy and a
//! growing delay; kube's own backoff never grows for list-watches (it is reset by each list that begins).

mod departed;
#[cfg(test)]
mod tests;

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

use departed::Departed;

/// An API server that is starting may not know a kind for a moment, nor our rights. After so long what it says is true.
const GONE: Duration = Duration::from_secs(120);

/// As long as that is not certain, it is looked for at least this often.
const DOUBTFUL_LOOK: Duration = Duration::from_secs(20);

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

/// Why a kind is not there for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    /// The API server does not have it.
    NoSuchKind,
    /// We have no right to it, and can do without.
    NoRight,
}

/// Since when the API server says that a kind is not there.
#[derive(Clone, Copy, Debug)]
struct Gone {
    why: Absence,
    since: Instant,
    /// Until when that counts.
    until: Instant,
}

impl Gone {
    /// Whether that counts still.
    fn counts(self) -> bool {
        Instant::now() < self.until
    }

    /// Whether it has been so for long enough to believe it.
    fn is_settled(self) -> bool {
        self.counts() && self.since.elapsed() >= GONE
    }
}

/// What a look at a kind that is not there has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It was never there.
    NeverThere,
    /// It was there, and is missed from now on.
    Missed,
    /// It was there, and the right to it is gone for good: its objects are forgotten, and have to be listed again.
    RightLost,
    /// Nothing new.
    Same,
}

struct Inner<T> {
    objects: BTreeMap<String, T>,
    departed: Departed<T>,
    listing: BTreeMap<String, T>,
    knowledge: Knowledge,
    gone: Option<Gone>,
    /// The objects were forgotten, and are not listed again.
    is_forgotten: bool,
}

/// A stripped copy of the objects of one kind.
pub struct Mirror<T> {
    inner: Arc<Mutex<Inner<T>>>,
    /// Whoever has looked and found no such kind wants its watch to look as well.
    look: Arc<Notify>,
}

impl<T> Clone for Mirror<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            look: Arc::clone(&self.look),
        }
    }
}

impl<T: Clone> Default for Mirror<T> {
    fn default() -> Self {
        let inner = Inner {
            objects: BTreeMap::new(),
            departed: Departed::up_to(0),
            listing: BTreeMap::new(),
            knowledge: Knowledge::Unknown,
            gone: None,
            is_forgotten: false,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            look: Arc::default(),
        }
    }
}

impl<T: Clone> Mirror<T> {
    /// One that remembers so many objects beyond their end.
    pub fn with_departed(most: usize) -> Self {
        let mirror = Self::default();
        mirror.lock().departed = Departed::up_to(most);
        mirror
    }

    /// How long a look at the API server may take.
    const LOOK_TAKES: Duration = Duration::from_secs(60);

    /// A copy of a kind that is listed, of these objects by name.
    #[cfg(test)]
    pub(super) fn list(&self, objects: impl IntoIterator<Item = (String, T)>) {
        let mut inner = self.lock();
        inner.objects = objects.into_iter().collect();
        inner.knowledge = Knowledge::Known;
    }

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

    /// Whether there are objects to be read: the kind is listed, and neither it nor the right to it went since.
    pub fn is_there(&self) -> bool {
        // Objects that were forgotten are not there, however long the next look takes.
        self.is_believed_there() && !self.is_forgotten()
    }

    /// Whether the kind was not there when it was first looked for, and it is too early to believe that: an API server that is
    /// starting says so for a moment.
    pub fn may_be_starting(&self) -> bool {
        self.knowledge() == Knowledge::NoSuchKind && !self.is_settled()
    }

    /// Notes that there is no such kind, for who has looked. The watch of a kind that is removed may go on for minutes: it looks
    /// now, and finds out whether that stays so.
    pub fn not_found(&self) {
        self.missing(Absence::NoSuchKind, DOUBTFUL_LOOK);
        self.look.notify_one();
    }

    /// Whether the kind was there, and the API server says that it is not any more, for too short a time to believe that.
    pub fn may_be_gone(&self) -> bool {
        let inner = self.lock();
        let is_said = |gone: Gone| gone.why == Absence::NoSuchKind && gone.counts() && !gone.is_settled();
        inner.knowledge == Knowledge::Known && inner.gone.is_some_and(is_said)
    }

    /// Whether the API server has said for long enough that the kind is not there.
    fn is_settled(&self) -> bool {
        let gone = self.lock().gone;
        gone.is_some_and(Gone::is_settled)
    }

    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<T> {
        self.lock().objects.get(name).cloned()
    }

    /// What was last seen of an object of this name that is gone, if that is remembered.
    pub fn last_seen(&self, name: &str) -> Option<T> {
        self.lock().departed.get(name).cloned()
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
                let listed = std::mem::take(&mut inner.listing);
                let before = std::mem::replace(&mut inner.objects, listed);
                for (name, last) in before {
                    if !inner.objects.contains_key(&name) {
                        inner.departed.add(name, last);
                    }
                }
                inner.knowledge = Knowledge::Known;
                inner.gone = None;
                inner.is_forgotten = false;
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
                let name = object.name_any();
                inner.objects.remove(&name);
                // As it was when it went, which may be more than its last change told.
                if inner.departed.remembers()
                    && let Some(last) = convert(object)
                {
                    inner.departed.add(name, last);
                }
                true
            }
        }
    }

    /// Notes that the kind is not there. What was known before is kept: a kind does not vanish, nor does a right, but an API
    /// server that is starting, or being upgraded, says so for a moment. Only once it has said long enough that we have no
    /// right are the objects forgotten: nobody tells us any more what becomes of them.
    ///
    /// A watch that goes on as if nothing had been, once the right to it is back, tells nothing: so what was said counts until
    /// the next look, and a little longer.
    fn missing(&self, why: Absence, next_look: Duration) -> Look {
        let mut inner = self.lock();
        let now = Instant::now();
        let before = inner.gone.filter(|gone| gone.why == why && gone.counts());
        let since = before.map_or(now, |gone| gone.since);
        let until = before
            .map_or(now, |gone| gone.until)
            .max(now + next_look + Self::LOOK_TAKES);
        inner.gone = Some(Gone { why, since, until });
        if inner.knowledge == Knowledge::Unknown {
            inner.knowledge = Knowledge::NoSuchKind;
            return Look::NeverThere;
        }
        let is_lost = match why {
            Absence::NoRight => inner.knowledge == Knowledge::Known && since.elapsed() >= GONE,
            Absence::NoSuchKind => false,
        };
        if is_lost && !inner.is_forgotten {
            inner.objects.clear();
            inner.is_forgotten = true;
            return Look::RightLost;
        }
        if before.is_none() && inner.knowledge == Knowledge::Known {
            Look::Missed
        } else {
            Look::Same
        }
    }

    /// Whether the kind was there, and it is not certain that it is not any more.
    fn is_believed_there(&self) -> bool {
        self.knowledge() == Knowledge::Known && !self.is_settled()
    }

    /// Whether the objects were forgotten, and are not listed again.
    fn is_forgotten(&self) -> bool {
        self.lock().is_forgotten
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
    let anew = || watcher::watcher(api.clone(), config.watch.clone());
    let mut stream = std::pin::pin!(anew());
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            () = mirror.look.notified() => {
                // API servers that disagree must not make it list all the time.
                tokio::time::sleep(backoff.delay(DOUBTFUL_LOOK)).await;
                stream.set(anew());
                continue;
            }
        };
        let Some(event) = event else { return };
        let error = match event {
            Ok(event) => {
                let (was_absent, was_forgotten) =
                    (mirror.knowledge() == Knowledge::NoSuchKind, mirror.is_forgotten());
                if mirror.apply(event, &convert) {
                    if was_absent && mirror.knowledge() == Knowledge::Known {
                        tracing::info!(kind, "the API server has this kind now");
                    } else if was_forgotten && !mirror.is_forgotten() {
                        tracing::info!(kind, "the operator has the right to this kind again");
                    }
                    changed.notify_one();
                }
                continue;
            }
            Err(error) => error,
        };
        let Some(why) = absence(&error, config.is_optional) else {
            let delay = backoff.delay(Backoff::LONGEST);
            tracing::warn!(kind, %error, "watch failed; trying again");
            tokio::time::sleep(delay).await;
            continue;
        };
        let is_doubtful = why == Absence::NoSuchKind && mirror.is_believed_there();
        let longest = if is_doubtful {
            DOUBTFUL_LOOK.min(config.absent_kind_poll)
        } else {
            config.absent_kind_poll
        };
        let delay = backoff.delay(longest);
        let look = mirror.missing(why, delay);
        tell_absence(&kind, why, look, &error);
        // One that goes on where it was would neither bring back what was forgotten, nor tell that the kind is there again.
        if look == Look::RightLost || why == Absence::NoSuchKind {
            stream.set(anew());
        }
        match look {
            Look::Same | Look::Missed => {}
            Look::NeverThere | Look::RightLost => changed.notify_one(),
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = mirror.look.notified() => stream.set(anew()),
        }
    }
}

/// Why the kind is not there, if that is what the error says.
fn absence(error: &watcher::Error, is_optional: bool) -> Option<Absence> {
    match refusal(error)? {
        404 => Some(Absence::NoSuchKind),
        403 if is_optional => Some(Absence::NoRight),
        _ => None,
    }
}

fn tell_absence(kind: &str, why: Absence, look: Look, error: &watcher::Error) {
    match (look, why) {
        (Look::NeverThere, Absence::NoSuchKind) => tracing::info!(
            kind,
            "the API server does not have this kind; looking again from time to time"
        ),
        (Look::NeverThere, Absence::NoRight) => tracing::info!(
            kind,
            "the operator has no right to this kind and does without; looking again from time to time"
        ),
        (Look::RightLost, _) => tracing::warn!(
            kind,
            %error,
            "the operator has lost the right to list and watch this kind, and goes on as if there were none of it; give it the \
             right again (the Role or ClusterRole of the chart has the rule), or take out what needs the kind"
        ),
        (Look::Missed, Absence::NoSuchKind) => tracing::info!(
            kind,
            "the API server does not have this kind any more; looking again until that is certain"
        ),
        (Look::Missed, Absence::NoRight) => tracing::info!(
            kind,
            %error,
            "the operator may not list and watch this kind any more; looking again until that is certain"
        ),
        (Look::Same, _) => tracing::debug!(kind, %error, "still does without this kind"),
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
