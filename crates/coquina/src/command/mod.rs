//! One file per command.

pub mod bench;
pub mod completions;
mod connect;
pub mod demo;
pub mod df;
pub mod drive;
mod drive_argument;
mod experiment;
pub mod man;
pub mod status;
pub mod up;
pub mod volume;
