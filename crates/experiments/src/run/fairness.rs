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
            Some(false) => "answers writes before they are on stable storage",
            None => "does not say when a write is on stable storage",
        };
        if first.durable != other.durable || first.durable.is_none() {
            found.push(format!("{} {}, {} {}", first.label, durable(first), other.label, durable(other)));
        }
    }
    found
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
        let unknown = facts("NBD export", None, None);
        assert_eq!(differences_of(&[&coquina, &unknown]).len(), 2);
        assert_eq!(differences_of(&[&unknown, &unknown]).len(), 2);
    }
}
