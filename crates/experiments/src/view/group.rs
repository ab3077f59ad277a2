//! Cases of one scenario and workload, and what varies among them.

use std::collections::HashMap;

use crate::report::{Case, Operation, Point, Report};

/// Blocks from this size on are judged by bandwidth.
const LARGE_BLOCK_BYTES: u32 = 64 << 10;

/// A property of a point that may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Copies,
    Volumes,
    Placement,
    Rate,
    Depth,
    Jobs,
    Clients,
    Drives,
}

impl Key {
    const ALL: [Key; 8] = [
        Key::Copies,
        Key::Volumes,
        Key::Placement,
        Key::Rate,
        Key::Depth,
        Key::Jobs,
        Key::Clients,
        Key::Drives,
    ];
    /// What may be the horizontal axis; of equals the first is taken.
    const AXES: [Key; 7] =
        [Key::Drives, Key::Clients, Key::Jobs, Key::Depth, Key::Rate, Key::Volumes, Key::Copies];

    /// As in the heads of columns.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Key::Copies => "copies",
            Key::Volumes => "volumes",
            Key::Placement => "placement",
            Key::Rate => "offered IOPS",
            Key::Depth => "depth",
            Key::Jobs => "jobs",
            Key::Clients => "clients",
            Key::Drives => "drives",
        }
    }

    /// As under an axis.
    pub(crate) fn axis_title(self) -> &'static str {
        match self {
            Key::Depth => "queue depth",
            other => other.title(),
        }
    }

    /// The value of a point as a number, where it is one. 0 drives stand for all.
    pub(crate) fn number(self, point: &Point) -> Option<f64> {
        match self {
            Key::Copies => point.copies.map(f64::from),
            Key::Volumes => Some(point.volumes.into()),
            Key::Placement => None,
            Key::Rate => point.rate_iops.map(|rate| rate as f64),
            Key::Depth => Some(point.depth.into()),
            Key::Jobs => Some(point.jobs.into()),
            Key::Clients => Some(point.clients.into()),
            Key::Drives => point.drives.map(f64::from),
        }
    }

    /// The value of a point as text.
    pub(crate) fn text(self, point: &Point) -> String {
        match self {
            Key::Placement => point.placement.clone().unwrap_or_else(|| "not pinned".to_owned()),
            Key::Drives if point.drives == Some(0) => "all".to_owned(),
            key => {
                key.number(point).map_or_else(|| "-".to_owned(), |number| super::format::grouped(number, 0))
            }
        }
    }

    /// `depth 128`, `4 jobs`, `on siblings`.
    pub(crate) fn phrase(self, point: &Point) -> String {
        let text = self.text(point);
        match self {
            Key::Depth => format!("depth {text}"),
            Key::Rate => format!("{text} IOPS offered"),
            Key::Placement => text,
            Key::Jobs | Key::Clients | Key::Volumes | Key::Drives if text == "1" => {
                format!("1 {}", self.title().trim_end_matches('s'))
            }
            key => format!("{text} {}", key.title()),
        }
    }
}

/// Cases of one scenario and workload.
#[derive(Clone)]
pub(crate) struct Group<'a> {
    /// The scenario.
    pub(crate) scenario: &'a str,
    /// `4k random write`.
    pub(crate) workload: String,
    /// What is done.
    pub(crate) operation: Operation,
    /// Size of an operation.
    pub(crate) block_bytes: u32,
    /// In the order of the report.
    pub(crate) cases: Vec<&'a Case>,
    /// What varies; depth, if nothing does.
    pub(crate) keys: Vec<Key>,
    /// What plots show from left to right.
    pub(crate) axis: Key,
}

/// Cases of a group that differ in nothing but the axis.
#[derive(Clone)]
pub(crate) struct Variant<'a> {
    /// What tells it from the others; empty if there are no others.
    pub(crate) label: String,
    /// Its cases.
    pub(crate) cases: Vec<&'a Case>,
}

impl<'a> Group<'a> {
    /// Whether load was offered at a rate.
    pub(crate) fn has_rate(&self) -> bool {
        self.cases.iter().any(|case| case.point.rate_iops.is_some())
    }

    /// Whether bandwidth says more than operations per second.
    pub(crate) fn is_large(&self) -> bool {
        self.block_bytes >= LARGE_BLOCK_BYTES
    }

