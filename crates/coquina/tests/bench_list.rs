//! `coquina bench list` with a name: its file as it is, and as JSON.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn list(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coquina"));
    command.args(["bench", "list"]).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn an_experiment_is_json_where_that_is_asked_for_and_its_file_else() {
    let file = list(&["curve-vs-ceph"]);
    let toml = String::from_utf8(file.stdout).unwrap();
    assert!(file.status.success() && toml.contains("[published]"), "{toml}");
    let output = list(&["curve-vs-ceph", "--json"]);
    assert!(output.status.success());
    let one: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(one["toml"], toml.as_str());
    let all: Value = serde_json::from_slice(&list(&["--json"]).stdout).unwrap();
    let listed = all.as_array().unwrap().iter().find(|other| other["name"] == "curve-vs-ceph").unwrap();
    for field in ["name", "title", "targets"] {
        assert!(!one[field].is_null() && one[field] == listed[field], "{field}: {one}");
    }
    let unknown = list(&["nothing", "--json"]);
    assert_eq!((unknown.status.code(), unknown.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("no experiment \"nothing\" is built in"));
    let misspelt = String::from_utf8(list(&["curve-vs-cpeh"]).stderr).unwrap();
    assert!(misspelt.contains("is built in; did you mean \"curve-vs-ceph\"?; there are "), "{misspelt}");
}
