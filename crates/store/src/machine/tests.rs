//! Random requests: the state follows from its effects alone, and from its image.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put { key: u8, lease: Option<i64> },
    Delete { key: u8 },
    Both { put: u8, delete: u8 },
    Grant { seconds: u64 },
    KeepAlive { lease: i64 },
    Revoke { lease: i64 },
    Pass { seconds: u64 },
    Compact { back: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u8..5, proptest::option::of(1_i64..6)).prop_map(|(key, lease)| Step::Put { key, lease }),
        2 => (0_u8..5).prop_map(|key| Step::Delete { key }),
        2 => (0_u8..5, 0_u8..5).prop_map(|(put, delete)| Step::Both { put, delete }),
        1 => (1_u64..10).prop_map(|seconds| Step::Grant { seconds }),
        1 => (1_i64..6).prop_map(|lease| Step::KeepAlive { lease }),
        1 => (1_i64..6).prop_map(|lease| Step::Revoke { lease }),
        1 => (0_u64..4).prop_map(|seconds| Step::Pass { seconds }),
        1 => (0_u64..6).prop_map(|back| Step::Compact { back }),
    ];
    proptest::collection::vec(step, 1..60)
}

fn put(key: u8, lease: Option<i64>) -> Operation {
    Operation::Put { key: vec![b'/', key], value: vec![key; 3], lease: lease.map(LeaseId) }
}

fn take(machine: &mut Machine, step: &Step, now_ns: &mut u64) {
    let delete = |key: u8| Operation::Delete { key: vec![b'/', key] };
    let transaction = |operations| Transaction { compares: Vec::new(), operations };
    // Refused ones change nothing, which the comparison shows.
    match step {
        Step::Put { key, lease } => drop(machine.transaction(&transaction(vec![put(*key, *lease)]))),
        Step::Delete { key } => drop(machine.transaction(&transaction(vec![delete(*key)]))),
        Step::Both { put: key, delete: other } => {
            drop(machine.transaction(&transaction(vec![put(*key, None), delete(*other)])));
        }
        Step::Grant { seconds } => drop(machine.lease_grant(None, *seconds, *now_ns)),
        Step::KeepAlive { lease } => drop(machine.lease_keep_alive(LeaseId(*lease), *now_ns)),
        Step::Revoke { lease } => drop(machine.lease_revoke(LeaseId(*lease))),
        Step::Pass { seconds } => {
            *now_ns += seconds * NS_PER_SECOND;
            machine.expire(*now_ns);
        }
        Step::Compact { back } => drop(machine.compact(machine.revision().saturating_sub(*back))),
    }
}

proptest! {
    #[test]
    fn effects_and_images_make_the_same_state(steps in steps()) {
        let mut machine = Machine::default();
        let mut copy = Machine::default();
        let mut now_ns = 0;
        for step in &steps {
            take(&mut machine, step, &mut now_ns);
            for effect in machine.take_effects() {
                prop_assert!(copy.replay(&effect, 0), "{effect:?}");
            }
            prop_assert_eq!(copy.image(), machine.image());
            prop_assert_eq!(copy.history_bytes(), machine.history_bytes());
        }
        let mut loaded = Machine::from_image(machine.image(), 0).expect("its own image is good");
        prop_assert_eq!(loaded.image(), machine.image());
        prop_assert_eq!(loaded.history_bytes(), machine.history_bytes());
        // It goes on alike, leases with their keys included.
        let leases: Vec<LeaseId> = machine.leases().collect();
        for lease in leases {
            prop_assert!(machine.lease_revoke(lease) && loaded.lease_revoke(lease));
        }
        prop_assert_eq!(loaded.image(), machine.image());
    }

    #[test]
    fn history_holds_what_is_not_compacted(steps in steps(), bytes_max in 0_usize..2000) {
        let mut machine = Machine::default();
        let mut now_ns = 0;
        for step in &steps {
            take(&mut machine, step, &mut now_ns);
        }
        let compacted = machine.compacted();
        prop_assert_eq!(machine.history_from(compacted, usize::MAX).is_err(), compacted > 1);
        let found = machine.history_from(compacted + 1, usize::MAX).unwrap();
        let expected = (compacted + 1).max(2)..=machine.revision();
        prop_assert!(found.iter().map(|revision| revision.revision).eq(expected));
        if let Some(revision) = machine.compaction_for(bytes_max) {
            machine.compact(revision).unwrap();
            prop_assert!(machine.compaction_for(bytes_max).is_none());
        }
        prop_assert!(machine.history_bytes() <= bytes_max);
    }
}

#[test]
fn what_cannot_have_happened_is_not_replayed() {
    let event = |mod_revision| {
        Event::Put(KeyValue {
            key: b"/".to_vec(),
            value: Vec::new(),
            create_revision: mod_revision,
            mod_revision,
            lease: None,
        })
    };
    let changed = |revision, events| Effect::Changed(Arc::new(Revision { revision, events }));
    let impossible = [
        changed(3, vec![event(3)]),
        changed(2, vec![]),
        changed(2, vec![event(1)]),
        changed(2, vec![Event::Delete { key: b"/".to_vec() }]),
        Effect::Granted { lease: LeaseId(0), seconds: 1 },
        Effect::Granted { lease: LeaseId(1), seconds: 0 },
        Effect::Ended { lease: LeaseId(1) },
        Effect::Compacted { revision: 2 },
        Effect::Compacted { revision: 0 },
    ];
    for effect in impossible {
        assert!(!Machine::default().replay(&effect, 0), "{effect:?}");
    }
    assert!(Machine::default().replay(&changed(2, vec![event(2)]), 0));
}
