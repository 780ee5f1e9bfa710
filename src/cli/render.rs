//! `upgrade-operator render`: the workflow of an UpgradeJob, before it runs.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, api::DynamicObject};

use super::{
    manifests::{Manifests, Problem},
    terminal,
};
use crate::{
    api::{UpgradeJob, UpgradeJobHook, job_config::WorkflowConfig},
    engine::{
        self, Engine, RenderError, RunContext, Templates,
        argo::Argo,
        native::{Lookup, TemplateKey, TemplateKind},
        tekton::Tekton,
    },
    openshift::machine_config_pool::MachineConfigPool,
    plan::build,
};

/// Print the workflow that an UpgradeJob would run as, as YAML.
///
/// The files hold the UpgradeJob and whatever shapes its workflow: UpgradeJobHooks and the WorkflowTemplates
/// that they refer to, MachineConfigPools, the ConfigMap of a workflow template of your own.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Example:\n  kubectl get upgradejobs,upgradejobhooks,machineconfigpools -A -o yaml > cluster.yaml\n  \
                        upgrade-operator render --engine argo -f cluster.yaml --job cluster-upgrade-1795554000-ef11c47"
)]
pub struct Args {
    /// Workflow engine.
    #[arg(long, value_enum)]
    pub engine: RenderEngine,
    /// YAML files, with one or several documents, and folders of such files.
    #[arg(short, long = "file", value_name = "FILES", required = true, num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// Name of the UpgradeJob, needed if the files hold several.
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
}

/// Engines that have a workflow object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RenderEngine {
    /// Argo Workflows.
    Argo,
    /// Tekton Pipelines.
    Tekton,
}

impl RenderEngine {
    fn engine(self) -> &'static dyn Engine {
        match self {
            Self::Argo => &Argo,
            Self::Tekton => &Tekton,
        }
    }
}

