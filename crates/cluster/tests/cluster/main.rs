//! The map, its rules and its coordinator. One program, since each takes as long to link as most of them to run.

#![allow(clippy::unwrap_used)]

mod coordinator;
mod map;
mod placement;
mod rules;
mod stripe;
mod together;
mod world;
