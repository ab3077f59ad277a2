//! Tests of the control plane with a made-up node.

mod backend;
mod catalogue;
mod coordinator;
mod metrics;
mod server;
