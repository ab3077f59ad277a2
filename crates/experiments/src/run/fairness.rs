//! Whether targets are equal enough to be compared.

use coquina_base::format_size_bytes;

use crate::definition::{PlannedScenario, object_set_bytes};
use crate::report::{Operation, TargetFacts};
use crate::target::Target;

/// What is not equal between targets that are compared, one line each. Plain drives are there to be compared with, and
/// nobody expects copies of them.
pub fn differences(
    targets: &[Box<dyn Target>],
    facts: &[TargetFacts],
    refused: &[Option<String>],
) -> Vec<String> {
    differences_of(&compared(targets, facts, refused))
}

fn compared<'a>(
    targets: &[Box<dyn Target>],
    facts: &'a [TargetFacts],
    refused: &[Option<String>],
) -> Vec<&'a TargetFacts> {
    let all = targets.iter().zip(facts).zip(refused);
    all.filter(|((target, _), refusal)| !target.is_baseline() && refusal.is_none())
        .map(|((_, facts), _)| facts)
        .collect()
}

/// What must be said of CPU time per operation where the processes that serve some targets are seen here, and those of others are not.
pub fn unequal_cpu(
    targets: &[Box<dyn Target>],
    facts: &[TargetFacts],
    refused: &[Option<String>],
) -> Option<String> {
    let all = targets.iter().zip(facts).zip(refused);
    let compared: Vec<(&TargetFacts, bool)> = all
        .filter(|((target, _), refusal)| !target.is_baseline() && refusal.is_none())
        .map(|((target, facts), _)| (facts, target.are_processes_all()))
        .collect();
    unequal_cpu_of(&compared)
}

fn unequal_cpu_of(compared: &[(&TargetFacts, bool)]) -> Option<String> {
    let labels = |are_seen: bool| -> Vec<&str> {
        let those = compared.iter().filter(|(_, all_are_seen)| *all_are_seen == are_seen);
        those.map(|(facts, _)| facts.label.as_str()).collect()
    };
    let (seen, unseen) = (labels(true), labels(false));
    (!seen.is_empty() && !unseen.is_empty()).then(|| {
        format!(
            "of {} it holds the processes that serve it; those behind {} cannot all be told from here: what they take on other hosts is in \
             no figure, and on this one they are counted with all that runs: their ratio says nothing",
            seen.join(" and "),
            unseen.join(" and ")
        )
    })
}

fn differences_of(compared: &[&TargetFacts]) -> Vec<String> {
    let mut found = Vec::new();
    let Some((first, others)) = compared.split_first() else { return found };
    for other in others {
        let copies = |facts: &TargetFacts| match facts.copies {
            Some(1) => "one copy".to_owned(),
            Some(copies) => format!("{copies} copies"),
            None => "a number of copies that cannot be known".to_owned(),
        };
        if first.copies != other.copies || first.copies.is_none() {
            found.push(format!("{} keeps {}, {} {}", first.label, copies(first), other.label, copies(other)));
        }
        let durable = |facts: &TargetFacts| match facts.durable {
            Some(true) => "answers a write when it is on stable storage of all copies",
            Some(false) => "may answer a write before it is on stable storage of all copies",
            None => "does not say when a write is on stable storage",
        };
        if first.durable != other.durable || first.durable.is_none() {
            found.push(format!("{} {}, {} {}", first.label, durable(first), other.label, durable(other)));
        }
    }
    found
}

