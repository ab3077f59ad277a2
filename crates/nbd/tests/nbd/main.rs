//! The codec seen from outside: every option and command, a transcript byte by byte, and what hostile peers send.

mod client;
mod commands;
mod corpus;
mod exercise;
mod foreign;
mod options;
mod properties;
mod support;
mod transcript;
