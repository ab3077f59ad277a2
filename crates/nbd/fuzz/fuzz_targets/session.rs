//! `cargo +nightly fuzz run session`, from `crates/nbd`: everything that the ordinary tests check, on any bytes.

#![no_main]

#[path = "../../tests/nbd/exercise.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    exercise::exercise(data);
});
