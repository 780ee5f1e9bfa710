//! docs/quick-start.md followed word for word, on a cluster that has nothing of the operator: after each block of commands
//! what the page promises beside it.
//!
//! What the page takes for granted is made beforehand: `oc` is kubectl, `upgrade-operator` is the binary of this checkout, the
//! image has the page's very name on the node, and OpenShift's monitoring has its ConfigMap. Its Prometheus operator is not
//! there: the test gives what the ServiceMonitor selects, and the rules of the PrometheusRule, to the Prometheus of the test bed.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::Instant,
};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use openshift_upgrade_operator::api::upgrade_job::StepPhase;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    A_MINUTE, SOON, UPGRADE, documents,
    example::near_minute,
    installation::{Installation, RELEASE, get, kubectl, path, remove_at_once, run},
    is_over, step_phase,
    testbed::{NAMESPACE, SIMULATED, Testbed, wait_for},
};

const PAGE: &str = "docs/quick-start.md";
const FILE: &str = "docs/examples/first-upgrade.yaml";
/// The image of the page, of the version that the chart asks for.
const IMAGE: [&str; 2] = ["registry.example.com/upgrade-operator", env!("CARGO_PKG_VERSION")];
const MONITORING: &str = "openshift-monitoring";
const CONFIG_MAP: &str = "cluster-monitoring-config";

/// A shell such as the reader's, in a folder with what the page uses of the repository, and the page.
struct Reader {
    folder: TempDir,
    blocks: std::vec::IntoIter<documents::Block>,
}

impl Reader {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for made in ["bin", "docs/examples"] {
            fs::create_dir_all(at(made)).unwrap();
        }
        symlink(path("charts"), at("charts")).unwrap();
        // A copy: the reader edits it.
        fs::copy(path(FILE), at(FILE)).unwrap();
        let (found, kubectl) = run("which", &["kubectl"]);
        assert!(found, "{kubectl}");
        symlink(kubectl.trim(), at("bin/oc")).unwrap();
        symlink(env!("CARGO_BIN_EXE_upgrade-operator"), at("bin/upgrade-operator")).unwrap();
        let mut blocks = documents::blocks();
        blocks.retain(|b| b.info == "sh" && b.place.starts_with(&format!("{PAGE}:")));
        Self {
            folder,
            blocks: blocks.into_iter(),
        }
    }

    /// The next block of commands on the page.
    fn turns_to(&mut self, first: &str) -> documents::Block {
        let block = self
            .blocks
            .next()
            .unwrap_or_else(|| panic!("{PAGE} has no more commands: {first}"));
        assert!(
            block.text.starts_with(first),
            "{}: this test knows what `{first}` promises, and not this:\n{}",
            block.place,
            block.text
        );
        block
    }

    fn shell(&self, script: &str) -> Command {
        let path = std::env::var("PATH").unwrap();
        let bin = self.folder.path().join("bin");
        let mut shell = Command::new("bash");
        shell
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", bin.display()))
            .stdin(Stdio::null());
        shell
    }

    /// Runs a block as it stands; what it printed.
    fn runs(&self, block: &documents::Block) -> String {
        println!("--- {}\n{}", block.place, block.text.trim_end());
        let output = self.shell(&block.text).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaints = String::from_utf8_lossy(&output.stderr);
        println!("{said}{complaints}");
        assert!(output.status.success(), "{} failed: {complaints}", block.place);
        said
    }

    /// Runs a command that does not end by itself, until it has printed this.
    fn watches(&self, command: &str, what: &str, is: impl Fn(&str) -> bool) {
        println!("--- until it shows {what}: {command}");
        let mut shell = self.shell(&format!("exec {command}"));
        let mut child = shell.stdout(Stdio::piped()).spawn().unwrap();
        let (tell, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            let lines = stdout.lines().map_while(Result::ok);
            lines
                .map(|line| tell.send(line))
                .take_while(Result::is_ok)
                .count()
        });
        let deadline = Instant::now() + SOON;
        let mut seen = String::new();
        while !is(&seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = lines.recv_timeout(left) else { break };
            println!("{line}");
            seen = seen + &line + "\n";
        }
        let is_shown = is(&seen);
        child.kill().unwrap();
        child.wait().unwrap();
        drop(lines);
        reader.join().unwrap();
        assert!(is_shown, "{command} did not show {what}:\n{seen}");
    }

    /// Changes a value in the file of the page.
    fn edits(&self, key: &str, value: &str) {
        let file = self.folder.path().join(FILE);
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text
            .lines()
            .filter(|l| l.trim_start().starts_with(&format!("{key}:")))
            .collect();
        let [line] = lines[..] else {
            panic!("{FILE}: {key} is there {} times", lines.len());
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        fs::write(&file, text.replace(line, &format!("{indent}{key}: {value:?}"))).unwrap();
    }
}

