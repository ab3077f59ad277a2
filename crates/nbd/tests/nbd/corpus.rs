//! The fuzzer's corpus, replayed, and a short fuzz run that needs no nightly toolchain.

use crate::exercise::exercise;
use crate::support::*;

/// Inputs from which the fuzzer starts, and which stay covered when its corpus is lost.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let session = |name: &str, structured: bool, requests: &[Vec<u8>]| {
        [vec![30, 99], opening(name, structured), requests.concat()].concat()
    };
    let write = [request(FUA, CMD_WRITE, 1, 512, 1024), vec![9; 1024]].concat();
    let unaligned = [request(0, CMD_WRITE, 2, 1, 100), vec![8; 100]].concat();
    let options = [
        vec![3, 7],
        FIXED_AND_NO_ZEROES.to_vec(),
        option(OPT_STARTTLS, b"tls"),
        option(OPT_LIST, &[]),
        option(OPT_STRUCTURED_REPLY, &[]),
        option(OPT_LIST_META_CONTEXT, &context_data("disk", &["base:", "x-a:b"])),
        option(OPT_INFO, &info_data("read-only", &[1, 3])),
        option(OPT_GO, &info_data("missing", &[])),
        option(OPT_EXPORT_NAME, b"disk"),
        request(0, CMD_READ, 3, 0, 4096),
    ];
    let every_command = [
        write.clone(),
        unaligned.clone(),
        request(DF, CMD_READ, 4, 0, 8192),
        request(0, CMD_READ, 5, 512, 2048),
        request(0, CMD_FLUSH, 6, 0, 0),
        request(FUA, CMD_TRIM, 7, 0, 512),
        request(0, CMD_CACHE, 8, 0, 512),
        request(NO_HOLE | FAST_ZERO, CMD_WRITE_ZEROES, 9, 0, 512),
        request(REQ_ONE, CMD_BLOCK_STATUS, 10, 0, 4096),
        request(0, CMD_BLOCK_STATUS, 11, 0, 4096),
        request(0, 99, 12, 0, 0),
        request(0, CMD_DISC, 13, 0, 0),
    ];
    vec![
        ("every_command_simple", session("disk", false, &every_command)),
        ("every_command_structured", session("disk", true, &every_command)),
        ("every_option", options.concat()),
        ("read_only", session("read-only", true, &[write, unaligned])),
        ("long_write", session("disk", true, &[request(0, CMD_WRITE, 1, 0, 65_536)])),
        ("abort", [vec![0, 0], FIXED_AND_NO_ZEROES.to_vec(), option(OPT_ABORT, &[])].concat()),
        ("greeting", [vec![1, 1], b"NBDMAGICIHAVEOPT\x00\x03".to_vec()].concat()),
    ]
}

#[test]
fn seeds_are_in_the_fuzzers_corpus() {
    for (name, seed) in seeds() {
        let path = format!("{}/fuzz/corpus/session/{name}", env!("CARGO_MANIFEST_DIR"));
        #[allow(clippy::disallowed_methods, reason = "the corpus is kept in files")]
        let found = std::fs::read(&path);
        if std::env::var_os("COQUINA_WRITE_CORPUS").is_some() {
            #[allow(clippy::disallowed_methods, reason = "the corpus is kept in files")]
            std::fs::write(&path, &seed).unwrap();
        } else {
            assert_eq!(found.unwrap(), seed, "{path}: write it anew with COQUINA_WRITE_CORPUS=1");
        }
    }
}

#[test]
fn corpus_is_replayed() {
    let folder = format!("{}/fuzz/corpus/session", env!("CARGO_MANIFEST_DIR"));
    let mut replayed = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        #[allow(clippy::disallowed_methods, reason = "the corpus is kept in files")]
        let _ = exercise(&std::fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= seeds().len());
}

/// The same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Changes something behind the first `kept_bytes`, perhaps by what `other` has.
fn mutate(bytes: &mut Vec<u8>, kept_bytes: usize, other: &[u8], random: &mut Random) {
    let place = kept_bytes + random.below(bytes.len() - kept_bytes);
    match random.below(12) {
        0..4 => bytes[place] ^= 1 << random.below(8),
        4..8 => bytes[place] = [0, 1, 2, 0x7f, 0x80, 0xff][random.below(6)],
        8 => bytes.truncate(place + 1),
        9 => bytes.insert(place, random.below(256) as u8),
        10 => {
            bytes.remove(place);
            bytes.push(0);
        }
        _ => {
            let from = random.below(other.len());
            bytes.truncate(place + 1);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}

/// `COQUINA_FUZZ_ROUNDS` and `COQUINA_FUZZ_SEED` make it longer and different.
#[test]
fn short_fuzz_of_the_seeds() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let rounds = number("COQUINA_FUZZ_ROUNDS").unwrap_or(20_000);
    let mut random = Random(number("COQUINA_FUZZ_SEED").unwrap_or(0x5eed) | 1);
    let seeds = seeds();
    let mut requests = 0;
    for _ in 0..rounds {
        // Sessions with many requests come first in the list, and twice as often.
        let mut bytes = seeds[random.below(seeds.len()).min(random.below(seeds.len()))].1.clone();
        // Mostly the handshake is left as it is, so that requests are reached.
        let after_opening = (2 + opening("read-only", true).len()).min(bytes.len() - 1);
        let kept_bytes = if random.below(4) == 0 { 0 } else { after_opening };
        for _ in 0..=random.below(3) {
            let other = &seeds[random.below(seeds.len())].1;
            mutate(&mut bytes, kept_bytes, other, &mut random);
        }
        requests += exercise(&bytes) as u64;
    }
    // A fuzz run that never gets past the handshake would prove nothing.
    assert!(requests > 2 * rounds, "only {requests} requests in {rounds} rounds");
}
