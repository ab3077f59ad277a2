//! The command line from outside: usage, bad input, and what is said when nothing runs.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Said {
    fn of(output: &Output) -> Said {
        Said {
            code: output.status.code(),
            out: String::from_utf8(output.stdout.clone()).unwrap(),
            error: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    #[track_caller]
    fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.error);
        assert!(self.error.contains("error: "), "{}", self.error);
        assert!(!self.error.contains("panicked"), "{}", self.error);
        for part in parts {
            assert!(self.error.contains(part), "{part:?} is missing from: {}", self.error);
        }
    }
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coquina"));
    command.env_remove("COQUINA_DIR").env_remove("COQUINA_LOG").current_dir(folder).stdin(Stdio::null());
    command
}

fn coquina(folder: &Path, arguments: &[&str]) -> Said {
    Said::of(&command(folder).args(arguments).output().unwrap())
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn manual_pages_are_printed_and_written() {
    let folder = folder();
    let page = coquina(folder.path(), &["man"]);
    assert_eq!(page.code, Some(0), "{}", page.error);
    assert!(page.out.contains(".TH coquina 1") && page.out.contains("coquina demo"), "{}", page.out);
    let page = coquina(folder.path(), &["man", "drive", "remove"]);
    assert!(page.out.contains("lose") && page.out.contains("coquina drive remove"), "{}", page.out);
    coquina(folder.path(), &["man", "drive", "nonsense"]).fails(2, &["coquina --help"]);
    let pages = folder.path().join("man1");
    assert_eq!(coquina(folder.path(), &["man", "--folder", pages.to_str().unwrap()]).code, Some(0));
    for name in ["coquina.1", "coquina-up.1", "coquina-volume-create.1"] {
        assert!(std::fs::read_to_string(pages.join(name)).unwrap().contains(".SH SYNOPSIS"), "{name}");
    }
}

#[test]
fn sizes_and_names_are_checked_before_a_server_is_looked_for() {
    let folder = folder();
    let wrong = |arguments: &[&str], part: &str| coquina(folder.path(), arguments).fails(2, &[part]);
    wrong(&["volume", "create", "a/b", "--size", "1G"], "a name has 1 to 63 characters");
    wrong(&["volume", "create", "disk", "--size", "0"], "above zero");
    wrong(&["volume", "resize", "disk", "--size", "15E"], "more than a volume can have");
    wrong(&["volume", "rename", "disk", ".."], "a name has 1 to 63 characters");
    wrong(&["pool", "create", "a/b", "--copies", "1"], "a name has 1 to 63 characters");
    let failed = |arguments: &[&str], part: &str| coquina(folder.path(), arguments).fails(1, &[part]);
    failed(&["volume", "create", "disk", "--size", "1G"], "no server runs");
    failed(&["up", "--dir", "/proc/nope"], "can be written with --dir");
}

/// Jobs of fio hold paths as texts; what was typed is kept for the report, which ended the process.
#[test]
fn paths_that_are_no_text_are_refused_by_benchmarks() {
    use std::os::unix::ffi::OsStrExt;
    let folder = folder();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"disk\xff"));
    std::fs::create_dir(&path).unwrap();
    for (option, rest) in
        [("--folder", None), ("--dir", None), ("--out", Some("no case of host-drives contains nothing"))]
    {
        let mut command = command(folder.path());
        let said =
            command.args(["bench", "run", "host-drives", "--only", "nothing", option]).arg(&path).output();
        let said = said.unwrap();
        let error = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{option}: {error}");
        let told = rest.map_or_else(|| format!("error: {option} {}", path.display()), str::to_owned);
        assert!(error.contains(&told), "{option}: {error}");
    }
}

