//! One file per command, and what several of them share.

pub mod bench;
mod bench_list;
pub mod completions;
mod connect;
pub mod demo;
mod design;
pub mod df;
pub mod doctor;
pub mod drive;
mod drive_argument;
mod elsewhere;
mod experiment;
mod leaving;
pub mod man;
pub mod nbd;
pub mod node;
pub mod pool;
mod processors;
mod room;
mod serving;
pub mod status;
mod store;
mod store_size;
pub mod up;
pub mod volume;
mod volume_lost;
mod volume_usage;