/// What reads of whole objects measure, where all objects of a size are less than this host's memory.
pub fn cached_objects(scenario: &PlannedScenario, volume_bytes: u64, memory_bytes: u64) -> Option<String> {
    let reads = scenario.points.iter().filter(|planned| planned.point.operation == Operation::ObjectRead);
    let mut sizes: Vec<u32> = reads.map(|planned| planned.point.block_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let small = sizes.into_iter().filter_map(|block_bytes| {
        let set_bytes = object_set_bytes(volume_bytes, block_bytes);
        (set_bytes < memory_bytes).then(|| {
            format!(
                "{} objects of {} are {}",
                set_bytes / u64::from(block_bytes.max(1)),
                format_size_bytes(block_bytes.into()),
                format_size_bytes(set_bytes)
            )
        })
    });
    let small: Vec<String> = small.collect();
    (!small.is_empty()).then(|| {
        format!(
            "{}, and this host has {} of memory: servers with as much for their caches keep them all there, so that reads \
             are those of caches and the network, and say nothing of drives",
            small.join(", "),
            format_size_bytes(memory_bytes)
        )
    })
}

/// What is to be told of targets whose writes are not durable, also of those that are not compared: their label, and why.
pub fn notes(
    facts: &[TargetFacts],
    refused: &[Option<String>],
    columns: &[super::Column],
) -> Vec<(String, String)> {
    let early = facts.iter().zip(columns).filter(|(facts, column)| {
        facts.durable == Some(false) && refused.get(column.target).is_none_or(Option::is_none)
    });
    early.map(|(facts, _)| (facts.label.clone(), not_durable(facts))).collect()
}

fn not_durable(facts: &TargetFacts) -> String {
    format!(
        "a write may be answered before it is on stable storage, so that its figures do not compare with durable ones (caches: {})",
        facts.cache
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(label: &str, copies: Option<u32>, durable: Option<bool>) -> TargetFacts {
        TargetFacts { label: label.to_owned(), copies, durable, ..TargetFacts::default() }
    }

    #[test]
    fn copies_and_durability_must_be_equal_and_known() {
        let coquina = facts("Coquina", Some(3), Some(true));
        assert!(differences_of(&[&coquina]).is_empty());
        assert!(differences_of(&[&coquina, &facts("Ceph", Some(3), Some(true))]).is_empty());
        let found = differences_of(&[&coquina, &facts("Ceph", Some(2), Some(false))]);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("Coquina keeps 3 copies, Ceph 2 copies"), "{found:?}");
        assert!(found[1].contains("Ceph may answer a write before it is on stable storage"), "{found:?}");
        let unknown = facts("NBD export", None, None);
        assert_eq!(differences_of(&[&coquina, &unknown]).len(), 2);
        assert_eq!(differences_of(&[&unknown, &unknown]).len(), 2);
    }

    #[test]
    fn cpu_of_targets_whose_servers_are_elsewhere_is_not_compared_in_silence() {
        let of = |label| facts(label, Some(3), Some(true));
        // An export's server that listens here is seen, and may have others work for it.
        let ceph = TargetFacts { server_processes: vec!["nbdkit 7".to_owned()], ..of("Ceph") };
        let (coquina, ceph) = ((&of("Coquina"), true), (&ceph, false));
        let told = unequal_cpu_of(&[coquina, ceph]).unwrap();
        assert!(
            told.starts_with("of Coquina it holds") && told.contains("those behind Ceph cannot"),
            "{told}"
        );
        assert_eq!(unequal_cpu_of(&[coquina, coquina]), None);
        assert_eq!(unequal_cpu_of(&[ceph, ceph]), None, "none of them: it is the same");
        assert_eq!(unequal_cpu_of(&[coquina]), None);
    }

    #[test]
    fn reads_of_objects_that_fit_into_memory_are_said_to_be_of_caches() {
        let experiment = crate::definition::Experiment::load("arm-vs-x86").unwrap();
        let planned = crate::definition::expand(&experiment, crate::definition::ModeName::Full);
        let told = cached_objects(&planned[0], 1 << 40, 8 << 30).unwrap();
        assert!(
            told.starts_with("4096 objects of 64 KiB are 256 MiB, and this host has 8 GiB of memory"),
            "{told}"
        );
        assert_eq!(cached_objects(&planned[1], 1 << 40, 8 << 30), None, "16 GiB");
        assert!(
            cached_objects(&planned[1], 1 << 30, 8 << 30)
                .unwrap()
                .starts_with("256 objects of 4 MiB are 1 GiB")
        );
        let mut writes = planned[0].clone();
        writes.points.retain(|planned| planned.point.operation == Operation::ObjectWrite);
        assert_eq!(cached_objects(&writes, 1 << 40, 8 << 30), None);
    }

    #[test]
    fn what_is_not_durable_is_told_of_plain_files_too() {
        let columns: Vec<super::super::Column> =
            (0..2).map(|target| super::super::Column { target, tried: None }).collect();
        let cache = "none; all of it lies in memory (tmpfs)".to_owned();
        let in_memory = TargetFacts { cache, ..facts("plain file", Some(1), Some(false)) };
        let all = [facts("Coquina", Some(3), Some(true)), in_memory];
        let found = notes(&all, &[None, None], &columns);
        assert_eq!(found.len(), 1);
        assert!(found[0].0 == "plain file" && found[0].1.contains("tmpfs"), "{found:?}");
        assert!(notes(&all, &[None, Some("refused".to_owned())], &columns).is_empty());
    }
}