#[test]
fn completions_are_scripts() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        let said = coquina(folder.path(), &["completions", shell]);
        assert_eq!(said.code, Some(0));
        assert!(said.out.contains("coquina") && said.out.contains("volume"), "{shell}");
    }
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_right() {
    let folder = folder();
    let cases: [(&[&str], &str); 49] = [
        (&[], "Usage"),
        (&["volume", "create", "x"], "--size"),
        (&["volume", "create", "x", "--size", "ten"], "write it like 512M, 10G or 1.5TiB"),
        (&["volume", "create", "x", "--size", "-1G"], "is negative"),
        (&["volume", "create", "x", "--size=-1"], "is negative"),
        (&["volume", "create", "x", "--size", ""], "is not a size"),
        (&["volume", "create", "x", "--size", "99999E"], "more than 64 bits"),
        (
            &["volume", "create", "x", "--size", "1G", "--stripe-unit", "64K", "--stripe-count", "4097"],
            "give a whole number from 1 to 4096",
        ),
        (&["volume", "resize", "x", "--size", "0.1"], "whole number of bytes"),
        (&["up", "--overcommit", "-1"], "between 0.01 and 1000"),
        (&["up", "--overcommit", "NaN"], "between 0.01 and 1000"),
        (&["up", "--reactors", "0"], "give a whole number from 1 to 1024"),
        (&["up", "--busy-poll-us", "much"], "give a whole number from 0 to 100000"),
        (&["up", "--nodes", "-1"], "give a whole number from 1 to"),
        (&["bench", "io", "--target", "file:x", "--depth", "0"], "give a whole number from 1 to 4096"),
        (&["bench", "run", "nvme-scaling", "--rounds", "2.5"], "give a whole number from 1 to 1000"),
        (&["bench", "run", "nvme-scaling", "--seed", "many"], "give a whole number from 0 to"),
        (&["bench", "io", "--target", "file:x", "--seed", "-1"], "give a whole number from 0 to"),
        (&["up", "--index-memory", "much"], "is not a size"),
        (&["up", "--server", "127.0.0.1:1"], "--server is for commands"),
        (&["bench", "io", "--target", "tape:0"], "is not a target"),
        (&["bench", "run", "curve-vs-ceph", "--quick", "--peer", "tape:0"], "is not a target"),
        (&["bench", "design", "unknown"], "durable-append"),
        (&["bench", "io", "--target", "file:x", "--bs", "100"], "multiple of 512"),
        (&["bench", "io", "--target", "file:x", "--bytes", "0"], "--bytes 0 is no load"),
        (
            &["bench", "io", "--target", "file:x", "--size", "1M", "--cpu-pid", "4194305"],
            "there is no such process",
        ),
        (&["bench", "io", "--target", "file:x", "--size", "0"], "--size 0 leaves nothing"),
        (
            &["bench", "io", "--target", "file:x", "--size", "100"],
            "--size 100 B is too small for 1 job(s) at depth 1 with operations of 4 KiB; give 4 KiB at least",
        ),
        (&["bench", "io", "--target", "nbd:foo"], "is not an NBD URI"),
        (&["bench", "io", "--target", "rados:pool/x", "--rw", "read"], "say with --size how much"),
        (
            &["bench", "io", "--target", "rados:pool/x", "--size", "1M", "--fill"],
            "neither filled nor verified",
        ),
        (
            &["bench", "io", "--target", "rbd:pool/x", "--size", "1M", "--remove"],
            "only whole objects are removed",
        ),
        (&["df", "--server", "nowhere"], "write it like 10.0.0.5:10810"),
        (&["df", "--server", "::1:99999"], "write it like 10.0.0.5:10810"),
        (&["drive", "format", "x:1G", "--segment", "3000"], "a power of two from 256K to 256M"),
        (&["drive", "reweight", "x", "--weight", "1000"], "of at least 1M, or 0 to move everything"),
        (&["pool", "create", "x", "--copies", "1", "--groups", "-1"], "give a whole number from 1 to"),
        (&["status", "--watch", "-1"], "give a whole number from 1 to 10"),
        (&["status", "--interval", "-1"], "give a whole number from 0 to"),
        (&["demo", "--depth", "-1"], "give a whole number from 1 to"),
        (&["bench", "run", "curve-vs-ceph", "--client", "", "--plan"], "--client"),
        // What a process without drives makes no use of.
        (&["nbd", "--etcd", "http://x", "--index-memory", "1G"], "unexpected argument '--index-memory'"),
        (&["nbd", "--etcd", "http://x", "--cache-memory", "1G"], "unexpected argument '--cache-memory'"),
        (&["nbd", "--etcd", "http://x", "--zero-ahead", "0"], "unexpected argument '--zero-ahead'"),
        (&["nbd", "--etcd", "http://x", "--tcp-only"], "unexpected argument '--tcp-only'"),
        (&["up", "--bind-cpu", "often"], "neither auto, never nor numbers of processors"),
        (&["up", "--nodes", "3", "--bind-cpu", "0,0"], "processor 0 is named twice"),
        (&["up", "--bind-cpu", "4294967295"], "may not run on processor 4294967295, but on"),
        (&["nbd", "--etcd", "http://x", "--bind-cpu", "never"], "unexpected argument '--bind-cpu'"),
    ];
    for (arguments, part) in cases {
        let said = coquina(folder.path(), arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.error);
        assert!(said.error.contains(part), "{arguments:?}: {part:?} is missing from: {}", said.error);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn what_cannot_be_run_has_no_plan() {
    let folder = folder();
    let wrong = |arguments: &[&str], part: &str| {
        coquina(folder.path(), &[&["bench"], arguments, &["--plan"]].concat()).fails(2, &[part]);
    };
    let twice = ["--target", "coquina-local", "--target", "coquina-local"];
    wrong(&["run", "curve-vs-ceph", "--only", "nothing"], "no case of curve-vs-ceph contains nothing");
    let whole = "=4k random write / depth 1";
    wrong(
        &["run", "curve-vs-ceph", "--only", whole],
        "no case of curve-vs-ceph is called 4k random write / depth 1",
    );
    wrong(&[&["run", "curve-vs-ceph"], &twice[..]].concat(), "coquina-local is named twice");
    let tune = ["tune", "curve-vs-ceph", "--target", "coquina-local", "--set"];
    wrong(&[&tune[..], &["os:foo=1"]].concat(), "no setting is called");
    wrong(&[&tune[..], &["coquina:index-memory=64M", "--rounds", "2"]].concat(), "give 3 at least");
    wrong(&[&tune[..], &["coquina:bogus=1"]].concat(), "has no option --bogus");
    wrong(&[&tune[..], &["coquina:index-memry=1"]].concat(), "--index-memry; did you mean \"index-memory\"?");
    wrong(&[&tune[..], &["coquina:index-memory=lots"]].concat(), "--set coquina:index-memory=lots: ");
    wrong(&[&tune[..], &["coquina:reactors=0"]].concat(), "--set coquina:reactors=0: ");
    wrong(&[&tune[..], &["coquina:tcp-only=yes"]].concat(), "--set coquina:tcp-only=yes: ");
    wrong(
        &[&tune[..], &["coquina:nodes=5"]].concat(),
        "coquina:nodes is no option of `coquina up` that can be tried",
    );
    if Path::new("/proc/sys/vm/swappiness").exists() {
        wrong(&[&tune[..], &["os:swappiness=much"]].concat(), "give a whole number from 0 to 200");
    }
    // What another host may have is no wrong usage.
    let absent = [&["bench"], &tune[..], &["os:scheduler:nonesuch=none", "--plan"]].concat();
    coquina(folder.path(), &absent).fails(1, &["there is no drive \"nonesuch\" on this host"]);
    let known = [&["bench"], &tune[..], &["coquina:index-memory=64M", "--plan"]].concat();
    assert_eq!(coquina(folder.path(), &known).code, Some(0));
}

#[test]
fn a_plan_says_that_rounds_may_be_left_out() {
    let folder = folder();
    let plan = |mode: &str| {
        let arguments = ["bench", "run", "curve-vs-ceph", "--target", "plain-file", mode, "--plan"];
        let output = command(folder.path()).args(arguments).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let told = "If the whole run would take more than 570 s, rounds after the 3rd are left out of cases";
    assert!(plan("--quick").contains(told));
    assert!(!plan("--full").contains("left out of cases"));
}

#[test]
fn what_is_no_drive_is_said_and_leaves_nothing() {
    let folder = folder();
    std::fs::write(folder.path().join("text"), vec![b'x'; 1 << 20]).unwrap();
    for command in ["info", "check"] {
        let said = coquina(folder.path(), &["drive", command, "text"]);
        said.fails(1, &["text holds no Coquina superblock; is this the path of a drive?"]);
        assert!(said.out.is_empty() && !said.error.contains("damaged"), "{} {}", said.out, said.error);
        coquina(folder.path(), &["drive", command, "none"]).fails(1, &["none: does not exist"]);
    }
    let refused = |drive: &str, part: &str| {
        coquina(folder.path(), &["drive", "format", drive]).fails(1, &[part]);
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["text"], "{drive}");
    };
    refused("nodir/x:1G", "its directory nodir does not exist; make it first");
    refused("none", "give a size to make a file");
    refused("none:1M", "it has 1 MiB; 7.25 MiB are the least");
    refused("text", "holds data of an unknown kind");
    coquina(folder.path(), &["bench", "io", "--target", "device:/nonexistent"])
        .fails(1, &["cannot look at /nonexistent"]);
    coquina(folder.path(), &["bench", "io", "--target", "device:text"])
        .fails(1, &["text is no block device"]);
    coquina(folder.path(), &["demo", "--folder", "/nonexistent"])
        .fails(1, &["the folder /nonexistent does not exist"]);
    // The folder of the server is made first, so that a drive can lie in it; and is not removed when another one fails.
    let made = coquina(folder.path(), &["drive", "format", "coquina-data/drive0:256M"]);
    assert_eq!(made.code, Some(0), "{}", made.error);
    coquina(folder.path(), &["drive", "format", "none:1M"]).fails(1, &["are the least"]);
    assert_eq!(coquina(folder.path(), &["drive", "check", "coquina-data/drive0"]).code, Some(0));
    assert!(folder.path().join("coquina-data/cluster.json").exists());
}

/// The same order of overwrites again would be kind to a full drive.
#[test]
fn a_load_has_another_seed_each_time_and_can_be_repeated() {
    let folder = folder();
    let seed_of = |more: &[&str]| {
        let load = [
            "bench",
            "io",
            "--target",
            "file:load",
            "--size",
            "1M",
            "--rw",
            "randwrite",
            "--runtime",
            "0.05",
        ];
        let arguments: Vec<&str> = load
            .iter()
            .chain(&["--warmup", "0", "--baseline", "0", "--yes", "--json"])
            .chain(more)
            .copied()
            .collect();
        let said = coquina(folder.path(), &arguments);
        assert_eq!(said.code, Some(0), "{}", said.error);
        let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        report["config"]["seed"].as_u64().unwrap()
    };
    let seeds = [seed_of(&[]), seed_of(&[])];
    assert_ne!(seeds[0], seeds[1]);
    assert_eq!(seed_of(&["--seed", &seeds[0].to_string()]), seeds[0]);
}

#[test]
fn without_a_server_every_command_says_how_to_start_one() {
    let folder = folder();
    let commands: [&[&str]; 9] = [
        &["status"],
        &["volume", "list", "--json"],
        &["volume", "info", "x"],
        &["volume", "create", "x", "--size", "1G"],
        &["volume", "resize", "x", "--size", "1G"],
        &["volume", "rename", "x", "y"],
        &["volume", "remove", "x", "--yes"],
        &["drive", "scrub"],
        &["bench", "io", "--target", "volume:x"],
    ];
    for arguments in commands {
        let said = coquina(folder.path(), arguments);
        said.fails(1, &["no server runs on ./coquina-data", "coquina up --dir ./coquina-data"]);
        assert!(said.out.is_empty());
    }
    let said = coquina(folder.path(), &["status", "--dir", "/nowhere/at/all"]);
    said.fails(1, &["no server runs on /nowhere/at/all"]);
    let output = command(folder.path()).arg("status").env("COQUINA_DIR", "/elsewhere").output().unwrap();
    Said::of(&output).fails(1, &["no server runs on /elsewhere"]);
}

#[test]
fn a_server_address_that_leads_nowhere_is_said() {
    let folder = folder();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    coquina(folder.path(), &["status", "--server", &closed]).fails(1, &["cannot reach the server", &closed]);
    coquina(folder.path(), &["status", "--server", "nonsense"]).fails(2, &["--server <HOST:PORT>"]);
}

#[test]
fn what_answers_must_be_a_coquina_server() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answers = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "",
    ];
    let thread = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let folder = folder();
    for answer in answers {
        let said = coquina(folder.path(), &["volume", "info", "x", "--server", &address]);
        said.fails(1, &[&address]);
        assert!(
            said.error.contains("coquina server") || said.error.contains("cannot reach"),
            "{answer}: {}",
            said.error
        );
    }
    thread.join().unwrap();
}

