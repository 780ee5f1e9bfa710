//! What is known of a kind that comes and goes.

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

type Answers = Arc<Mutex<std::collections::VecDeque<(u16, serde_json::Value)>>>;

/// Watches Jobs of an API server that answers with these, one after the other, and then with the last one again and again.
/// A watch that begins tells nothing.
fn watching(
    answers: Vec<(u16, serde_json::Value)>,
    is_optional: bool,
) -> (Mirror<String>, impl Future<Output = ()>) {
    watching_where(&Arc::new(Mutex::new(answers.into())), is_optional)
}

/// The same with answers that may be changed meanwhile.
fn watching_where(
    answers: &Answers,
    is_optional: bool,
) -> (Mirror<String>, impl Future<Output = ()> + use<>) {
    let answers = Arc::clone(answers);
    let answer = move |request: http::Request<kube::client::Body>| {
        let is_watch = request.uri().query().is_some_and(|q| q.contains("watch=true"));
        let mut left = answers.lock().unwrap();
        let begins = is_watch && left[0].0 == 200;
        let (code, body) = if left.len() > 1 && !begins {
            left.pop_front().unwrap()
        } else {
            left[0].clone()
        };
        async move {
            if begins {
                std::future::pending::<()>().await;
            }
            let body = http_body_util::Full::from(serde_json::to_vec(&body).unwrap());
            let answer = http::Response::builder().status(code).body(body);
            answer.map_err(std::io::Error::other)
        }
    };
    let client = kube::Client::new(tower::service_fn(answer), "default");
    let api: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client, "default");
    let config = Config {
        watch: watcher::Config::default(),
        absent_kind_poll: Duration::from_secs(300),
        is_optional,
    };
    let (mirror, changed) = (Mirror::default(), Arc::new(Notify::new()));
    let name = |job: k8s_openapi::api::batch::v1::Job| Some(job.name_any());
    (mirror.clone(), watch(api, config, mirror, changed, name))
}

fn refused(code: u16) -> (u16, serde_json::Value) {
    let status = kube::core::Status::failure("no", "Reason").with_code(code);
    (code, serde_json::to_value(status).unwrap())
}

fn listed(names: &[&str]) -> (u16, serde_json::Value) {
    let item = |name: &&str| serde_json::json!({"metadata": {"name": name}});
    let items: Vec<_> = names.iter().map(item).collect();
    (
        200,
        serde_json::json!({"apiVersion": "batch/v1", "kind": "JobList", "metadata": {"resourceVersion": "1"}, "items": items}),
    )
}

/// The end of an object tells more than its last change did; a list tells only that it is gone.
#[test]
fn what_was_last_seen_of_an_object_is_remembered() {
    let mirror = Mirror::with_departed(2);
    let object = |name: &str, text: &str| {
        let mut job = k8s_openapi::api::batch::v1::Job::default();
        job.metadata.name = Some(name.to_owned());
        job.metadata.resource_version = Some(text.to_owned());
        job
    };
    let text = |job: k8s_openapi::api::batch::v1::Job| job.resource_version();
    mirror.apply(Event::Apply(object("deleted", "as it was")), &text);
    mirror.apply(Event::Apply(object("missed", "as it was")), &text);
    mirror.apply(Event::Delete(object("deleted", "at its end")), &text);
    assert_eq!(mirror.last_seen("deleted").as_deref(), Some("at its end"));
    assert_eq!(mirror.last_seen("missed"), None, "it is there");
    for event in [Event::Init, Event::InitDone] {
        mirror.apply(event, &text);
    }
    assert_eq!(mirror.last_seen("missed").as_deref(), Some("as it was"));
    assert_eq!((mirror.get("deleted"), mirror.get("missed")), (None, None));
}