/// Nothing of the operator, nor of an earlier installation: no kinds, no namespace.
fn nothing_is_there() {
    // Nothing is held, for all jobs were deleted before: the hook would only take its time.
    remove_at_once().unwrap_or_else(|said| panic!("{said}"));
    kubectl(&["delete", "--kustomize", &path("crds"), "--wait"]);
    kubectl(&["delete", "namespace", NAMESPACE, "--wait"]);
}

/// The image on the node, under the page's name; the page's user has pushed it to the registry.
fn image_is_there() {
    let binary = cluster_folder().join("bin/upgrade-operator");
    let made = Command::new(path("tests/cluster/image"))
        .args(IMAGE)
        .arg(binary)
        // As in the Containerfile.
        .env("IMAGE_USER", "65532:65532")
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success(), "the image cannot be made");
}

/// Tells the simulated update service again what it offers, and waits until the cluster knows.
async fn offer(cluster: &Testbed, offers: &Value) {
    let metadata = json!({"name": SIMULATED, "namespace": NAMESPACE});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": offers});
    cluster.create_object(&map).await;
    cluster.offered("4.18.5").await;
}

/// OpenShift's own monitoring, as far as the page looks at it. Its namespace stays, as others use it.
struct Monitoring;

impl Monitoring {
    fn there() -> Self {
        if !run("kubectl", &["get", "namespace", MONITORING]).0 {
            must(&["create", "namespace", MONITORING]);
        }
        let config = "--from-literal=config.yaml=enableUserWorkload: true";
        must(&["-n", MONITORING, "create", "configmap", CONFIG_MAP, config]);
        Self
    }
}

/// kubectl in other namespaces, where it must not fail.
fn must(arguments: &[&str]) {
    let (done, said) = run("kubectl", arguments);
    assert!(done, "kubectl {arguments:?}: {said}");
}

impl Drop for Monitoring {
    fn drop(&mut self) {
        let (done, said) = run("kubectl", &["-n", MONITORING, "delete", "configmap", CONFIG_MAP]);
        if !done {
            eprintln!("{said}");
        }
    }
}

/// Where the test bed keeps the cluster.
fn cluster_folder() -> PathBuf {
    let logs = std::env::var("TESTBED_LOGS").expect("eval \"$(tests/cluster/env)\"");
    Path::new(&logs).parent().unwrap().to_owned()
}

/// The test bed's Prometheus, with what the chart asks of the one of OpenShift. Forgets it when it is dropped.
struct Prometheus {
    url: String,
    files: Vec<PathBuf>,
}

impl Prometheus {
    /// Scrapes what the ServiceMonitor selects, and evaluates the rules of the PrometheusRule.
    fn told_by_the_chart(url: String) -> Self {
        let folder = cluster_folder().join("prometheus");
        let mut prometheus = Self {
            url,
            files: Vec::new(),
        };
        let rules = get(&["prometheusrule", RELEASE])["spec"].to_string();
        prometheus.lays(folder.join("rules/quick-start.yaml"), &rules);
        let targets = json!([{"targets": targets(), "labels": {"job": RELEASE, "namespace": NAMESPACE}}]);
        prometheus.lays(folder.join("targets/quick-start.json"), &targets.to_string());
        reload();
        prometheus
    }

    fn lays(&mut self, file: PathBuf, text: &str) {
        fs::write(&file, text).unwrap();
        self.files.push(file);
    }

    fn answers(&self, question: &str) -> Option<Value> {
        let ca = cluster_folder().join("pki/ca.crt");
        let url = format!("{}/api/v1/{question}", self.url);
        let (done, said) = run(
            "curl",
            &[
                "--silent",
                "--fail",
                "--max-time",
                "5",
                "--cacert",
                ca.to_str().unwrap(),
                &url,
            ],
        );
        done.then(|| serde_json::from_str::<Value>(&said).unwrap()["data"].clone())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        for file in &self.files {
            if let Err(error) = fs::remove_file(file) {
                eprintln!("{}: {error}", file.display());
            }
        }
        reload();
    }
}

fn reload() {
    let file = std::env::var("PROMETHEUS_PID_FILE").expect("eval \"$(tests/cluster/env)\"");
    let pid = fs::read_to_string(file).unwrap();
    let (done, said) = run("kill", &["-HUP", pid.trim()]);
    assert!(done || std::thread::panicking(), "{said}");
}