#[test]
fn bad_addresses_and_drives_are_refused_before_anything_is_made() {
    let folder = folder();
    let long = format!("unix:/{}", "x".repeat(200));
    let cases: [(&[&str], &str); 9] = [
        (&["--nbd", "nonsense"], "--nbd \"nonsense\" is not an address"),
        (&["--nbd", "unix:"], "needs the path"),
        (&["--nbd", &long], "at most 107"),
        (&["--http", "127.0.0.1:99999"], "--http"),
        (&["--listen", ":1"], "--listen"),
        (&["--drive", ""], "needs a path"),
        (&["--drive", ":1G"], "has no path"),
        (&["--drive", "/nowhere/d:0"], "has size 0"),
        (&["--drive", "/nowhere/d:-5G"], "is negative"),
    ];
    for (arguments, part) in cases {
        coquina(folder.path(), &[&["up"], arguments].concat()).fails(2, &[part]);
    }
    assert!(!folder.path().join("coquina-data").exists(), "nothing was made");
}

/// A data folder with the map of a cluster stayed behind, and a drive of it that had been given first.
#[test]
fn a_first_start_that_is_refused_leaves_nothing_behind() {
    let folder = folder();
    let left = || {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let up = ["up", "--http", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let refused = |more: &[&str], part: &str| {
        coquina(folder.path(), &[&up[..], more].concat()).fails(1, &[part]);
        assert!(left().is_empty(), "{more:?}: {:?}", left());
    };
    let small = "it has 1 KiB; 7.25 MiB are the least";
    refused(&["--drive", "d:1K"], small);
    refused(&["--drive", "a:64M", "--drive", "d:1K"], small);
    refused(&["--drive", "a:64M", "--drive", "nowhere/d:64M"], "make it first");
    refused(&["--nodes", "2", "--drive", "a:64M", "--drive", "d:1K"], small);
    // A drive that was there before is the new cluster's now.
    std::fs::write(folder.path().join("blank"), vec![0; 64 << 20]).unwrap();
    let arguments = [&up[..], &["--nodes", "2", "--drive", "blank", "--drive", "d:1K"]].concat();
    coquina(folder.path(), &arguments).fails(1, &[small]);
    assert_eq!(left(), ["blank", "coquina-data"]);
    let cluster = std::fs::read_to_string(folder.path().join("coquina-data/cluster.json")).unwrap();
    let info = coquina(folder.path(), &["drive", "info", "blank", "--json"]);
    let info: serde_json::Value = serde_json::from_str(&info.out).unwrap();
    assert!(cluster.contains(info["cluster"].as_str().unwrap()), "{cluster}");
}

#[test]
fn a_port_in_use_names_its_flag_and_changes_nothing() {
    let folder = folder();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    coquina(folder.path(), &["up", "--http", &address]).fails(1, &[&address, "--http"]);
    assert!(!folder.path().join("coquina-data").exists());
    // What was there before stays.
    std::fs::create_dir(folder.path().join("coquina-data")).unwrap();
    coquina(folder.path(), &["up", "--http", &address]).fails(1, &[&address, "--http"]);
    assert!(folder.path().join("coquina-data").exists());
    assert!(!folder.path().join("coquina-data/drive0").exists());
    assert!(!folder.path().join("coquina-data/cluster.json").exists());
}

#[test]
fn a_folder_that_is_a_file_or_cannot_be_made_is_said() {
    let folder = folder();
    std::fs::write(folder.path().join("file"), "x").unwrap();
    coquina(folder.path(), &["up", "--dir", "file"]).fails(1, &["is not a folder", "--dir"]);
    coquina(folder.path(), &["up", "--dir", "file/inside"]).fails(1, &["cannot make file/inside"]);
    // Nobody, not even root, can make folders in /proc.
    coquina(folder.path(), &["up", "--dir", "/proc/coquina"]).fails(1, &["cannot make /proc/coquina"]);
}

#[test]
fn a_damaged_state_is_not_overwritten() {
    let folder = folder();
    let data = folder.path().join("coquina-data");
    std::fs::create_dir(&data).unwrap();
    let state = data.join("cluster.json");
    std::fs::write(&state, "half a li").unwrap();
    coquina(folder.path(), &["up", "--http", "127.0.0.1:0"]).fails(1, &["cluster.json"]);
    assert_eq!(std::fs::read(&state).unwrap(), b"half a li");
    std::fs::remove_file(&state).unwrap();
    std::fs::write(data.join("nodes.json"), "half a li").unwrap();
    coquina(folder.path(), &["up", "--http", "127.0.0.1:0"]).fails(1, &["nodes.json is damaged"]);
    assert!(!data.join("drive0").exists());
}

#[test]
fn without_any_node_left_the_start_says_how_to_add_one() {
    let folder = folder();
    let data = folder.path().join("coquina-data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("nodes.json"), "{\"nodes\":2,\"removed\":[1,2]}").unwrap();
    let up = ["up", "--http", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    for more in [&[][..], &["--nodes", "2"], &["--copies", "1"]] {
        let said = coquina(folder.path(), &[&up[..], more].concat());
        said.fails(2, &["all nodes of ./coquina-data were removed; give --nodes 3 to add one"]);
    }
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1, "nothing was made");
}

/// A store was made there, found to be empty, and the advice was to delete what remembers the cluster.
#[test]
fn the_folder_of_a_node_whose_map_is_elsewhere_gets_no_map() {
    let folder = folder();
    let data = folder.path().join("coquina-data");
    std::fs::create_dir(&data).unwrap();
    let (cluster, node) = ("c1".repeat(16), "de".repeat(16));
    let file = format!("{{\"cluster\":\"{cluster}\",\"store\":\"1\",\"revision\":7}}");
    std::fs::write(data.join("cluster.json"), file).unwrap();
    let left = || {
        let entries = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let up = ["up", "--http", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let format = ["drive", "format", "new:256M", "--json"];
    coquina(folder.path(), &format).fails(1, &[&cluster, "is no node's"]);
    std::fs::write(data.join("node.json"), format!("{{\"node\":\"{node}\"}}")).unwrap();
    for more in [&[][..], &["--nodes", "3"]] {
        let said = coquina(folder.path(), &[&up[..], more].concat());
        said.fails(1, &[&cluster, "whose map is elsewhere", "coquina node"]);
        assert!(!said.error.contains("cluster.json"), "{}", said.error);
    }
    assert!(!folder.path().join("new").exists());
    let said = coquina(folder.path(), &format);
    assert_eq!(said.code, Some(0), "{}", said.error);
    let info: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&info["cluster"], &info["node"]), (&cluster.into(), &node.into()));
    assert_eq!(left(), ["cluster.json", "node.json"], "nothing was made");
}

/// The drive was made, and not found again by the next start.
#[test]
fn paths_of_drives_that_are_no_text_are_refused_before_anything_is_made() {
    use std::os::unix::ffi::OsStrExt;
    let folder = folder();
    let odd = folder.path().join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    let up = ["up", "--http", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    for more in [&[][..], &["--nodes", "3"], &["--nodes", "2", "--drive", "/nowhere/d:1G"]] {
        let output = command(folder.path()).args(up).args(more).arg("--dir").arg(&odd).output().unwrap();
        Said::of(&output).fails(2, &["is not UTF-8", "--dir"]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
    // As seen from there, the path is text.
    std::fs::create_dir(&odd).unwrap();
    let data = folder.path().join("data");
    let arguments = [&up[..], &["--drive", "d:256M", "--dir", data.to_str().unwrap()]].concat();
    Said::of(&command(&odd).args(arguments).output().unwrap()).fails(2, &["is not UTF-8", "--drive"]);
    assert!(!data.exists() && std::fs::read_dir(&odd).unwrap().count() == 0);
}

#[test]
fn a_load_overwrites_nothing_that_somebody_needs() {
    let folder = folder();
    let load = |file: &str, more: &[&str]| {
        let target = format!("file:{file}");
        let all =
            ["bench", "io", "--target", &target, "--runtime", "0.05", "--warmup", "0", "--baseline", "0"];
        let writes = if more.contains(&"--rw") { &[][..] } else { &["--rw", "randwrite"] };
        coquina(folder.path(), &[&all, writes, more].concat())
    };
    let refused = |file: &str, more: &[&str], reason: &str| {
        let path = folder.path().join(file);
        let before = std::fs::read(&path).unwrap();
        let said = load(file, more);
        assert_eq!(said.code, Some(1), "{}", said.error);
        assert!(said.error.contains(reason), "{}", said.error);
        assert!(std::fs::read(&path).unwrap() == before, "{file} has changed");
    };
    std::fs::write(folder.path().join("precious"), vec![7; 1 << 20]).unwrap();
    refused("precious", &[], "the data on precious is overwritten: not done without confirmation; add --yes");
    let said = load("precious", &["--rw", "randread"]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    let target = ["bench", "io", "--target", "file:precious", "--runtime", "0.05", "--warmup", "0"];
    let said = coquina(folder.path(), &target);
    assert_eq!(said.code, Some(0), "it reads, if nothing is said: {}", said.error);
    assert!(std::fs::read(folder.path().join("precious")).unwrap() == vec![7; 1 << 20]);
    let said = load("precious", &["--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    let said = coquina(folder.path(), &["drive", "format", "drive:64M"]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    refused("drive", &["--yes"], "drive is the Coquina drive ");
    let locked = std::fs::File::open(folder.path().join("precious")).unwrap();
    locked.lock().unwrap();
    refused("precious", &["--yes"], "precious is in use: another process has locked it");
}

/// So many bytes were done before the default warm-up was over, and it failed with the advice to give it more time.
#[test]
fn a_load_of_few_bytes_ends_well() {
    let folder = folder();
    let load = ["bench", "io", "--target", "file:raw", "--rw", "write", "--size", "4M", "--baseline", "0"];
    let said = coquina(folder.path(), &[&load[..], &["--bytes", "1M", "--json"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.error);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["config"]["warmup_s"], 0.0);
    assert!(report["total"]["operations"].as_u64().unwrap() >= 256, "{}", report["total"]);
}

/// It was asked how it is, and that it did not answer ended loads on what it does not serve.
#[test]
fn a_server_that_does_not_answer_is_nothing_to_a_file() {
    let folder = folder();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let lock = std::fs::File::create(data.join("lock")).unwrap();
    lock.lock().unwrap();
    let server = r#"{"version":"1","process":1,"http":"127.0.0.1:1","nbd":[],"native":"127.0.0.1:1"}"#;
    std::fs::write(data.join("server.json"), server).unwrap();
    let load = |target: &str| {
        let length = ["--size", "1M", "--runtime", "0.1", "--warmup", "0", "--baseline", "0"];
        coquina(folder.path(), &[&["bench", "io", "--dir", "data", "--target", target][..], &length].concat())
    };
    load("volume:x").fails(1, &["cannot reach the server"]);
    let said = load("file:raw");
    assert_eq!(said.code, Some(0), "{}", said.error);
    // An export of somebody else is not asked of it either.
    load("nbd://127.0.0.1:1/x").fails(1, &["cannot connect to 127.0.0.1:1"]);
}

#[test]
fn a_plain_file_that_cannot_be_made_says_what_to_do() {
    let folder = folder();
    let load = |more: &[&str]| {
        let arguments = ["bench", "io", "--target", "file:missing/raw", "--rw", "randwrite"];
        coquina(folder.path(), &[&arguments[..], more].concat())
    };
    load(&["--size", "4M"]).fails(1, &["missing/raw", "its folder does not exist", "make that first"]);
    load(&[]).fails(1, &["give --size to have it made"]);
}

#[test]
fn a_plain_file_can_be_measured_and_verified() {
    let folder = folder();
    let arguments = [
        "bench",
        "io",
        "--target",
        "file:raw",
        "--rw",
        "randwrite",
        "--size",
        "4M",
        "--depth",
        "4",
        "--runtime",
        "0.2",
        "--warmup",
        "0",
        "--durable",
        "--verify",
        "--json",
    ];
    let said = coquina(folder.path(), &arguments);
    assert_eq!(said.code, Some(0), "{}", said.error);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert!(report["total"]["iops"].as_f64().unwrap() > 0.0);
    assert_eq!(report["verify"]["mismatches"], 0);
    assert!(said.error.is_empty(), "no progress off a terminal: {}", said.error);
}
