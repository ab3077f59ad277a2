//! `coquina node list` and `coquina node remove`.

use coquina_base::format_size_bytes;
use coquina_control::api;

use crate::arguments::{Global, NodeCommand};
use crate::command::connect::client;
use crate::command::elsewhere::Cluster;
use crate::command::leaving::{self, Leaving, Left};
use crate::error::CliError;
use crate::output::{self, format_duration, print, print_json};

pub fn run(global: &Global, command: &NodeCommand) -> Result<(), CliError> {
    match command {
        NodeCommand::List => {
            let list = client(global)?.nodes()?;
            if global.json { print_json(&list) } else { print(&(nodes_text(&list.nodes) + "\n")) }
        }
        NodeCommand::Remove { node, lost, cancel, yes, no_wait } => {
            let request =
                api::RemoveNode { node: node.clone(), lost: *lost, cancel: *cancel, dry_run: false };
            remove(global, request, *yes, *no_wait)
        }
    }
}

fn remove(global: &Global, request: api::RemoveNode, yes: bool, no_wait: bool) -> Result<(), CliError> {
    let client = client(global)?;
    if request.cancel {
        let node = client.remove_node(&request)?;
        let drives = client.drives()?.drives;
        let leaving = drives.iter().filter(|drive| node.drives_leaving.contains(&drive.id));
        let leaving: Vec<&str> = leaving.map(|drive| drive.path.as_str()).collect();
        return show(global, &node, &stays_text(&node.name, &leaving));
    }
    let plan = client.remove_node(&api::RemoveNode { dry_run: true, ..request.clone() })?;
    let how = if request.lost { "made anew from other copies" } else { "moved to other nodes first" };
    let question = format!(
        "node {} ({}) with {} drive(s) is removed; {} placement group(s) have a copy there, which is {how}",
        plan.name,
        plan.id,
        plan.drives.len(),
        plan.groups_left
    );
    output::confirm(&question, yes)?;
    let mut cluster = Cluster::of(client)?;
    let lost = request.lost;
    let removed = cluster.client().remove_node(&api::RemoveNode { node: plan.id.to_string(), ..request })?;
    if no_wait {
        let text = format!("node {} is being removed; `coquina node list` shows how far", plan.name);
        return show(global, &removed, &text);
    }
    let leaving = Leaving { what: "node", groups: plan.groups_left, lost };
    leaving::wait(leaving, &mut cluster, |client| {
        let nodes = client.nodes()?.nodes;
        Ok(match nodes.iter().find(|node| node.id == plan.id) {
            None => Left::Gone,
            Some(node) if node.wanted == api::Wanted::In => Left::Stays,
            Some(node) => Left::Groups(node.groups_left),
        })
    })?;
    show(global, &removed, &format!("removed node {} ({})", removed.name, removed.id))
}

/// What is said of a node that stays, with drives of it that go all the same.
fn stays_text(name: &str, leaving: &[&str]) -> String {
    let mut text = format!("node {name} stays");
    for path in leaving {
        text += &format!(
            "\nits drive {path} is being removed by itself and goes; to keep it: coquina drive remove {name}:{path} --cancel"
        );
    }
    text
}

fn show(global: &Global, removed: &api::RemovedNode, text: &str) -> Result<(), CliError> {
    if global.json { print_json(removed) } else { print(&format!("{text}\n")) }
}

fn state_text(node: &api::Node) -> &'static str {
    match (node.state, node.wanted) {
        (api::NodeState::Down, _) => "down",
        (api::NodeState::Unknown, _) => "unknown",
        (api::NodeState::Up, api::Wanted::Removing) => "removing",
        (api::NodeState::Up, api::Wanted::In) => "up",
    }
}

/// A table of nodes; the leader has a star.
pub fn nodes_text(nodes: &[api::Node]) -> String {
    let header =
        ["NODE", "STATE", "UP", "DRIVES", "CAPACITY", "USED", "GROUPS", "PRIMARIES", "NATIVE", "DOMAINS"];
    let mut table = output::table(&header, 2);
    for column in [8, 9] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(comfy_table::CellAlignment::Left);
        }
    }
    for node in nodes {
        let domains: Vec<_> = node.domains.iter().map(|(label, value)| format!("{label}={value}")).collect();
        table.add_row([
            if node.leads { format!("{} *", node.name) } else { node.name.clone() },
            state_text(node).to_owned(),
            node.uptime_ns.map_or("-".to_owned(), format_duration),
            node.drives.to_string(),
            format_size_bytes(node.capacity_bytes),
            format_size_bytes(node.live_bytes),
            node.groups.to_string(),
            node.primaries.to_string(),
            node.native.clone(),
            domains.join(","),
        ]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_that_go_from_a_node_that_stays_are_named() {
        assert_eq!(stays_text("n4", &[]), "node n4 stays");
        let text = stays_text("n4", &["/dev/a", "/dev/b"]);
        assert!(text.contains("drive remove n4:/dev/a --cancel") && text.contains("/dev/b"), "{text}");
    }
}
