//! How Prometheus is asked, against a server of its own behind TLS: what is sent, and what each trouble reads like.

// Tests may; the exceptions of clippy.toml reach functions with #[test] only, and these are their helpers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "support/https.rs"]
mod https;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::post,
};
use futures::StreamExt;
use https::{Authority, Server};
use openshift_upgrade_operator::{
    clock::Clock,
    controller::prometheus::{Access, Asker, MAX_BYTES},
    health::answers::{Answers, Sample, Vector},
};
use rstest::rstest;
use tempfile::TempDir;

const EMPTY: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;

/// A Prometheus and the files that lead to it.
struct Setup {
    folder: TempDir,
    server: Server,
    access: Access,
}

/// A server whose questions go to `answer`, with a token and its CA in files.
async fn setup<A, F>(answer: A) -> Setup
where
    A: Fn(Uri, HeaderMap, String) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("a CA");
    let router = Router::new().fallback(post(answer));
    let server = Server::start(&authority, "127.0.0.1", 0, router).await;
    let access = Access {
        url: format!("https://{}", server.address).parse().unwrap(),
        ca_file: Some(write(&folder, "ca.crt", &authority.pem)),
        token_file: Some(write(&folder, "token", "good\n")),
        timeout: Duration::from_secs(10),
    };
    Setup {
        folder,
        server,
        access,
    }
}

fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn json(status: u16, body: impl Into<String>) -> Response {
    (StatusCode::from_u16(status).unwrap(), body.into()).into_response()
}

/// What is said to these queries.
async fn ask_all(asker: &mut Asker, queries: &[&str]) -> BTreeMap<String, Result<Vector, String>> {
    let queries: BTreeSet<String> = queries.iter().map(|q| (*q).to_owned()).collect();
    asker.ask(&queries, Clock::System.now()).await;
    match asker.answers() {
        Answers::Known(all) => all.iter().map(|(q, a)| (q.clone(), a.said.clone())).collect(),
        Answers::NobodyToAsk => panic!("somebody is asked"),
    }
}

/// What is said to the query `up` by whoever is there.
async fn ask(access: &Access) -> Result<Vector, String> {
    let mut asker = Asker::server(access.clone());
    ask_all(&mut asker, &["up"]).await.remove("up").unwrap()
}

/// The complaint, with the address and the folder of files taken out.
fn complaint(said: Result<Vector, String>, setup: &Setup) -> String {
    said.expect_err("no answer")
        .replace(&setup.server.address.to_string(), "HOST")
        .replace(&setup.folder.path().display().to_string(), "DIR")
}

#[tokio::test]
async fn a_question_is_a_form_with_a_token_below_the_path_of_the_url() {
    let questions = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&questions);
    let mut setup = setup(move |uri: Uri, headers: HeaderMap, body: String| {
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        let line = [
            uri.to_string(),
            header("content-type"),
            header("authorization"),
            body,
        ];
        lines.lock().unwrap().push(line);
        async {
            let body = r#"{"status":"success","warnings":["w"],"data":{"resultType":"vector","result":[
                {"metric":{"job":"a"},"value":[1.5,"7"]}]}}"#;
            json(200, body)
        }
    })
    .await;
    setup.access.url = format!("https://{}/prefix/", setup.server.address)
        .parse()
        .unwrap();
    let query = r#"up{job="a"} + 1 > 2 # 100 % & ü"#;
    let mut asker = Asker::server(setup.access.clone());
    let said = ask_all(&mut asker, &[query]).await;
    let sample = Sample {
        labels: [("job".to_owned(), "a".to_owned())].into(),
        value: "7".to_owned(),
    };
    let expected = Vector {
        samples: vec![sample],
        more: 0,
        warnings: vec!["w".to_owned()],
    };
    assert_eq!(said[query], Ok(expected));
    let line = questions.lock().unwrap().pop().unwrap();
    assert_eq!(line[0], "/prefix/api/v1/query");
    assert_eq!(line[1], "application/x-www-form-urlencoded");
    assert_eq!(line[2], "Bearer good");
    let form: Vec<_> = form_urlencoded::parse(line[3].as_bytes()).into_owned().collect();
    assert_eq!(form, [("query".to_owned(), query.to_owned())]);
}

#[rstest]
#[case::wrong_token(
    401,
    "Unauthorized\n",
    "Prometheus at https://HOST/ refuses our token (401): Unauthorized"
)]
#[case::broken_query(
    400,
    r#"{"status":"error","errorType":"bad_data","error":"1:4: parse error: no closing brace"}"#,
    "Prometheus at https://HOST/ finds the query wrong: 1:4: parse error: no closing brace"
)]
#[case::not_prometheus(
    200,
    "<html>Welcome</html>",
    "Prometheus at https://HOST/ answers with something that is not Prometheus' (200): <html>Welcome</html>"
)]
#[tokio::test]
async fn a_bad_answer_says_what_it_is(
    #[case] status: u16,
    #[case] body: &'static str,
    #[case] expected: &str,
) {
    let setup = setup(move |_, _, _| async move { json(status, body) }).await;
    assert_eq!(complaint(ask(&setup.access).await, &setup), expected);
}