/// The addresses behind the Service that the ServiceMonitor selects, at the port that it names.
fn targets() -> Vec<String> {
    let monitor = get(&["servicemonitor", RELEASE])["spec"].clone();
    let endpoint = &monitor["endpoints"][0];
    assert_eq!(
        endpoint["path"], "/metrics",
        "the path that Prometheus takes by default"
    );
    let selector = monitor["selector"]["matchLabels"].as_object().unwrap();
    let selector: Vec<String> = selector
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
        .collect();
    let services = get(&["services", "--selector", &selector.join(",")])["items"].clone();
    let services = services.as_array().unwrap();
    assert_eq!(services.len(), 1, "{services:#?}");
    let of_service = format!(
        "kubernetes.io/service-name={}",
        services[0]["metadata"]["name"].as_str().unwrap()
    );
    let slices = get(&["endpointslices", "--selector", &of_service])["items"].clone();
    let mut targets = Vec::new();
    for slice in slices.as_array().unwrap() {
        let ports = slice["ports"].as_array().unwrap();
        let port = ports
            .iter()
            .find(|p| p["name"] == endpoint["port"])
            .expect("the port that is scraped");
        for pod in slice["endpoints"].as_array().unwrap() {
            targets.push(format!(
                "{}:{}",
                pod["addresses"][0].as_str().unwrap(),
                port["port"]
            ));
        }
    }
    targets
}

/// The status of the page's UpgradeConfig, once the operator has looked at it as it is.
async fn looked_at() -> Value {
    wait_for("the operator has looked at the config", SOON, async || {
        let config = get(&["upgradeconfig", "first"]);
        let seen = &config["status"]["observedGeneration"];
        (seen == &config["metadata"]["generation"]).then(|| config["status"].clone())
    })
    .await
}

fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    let all = status["conditions"].as_array().unwrap();
    all.iter()
        .find(|c| c["type"] == type_)
        .unwrap_or_else(|| panic!("no {type_}: {all:#?}"))
}

/// Step 5 of the page: what monitoring needs is there, and the operator is scraped and its alerts are evaluated.
async fn is_told(reader: &mut Reader, url: String) -> Prometheus {
    let block = reader.turns_to("oc -n openshift-monitoring");
    let said = reader.runs(&block);
    assert!(said.contains("enableUserWorkload: true"), "{said}");
    let prometheus = Prometheus::told_by_the_chart(url);
    is_scraped_and_alerts(&prometheus).await;
    let block = reader.turns_to("helm upgrade");
    reader.runs(&block);
    assert_eq!(
        get(&["rolebinding", "upgrade-operator-monitoring"])["subjects"][0]["namespace"],
        MONITORING
    );
    assert_eq!(
        get(&["namespace", NAMESPACE])["metadata"]["labels"]["openshift.io/cluster-monitoring"],
        "true"
    );
    assert!(
        reader.blocks.next().is_none(),
        "commands that are not followed here"
    );
    prometheus
}

