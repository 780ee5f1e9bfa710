//! Which workflow engines there are, as metrics.

use super::Installed;
use crate::{
    api::job_config::EngineChoice,
    metrics::{Family, Series},
};

/// Of every engine that has kinds of its own.
pub fn metrics(installed: Installed) -> Vec<Family> {
    let engines = [EngineChoice::Argo, EngineChoice::Tekton].into_iter();
    let series = engines.map(|engine| {
        let labels = vec![("engine", engine.as_str().to_owned())];
        Series::new(labels, installed.has(engine))
    });
    vec![Family::gauge(
        "openshift_upgrade_controller_engine_up",
        "Whether the API server has the kinds of the workflow engine: 1 or 0. Whether it does its part in a job is told by engine_stalled.",
        series,
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::told;

    #[test]
    fn each_engine_is_there_or_not() {
        let told = told(&metrics(Installed {
            argo: true,
            tekton: false,
        }));
        assert_eq!(told, ["engine_up argo 1", "engine_up tekton 0"]);
    }
}
