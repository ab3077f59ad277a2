//! What holds for any bytes, however they are cut.

use coquina_nbd::ServerConfig;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::exercise::{Trace, check_replies, run};
use crate::support::*;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop_oneof![Just("disk"), Just("read-only"), Just(""), Just("locked"), Just("late")].prop_map(String::from),
        1 => "[a-z\\PC]{0,20}",
    ]
}

/// An option that is right, or nearly so.
fn option_message() -> impl Strategy<Value = Vec<u8>> {
    let query = prop_oneof![Just("base:allocation"), Just("base:"), Just("x-a:b"), Just("junk")];
    prop_oneof![
        Just(option(OPT_STRUCTURED_REPLY, &[])),
        Just(option(OPT_LIST, &[])),
        (OPT_INFO..=OPT_GO, name(), vec(0..5_u16, 0..4))
            .prop_map(|(number, name, requests)| option(number, &info_data(&name, &requests))),
        (OPT_LIST_META_CONTEXT..=OPT_SET_META_CONTEXT, name(), vec(query, 0..4))
            .prop_map(|(number, name, queries)| option(number, &context_data(&name, &queries))),
        (0..14_u32, vec(any::<u8>(), 0..40)).prop_map(|(number, data)| option(number, &data)),
    ]
}

fn flags() -> impl Strategy<Value = u16> {
    prop_oneof![12 => Just(0), 4 => Just(FUA), 4 => 0..32_u16, 1 => any::<u16>()]
}

fn length_bytes() -> impl Strategy<Value = u32> {
    prop_oneof![16 => (0..20_u32).prop_map(|sectors| sectors * 512), 2 => 0..40_000_u32, 1 => any::<u32>()]
}

/// A request that is right, or nearly so, with the payload of a write unless that is huge.
fn request_message() -> impl Strategy<Value = Vec<u8>> {
    let command = prop_oneof![12 => 0..8_u16, 1 => any::<u16>()]
        .prop_filter("no goodbye", |number| *number != CMD_DISC);
    let offset_bytes = prop_oneof![8 => (0..2040_u64).prop_map(|sectors| sectors * 512), 1 => any::<u64>()];
    (flags(), command, any::<u64>(), offset_bytes, length_bytes()).prop_map(
        |(flags, command, cookie, offset_bytes, length_bytes)| {
            let mut message = request(flags, command, cookie, offset_bytes, length_bytes);
            if command == CMD_WRITE && length_bytes < 100_000 {
                message.resize(message.len() + length_bytes as usize, cookie as u8);
            }
            message
        },
    )
}

/// A connection that often reaches the transmission phase.
fn connection() -> impl Strategy<Value = Vec<u8>> {
    let openable = prop_oneof![6 => Just("disk".to_owned()), 2 => Just("read-only".to_owned()), 1 => name()];
    let opening = (openable, any::<bool>()).prop_map(|(name, structured)| opening(&name, structured));
    let haggling = vec(option_message(), 0..6)
        .prop_map(|options| [FIXED_AND_NO_ZEROES.to_vec(), options.concat()].concat());
    let first = prop_oneof![6 => opening, 1 => haggling];
    (first, vec(request_message(), 0..8)).prop_map(|(first, requests)| [first, requests.concat()].concat())
}

fn whole_and_cut(input: &[u8], sizes: &[usize]) -> (Trace, Trace) {
    let config = ServerConfig::new(16 << 10);
    (run(config, input, &[]), run(config, input, sizes))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(input in vec(any::<u8>(), 0..400), sizes in vec(1..50_usize, 1..4)) {
        let (whole, cut) = whole_and_cut(&input, &sizes);
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn cuts_change_nothing(input in connection(), sizes in vec(1..2000_usize, 1..5)) {
        let (whole, cut) = whole_and_cut(&input, &sizes);
        check_replies(&whole);
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn a_cut_at_any_byte_changes_nothing(input in connection(), place in any::<prop::sample::Index>()) {
        let cut_at = 1 + place.index(input.len());
        let (whole, cut) = whole_and_cut(&input, &[cut_at, usize::MAX]);
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn damaged_connections_are_survived(
        input in connection(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        sizes in vec(1..300_usize, 1..4),
    ) {
        let mut input = input;
        for (place, value) in damage {
            let place = place.index(input.len());
            input[place] = value;
        }
        let (whole, cut) = whole_and_cut(&input, &sizes);
        check_replies(&whole);
        prop_assert_eq!(whole, cut);
    }
}

#[test]
fn every_single_cut_of_a_whole_connection_changes_nothing() {
    let mut input = opening("disk", true);
    input.extend(request(0, CMD_READ, 1, 0, 1024));
    input.extend(request(0, CMD_WRITE, 2, 0, 512));
    input.extend([5; 512]);
    input.extend(request(0, CMD_WRITE, 3, 1, 512));
    input.extend([6; 512]);
    input.extend(request(0, CMD_BLOCK_STATUS, 4, 0, 8192));
    input.extend(request(0, CMD_DISC, 5, 0, 0));
    let whole = run(ServerConfig::default(), &input, &[]);
    check_replies(&whole);
    for cut_at in 1..input.len() {
        assert_eq!(run(ServerConfig::default(), &input, &[cut_at, input.len()]), whole, "cut at {cut_at}");
    }
    assert_eq!(run(ServerConfig::default(), &input, &[1]), whole);
}
