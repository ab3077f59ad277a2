//! The exposition is well formed whatever the names, and series can be switched off.

use std::collections::HashSet;
use std::sync::Arc;

use coquina_control::{MetricsOptions, NodeBackend, derive_health, render_metrics};

use super::backend::{FakeNode, start};

fn exposition(per_volume: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let node = Arc::new(FakeNode::default());
    let catalogue = start(folder.path(), &node);
    catalogue.create("db", 1 << 30).unwrap();
    catalogue.create("web", 1 << 30).unwrap();
    node.memory().bad_blocks = 3;
    let (map, snapshot) = (catalogue.map(), node.snapshot());
    render_metrics(&map, &snapshot, &derive_health(&map, &snapshot), MetricsOptions { per_volume })
}

#[test]
fn every_series_stands_under_its_family_once() {
    let text = exposition(true);
    let (mut families, mut series) = (HashSet::new(), HashSet::new());
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(families.insert(family.clone()), "{family} twice");
            assert!(family.starts_with("coquina_"));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(name.starts_with(&family), "{name} under {family}");
            assert!(series.insert(name.to_owned()), "{name} twice");
        }
    }
    assert!(text.ends_with('\n'));
}

#[test]
fn figures_and_labels_are_as_they_should_be() {
    let text = exposition(true);
    for line in [
        "coquina_uptime_seconds 2.5",
        "coquina_capacity_bytes 68719476736",
        "coquina_volumes{state=\"active\"} 2",
        "coquina_health_status 2",
        "coquina_volume_size_bytes{volume=\"db\"} 1073741824",
        "coquina_volume_latency_seconds_bucket{volume=\"db\",operation=\"write\",le=\"0.000065536\"} 0",
        "coquina_volume_latency_seconds_bucket{volume=\"db\",operation=\"write\",le=\"0.000131072\"} 1",
        "coquina_volume_latency_seconds_bucket{volume=\"db\",operation=\"write\",le=\"+Inf\"} 1",
        "coquina_volume_latency_seconds_sum{volume=\"db\",operation=\"write\"} 0.0001",
        "coquina_volume_latency_seconds_count{volume=\"db\",operation=\"write\"} 1",
    ] {
        assert!(text.lines().any(|present| present == line), "{line} is missing from\n{text}");
    }
    assert!(text.contains("path=\"/drives/\\\"0\\\"\",shard=\"1\"} 3"), "escaped\n{text}");
    assert!(text.contains("coquina_health_entry{code=\"BAD_BLOCKS\",severity=\"error\""));
}

#[test]
fn volume_series_can_be_switched_off() {
    let text = exposition(false);
    assert!(!text.contains("coquina_volume_"));
    assert!(text.contains("coquina_shard_live_bytes"));
}