    /// Cases by everything that varies but the axis.
    pub(crate) fn variants(&self) -> Vec<Variant<'a>> {
        let mut variants: Vec<Variant<'a>> = Vec::new();
        for case in &self.cases {
            let label = self.variant_label(case);
            match variants.iter_mut().find(|variant| variant.label == label) {
                Some(variant) => variant.cases.push(case),
                None => variants.push(Variant { label, cases: vec![case] }),
            }
        }
        variants
    }

    fn variant_label(&self, case: &Case) -> String {
        let others = self.keys.iter().filter(|key| **key != self.axis);
        others.map(|key| key.phrase(&case.point)).collect::<Vec<_>>().join(", ")
    }

    /// `depth 128`, `whole cores, 4 jobs`: what tells a case from the others of the group.
    pub(crate) fn phrase(&self, case: &Case) -> String {
        self.keys.iter().map(|key| key.phrase(&case.point)).collect::<Vec<_>>().join(", ")
    }

    /// Where a case lies on the axis for a target. All drives are as many as that has; where an older report does not say how many, as
    /// many as the drives that hold targets, or one more than the most that have figures.
    pub(crate) fn position(&self, report: &Report, case: &Case, target: &str) -> f64 {
        let number = self.axis.number(&case.point).unwrap_or(0.0);
        if self.axis != Key::Drives || number > 0.0 {
            return number;
        }
        let facts = report.targets.iter().find(|facts| facts.label == target);
        if let Some(all) = facts.and_then(|facts| facts.drive_count).filter(|all| *all > 0) {
            return all.into();
        }
        let has_figures =
            |case: &&&Case| case.results.iter().any(|result| result.good_rounds().next().is_some());
        let measured = self.cases.iter().filter(has_figures);
        let most = f64::from(measured.filter_map(|case| case.point.drives).max().unwrap_or(0));
        let known = report.targets.iter().map(|target| target.drives.len()).max().unwrap_or(0) as f64;
        if known >= most.max(1.0) { known } else { most + 1.0 }
    }
}

/// Cases by scenario and workload, in the order of the report.
pub(crate) fn groups(report: &Report) -> Vec<Group<'_>> {
    let mut places: HashMap<(&str, Operation, u32), usize> = HashMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for case in &report.cases {
        let point = &case.point;
        let place =
            *places.entry((&point.scenario, point.operation, point.block_bytes)).or_insert_with(|| {
                groups.push(Group {
                    scenario: &point.scenario,
                    workload: point.workload(),
                    operation: point.operation,
                    block_bytes: point.block_bytes,
                    cases: Vec::new(),
                    keys: Vec::new(),
                    axis: Key::Depth,
                });
                groups.len() - 1
            });
        groups[place].cases.push(case);
    }
    groups.iter_mut().for_each(find_keys);
    groups
}

fn find_keys(group: &mut Group<'_>) {
    let different = |key: Key| {
        let mut texts: Vec<String> = group.cases.iter().map(|case| key.text(&case.point)).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.len()
    };
    let counts: Vec<(Key, usize)> = Key::ALL.iter().map(|key| (*key, different(*key))).collect();
    let count = |key: Key| counts.iter().find(|(other, _)| *other == key).map_or(1, |(_, count)| *count);
    let keys: Vec<Key> = Key::ALL.into_iter().filter(|key| count(*key) > 1).collect();
    let most = Key::AXES.iter().map(|key| count(*key)).max().unwrap_or(1);
    group.axis = match most {
        ..=1 => Key::Depth,
        most => Key::AXES.into_iter().find(|key| count(*key) == most).unwrap_or(Key::Depth),
    };
    group.keys = if keys.is_empty() { vec![Key::Depth] } else { keys };
    // What was offered always stands beside what was achieved.
    if group.has_rate() && !group.keys.contains(&Key::Rate) {
        group.keys.insert(0, Key::Rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::made_up::made_up;

    #[test]
    fn all_drives_are_those_of_the_target_and_not_the_disks_under_them() {
        let mut report = made_up("nvme-scaling", &["four files", "eight files"]);
        for (facts, count) in report.targets.iter_mut().zip([4, 8]) {
            (facts.drives, facts.drive_count) = (vec!["sda".to_owned()], Some(count));
        }
        let all_at = |report: &Report, target: &str| {
            let groups = groups(report);
            let group = groups.iter().find(|group| group.axis == Key::Drives).unwrap();
            let all = group.cases.iter().find(|case| case.point.drives == Some(0)).unwrap();
            group.position(report, all, target)
        };
        assert_eq!((all_at(&report, "four files"), all_at(&report, "eight files")), (4.0, 8.0));
        // The page has no more places on the axis than there are numbers of drives.
        report.targets.truncate(1);
        for case in &mut report.cases {
            case.results.truncate(1);
            if case.point.drives > Some(4) {
                case.results[0].rounds.clear();
            }
        }
        let page = crate::html::render(&report);
        assert!(page.contains(">4</text>") && !page.contains(">all</text>"));
        report.targets[0].drive_count = None;
        assert_eq!(all_at(&report, "four files"), 5.0, "an older report");
    }
}