#[tokio::test]
async fn a_login_page_is_not_followed() {
    let to_login = |_, _, _| async { (StatusCode::FOUND, [("location", "https://login/")]).into_response() };
    let setup = setup(to_login).await;
    assert_eq!(
        complaint(ask(&setup.access).await, &setup),
        "Prometheus at https://HOST/ redirects to https://login/ instead of answering: is --prometheus-url right?"
    );
}

#[tokio::test]
async fn an_answer_of_100_mb_is_not_read_to_its_end() {
    const CHUNK: usize = 1 << 20;
    let sent = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&sent);
    let setup = setup(move |_, _, _| {
        let counts = Arc::clone(&counts);
        let chunks = futures::stream::iter(0..100).map(move |_| {
            counts.fetch_add(CHUNK, Ordering::SeqCst);
            Ok::<_, std::io::Error>(Bytes::from(vec![b' '; CHUNK]))
        });
        async { Body::from_stream(chunks).into_response() }
    })
    .await;
    assert_eq!(
        complaint(ask(&setup.access).await, &setup),
        "Prometheus at https://HOST/ answers with more than 5 MiB: make the query narrower"
    );
    let sent = sent.load(Ordering::SeqCst);
    assert!(
        sent < 4 * MAX_BYTES,
        "{sent} bytes were sent before it was cut off"
    );
}

#[tokio::test]
async fn one_that_says_nothing_is_left_in_time() {
    let mut setup = setup(|_, _, _| std::future::pending()).await;
    setup.access.timeout = Duration::from_millis(300);
    let begin = Instant::now();
    let said = ask(&setup.access).await;
    assert_eq!(
        complaint(said, &setup),
        "Prometheus at https://HOST/ does not answer within 0.3 s (--prometheus-timeout)"
    );
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn one_that_breaks_off_is_said() {
    let setup = setup(|_, _, _| async {
        let half = futures::stream::iter([
            // More than is kept back before anything is sent.
            Ok(Bytes::from(vec![b' '; 1 << 20])),
            Err(std::io::Error::other("the pod was killed")),
        ]);
        Body::from_stream(half).into_response()
    })
    .await;
    let said = complaint(ask(&setup.access).await, &setup);
    let expected = "Prometheus at https://HOST/ broke off in the middle of its answer: ";
    assert!(said.starts_with(expected), "{said}");
}

#[tokio::test]
async fn one_that_is_not_there_is_said() {
    let setup = setup(|_, _, _| async { json(200, EMPTY) }).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let at = |url: String| Access {
        url: url.parse().unwrap(),
        ..setup.access.clone()
    };
    let said = ask(&at(format!("https://{nobody}"))).await.unwrap_err();
    assert_eq!(
        said.replace(&nobody.to_string(), "HOST"),
        "Prometheus at https://HOST/ cannot be reached: Connection refused (os error 111); does it run, and is \
         --prometheus-url right?"
    );
    let said = ask(&at("https://no-such-host.invalid:9091".to_owned()))
        .await
        .unwrap_err();
    assert!(
        said.starts_with("Prometheus at https://no-such-host.invalid:9091/ cannot be reached: "),
        "{said}"
    );
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_said() {
    let setup = setup(|_, _, _| async { json(200, EMPTY) }).await;
    let another = Access {
        ca_file: Some(write(
            &setup.folder,
            "other.crt",
            &Authority::new("another CA").pem,
        )),
        ..setup.access.clone()
    };
    let said = complaint(ask(&another).await, &setup);
    let expected = "Prometheus at https://HOST/ has a certificate that DIR/other.crt (--prometheus-ca-file) does not vouch \
                    for: invalid peer certificate: ";
    assert!(said.starts_with(expected), "{said}");

    let another_name = Access {
        url: format!("https://localhost:{}", setup.server.address.port())
            .parse()
            .unwrap(),
        ..setup.access.clone()
    };
    let said = complaint(ask(&another_name).await, &setup);
    assert!(
        said.contains("certificate not valid for name \"localhost\""),
        "{said}"
    );
}

#[tokio::test]
async fn files_that_are_no_use_are_named() {
    let setup = setup(|_, _, _| async { json(200, EMPTY) }).await;
    let token = |path: &Path| Access {
        token_file: Some(path.to_owned()),
        ..setup.access.clone()
    };
    let ca = |path: &Path| Access {
        ca_file: Some(path.to_owned()),
        ..setup.access.clone()
    };
    let (absent, empty) = (
        setup.folder.path().join("absent"),
        write(&setup.folder, "empty", " \n"),
    );
    let cases = [
        (
            token(&absent),
            "cannot read the token in DIR/absent: No such file or directory (os error 2)",
        ),
        (token(&empty), "there is no token in DIR/empty"),
        (
            ca(&absent),
            "cannot read the certificate in PEM in DIR/absent: No such file or directory (os error 2)",
        ),
        (ca(&empty), "there is no certificate in PEM in DIR/empty"),
    ];
    for (access, expected) in cases {
        assert_eq!(
            complaint(ask(&access).await, &setup),
            format!("Prometheus at https://HOST/ cannot be asked: {expected}")
        );
    }
}

#[tokio::test]
async fn a_token_and_a_ca_that_rotate_are_read_again() {
    let accepted = Arc::new(Mutex::new("Bearer good"));
    let accepts = Arc::clone(&accepted);
    let mut setup = setup(move |_, headers: HeaderMap, _| {
        let is_good = headers["authorization"] == **accepts.lock().unwrap();
        async move { json(if is_good { 200 } else { 401 }, EMPTY) }
    })
    .await;
    let mut asker = Asker::server(setup.access.clone());
    ask_all(&mut asker, &["up"]).await["up"].clone().unwrap();

    *accepted.lock().unwrap() = "Bearer better";
    ask_all(&mut asker, &["up"]).await["up"].clone().unwrap_err();
    write(&setup.folder, "token", "better");
    ask_all(&mut asker, &["up"]).await["up"].clone().unwrap();

    let (port, authority) = (setup.server.address.port(), Authority::new("a newer CA"));
    drop(setup.server);
    let router = Router::new().fallback(post(|| async { EMPTY }));
    setup.server = restart(&authority, port, router).await;
    ask_all(&mut asker, &["up"]).await["up"].clone().unwrap_err();
    write(&setup.folder, "ca.crt", &authority.pem);
    ask_all(&mut asker, &["up"]).await["up"].clone().unwrap();
}

/// Another server at a port that was in use a moment ago.
async fn restart(authority: &Authority, port: u16, router: Router) -> Server {
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
        tokio::task::yield_now().await;
    }
    Server::start(authority, "127.0.0.1", port, router).await
}

#[tokio::test]
async fn many_questions_are_answered_each_and_a_few_at_a_time() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (n, m) = (Arc::clone(&now), Arc::clone(&most));
    let setup = setup(move |_, _, body: String| {
        let (n, m) = (Arc::clone(&n), Arc::clone(&m));
        async move {
            m.fetch_max(n.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            n.fetch_sub(1, Ordering::SeqCst);
            let sample = format!(r#"{{"metric":{{"asked":"{body}"}},"value":[1,"1"]}}"#);
            json(
                200,
                format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{sample}]}}}}"#),
            )
        }
    })
    .await;
    let queries: Vec<String> = (0..30).map(|i| format!("q{i}")).collect();
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    let said = ask_all(&mut Asker::server(setup.access.clone()), &queries).await;
    assert_eq!(said.len(), 30);
    for (query, vector) in said {
        assert_eq!(
            vector.unwrap().samples[0].label("asked"),
            format!("query={query}")
        );
    }
    assert!(most.load(Ordering::SeqCst) <= 4, "{most:?} at a time");
}

