//! `coquina doctor` on the real host: what it prints, and that it refuses what it should.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_coquina");

fn doctor(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("doctor").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn json_has_every_finding_with_stable_fields() {
    let folder = tempfile::tempdir().unwrap();
    let output = doctor(&["--json", "--folder", folder.path().to_str().unwrap()]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let levels = ["ok", "info", "unknown", "advice", "warning", "problem"];
    for finding in findings {
        assert!(levels.contains(&finding["level"].as_str().unwrap()), "{finding}");
        for field in ["code", "subject", "is"] {
            assert!(!finding[field].as_str().unwrap().is_empty(), "{field} of {finding}");
        }
        for field in ["should_be", "why", "how"] {
            assert!(finding[field].is_string(), "{field} of {finding}");
        }
        for field in ["undo", "change", "applied"] {
            assert!(finding.get(field).is_some(), "{field} of {finding}");
        }
        assert!(finding["applied"].is_null(), "nothing was to be changed: {finding}");
    }
    for code in [
        "KERNEL_VERSION",
        "IO_URING",
        "CLOCK_SOURCE",
        "OPEN_FILES_LIMIT",
        "LOCKED_MEMORY_LIMIT",
        "CPU_GOVERNOR",
        "CPU_SHAPE",
        "SWAP",
        "MEMORY_FOR_CACHE",
        "HUGE_PAGES",
        "IO_SCHEDULER",
        "FILE_SYSTEM",
        "DIRECT_IO",
        "INTERRUPTS",
        "MTU",
    ] {
        assert!(findings.iter().any(|finding| finding["code"] == code), "{code} is missing");
    }
    let counted: u64 = report["counts"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(counted, findings.len() as u64);
    assert!(report["undo"].as_array().unwrap().is_empty());
    let has_problem = report["worst"] == "problem";
    assert_eq!(output.status.code(), Some(i32::from(has_problem)), "{}", error(&output));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left in the folder");
}

#[test]
fn the_table_shows_the_same() {
    let output = doctor(&[]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    for part in ["SUBJECT", "SHOULD BE", "KERNEL_VERSION", "IO_URING"] {
        assert!(text.contains(part), "{part} is missing from: {text}");
    }
    assert!(!error(&output).contains("panicked"));
}

#[test]
fn paths_that_are_not_there_and_other_hosts_are_wrong_usage() {
    for (arguments, part) in [
        (["--drive", "/nowhere/drive"], "cannot look at /nowhere/drive"),
        (["--folder", "/nowhere"], "cannot look at /nowhere"),
        (["--folder", "/proc/self/stat"], "no folder"),
        (["--server", "127.0.0.1:1"], "this host only"),
    ] {
        let output = doctor(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", error(&output));
        assert!(error(&output).contains(part) && output.stdout.is_empty(), "{}", error(&output));
    }
}

#[test]
fn what_has_no_drive_is_wrong_usage_and_a_folder_of_the_kernel_is_told_as_one() {
    for (path, part) in [
        ("/dev/null", "/dev/null is no drive: it is a character device"),
        ("/proc", "no drive is behind /proc: the kernel shows itself there (proc)"),
        ("/sys", "no drive is behind /sys: the kernel shows itself there (sysfs)"),
    ] {
        let output = doctor(&["--drive", path]);
        assert_eq!(output.status.code(), Some(2), "{path}: {}", error(&output));
        assert!(error(&output).contains(part) && output.stdout.is_empty(), "{}", error(&output));
    }
    let output = doctor(&["--json", "--folder", "/proc"]);
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_folder: Vec<(&str, &str)> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["subject"] == "folder /proc")
        .map(|finding| (finding["level"].as_str().unwrap(), finding["is"].as_str().unwrap()))
        .collect();
    assert_eq!(of_folder, [("problem", "proc"), ("unknown", "not known: proc takes no files")]);
}

#[test]
fn without_root_nothing_is_applied() {
    let is_root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
    let output = if is_root {
        // Another user may not reach the folder of the build, but can run a program that stands on standard input.
        let program = std::fs::File::open(PROGRAM).unwrap();
        let setpriv = Command::new("setpriv")
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "/proc/self/fd/0",
                "doctor",
                "--apply",
            ])
            .current_dir("/")
            .stdin(program)
            .output();
        match setpriv {
            Ok(output) if output.status.code() != Some(127) && output.status.code() != Some(126) => output,
            _ => {
                eprintln!("skipped: setpriv cannot run the program as another user here");
                return;
            }
        }
    } else {
        doctor(&["--apply"])
    };
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    assert!(error(&output).contains("--apply needs root"), "{}", error(&output));
    assert!(error(&output).contains("nothing was changed") && output.stdout.is_empty());
}
