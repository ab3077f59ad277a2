//! Tests of the core in a made-up cluster: no socket, no clock.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod accidents;
mod asking;
mod consistent;
mod local;
mod random;
mod resized;
mod striping;
mod withdraw;
mod world;
