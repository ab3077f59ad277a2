//! What a report says of the machine and of the targets.

use coquina_host::DriveEnvironment;

use crate::definition::PlannedScenario;
use crate::generator::{ANSWER_TIME_MAX, output_of};
use crate::report::TargetFacts;
use crate::target::{ENGINE_SETTING, Target};

use super::{Run, findings, fio_tried, measure, rates, settings_tried};

impl Run<'_> {
    /// What the machine is, and how it is set.
    pub(super) fn environment(&mut self) {
        let places = self.places();
        self.report.drives = places.iter().flat_map(|place| DriveEnvironment::under(place)).collect();
        self.report.drives.sort_by(|a, b| a.name.cmp(&b.name));
        self.report.drives.dedup_by(|a, b| a.name == b.name);
        for key in findings::setting_keys(&self.report.drives) {
            if let Some(value) = findings::setting(&key) {
                self.report.settings.insert(key, value);
            }
        }
        if let Ok(version) =
            output_of("fio", &["--version".to_owned()], &[], self.context.patience(ANSWER_TIME_MAX))
        {
            self.report
                .versions
                .insert("fio".to_owned(), version.trim().trim_start_matches("fio-").to_owned());
        }
    }

    /// Facts of the targets as they are now; labels are made unique.
    pub(super) fn look_at_targets(&mut self, scenario: &PlannedScenario) {
        let (has_rate, of_objects) = (has_rate(scenario), scenario.is_of_objects());
        let mut all: Vec<TargetFacts> = Vec::new();
        let labels = settings_tried::labels(&self.settings.tried);
        for column in &self.columns {
            let target = &self.targets[column.target];
            let mut facts = facts_of(target.as_ref(), of_objects);
            if let Some(tried) = column.tried {
                let assignment = &self.settings.tried[tried];
                if !of_objects {
                    facts = target.facts_with(&assignment.key, &assignment.value);
                }
                facts.label = labels[tried].clone();
                facts.settings.insert(assignment.key.clone(), assignment.value.clone());
                if assignment.key == fio_tried::ENGINE_KEY {
                    facts.generator = format!("fio {}", assignment.value);
                }
            } else if !self.settings.tried.is_empty() {
                facts.label = settings_tried::AS_FOUND.to_owned();
            }
            if has_rate {
                let open_loop = if of_objects { target.open_loop_of_objects() } else { target.open_loop() };
                facts.generator = rates::generator(&facts.generator, open_loop);
            }
            facts.server_processes = target
                .processes()
                .into_iter()
                .map(|pid| format!("{} {pid}", coquina_host::process_name(pid)))
                .collect();
            facts.drives = measure::drive_names(&target.places());
            facts.is_plain = Some(target.is_baseline());
            facts.drive_count = Some(target.drives());
            all.push(facts);
        }
        make_labels_unique(&mut all, !self.settings.tried.is_empty());
        for facts in &all {
            if let Some(note) = facts.settings.get(ENGINE_SETTING) {
                self.find("note", &facts.label, &format!("fio uses {note}"));
            }
        }
        self.report.targets = all;
    }
}

fn has_rate(scenario: &PlannedScenario) -> bool {
    scenario.points.iter().any(|planned| planned.point.rate_iops.is_some())
}

fn facts_of(target: &dyn Target, of_objects: bool) -> TargetFacts {
    if of_objects { target.facts_of_objects() } else { target.facts() }
}

/// Targets of one label are told apart by how they were named, and settings that are tried again by their numbers.
pub(super) fn make_labels_unique(targets: &mut [TargetFacts], are_settings: bool) {
    let labels: Vec<String> = targets.iter().map(|facts| facts.label.clone()).collect();
    for (place, facts) in targets.iter_mut().enumerate() {
        let same = |range: &[String]| range.iter().filter(|label| **label == labels[place]).count();
        if same(&labels) > 1 {
            let more =
                if are_settings { format!("no. {}", same(&labels[..=place])) } else { facts.spec.clone() };
            facts.label = format!("{} ({more})", facts.label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Opener;

    #[test]
    fn whole_objects_are_told_with_what_makes_them() {
        for spec in ["ceph-local", "rbd:pool/image"] {
            let target = Opener::new(std::path::Path::new("/nonexistent")).open(spec).unwrap();
            let (blocks, objects) = (facts_of(target.as_ref(), false), facts_of(target.as_ref(), true));
            assert_eq!((&*blocks.generator, &*objects.generator), ("fio rbd", "coquina bench io"), "{spec}");
            assert!(
                blocks.cache.contains("librbd") && !objects.cache.contains("librbd"),
                "{}",
                objects.cache
            );
            assert_eq!((objects.label, objects.spec), (blocks.label, blocks.spec));
        }
    }
}
