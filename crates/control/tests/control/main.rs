//! Tests of the control plane with a made-up node.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod backend;
mod catalogue;
mod coordinator;
mod drives;
mod metrics;
mod server;
