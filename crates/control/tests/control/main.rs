//! The control plane of whole clusters in one process, on a store in memory and nodes that only pretend.

#![allow(clippy::unwrap_used)]

mod catalogue;
mod drives;
mod failover;
mod metrics;
mod server;
mod store;
mod together;
mod world;