#[tokio::test]
async fn answers_are_forgotten_when_they_are_told_to_be() {
    let setup = setup(|_, _, _| async { json(200, EMPTY) }).await;
    let mut asker = Asker::server(setup.access.clone());
    ask_all(&mut asker, &["a"]).await;
    let between = Clock::System.now();
    assert_eq!(
        ask_all(&mut asker, &["b"]).await.len(),
        2,
        "the first still counts"
    );
    asker.forget_before(between);
    let Answers::Known(all) = asker.answers() else {
        panic!("somebody is asked")
    };
    assert_eq!(all.keys().collect::<Vec<_>>(), ["b"]);
}

#[rstest]
#[case("https://prometheus:9091", true, 10, None)]
#[case("http://prometheus:9090", false, 10, None)]
#[case("http://prometheus:9090", true, 10, Some("would show the token"))]
#[case("prometheus:9090", false, 10, Some("must be a URL such as"))]
#[case("/api", false, 10, Some("must be a URL such as"))]
#[case("ftp://prometheus", false, 10, Some("must be a URL such as"))]
#[case("https://prometheus", true, 0, Some("longer than 0"))]
#[case("https://prometheus", true, 21, Some("at most 20 s"))]
fn what_can_never_work_is_refused_at_the_start(
    #[case] url: &str,
    #[case] token: bool,
    #[case] seconds: u64,
    #[case] problem: Option<&str>,
) {
    let access = Access {
        url: url.parse().unwrap(),
        ca_file: None,
        token_file: token.then(|| "token".into()),
        timeout: Duration::from_secs(seconds),
    };
    match (access.validate(), problem) {
        (Ok(()), None) => {}
        (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{error}"),
        (got, _) => panic!("{got:?}"),
    }
}