/// What is known of a kind when the API server answers every list with this code.
async fn knowledge_after(code: u16, is_optional: bool) -> Knowledge {
    let (mirror, watching) = watching(vec![refused(code)], is_optional);
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

/// An API server that is starting forbids for a moment what it allows as soon as it has read the roles.
#[rstest::rstest]
#[case::for_a_moment(403, 60, &["a"], true)]
#[case::for_good(403, 600, &[], false)]
#[case::with_its_kind(404, 600, &["a"], false)]
#[tokio::test(start_paused = true)]
async fn objects_are_forgotten_once_the_right_to_them_is_lost(
    #[case] code: u16,
    #[case] seconds: u64,
    #[case] expected: &[&str],
    #[case] is_there: bool,
) {
    let (mirror, watching) = watching(vec![listed(&["a"]), refused(code)], true);
    let _ = tokio::time::timeout(Duration::from_secs(seconds), watching).await;
    assert_eq!(mirror.all(), expected);
    assert_eq!(
        (mirror.knowledge(), mirror.is_there()),
        (Knowledge::Known, is_there)
    );
}

/// For two minutes nobody can know whether it comes back.
#[rstest::rstest]
#[case::kind_at_first(404, 60, true, true)]
#[case::kind_for_good(404, 130, false, false)]
#[case::only_the_right(403, 60, false, true)]
#[tokio::test(start_paused = true)]
async fn a_kind_that_was_there_may_be_gone_before_it_is(
    #[case] code: u16,
    #[case] seconds: u64,
    #[case] may_be_gone: bool,
    #[case] is_there: bool,
) {
    let (mirror, watching) = watching(vec![listed(&[]), refused(code)], true);
    let _ = tokio::time::timeout(Duration::from_secs(seconds), watching).await;
    assert_eq!((mirror.may_be_gone(), mirror.is_there()), (may_be_gone, is_there));
}

#[rstest::rstest]
#[case::was_never_there(vec![refused(404)], false)]
#[case::came_back(vec![listed(&[]), refused(404), listed(&[])], true)]
#[tokio::test(start_paused = true)]
async fn there_is_no_doubt_without_a_reason(
    #[case] answers: Vec<(u16, serde_json::Value)>,
    #[case] is_there: bool,
) {
    let (mirror, watching) = watching(answers, true);
    let _ = tokio::time::timeout(Duration::from_secs(5), watching).await;
    assert_eq!((mirror.may_be_gone(), mirror.is_there()), (false, is_there));
}

/// The watch goes on all the time: it would tell nothing by itself.
#[rstest::rstest]
#[case::is_back(listed(&[]), 5, false, true)]
#[case::is_gone_at_first(refused(404), 100, true, true)]
#[case::is_gone_for_good(refused(404), 130, false, false)]
#[tokio::test(start_paused = true)]
async fn who_finds_no_kind_makes_its_watch_look(
    #[case] then: (u16, serde_json::Value),
    #[case] seconds: u64,
    #[case] may_be_gone: bool,
    #[case] is_there: bool,
) {
    let answers: Answers = Arc::new(Mutex::new([listed(&[])].into()));
    let (mirror, watching) = watching_where(&answers, true);
    let asking = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        *answers.lock().unwrap() = [then].into();
        mirror.not_found();
        assert!(mirror.may_be_gone() && mirror.is_there());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    };
    tokio::select! {
        () = watching => {}
        () = asking => {}
    }
    assert_eq!((mirror.may_be_gone(), mirror.is_there()), (may_be_gone, is_there));
}

#[tokio::test(start_paused = true)]
async fn what_was_forgotten_is_listed_again_with_the_right_to_it() {
    let mut answers = vec![listed(&["a"])];
    answers.extend(vec![refused(403); 10]);
    answers.push(listed(&["a", "b"]));
    let (mirror, watching) = watching(answers, true);
    let _ = tokio::time::timeout(Duration::from_secs(1_800), watching).await;
    assert_eq!(mirror.all(), ["a", "b"]);
    assert!(mirror.is_there());
}
