use super::*;

#[test]
fn the_metrics_of_the_seed() {
    let mut managed = managed();
    managed.spec.template.spec.insert(
        "capabilities".to_owned(),
        json!({"baselineCapabilitySet": "v4.18"}),
    );
    assert_eq!(metrics(&managed), []);
    let mut world = world(&managed, &in_line());
    step(&mut managed, &mut world, NOON);
    let all = metrics(&managed);
    let label = |sample: &Sample, name: &str| {
        let found = sample.labels.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.clone()).unwrap()
    };
    let [info, overlay] = all.as_slice() else {
        panic!("{all:#?}");
    };
    assert_eq!(
        (info.name, overlay.name),
        (
            "openshift_upgrade_controller_cluster_version_info",
            "openshift_upgrade_controller_cluster_version_overlay_timestamp_seconds"
        )
    );
    assert_eq!(
        (info.value, label(info, "channel")),
        (1.0, "stable-4.18".to_owned())
    );
    assert_eq!(
        (label(info, "cluster_id"), label(info, "baseline_capability_set")),
        ("c1".into(), "v4.18".into())
    );
    assert_eq!(
        (overlay.value, label(overlay, "channel")),
        (1_796_220_000.0, "stable-4.19".to_owned())
    );
    assert_eq!(
        (label(overlay, "from"), label(overlay, "cluster_id")),
        (OVERLAY.to_owned(), "c1".to_owned())
    );
    managed.metadata.name = Some("other".to_owned());
    assert_eq!(metrics(&managed), []);
}
