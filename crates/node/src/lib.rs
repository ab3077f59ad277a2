//! A node: reactors that carry shards, connections and gateways.
//!
//! Each reactor is a thread with one io_uring. It owns its shards, its connections and its copy of the volume table;
//! other threads reach it through its mailbox only. A request for a shard of another reactor goes there and back
//! through mailboxes: this happens to gateways only, for native clients connect to the reactor of each shard.
//!
//! Invariants:
//! - no lock is taken on the way of an I/O, but for the mailbox of a hop between reactors;
//! - what one connection does wrong ends that connection and nothing else.

mod bind_cpu;
mod cache_memory;
mod cache_size;
mod command;
mod connection;
mod core;
mod drain;
pub mod drive;
mod error;
mod figures;
mod follow;
mod gateway;
mod gateways;
mod hands;
mod housekeeper;
mod io;
mod landing;
mod listen;
mod native;
mod nbd_answer;
mod node;
mod open;
mod peers;
mod proposals;
mod rejoin;
mod request;
mod scrubs;
mod snapshot;
mod spare;
mod stalls;
mod stop;
mod sweep;
mod tell_map;
mod threads;
mod volume;
mod waiting;
mod withdraw;

pub use bind_cpu::BindCpu;
pub use cache_size::{HostMemory, default_bound_bytes, default_index_bytes};
pub use error::NodeError;
pub use node::{Node, NodeConfig, NodeIdentity};
pub use open::DriveSpec;
