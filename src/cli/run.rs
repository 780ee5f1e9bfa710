//! `upgrade-operator run`: the operator.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use http::{HeaderName, HeaderValue, header};
use jiff::SignedDuration;
use kube::{Client, Config, config::KubeConfigOptions};
use tokio::sync::watch;

use super::EngineArg;
use crate::{
    clock::Clock,
    controller::{
        self, Stores,
        pod_selector::PodSelector,
        prometheus::{Access, Asker, BadAccess},
    },
    http as server,
    metrics::Exposition,
    schedule::Zones,
    settings::Settings,
};

/// Runs the operator.
///
/// Example: upgrade-operator run --namespace openshift-upgrade
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Namespace that is served. Default: that of the pod, else `openshift-upgrade`.
    #[arg(long, env = "NAMESPACE")]
    namespace: Option<String>,
    /// Kubeconfig. Default: the pod's own access, else the current context.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Write only while holding the Lease `upgrade-operator`, so that two operators never both write. Without it there must
    /// be no other.
    #[arg(long, env = "LEADER_ELECTION", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true")]
    leader_election: bool,
    /// Name in that Lease, different for each process. Default: name of the pod or host, and a random suffix.
    #[arg(long, env = "IDENTITY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    identity: Option<String>,
    /// Time zone of schedules without a location, and of times in messages (IANA name).
    #[arg(long, env = "DEFAULT_LOCATION", default_value = "UTC")]
    default_location: String,
    /// Folder with a compiled time zone database, such as /usr/share/zoneinfo. Default: the one built in.
    #[arg(long, env = "TZDATA_DIR")]
    tzdata_dir: Option<PathBuf>,
    /// Workflow engine for jobs that name none.
    #[arg(long, env = "ENGINE", value_enum, default_value = "auto")]
    engine: EngineArg,
    /// ServiceAccount of the workflows' pods where a job names none.
    #[arg(long, env = "WORKFLOW_SERVICE_ACCOUNT")]
    workflow_service_account: Option<String>,
    /// Link to a workflow, with `{namespace}` and `{name}`.
    #[arg(long, env = "WORKFLOW_URL_TEMPLATE")]
    workflow_url_template: Option<String>,
    /// How long a workflow engine may be silent before the operator follows the rest of the plan without it (Go duration);
    /// 0 = for ever. Hooks that only the engine can run count as failed then, unless their pod has succeeded.
    #[arg(long, env = "ENGINE_HANDOVER_AFTER", default_value = "15m", value_parser = super::duration)]
    engine_handover_after: SignedDuration,
    /// Live text of a step is written to the workflow at most this often (Go duration).
    #[arg(long, env = "LIVE_MESSAGE_INTERVAL", default_value = "30s", value_parser = super::duration)]
    live_message_interval: SignedDuration,
    /// Deadline of hook Jobs that set none (Go duration). Default: none is set.
    #[arg(long, env = "DEFAULT_HOOK_DEADLINE", value_parser = super::duration)]
    default_hook_deadline: Option<SignedDuration>,
    /// How long a release may be rejected because it cannot be fetched or verified (Go duration).
    #[arg(long, env = "RETRIEVAL_GRACE", default_value = "30m", value_parser = super::duration)]
    retrieval_grace: SignedDuration,
    /// How long a release may be rejected because of failed preconditions (Go duration).
    #[arg(long, env = "PRECONDITION_GRACE", default_value = "10m", value_parser = super::duration)]
    precondition_grace: SignedDuration,
    /// From how long a node drains on it is told which pods are in the way, and why (Go duration).
    #[arg(long, env = "DRAIN_REPORT_AFTER", default_value = "5m", value_parser = super::duration)]
    drain_report_after: SignedDuration,
    /// Prometheus, for critical alerts and customQueries of health checks, such as
    /// https://thanos-querier.openshift-monitoring.svc:9091. Default: none is asked, and a check that blocks on one blocks.
    #[arg(long, env = "PROMETHEUS_URL")]
    prometheus_url: Option<http::Uri>,
    /// Certificates in PEM that vouch for Prometheus; read again for each look. Default: the machine's.
    #[arg(long, env = "PROMETHEUS_CA_FILE", requires = "prometheus_url")]
    prometheus_ca_file: Option<PathBuf>,
    /// Bearer token for Prometheus; read again for each look. Default: none is sent.
    #[arg(long, env = "PROMETHEUS_TOKEN_FILE", requires = "prometheus_url")]
    prometheus_token_file: Option<PathBuf>,
    /// How long Prometheus may take to answer the questions of a health check (Go duration).
    #[arg(long, env = "PROMETHEUS_TIMEOUT", default_value = "10s", value_parser = super::duration)]
    prometheus_timeout: SignedDuration,
    /// Address for /healthz, /readyz and /metrics.
    #[arg(long, env = "LISTEN", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
}

