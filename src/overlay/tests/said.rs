use super::*;
use crate::metrics::Series;

fn series(managed: &ManagedClusterVersion) -> Vec<Vec<Series>> {
    let families = metrics(std::slice::from_ref(managed));
    families.into_iter().map(|family| family.series).collect()
}

#[test]
fn the_metrics_of_the_seed() {
    let mut managed = managed();
    managed.spec.template.spec.insert(
        "capabilities".to_owned(),
        json!({"baselineCapabilitySet": "v4.18"}),
    );
    assert_eq!(series(&managed), [Vec::new(), Vec::new()]);
    let mut world = world(&managed, &in_line());
    step(&mut managed, &mut world, NOON);
    let names = metrics(&[managed.clone()])
        .iter()
        .map(|family| family.name)
        .collect::<Vec<_>>();
    assert_eq!(
        names,
        [
            "openshift_upgrade_controller_cluster_version_info",
            "openshift_upgrade_controller_cluster_version_overlay_timestamp_seconds"
        ]
    );
    let label = |series: &Series, name: &str| {
        let found = series.labels.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.clone()).unwrap()
    };
    let all = series(&managed);
    let [[info], [overlay]] = [all[0].as_slice(), all[1].as_slice()] else {
        panic!("{all:#?}");
    };
    assert_eq!(
        (info.value.number().unwrap(), label(info, "channel")),
        (1.0, "stable-4.18".to_owned())
    );
    assert_eq!(
        (label(info, "cluster_id"), label(info, "baseline_capability_set")),
        ("c1".into(), "v4.18".into())
    );
    assert_eq!(
        (overlay.value.number().unwrap(), label(overlay, "channel")),
        (1_796_220_000.0, "stable-4.19".to_owned())
    );
    assert_eq!(
        (label(overlay, "from"), label(overlay, "cluster_id")),
        (OVERLAY.to_owned(), "c1".to_owned())
    );
    managed.metadata.name = Some("other".to_owned());
    assert_eq!(series(&managed), [Vec::new(), Vec::new()]);
}
