//! The byte forms: what is encoded comes back, what is cut short is refused, nothing makes decoding panic.

use coquina_base::LayerId;
use coquina_replication::{
    BlockRange, ChangedSet, Codec, Config, CopyId, DecodeError, Entry, EntryKind, GroupEpoch, GroupId,
    History, Message, Missing, MissingSets, PayloadRef, RangeSet, Recovery, Run, Sessions, decode_message,
    encode_message,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn copies() -> impl Strategy<Value = Vec<CopyId>> {
    vec(any::<u64>().prop_map(CopyId), 0..4)
}

fn config() -> impl Strategy<Value = Config> {
    (any::<u64>(), copies(), copies(), any::<u32>()).prop_map(|(epoch, in_sync, others, min_copies)| Config {
        epoch,
        in_sync,
        others,
        min_copies,
    })
}

fn history() -> impl Strategy<Value = History> {
    vec((1u64..1000, 1u64..1000), 0..6).prop_map(|steps| {
        let mut run = Run { epoch: 0, first_sequence: 0 };
        let runs = steps.into_iter().map(|(epochs, sequences)| {
            run.epoch += epochs;
            run.first_sequence += sequences;
            run
        });
        History::from_runs(runs.collect()).expect("they rise")
    })
}

fn range() -> impl Strategy<Value = BlockRange> {
    prop_oneof![
        8 => (any::<u64>(), 0..u32::MAX, 0u32..1024, 0u32..=1024).prop_map(|(layer, chunk, first, count)| {
            BlockRange { layer: LayerId(layer), chunk, first, count: count.min(1024 - first) }
        }),
        1 => any::<u64>().prop_map(|layer| BlockRange::whole_layer(LayerId(layer))),
    ]
}

fn kind() -> impl Strategy<Value = EntryKind> {
    prop_oneof![
        Just(EntryKind::Write),
        Just(EntryKind::Trim),
        Just(EntryKind::Zeroes),
        Just(EntryKind::DeleteLayer),
        (any::<u128>(), any::<u64>())
            .prop_map(|(volume, generation)| EntryKind::Fence { volume, generation }),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    let longs = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    (longs, kind(), range(), any::<bool>()).prop_map(
        |((epoch, sequence, session, request), kind, range, is_last)| {
            let payload = PayloadRef::default();
            Entry { epoch, sequence, session, request, kind, range, is_last, payload }
        },
    )
}

fn sessions() -> impl Strategy<Value = Sessions> {
    let inserts = vec((0u64..5, 0u64..20_000, any::<bool>()), 0..200);
    let runs = vec((0u64..5, 0u64..10_000, 0u64..300), 0..4);
    (inserts, runs, vec((any::<u128>(), any::<u64>()), 0..3)).prop_map(|(inserts, runs, fences)| {
        let mut sessions = Sessions::default();
        let requests = runs.into_iter().flat_map(|(session, first, count)| {
            (first..first + count).map(move |request| (session, request, true))
        });
        for (sequence, (session, request, is_last)) in inserts.into_iter().chain(requests).enumerate() {
            let range = BlockRange { count: 7, ..BlockRange::default() };
            let (sequence, payload) = (sequence as u64, PayloadRef::default());
            let kind = EntryKind::Write;
            sessions.note(&Entry { epoch: 1, sequence, session, request, kind, range, is_last, payload });
        }
        fences.into_iter().for_each(|(volume, generation)| sessions.fence(volume, generation));
        sessions
    })
}

fn recovery() -> impl Strategy<Value = Recovery> {
    (any::<u64>(), vec(range(), 0..5)).prop_map(|(since, beyond)| Recovery { since, beyond })
}

fn missing() -> impl Strategy<Value = MissingSets<RangeSet>> {
    vec((any::<u64>(), any::<u64>(), vec(range(), 0..5)), 0..4).prop_map(|all| {
        let mut sets = MissingSets::default();
        for (copy, base, ranges) in all {
            let mut set = RangeSet::default();
            ranges.into_iter().for_each(|range| set.insert(range));
            sets.insert(CopyId(copy), Missing { base, set });
        }
        sets
    })
}

fn group_epochs() -> impl Strategy<Value = Vec<GroupEpoch>> {
    let one = (any::<u32>(), any::<u64>());
    vec(one.prop_map(|(group, epoch)| GroupEpoch { group: GroupId(group), epoch }), 0..5)
}

fn message() -> impl Strategy<Value = Message> {
    let epoch = any::<u64>();
    let payload = PayloadRef::default();
    prop_oneof![
        config().prop_map(|config| Message::Configure { config }),
        config().prop_map(|config| Message::Stale { config }),
        config().prop_map(|config| Message::JoinQuery { config }),
        (epoch, history(), epoch, epoch).prop_map(|(config_epoch, history, last, durable)| {
            Message::State { config_epoch, history, last, durable }
        }),
        (epoch, epoch).prop_map(|(config_epoch, from)| Message::FetchTail { config_epoch, from }),
        (epoch, vec(entry(), 0..4))
            .prop_map(|(config_epoch, entries)| Message::Tail { config_epoch, entries }),
        (epoch, epoch, epoch, entry()).prop_map(|(config_epoch, previous_epoch, commit, entry)| {
            Message::Append { config_epoch, previous_epoch, commit, entry }
        }),
        (epoch, epoch).prop_map(|(config_epoch, durable)| Message::AppendAck { config_epoch, durable }),
        (epoch, epoch).prop_map(|(config_epoch, commit)| Message::Commit { config_epoch, commit }),
        (epoch, epoch).prop_map(|(config_epoch, sent_ns)| Message::GrantRequest { config_epoch, sent_ns }),
        (epoch, epoch).prop_map(|(config_epoch, sent_ns)| Message::Grant { config_epoch, sent_ns }),
        (epoch, history(), epoch, epoch, any::<Option<u64>>(), any::<bool>()).prop_map(
            |(config_epoch, history, last, committed, incomplete_since, intact)| {
                Message::JoinState { config_epoch, history, last, committed, incomplete_since, intact }
            }
        ),
        epoch.prop_map(|config_epoch| Message::Released { config_epoch }),
        (epoch, group_epochs()).prop_map(|(sent_ns, groups)| Message::GrantRequests { sent_ns, groups }),
        any::<bool>().prop_map(|is_full| Message::Room { is_full }),
        Just(Message::Opened {}),
        Just(Message::OpenedToo {}),
        (epoch, group_epochs()).prop_map(|(sent_ns, groups)| Message::Grants { sent_ns, groups }),
        (epoch, epoch).prop_map(|(config_epoch, at)| Message::Cut { config_epoch, at }),
        (epoch, vec(range(), 0..5))
            .prop_map(|(config_epoch, ranges)| Message::CutDone { config_epoch, ranges }),
        (epoch, history(), epoch)
            .prop_map(|(config_epoch, history, from)| { Message::Join { config_epoch, history, from } }),
        (epoch, range())
            .prop_map(move |(config_epoch, range)| { Message::Recover { config_epoch, range, payload } }),
        (epoch, epoch, epoch, range()).prop_map(|(config_epoch, repair, at, range)| {
            Message::RepairRead { config_epoch, repair, at, range }
        }),
        (epoch, epoch, range()).prop_map(move |(config_epoch, repair, range)| {
            Message::RepairData { config_epoch, repair, range, payload }
        }),
        (epoch, epoch, any::<bool>()).prop_map(|(config_epoch, repair, is_bad)| {
            Message::RepairRefused { config_epoch, repair, is_bad }
        }),
        (epoch, epoch, epoch, range(), any::<u128>()).prop_map(|(config_epoch, compare, at, range, key)| {
            Message::HashRead { config_epoch, compare, at, range, key }
        }),
        (epoch, epoch, range(), vec(any::<u128>(), 0..5)).prop_map(
            |(config_epoch, compare, range, hashes)| Message::Hashes { config_epoch, compare, range, hashes }
        ),
        (epoch, epoch).prop_map(|(config_epoch, compare)| Message::HashRefused { config_epoch, compare }),
        (epoch, sessions()).prop_map(|(config_epoch, sessions)| Message::Sessions { config_epoch, sessions }),
        (epoch, epoch, epoch).prop_map(|(config_epoch, position, durable)| {
            Message::StreamAck { config_epoch, position, durable }
        }),
    ]
}

/// Comes back, alone and with something behind it; every shorter form is refused.
fn check<T: Codec + PartialEq + std::fmt::Debug>(value: &T) {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    assert!(bytes.len() >= T::BYTES_MIN);
    for length in 0..bytes.len() {
        assert_eq!(T::decode(&mut &bytes[..length]), Err(DecodeError::Truncated), "at {length}");
    }
    bytes.extend([1, 2, 3]);
    let mut rest = &bytes[..];
    assert_eq!(T::decode(&mut rest).as_ref(), Ok(value));
    assert_eq!(rest, [1, 2, 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn all_comes_back_and_nothing_short_is_taken(
        config in config(), history in history(), recovery in recovery(), sessions in sessions(),
        entry in entry(), missing in missing(),
    ) {
        check(&config);
        check(&history);
        check(&recovery);
        check(&sessions);
        check(&entry);
        check(&missing);
    }

    #[test]
    fn messages_come_back(message in message(), payload_bytes in any::<u32>()) {
        check(&message);
        let mut bytes = Vec::new();
        encode_message(&message, payload_bytes, &mut bytes);
        let mut rest = &bytes[..];
        prop_assert_eq!(decode_message(&mut rest), Ok((message, payload_bytes)));
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn a_changed_byte_never_panics(message in message(), place in any::<usize>(), value in any::<u8>()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let place = place % bytes.len();
        bytes[place] = value;
        let _ = Message::decode(&mut &bytes[..]);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = Message::decode(&mut &bytes[..]);
        let _ = decode_message(&mut &bytes[..]);
        let _ = Config::decode(&mut &bytes[..]);
        let _ = History::decode(&mut &bytes[..]);
        let _ = Recovery::decode(&mut &bytes[..]);
        let _ = Sessions::decode(&mut &bytes[..]);
        let _ = Entry::decode(&mut &bytes[..]);
        let _ = MissingSets::<RangeSet>::decode(&mut &bytes[..]);
    }
}

#[test]
fn a_full_session_takes_few_bytes() {
    let mut sessions = Sessions::default();
    (1..=100_000).for_each(|request| sessions.insert(7, request, request));
    let mut bytes = Vec::new();
    sessions.encode(&mut bytes);
    assert!(bytes.len() <= 4 + 8 + 36 + 8 + 4, "{} bytes", bytes.len());
}