/// The operator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The time zone is wrong.
    #[error("cannot use --default-location: {0}")]
    Zone(#[from] crate::schedule::ZoneError),
    /// The address of Prometheus is wrong.
    #[error(transparent)]
    Prometheus(#[from] BadAccess),
    /// No access to an API server.
    #[error(
        "cannot find out how to reach the API server: {0}; give --kubeconfig, or run in a pod with a ServiceAccount"
    )]
    Access(String),
    /// The client cannot be made.
    #[error("cannot make a client for the API server: {0}")]
    Client(#[from] kube::Error),
    /// The listener cannot be opened.
    #[error(transparent)]
    Listen(#[from] server::ListenError),
    /// Signals cannot be received.
    #[error("cannot wait for SIGTERM: {0}")]
    Signal(std::io::Error),
}

/// Runs `upgrade-operator run` until SIGTERM or SIGINT.
pub async fn run(args: Args) -> Result<(), Error> {
    let identity = args.identity.clone().unwrap_or_else(identity);
    let mut config = client_config(args.kubeconfig.as_deref()).await?;
    config.headers.extend(user_agent(&identity));
    let namespace = namespace(args.namespace.clone(), &config);
    let client = Client::try_from(config)?;
    let settings = settings(&args, namespace, identity)?;
    let prometheus = prometheus(&args)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        namespace = settings.namespace,
        time_zone_data = crate::schedule::time_zone::tzdata_version(),
        "starting"
    );
    let (report, ready) = watch::channel(Some("starting".to_owned()));
    let listener = server::listen(args.listen).await?;
    let stores = Stores::default();
    let told = stores.clone();
    let exposition = Exposition::new(move || told.metrics(Clock::System.now()));
    let server = tokio::spawn(server::serve(listener, ready, exposition));
    let stop = super::termination().map_err(Error::Signal)?;
    let tell = |missing: Option<String>| {
        report.send_if_modified(|now| {
            if *now == missing {
                return false;
            }
            if let Some(what) = &missing {
                tracing::info!(missing = what, "not ready");
            } else {
                tracing::info!("ready");
            }
            now.clone_from(&missing);
            true
        });
    };
    Box::pin(controller::run(
        client,
        settings,
        Clock::System,
        prometheus,
        stores,
        tell,
        stop,
    ))
    .await;
    server.abort();
    tracing::info!("stopped");
    Ok(())
}

/// Who is asked about alerts.
fn prometheus(args: &Args) -> Result<Asker, BadAccess> {
    let Some(url) = args.prometheus_url.clone() else {
        return Ok(Asker::nobody());
    };
    let access = Access {
        url,
        ca_file: args.prometheus_ca_file.clone(),
        token_file: args.prometheus_token_file.clone(),
        timeout: Duration::try_from(args.prometheus_timeout).unwrap_or_default(),
    };
    access.validate()?;
    Ok(Asker::server(access))
}

/// A name that no other process has: one that starts again in the same pod is another one.
fn identity() -> String {
    let from = |path: &str| {
        std::fs::read_to_string(path)
            .ok()
            .map(|text| text.trim().to_owned())
    };
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| from("/proc/sys/kernel/hostname"))
        .filter(|h| !h.is_empty())
        .unwrap_or_else(|| "upgrade-operator".to_owned());
    // The kernel draws a new one for every reader.
    let suffix = from("/proc/sys/kernel/random/uuid").unwrap_or_else(|| {
        format!(
            "{}-{}",
            std::process::id(),
            jiff::Timestamp::now().as_nanosecond()
        )
    });
    format!("{host}_{suffix}")
}

