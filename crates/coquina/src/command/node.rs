//! `coquina node`: a node of a cluster whose map is in etcd; and the list of nodes.

mod list;
mod run;

pub use list::nodes_text;

use crate::arguments::{Global, Node};
use crate::error::CliError;

pub fn run(global: &Global, node: &Node) -> Result<(), CliError> {
    match &node.command {
        Some(command) => list::run(global, command),
        None => run::run(global, &node.start),
    }
}