#[tokio::test]
#[ignore = "needs the test cluster: tests/run"]
async fn a_new_user_reaches_a_watched_upgrade_by_the_quick_start() {
    let cluster = Testbed::fresh(&[]).await;
    let prometheus = get(&["deployment", RELEASE])["spec"]["template"]["spec"]["containers"][0]["args"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|a| Some(a.as_str()?.strip_prefix("--prometheus-url=")?.to_owned()))
        .expect("the Prometheus of the test bed");
    let _installation = Installation::remember();
    let _monitoring = Monitoring::there();
    image_is_there();
    // What the simulated update service offers is in the same namespace.
    let mut offers = get(&["configmap", SIMULATED])["data"].clone();
    // So that there is something to watch for as long as it takes to come to that.
    offers["stall-at"] = json!("40");
    nothing_is_there();
    let mut reader = Reader::new();

    // 1. Install.
    let block = reader.turns_to("helm install");
    let said = reader.runs(&block);
    assert!(said.contains("successfully rolled out"), "{said}");
    assert_eq!(
        get(&["deployment", RELEASE])["spec"]["template"]["spec"]["containers"][0]["image"],
        IMAGE.join(":")
    );

    offer(&cluster, &offers).await;

    // 2. Say when. As the page says: change `cron` and `location` first. The next run is more than a day ahead, and its version
    // is not chosen yet, whenever this test runs.
    let zone = TimeZone::get("Asia/Tokyo").unwrap();
    let in_two_days = Timestamp::now() + SignedDuration::from_hours(48);
    let weekday = in_two_days.to_zoned(zone.clone()).weekday();
    let weekday = weekday.to_sunday_zero_offset();
    reader.edits("cron", &format!("0 22 * * {weekday}"));
    reader.edits("location", "Asia/Tokyo");
    let apply = reader.turns_to("oc apply");
    reader.runs(&apply);
    let block = reader.turns_to("upgrade-operator next-runs");
    let said = reader.runs(&block);
    let runs: Vec<&str> = said.lines().collect();
    assert!(
        runs.len() == 3 && runs.iter().all(|r| r.starts_with("Tue ") && r.contains("22:00")),
        "{said}"
    );

    // 3. See what will happen.
    let status = looked_at().await;
    assert_eq!(condition(&status, "Valid")["status"], "True", "{status:#}");
    let block = reader.turns_to("oc -n openshift-upgrade get upgradeconfigs");
    let said = reader.runs(&block);
    let announced = said.matches("WillRun").count();
    // The column of the table, and ten runs.
    assert_eq!(announced, 11, "{said}");
    assert!(said.contains("Next Possible Schedules:"), "{said}");

    // A later change is applied the same way. Then its time comes soon, and the version is chosen at once.
    let start = near_minute(Timestamp::now());
    let local = start.to_zoned(zone);
    let (minute, hour, day, month) = (local.minute(), local.hour(), local.day(), local.month());
    reader.edits("cron", &format!("{minute} {hour} {day} {month} *"));
    reader.runs(&apply);
    let job = cluster.only_job(SOON).await;
    let name = job.metadata.name.unwrap();
    let version = job.spec.desired_version.and_then(|d| d.version);
    assert_eq!(
        (job.spec.start_after.0, version.as_deref()),
        (start, Some("4.18.5"))
    );

    // 5. Be told: meanwhile, so that the alerts see the upgrade.
    let watch = reader.turns_to("oc -n openshift-upgrade get upgradejobs --watch");
    let prometheus = is_told(&mut reader, prometheus).await;

    // 4. Watch it.
    wait_for("the control plane updates", A_MINUTE + SOON, async || {
        let job = cluster.job(&name).await;
        (step_phase(&job, "await-control-plane") == Some(StepPhase::Running)).then_some(())
    })
    .await;
    let lines: Vec<&str> = watch.text.lines().collect();
    let [jobs, events] = lines[..] else {
        panic!("two commands are watched: {lines:?}");
    };
    reader.watches(jobs, "what it does, and how many steps are done", |seen| {
        let head = seen.lines().next().unwrap_or_default();
        let has_columns = ["PROGRESS", "MESSAGE"].iter().all(|column| head.contains(column));
        // Such as `4/12` and `await-control-plane: 62% done`.
        let is_told = |row: &str| row.starts_with(&name) && row.contains("/12 ") && row.contains("await-");
        has_columns && seen.lines().any(is_told)
    });
    reader.watches(events, "what happened to the job", |seen| {
        seen.contains(&format!("upgradejob/{name}"))
    });
    cluster.fault("stall-at", "").await;
    wait_for("the upgrade ends", UPGRADE, async || {
        is_over(&cluster.job(&name).await).then_some(())
    })
    .await;
    cluster.assert_installed("4.18.5").await;
    cluster.assert_nothing_is_held().await;
    wait_for("Prometheus knows that it succeeded", SOON, async || {
        let query = "query?query=openshift_upgrade_controller_upgradejob_state%7Bstate%3D%22succeeded%22%7D%20%3D%3D%201";
        let found = prometheus.answers(query)?["result"].clone();
        let of_job = |r: &Value| r["metric"]["upgradejob"] == name.as_str();
        found.as_array()?.iter().any(of_job).then_some(())
    })
    .await;
}

/// The operator is scraped, and each alert of the repository is loaded and can be evaluated.
async fn is_scraped_and_alerts(prometheus: &Prometheus) {
    wait_for("the operator is scraped", SOON, async || {
        let up = prometheus.answers(&format!("query?query=up%7Bjob%3D%22{RELEASE}%22%7D"))?["result"].clone();
        let up = up.as_array()?;
        (up.len() == 1 && up[0]["value"][1] == "1").then_some(())
    })
    .await;
    let file: Value =
        serde_yaml::from_str(&fs::read_to_string(path("deploy/alerts/upgrade-operator.yaml")).unwrap())
            .unwrap();
    let ours = file["spec"]["groups"][0]["rules"].as_array().unwrap().len();
    wait_for("every alert is evaluated", SOON, async || {
        let groups = prometheus.answers("rules?type=alert")?["groups"].clone();
        let rules: Vec<Value> = groups
            .as_array()?
            .iter()
            .flat_map(|g| g["rules"].as_array().unwrap().clone())
            .collect();
        let well = rules.iter().filter(|r| r["health"] == "ok").count();
        (rules.len() == ours && well == ours).then_some(())
    })
    .await;
}
