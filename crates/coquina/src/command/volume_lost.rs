//! `coquina volume forget-lost`: gives up what drives hold of volumes that the map does not know.

use coquina_control::{Client, api};

use crate::arguments::Global;
use crate::error::CliError;
use crate::output::{self, print, print_json};

/// Most layers that are named of a node.
const NAMED_MAX: usize = 16;

pub fn run(global: &Global, client: &Client, yes: bool) -> Result<(), CliError> {
    let found = client.forget_lost(&api::ForgetLost { dry_run: true })?;
    if found.layers.is_empty() {
        return show(global, &found, &nothing_text(&found));
    }
    output::confirm(&question(&found), yes)?;
    let lost = client.forget_lost(&api::ForgetLost { dry_run: false })?;
    let text = format!(
        "gave up the data of {} lost volume(s); nodes delete it now, and `coquina status` shows LOST_VOLUMES until they have",
        lost.layers.len()
    );
    show(global, &lost, &text)
}

fn nothing_text(found: &api::LostData) -> String {
    let text =
        "no node that answers holds data of volumes that the map does not know: there is nothing to give up";
    if found.silent.is_empty() {
        return text.to_owned();
    }
    format!("{text}; what {} hold(s) is not known: no answer", found.silent.join(", "))
}

/// What is deleted. Lost volumes have no names: the log and `volume info` call them by their layers.
fn question(found: &api::LostData) -> String {
    let of_node = |on: &api::LostOnNode| {
        let named: Vec<String> = on.layers.iter().take(NAMED_MAX).map(u64::to_string).collect();
        let more = match on.layers.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{} (layers {}{more})", on.node, named.join(", "))
    };
    let nodes: Vec<String> = found.nodes.iter().map(of_node).collect();
    let mut question = format!(
        "the data of {} volume(s) that the map does not know is deleted, on {}, so that no newer state of the map can bring it back",
        found.layers.len(),
        nodes.join(", ")
    );
    if !found.silent.is_empty() {
        question += &format!(
            "; so is what {} hold(s) of such volumes, which do(es) not answer, once back",
            found.silent.join(", ")
        );
    }
    question
}

fn show(global: &Global, lost: &api::LostData, text: &str) -> Result<(), CliError> {
    if global.json { print_json(lost) } else { print(&format!("{text}\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deleted_is_named() {
        let on =
            |node: &str, layers: &[u64]| api::LostOnNode { node: node.to_owned(), layers: layers.to_vec() };
        let mut found = api::LostData {
            layers: vec![17, 18],
            nodes: vec![on("a", &[17, 18]), on("b", &[17])],
            ..api::LostData::default()
        };
        let text = question(&found);
        for part in ["2 volume(s)", "a (layers 17, 18)", "b (layers 17)", "no newer state of the map"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("answer"), "{text}");
        found.silent = vec!["c".to_owned()];
        assert!(question(&found).contains("so is what c hold(s)"));
        let many: Vec<u64> = (1..=20).collect();
        found.nodes = vec![on("a", &many)];
        assert!(question(&found).contains("15, 16 and 4 more)"), "{}", question(&found));
    }

    #[test]
    fn where_nothing_is_lost_silent_nodes_are_named() {
        let none = api::LostData::default();
        assert!(nothing_text(&none).ends_with("nothing to give up"));
        let silent = api::LostData { silent: vec!["c".to_owned()], ..none };
        assert!(nothing_text(&silent).ends_with("what c hold(s) is not known: no answer"));
    }
}
