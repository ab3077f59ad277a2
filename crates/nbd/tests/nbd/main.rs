//! The codec seen from outside: every option and command, a transcript byte by byte, and what hostile peers send.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client;
mod commands;
mod corpus;
mod example;
mod exercise;
mod foreign;
mod options;
mod properties;
mod support;
mod transcript;
