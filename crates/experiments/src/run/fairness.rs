//! Whether targets are equal enough to be compared.

use crate::report::TargetFacts;
use crate::target::Target;

/// What is not equal between targets that are compared, one line each. Plain drives are there to be compared with, and
/// nobody expects copies of them.
pub fn differences(
    targets: &[Box<dyn Target>],
    facts: &[TargetFacts],
    refused: &[Option<String>],
) -> Vec<String> {
    let compared = targets.iter().zip(facts).zip(refused);
    let compared: Vec<&TargetFacts> = compared
        .filter(|((target, _), refusal)| !target.is_baseline() && refusal.is_none())
        .map(|((_, facts), _)| facts)
        .collect();
    differences_of(&compared)
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