/// The input is wrong: exit code 2. Messages have one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is wrong.
    #[error(transparent)]
    Manifest(#[from] Problem),
    /// There is nothing to render.
    #[error("there is no UpgradeJob in the files: render shows the workflow of one")]
    NoJob,
    /// It is not clear which job is meant.
    #[error("there are several UpgradeJobs in the files: choose one with --job: {names}")]
    SeveralJobs {
        /// Their names.
        names: String,
    },
    /// The named job is not there.
    #[error("there is no UpgradeJob {name} in the files, only {names}")]
    UnknownJob {
        /// The name given.
        name: String,
        /// Names of those that are there.
        names: String,
    },
    /// The job wants a template that is not there.
    #[error(
        "UpgradeJob {job} takes its workflow template from ConfigMap {config_map}, key {key}: add a file with it"
    )]
    NoTemplate {
        /// Name of the job.
        job: String,
        /// Name of the ConfigMap.
        config_map: String,
        /// The key.
        key: &'static str,
    },
    /// The workflow cannot be rendered.
    #[error("UpgradeJob {job}: {source}")]
    Render {
        /// Name of the job.
        job: String,
        /// Why not.
        source: RenderError,
    },
    /// A bug: the workflow cannot be written as YAML.
    #[error("cannot write the workflow as YAML: {0}")]
    Yaml(#[from] serde_yaml::Error),
    /// Standard output is gone.
    #[error("cannot write the workflow: {0}")]
    Print(#[from] io::Error),
}

/// Prints the workflow.
pub fn run(args: &Args) -> Result<(), Error> {
    Ok(terminal::stdout().write_all(rendered(args)?.as_bytes())?)
}

fn rendered(args: &Args) -> Result<String, Error> {
    let mut manifests = Manifests::load(&args.files);
    if !manifests.problems.is_empty() {
        return Err(manifests.problems.swap_remove(0).into());
    }
    Ok(serde_yaml::to_string(&workflow(&manifests, args)?)?)
}

fn workflow(manifests: &Manifests, args: &Args) -> Result<DynamicObject, Error> {
    let job = choose(manifests.of()?, args.job.as_deref())?;
    let same_namespace = |namespace: Option<String>| namespace == job.namespace();
    let mut hooks: Vec<UpgradeJobHook> = manifests.of()?;
    hooks.retain(|hook| same_namespace(hook.namespace()));
    let pools: Vec<MachineConfigPool> = manifests.of()?;
    let templates = templates(manifests, &job);
    let config = job.spec.config.workflow.clone().unwrap_or_default();
    let plan = build::main_plan(&job, &hooks, &pools, 1);
    let engine = args.engine.engine();
    let context = RunContext {
        job: &job,
        name: engine::run_name(&job, plan.run),
        template: template(manifests, &job, &config, engine.template_key())?,
        config,
        default_service_account: None,
        active_deadline_seconds: engine::active_deadline_seconds(&job),
        hooks: &hooks,
        templates: &templates,
    };
    let name = job.name_any();
    engine
        .render(&plan, &context)
        .map_err(|source| Error::Render { job: name, source })
}

/// The reusable templates of the files.
fn templates(manifests: &Manifests, job: &UpgradeJob) -> Templates {
    let mut all = Templates::default();
    for manifest in &manifests.objects {
        let object = &manifest.object;
        let kind = object
            .types
            .as_ref()
            .map(|t| (t.api_version.as_str(), t.kind.as_str()));
        let is_ours = object.namespace() == job.namespace();
        let kind = match kind {
            Some(("argoproj.io/v1alpha1", "ClusterWorkflowTemplate")) => {
                TemplateKind::ClusterWorkflowTemplate
            }
            Some(("argoproj.io/v1alpha1", "WorkflowTemplate")) if is_ours => TemplateKind::WorkflowTemplate,
            Some(_) | None => continue,
        };
        let key = TemplateKey {
            kind,
            name: object.name_any(),
        };
        let spec = object.data.get("spec").cloned().unwrap_or_default();
        all.0.insert(key, Lookup::Found(spec));
    }
    all
}

fn choose(jobs: Vec<UpgradeJob>, name: Option<&str>) -> Result<UpgradeJob, Error> {
    let names = jobs
        .iter()
        .map(ResourceExt::name_any)
        .collect::<Vec<_>>()
        .join(", ");
    let mut wanted: Vec<_> = jobs
        .into_iter()
        .filter(|j| name.is_none_or(|n| n == j.name_any()))
        .collect();
    match (wanted.pop(), name) {
        (Some(job), _) if wanted.is_empty() => Ok(job),
        (Some(_), _) => Err(Error::SeveralJobs { names }),
        (None, Some(name)) if !names.is_empty() => Err(Error::UnknownJob {
            name: name.to_owned(),
            names,
        }),
        (None, _) => Err(Error::NoJob),
    }
}

fn template(
    manifests: &Manifests,
    job: &UpgradeJob,
    config: &WorkflowConfig,
    key: &'static str,
) -> Result<Option<String>, Error> {
    let Some(reference) = &config.template else {
        return Ok(None);
    };
    let config_maps: Vec<ConfigMap> = manifests.of()?;
    let text = config_maps
        .into_iter()
        .filter(|c| c.name_any() == reference.name && c.namespace() == job.namespace())
        .find_map(|c| c.data?.remove(key));
    text.map(Some).ok_or_else(|| Error::NoTemplate {
        job: job.name_any(),
        config_map: reference.name.clone(),
        key,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;
    use crate::engine::argo;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    const JOB: &str = "
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeJob
metadata: {name: cluster-upgrade-1795554000-ef11c47, namespace: upgrades}
spec:
  startAfter: 2026-11-24T21:00:00Z
  startBefore: 2026-11-24T22:00:00Z
  desiredVersion: {version: 4.18.5, image: quay.io/release@sha256:5}
  config:
    upgradeTimeout: 6h
    machineConfigPools:
    - {matchLabels: {pool: infra}, delayUpgrade: {delayMin: 1h}}
";
    const POOL: &str = "
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: infra, labels: {pool: infra}}
spec: {}
";
    const HOOK: &str = "
apiVersion: managedupgrade.appuio.io/v1beta1
kind: UpgradeJobHook
metadata: {name: notify, namespace: upgrades}
spec: {events: [Start]}
";

    fn run_on(documents: &[&str], more: &[&str]) -> Result<String, Error> {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), documents.join("---")).unwrap();
        let path = file.path().to_str().unwrap();
        let all = ["render", "--engine", "argo", "-f", path]
            .into_iter()
            .chain(more.iter().copied());
        rendered(&Cli::try_parse_from(all).unwrap().args)
    }

    fn task_names(yaml: &str) -> Vec<String> {
        let workflow: serde_json::Value = serde_yaml::from_str(yaml).unwrap();
        let tasks = workflow["spec"]["templates"][0]["dag"]["tasks"]
            .as_array()
            .unwrap();
        tasks
            .iter()
            .map(|t| t["name"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn hooks_and_pools_of_the_files_are_in_the_workflow() {
        let yaml = run_on(
            &[
                JOB,
                POOL,
                HOOK,
                &HOOK.replace("upgrades", "elsewhere").replace("notify", "foreign"),
            ],
            &[],
        )
        .unwrap();
        let tasks = task_names(&yaml);
        for expected in ["hook-start-notify", "unpause-infra", "set-desired-update"] {
            assert!(tasks.iter().any(|t| t == expected), "{tasks:?}");
        }
        assert!(!tasks.iter().any(|t| t.contains("foreign")), "{tasks:?}");
        let workflow: serde_json::Value = serde_yaml::from_str(&yaml).unwrap();
        assert_eq!(
            workflow["metadata"]["name"],
            "cluster-upgrade-1795554000-ef11c47-run-1"
        );
        assert_eq!(
            workflow["spec"]["activeDeadlineSeconds"],
            6 * 3600 + 7 * 24 * 3600
        );
    }

    #[test]
    fn a_job_is_chosen_by_name() {
        let other = JOB.replace("cluster-upgrade-1795554000-ef11c47", "other");
        let yaml = run_on(&[JOB, &other], &["--job", "other"]).unwrap();
        assert!(yaml.contains("name: other-run-1"), "{yaml}");
        let message = run_on(&[JOB, &other], &[]).unwrap_err().to_string();
        assert!(
            message.contains("--job: cluster-upgrade-1795554000-ef11c47, other"),
            "{message}"
        );
        let message = run_on(&[JOB, &other], &["--job", "third"])
            .unwrap_err()
            .to_string();
        assert!(message.contains("no UpgradeJob third"), "{message}");
    }

    #[test]
    fn an_own_template_is_taken_from_its_config_map() {
        let job = JOB.replace(
            "    upgradeTimeout",
            "    workflow: {template: {name: own}}\n    upgradeTimeout",
        );
        let message = run_on(&[&job], &[]).unwrap_err().to_string();
        assert!(message.contains("ConfigMap own"), "{message}");
        let indented = argo::TEMPLATE
            .replace("  entrypoint: main", "  priority: 7\n  entrypoint: main")
            .replace('\n', "\n    ");
        let config_map = format!(
            "\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: own, namespace: upgrades}}\ndata:\n  {key}: |\n    {indented}\n",
            key = Argo.template_key()
        );
        let yaml = run_on(&[&job, &config_map], &[]).unwrap();
        assert!(yaml.contains("priority: 7"), "{yaml}");
        let broken = config_map.replace("suspend: {}", "container: {}");
        let message = run_on(&[&job, &broken], &[]).unwrap_err().to_string();
        assert!(message.contains("leaves out step hooks-start"), "{message}");
    }

    #[rstest]
    #[case::no_job(POOL, "no UpgradeJob in the files")]
    #[case::not_yaml("a: [", "not valid YAML")]
    #[case::bad_job(&JOB.replace("2026-11-24T21:00:00Z", "soon"), "UpgradeJob cluster-upgrade-1795554000-ef11c47 is not valid")]
    fn wrong_input_is_said_in_one_line(#[case] text: &str, #[case] expected: &str) {
        let message = run_on(&[text], &[]).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}
