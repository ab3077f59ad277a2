use super::*;
use crate::definition::{Experiment, built_in_names};

/// Subjects of the published rows of which bandwidth does not fit operations per second.
fn bandwidths_that_do_not_fit() -> Vec<String> {
    let mut found = Vec::new();
    for name in built_in_names() {
        let published = Experiment::load(name).unwrap().published.rows().unwrap();
        let findings = of_report(&Report { published, ..Report::default() });
        let wrong = findings
            .into_iter()
            .filter(|finding| finding.kind == "contradiction" && finding.text.contains(" bytes are "));
        found.extend(wrong.map(|finding| format!("{}: {}", finding.subject, finding.text)));
    }
    found
}

#[test]
fn one_published_bandwidth_does_not_fit_its_operations() {
    let found = bandwidths_that_do_not_fit();
    assert_eq!(found.len(), 1, "{found:?}");
    let row = "published: many volumes, 512k sequential read, client 2, depth 128: Curve 1.2.4: 1340 operations/s of 524288 bytes";
    assert!(found[0].starts_with(row), "{found:?}");
}