/// Who writes, for the API server's audit log. A name that is no text for a header is left out.
fn user_agent(identity: &str) -> Option<(HeaderName, HeaderValue)> {
    let text = format!("upgrade-operator/{} ({identity})", env!("CARGO_PKG_VERSION"));
    Some((header::USER_AGENT, HeaderValue::from_str(&text).ok()?))
}

fn settings(args: &Args, namespace: String, identity: String) -> Result<Settings, Error> {
    Ok(Settings {
        namespace,
        identity: args.leader_election.then_some(identity),
        zones: match &args.tzdata_dir {
            Some(folder) => Zones::from_dir(folder, &args.default_location)?,
            None => Zones::bundled(&args.default_location)?,
        },
        engine: args.engine.into(),
        workflow_service_account: args.workflow_service_account.clone(),
        workflow_url_template: args.workflow_url_template.clone(),
        engine_handover_after: Some(args.engine_handover_after).filter(SignedDuration::is_positive),
        live_message_interval: args.live_message_interval,
        default_hook_deadline: args.default_hook_deadline,
        retrieval_grace: args.retrieval_grace,
        precondition_grace: args.precondition_grace,
        // Without a path to ourselves no expression can be evaluated, and none is: the error is told.
        pod_selector: PodSelector::Program(std::env::current_exe().unwrap_or_default()),
        drain_report_after: args.drain_report_after,
        watch_timeout: Settings::WATCH_TIMEOUT,
        heartbeat: Settings::HEARTBEAT,
        absent_kind_poll: Settings::ABSENT_KIND_POLL,
    })
}

/// The namespace that is served: the one that is given, else that of the pod.
pub(super) fn namespace(given: Option<String>, config: &Config) -> String {
    let in_pod = Some(config.default_namespace.clone()).filter(|n| n != "default");
    given.or(in_pod).unwrap_or_else(|| "openshift-upgrade".to_owned())
}

/// Access to the API server, without kube's own retries: they would hide an API server that is away for minutes.
pub(super) async fn client_config(kubeconfig: Option<&std::path::Path>) -> Result<Config, Error> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = kube::config::Kubeconfig::read_from(path).map_err(|e| Error::Access(e.to_string()))?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(|e| Error::Access(e.to_string()))?
        }
        None => Config::infer().await.map_err(|e| Error::Access(e.to_string()))?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn identity_of(flags: &[&str]) -> Option<String> {
        let args = Cli::try_parse_from([&["run"], flags].concat()).unwrap().args;
        let identity = args.identity.clone().unwrap_or_else(identity);
        settings(&args, "ns".to_owned(), identity).unwrap().identity
    }

    #[rstest::rstest]
    #[case::given(&["--identity=a"], Some("a"))]
    #[case::on(&["--leader-election", "--identity=a"], Some("a"))]
    #[case::off(&["--leader-election=false"], None)]
    #[case::off_with_a_name(&["--leader-election=false", "--identity=a"], None)]
    fn leader_election_is_on_unless_switched_off(#[case] flags: &[&str], #[case] expected: Option<&str>) {
        assert_eq!(identity_of(flags).as_deref(), expected);
    }

    #[test]
    fn two_processes_never_have_the_same_name() {
        let (one, other) = (identity_of(&[]).unwrap(), identity_of(&[]).unwrap());
        assert_ne!(one, other);
        assert!(Cli::try_parse_from(["run", "--identity="]).is_err(), "nobody");
    }

    #[rstest::rstest]
    #[case("pod-1_abc", true)]
    #[case("no\nheader", false)]
    fn requests_say_who_makes_them(#[case] identity: &str, #[case] is_said: bool) {
        let said = user_agent(identity);
        let text = said.as_ref().map(|(_, value)| value.to_str().unwrap());
        assert_eq!(text.is_some_and(|t| t.contains(identity)), is_said);
    }
}
