//! The exposition is well formed whatever the names, and series can be switched off.

use std::collections::HashSet;

use coquina_cluster::{HealthCode, HealthEntry};

use super::world::{World, add_drive, volume_request};

fn exposition() -> String {
    let world = World::new(1, 1);
    let process = &world.processes[0];
    for (subject, message) in [("/d", "block 1"), ("/d", "block 2"), ("/e", "block 1")] {
        let entry = HealthEntry::usual(HealthCode::DamagedLog, subject, message);
        process.node.memory().health.push(entry);
    }
    process.catalogue.create(&volume_request("db", 1 << 30)).unwrap();
    process.catalogue.create(&volume_request("web", 1 << 30)).unwrap();
    process.node.memory().bad_blocks = 3;
    add_drive(&process.map, process.node.id, "/drives/\"1\"");
    process.client().metrics().unwrap()
}

#[test]
fn every_series_stands_under_its_family_once() {
    let text = exposition();
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
    let text = exposition();
    for line in [
        "coquina_uptime_seconds 2.5",
        "coquina_health_entry{code=\"DAMAGED_LOG\",severity=\"error\",subject=\"/d\"} 1",
        "coquina_health_entry{code=\"DAMAGED_LOG\",severity=\"error\",subject=\"/e\"} 1",
        "coquina_volumes{state=\"active\"} 2",
        "coquina_health_status 2",
        "coquina_leads 1",
        "coquina_store_reachable 1",
        "coquina_groups{pool=\"default\",state=\"active_clean\"} 64",
        "coquina_pool_groups{pool=\"default\"} 64",
        "coquina_node_up{node=\"node-0\"} 1",
        "coquina_volume_size_bytes{volume=\"db\"} 1073741824",
        "coquina_volume_latency_seconds_bucket{volume=\"db\",operation=\"write\",le=\"0.000065536\"} 0",
        "coquina_volume_latency_seconds_bucket{volume=\"db\",operation=\"write\",le=\"0.000131072\"} 1",
        "coquina_volume_latency_seconds_bucket{volume=\"db\",operation=\"write\",le=\"+Inf\"} 1",
        "coquina_volume_latency_seconds_sum{volume=\"db\",operation=\"write\"} 0.0001",
        "coquina_volume_latency_seconds_count{volume=\"db\",operation=\"write\"} 1",
    ] {
        assert!(text.lines().any(|present| present == line), "{line} is missing from\n{text}");
    }
    assert!(!text.contains("state=\"total\""), "a total beside its parts makes sums wrong");
    // The second one is not served.
    for (path, state, value) in [(0, "healthy", 1), (0, "missing", 0), (1, "healthy", 0), (1, "missing", 1)] {
        let labels = format!("path=\"/drives/\\\"{path}\\\"\",state=\"{state}\"}} {value}");
        let found = |line: &str| line.starts_with("coquina_drive_state{") && line.ends_with(&labels);
        assert!(text.lines().any(found), "{labels} is missing from\n{text}");
    }
    assert!(text.contains("path=\"/drives/\\\"0\\\"\",shard=\"1\"} 3"), "escaped\n{text}");
    assert!(text.contains("coquina_health_entry{code=\"BAD_BLOCKS\",severity=\"error\""));
}
