//! A real server as a process of its own, driven by the command line.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for a server to start or stop.
const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
    folder: PathBuf,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coquina"));
    command.env_remove("COQUINA_DIR").args(arguments);
    command
}

impl Server {
    /// Starts a server on a folder of its own, with free ports, and waits until it serves.
    fn start(folder: &Path, more: &[&str]) -> Server {
        Server::start_as("env", folder, more)
    }

    /// The same by a program that becomes what it is given.
    fn start_as(program: &str, folder: &Path, more: &[&str]) -> Server {
        let data = folder.join("data");
        let mut command = Command::new(program);
        command.env_remove("COQUINA_DIR").arg(env!("CARGO_BIN_EXE_coquina"));
        command.args(["up", "--nbd", "127.0.0.1:0", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
        command.arg("--dir").arg(&data).args(more);
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let mut server = Server { child, folder: data };
        let start = Instant::now();
        while server.run(&["status", "--interval", "0"]).status.code() != Some(0) {
            let ended = server.child.try_wait().unwrap();
            let said = || std::fs::read_to_string(folder.join("log")).unwrap();
            assert!(ended.is_none() && start.elapsed() < PATIENCE, "the server does not start: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn run(&self, arguments: &[&str]) -> Output {
        command(arguments).arg("--dir").arg(&self.folder).stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, arguments: &[&str], part: &str) {
        self.ends_with(1, arguments, part);
    }

    #[track_caller]
    fn is_wrong(&self, arguments: &[&str], part: &str) {
        self.ends_with(2, arguments, part);
    }

    #[track_caller]
    fn ends_with(&self, code: i32, arguments: &[&str], part: &str) {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains("error: ") && error.contains(part), "{part:?} is missing from: {error}");
        assert!(output.stdout.is_empty());
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(process, signal).unwrap();
    }

    /// Stops it cleanly and gives its folder.
    #[track_caller]
    fn stop(self) -> PathBuf {
        self.signal(rustix::process::Signal::TERM);
        let folder = self.folder.clone();
        assert_eq!(self.end(), Some(0));
        folder
    }

    /// Waits for the end of the process and returns its exit code.
    fn end(mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "the server does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Waits for what happens in the background.
#[track_caller]
fn wait(mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "it does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn file_for_writing(path: &str) -> std::fs::File {
    std::fs::OpenOptions::new().write(true).open(path).unwrap()
}

fn drive_of(folder: &TempDir, size: &str) -> String {
    format!("{}:{size}", folder.path().join("drive").display())
}

#[test]
fn a_volume_lives_and_survives_a_clean_stop_and_a_kill() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--drive", &drive_of(&folder, "1G")]);
    let made = server.json(&["volume", "create", "disk", "--size", "64M"]);
    assert_eq!((&made["name"], &made["size_bytes"]), (&"disk".into(), &(64u64 << 20).into()));
    server.json(&["volume", "create", "other", "--size", "4k"]);
    server.json(&["volume", "resize", "disk", "--size", "128M"]);
    server.json(&["volume", "rename", "other", "second"]);
    server.signal(rustix::process::Signal::INT);
    assert_eq!(server.end(), Some(0), "Ctrl-C stops it cleanly");
    assert!(!folder.path().join("data/server.json").exists());

    let server = Server::start(folder.path(), &[]);
    let listed = server.json(&["volume", "list", "--interval", "0"]);
    let names: Vec<_> = listed["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
    assert_eq!(names, ["disk", "second"]);
    server.json(&["volume", "remove", "second", "--yes"]);
    server.signal(rustix::process::Signal::KILL);
    assert_eq!(server.end(), None);

    let server = Server::start(folder.path(), &[]);
    let volume = server.json(&["volume", "info", "disk"]);
    assert_eq!((&volume["id"], &volume["size_bytes"]), (&made["id"], &(128u64 << 20).into()));
    assert_eq!(server.json(&["status"])["data"]["volumes"], 1);
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.end(), Some(0), "SIGTERM stops it cleanly");
}

#[test]
fn space_and_status_are_shown_once_and_again() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--drive", &drive_of(&folder, "256M")]);
    server.json(&["volume", "create", "disk", "--size", "64M"]);
    let space = server.json(&["df"]);
    assert_eq!(space["provisioned_bytes"], 64u64 << 20);
    assert_eq!((&space["used_bytes"], &space["free_bytes"]), (&0.into(), &space["capacity_bytes"]));
    assert_eq!(space["drives"][0]["capacity_bytes"], space["capacity_bytes"]);
    assert_eq!(
        (&space["volumes"][0]["name"], &space["volumes"][0]["size_bytes"]),
        (&"disk".into(), &(64u64 << 20).into())
    );
    let (listed, drive) = (server.json(&["drive", "list"])["drives"][0].clone(), &space["drives"][0]);
    for field in ["node_id", "node_name"] {
        assert!(drive[field].is_string() && drive[field] == listed[field], "{field}: {drive} and {listed}");
    }
    assert_eq!((&drive["node"], &listed["node"]), (&drive["node_name"], &listed["node_id"]));
    let text = server.run(&["df"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("disk") && text.contains("64 MiB") && text.contains("MAX AVAIL"), "{text}");
    // One copy on one shard.
    let pools = server.json(&["pool", "list"]);
    for pool in [&space["pools"][0], &pools["pools"][0], &server.json(&["status"])["pools"][0]] {
        assert_eq!(pool["available_bytes"], space["free_bytes"], "{pool}");
    }

    // Two lines of JSON, one status each; then nobody reads any more, and it ends.
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let mut watch = command(&["status", "--watch", "--json", "--dir", data]);
    let mut watch = watch.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    for _ in 0..2 {
        let status: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(status["data"]["volumes"], 1);
    }
    drop(lines);
    assert_eq!(watch.wait().unwrap().code(), Some(0));
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--drive", &drive_of(&folder, "512M")]);
    server.json(&["volume", "create", "disk", "--size", "64M"]);
    let odd = server.json(&["volume", "create", "odd", "--size", "1000"]);
    assert_eq!(odd["size_bytes"], 4096, "rounded up to a block");
    let before = server.json(&["volume", "list", "--interval", "0"]);
    let long = "x".repeat(300);
    for name in ["", "a/b", "naïve", &long, ".."] {
        server.is_wrong(&["volume", "create", name, "--size", "1M"], "a name has 1 to 63 characters");
    }
    server.fails(&["volume", "create", "disk", "--size", "1M"], "exists");
    server.is_wrong(&["volume", "create", "zero", "--size", "0"], "above zero");
    let striped = ["volume", "create", "x", "--size", "1M", "--stripe-count", "4", "--stripe-unit", "3000"];
    server.is_wrong(&striped, "a stripe unit of 3000 bytes is not possible");
    server.fails(&["volume", "create", "large", "--size", "10T"], "--overcommit");
    server.is_wrong(&["volume", "create", "huge", "--size", "15E"], "more than a volume can have");
    server.fails(&["volume", "resize", "disk", "--size", "10T"], "left for volumes");
    server.fails(&["volume", "resize", "disk", "--size", "1M"], "add --yes");
    server.fails(&["volume", "remove", "disk"], "add --yes");
    for words in [&["info"][..], &["remove", "--yes"], &["resize", "--size", "1M"]] {
        server.fails(&[&["volume", words[0], "unknown"], &words[1..]].concat(), "no volume \"unknown\"");
    }
    server.fails(&["volume", "info", "../../v1/status"], "no volume");
    server.fails(&["volume", "info", "dsk"], "no volume \"dsk\"; did you mean \"disk\"?");
    server.fails(&["drive", "scrub", "--drive", "/unknown"], "no drive");
    assert_eq!(server.json(&["volume", "list", "--interval", "0"]), before);
    let nothing = serde_json::json!({ "layers": [], "nodes": [], "silent": [], "dry_run": true });
    assert_eq!(server.json(&["volume", "forget-lost"]), nothing);
}

/// The processes and drives of the server on `--dir` were told as those of the export, whoever served that.
#[test]
fn an_export_of_another_server_is_not_told_as_this_one_s() {
    let (folder, other) = (folder(), folder());
    let server = Server::start(folder.path(), &["--drive", &drive_of(&folder, "256M")]);
    server.json(&["volume", "create", "disk", "--size", "16M"]);
    let uri = format!("nbd://{}/disk", server.json(&["status"])["services"]["nbd"][0].as_str().unwrap());
    let stranger = Server::start(other.path(), &[]);
    let load = ["bench", "io", "--target", &uri, "--runtime", "0.1", "--warmup", "0", "--baseline", "0"];
    let seen = [&server, &stranger].map(|server| server.json(&load));
    assert_eq!(seen[0]["cpu"]["servers"][0]["pid"], server.child.id());
    assert_eq!(seen[1]["cpu"]["servers"], serde_json::json!([]));
    assert!(!seen[0]["drive_write_bytes"].is_null() && seen[1]["drive_write_bytes"].is_null());
}
/// What drives held of it could be given up by REST only.
#[test]
fn data_of_a_volume_that_the_map_lost_is_given_up_by_name() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--drive", &drive_of(&folder, "256M")]);
    let (data, older) = (folder.path().join("data"), folder.path().join("older"));
    let log = data.join("store/store.log");
    std::fs::copy(&log, &older).unwrap();
    server.json(&["volume", "create", "lost", "--size", "64M"]);
    let layer = server.json(&["volume", "info", "lost"])["layer"].clone();
    let load =
        ["bench", "io", "--target", "volume:lost", "--rw", "write", "--runtime", "0.1", "--warmup", "0"];
    assert!(server.run(&[&load[..], &["--baseline", "0"]].concat()).status.success());
    server.stop();
    std::fs::copy(&older, &log).unwrap();
    std::fs::remove_file(data.join("cluster.json")).unwrap();
    let server = Server::start(folder.path(), &[]);
    server.json(&["volume", "create", "new", "--size", "64M"]);
    let is_told = || {
        let health = server.json(&["status"])["health"].clone();
        health["entries"].as_array().unwrap().iter().any(|entry| entry["code"] == "LOST_VOLUMES")
    };
    wait(is_told);
    server.fails(&["volume", "forget-lost"], &format!("(layers {layer}), so that no newer state"));
    let lost = server.json(&["volume", "forget-lost", "--yes"]);
    assert_eq!((&lost["layers"], &lost["dry_run"]), (&serde_json::json!([layer]), &false.into()));
    wait(|| !is_told());
}

#[test]
fn who_is_started_by_nohup_does_not_hear_that_its_terminal_is_closed() {
    let folder = folder();
    let ignores_hangup = |server: &Server| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
        u64::from_str_radix(ignored, 16).unwrap() & 1 == 1
    };
    let drive = drive_of(&folder, "256M");
    let server = Server::start_as("nohup", folder.path(), &["--drive", &drive]);
    assert!(ignores_hangup(&server));
    server.signal(rustix::process::Signal::HUP);
    assert_eq!(server.json(&["status"])["health"]["state"], "ok");
    server.stop();
    let server = Server::start(folder.path(), &[]);
    assert!(!ignores_hangup(&server));
    server.signal(rustix::process::Signal::HUP);
    assert_eq!(server.end(), Some(0), "it stops cleanly");
}

#[test]
fn a_second_start_says_that_the_first_runs_and_leaves_it_alone() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--drive", &drive_of(&folder, "512M")]);
    let process = server.child.id().to_string();
    server.fails(&["up", "--http", "127.0.0.1:0"], &format!("a server (process {process}) already runs"));
    assert_eq!(server.json(&["status"])["health"]["state"], "ok");
}

#[test]
fn a_server_without_any_of_its_drives_says_so_and_knows_a_moved_one() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--drive", &drive_of(&folder, "512M")]);
    let data = server.stop();
    let (old, new) = (folder.path().join("drive"), folder.path().join("moved"));
    std::fs::rename(&old, &new).unwrap();
    for drive in [vec![], vec!["--drive".to_owned(), drive_of(&folder, "512M")]] {
        let output =
            command(&["up", "--http", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--listen", "127.0.0.1:0"])
                .args(drive)
                .arg("--dir")
                .arg(&data)
                .output()
                .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(
            error.contains(&*old.to_string_lossy()) && error.contains("its new path with --drive"),
            "{error}"
        );
        assert!(!old.exists(), "a new file in the place of a missing drive would hide that it is missing");
    }
    let server = Server::start(folder.path(), &["--drive", new.to_str().unwrap()]);
    let drives = server.json(&["status"])["drives"].clone();
    assert_eq!(drives.as_array().unwrap().len(), 1, "it is recognised under its new path");
    assert_eq!(drives[0]["path"], new.to_str().unwrap());
}

/// A server with two drives, `first` and `second`, and a volume on both.
fn server_on_two_drives(folder: &TempDir) -> (Server, String, String) {
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (first, second) = (path("first"), path("second"));
    let drives = [format!("{first}:512M"), format!("{second}:512M")];
    let server = Server::start(folder.path(), &["--drive", &drives[0], "--drive", &drives[1]]);
    server.json(&["volume", "create", "wide", "--size", "64M"]);
    (server, first, second)
}

fn state_of<'a>(list: &'a Value, path: &str) -> &'a Value {
    list["drives"].as_array().unwrap().iter().find(|drive| drive["path"] == path).unwrap()
}

#[test]
fn a_missing_drive_keeps_no_other_from_being_served() {
    let folder = folder();
    let (server, first, second) = server_on_two_drives(&folder);
    server.stop();
    std::fs::rename(&second, folder.path().join("away")).unwrap();
    let server = Server::start(folder.path(), &[]);
    let status = server.json(&["status"]);
    assert_eq!(state_of(&status, &first)["state"], "healthy");
    assert_eq!(state_of(&status, &second)["state"], "missing");
    let problem = state_of(&status, &second)["problem"].as_str().unwrap().to_owned();
    assert!(problem.contains(&second) && problem.contains("any more"), "{problem}");
    let entry = |code: &str| {
        let entries = status["health"]["entries"].as_array().unwrap();
        entries.iter().find(|entry| entry["code"] == code).cloned().unwrap_or_default()
    };
    assert!(entry("DRIVE_MISSING")["advice"].as_str().unwrap().contains("coquina drive remove"));
    assert!(entry("GROUP_DOWN")["message"].as_str().unwrap().contains(&second), "it has the only copies");
    server.fails(&["drive", "remove", &second, "--yes"], "give it up with --lost");
    server.stop();

    std::fs::rename(folder.path().join("away"), &second).unwrap();
    let server = Server::start(folder.path(), &[]);
    wait(|| server.json(&["status"])["health"]["state"] == "ok");
    let status = server.json(&["status"]);
    assert_eq!(state_of(&status, &second)["state"], "healthy", "a drive that is back takes data again");
    let made = server.json(&["volume", "create", "third", "--size", "256M"]);
    assert_eq!(made["placement"].as_array().unwrap().len(), 2, "{made}");
}

#[test]
fn a_damaged_drive_is_left_out_and_one_of_another_cluster_refused() {
    let folder = folder();
    let (server, first, second) = server_on_two_drives(&folder);
    server.stop();
    let overwrite = |bytes: &[u8]| {
        std::os::unix::fs::FileExt::write_all_at(&file_for_writing(&second), bytes, 0).unwrap();
    };
    let head_of = |path: &str| {
        let mut head = vec![0; 1 << 20];
        std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(path).unwrap(), &mut head, 0).unwrap();
        head
    };
    let good = head_of(&second);
    let bad = vec![0x5a; good.len()];
    overwrite(&bad);
    let server = Server::start(folder.path(), &[]);
    let status = server.json(&["status"]);
    assert_eq!(state_of(&status, &second)["state"], "missing");
    assert!(state_of(&status, &second)["problem"].as_str().unwrap().contains("superblock"));
    server.stop();
    assert!(head_of(&second) == bad, "what is there is not formatted");

    overwrite(&good);
    let output = command(&["up", "--http", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--listen", "127.0.0.1:0"])
        .arg("--dir")
        .arg(folder.path().join("other"))
        .args(["--drive", &first])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("belongs to cluster") && error.contains("--force"), "{error}");
    assert_eq!(output.status.code(), Some(1));
    let copy = folder.path().join("copy");
    std::fs::copy(&first, &copy).unwrap();
    let output = command(&["up", "--http", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--listen", "127.0.0.1:0"])
        .arg("--dir")
        .arg(folder.path().join("data"))
        .args(["--drive", &first, "--drive", copy.to_str().unwrap()])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("one must be a copy of the other"), "{error}");
}

/// Writes one field of both superblocks of a drive, with their checksums.
fn set_field(path: &str, at: usize, value: u32) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    for begin in [0, 64 << 10] {
        let mut block = [0; 4096];
        file.read_exact_at(&mut block, begin).unwrap();
        block[at..at + 4].copy_from_slice(&value.to_le_bytes());
        block[12..16].fill(0);
        let checksum = coquina_base::crc32c_bytes(&block);
        block[12..16].copy_from_slice(&checksum.to_le_bytes());
        file.write_all_at(&block, begin).unwrap();
    }
    file.sync_all().unwrap();
}

#[test]
fn a_drive_of_another_version_is_refused_and_left_as_it_is() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--drive", &drive_of(&folder, "64M")]);
    let made = server.json(&["volume", "create", "disk", "--size", "8M"]);
    let data = server.stop();
    let drive = folder.path().join("drive");
    let drive = drive.to_str().unwrap();
    let refused = |field: usize, value: u32, part: &str| {
        let before = std::fs::read(drive).unwrap()[field];
        set_field(drive, field, value);
        let held = std::fs::read(drive).unwrap();
        let up = ["up", "--http", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
        let output = command(&up).arg("--dir").arg(&data).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(part), "{part} is missing from {error}");
        assert!(std::fs::read(drive).unwrap() == held, "it was changed");
        set_field(drive, field, before.into());
    };
    refused(8, 3, "its format is version 3, this program knows up to 2: use a newer program");
    refused(8, 1, "its format is version 1, from before the first release");
    refused(16, 4, "it uses features that this program does not know (bits 0x4): use a newer program");
    // Compatible bits are passed over. The program that knows them starts it again as it was.
    set_field(drive, 24, 0x40);
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.json(&["volume", "info", "disk"])["id"], made["id"]);
    server.stop();
    assert_eq!(std::fs::read(drive).unwrap()[24], 0x40);
}

#[test]
fn the_data_of_a_drive_moves_away_before_it_is_removed() {
    let folder = folder();
    let (server, first, second) = server_on_two_drives(&folder);
    let list = server.json(&["drive", "list"]);
    let id = state_of(&list, &second)["id"].as_str().unwrap().to_owned();
    server.fails(&["drive", "remove", "nowhere", "--yes"], "coquina drive list");
    server.fails(&["drive", "remove", &id[..6]], "add --yes");
    let removed = server.json(&["drive", "remove", &id[..6], "--yes"]);
    assert_eq!((&removed["id"], &removed["dry_run"]), (&id.as_str().into(), &false.into()));
    wait(|| server.json(&["status"])["health"]["state"] == "ok");
    let status = server.json(&["status"]);
    assert_eq!(status["drives"].as_array().unwrap().len(), 1);
    let volume = server.json(&["volume", "info", "wide"]);
    let places = volume["placement"].as_array().unwrap();
    assert!(places.iter().all(|place| place["path"] == first.as_str()), "{volume}");
    wait(|| {
        let held = std::fs::File::open(&second).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    server.fails(&["drive", "remove", &first, "--yes"], "no drive takes data");
    assert_eq!(server.json(&["drive", "list"])["drives"][0]["last_scrub"], serde_json::Value::Null);
    let scrubbed = server.json(&["drive", "scrub"])["drives"][0]["last_scrub"].clone();
    assert!(scrubbed["ended_unix_ms"].is_u64() && scrubbed["bad_blocks"] == 0, "{scrubbed}");
    // It is written down within moments.
    wait(|| folder.path().join("data/scrubs.json").exists());
    server.stop();
    let server = Server::start(folder.path(), &[]);
    let drives = server.json(&["drive", "list"])["drives"].clone();
    assert_eq!((drives.as_array().unwrap().len(), &drives[0]["last_scrub"]), (1, &scrubbed));
}

#[test]
fn a_drive_is_added_to_a_running_server_and_weighed() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--drive", &drive_of(&folder, "512M")]);
    server.json(&["volume", "create", "disk", "--size", "64M"]);
    let path = folder.path().join("more").to_str().unwrap().to_owned();
    let added = server.json(&["drive", "add", &format!("{path}:512M")]);
    assert_eq!(added["path"], path.as_str());
    wait(|| state_of(&server.json(&["drive", "list"]), &path)["groups"] == 32);
    let weighed = server.json(&["drive", "reweight", &path, "--weight", "0"]);
    assert_eq!(weighed["weight"], 0);
    wait(|| state_of(&server.json(&["drive", "list"]), &path)["groups"] == 0);
    server.fails(&["drive", "add", &path], "drive");
    server.fails(&["drive", "add", "/nowhere/at/all:512M"], "/nowhere/at/all");
}

#[test]
fn a_lost_drive_is_given_up_with_its_volumes_and_not_taken_back() {
    let folder = folder();
    let (server, first, second) = server_on_two_drives(&folder);
    server.stop();
    let away = folder.path().join("away");
    std::fs::rename(&second, &away).unwrap();
    let server = Server::start(folder.path(), &[]);
    server.fails(&["drive", "remove", &second, "--yes"], "--lost");
    server.fails(&["drive", "remove", &second, "--lost", "--yes"], "last good copy");
    server.fails(&["drive", "remove", &second, "--lose-data"], "all their data (wide)");
    let removed = server.json(&["drive", "remove", &second, "--lose-data", "--yes"]);
    assert_eq!(removed["volumes_lost"], serde_json::json!(["wide"]));
    wait(|| server.json(&["status"])["health"]["state"] == "ok");
    wait(|| server.json(&["volume", "list", "--interval", "0"])["volumes"].as_array().unwrap().is_empty());
    server.json(&["volume", "create", "anew", "--size", "64M"]);
    server.stop();

    std::fs::rename(&away, &second).unwrap();
    let again = [
        "up",
        "--http",
        "127.0.0.1:0",
        "--nbd",
        "127.0.0.1:0",
        "--listen",
        "127.0.0.1:0",
        "--drive",
        &second,
    ];
    let output = command(&again).arg("--dir").arg(folder.path().join("data")).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("given up") || error.contains("was removed"), "{error}");
    let server = Server::start(folder.path(), &["--drive", &second, "--force"]);
    let drives = server.json(&["drive", "list"]);
    assert_eq!(state_of(&drives, &second)["live_bytes"], 0);
    assert_eq!(state_of(&drives, &first)["state"], "healthy");
}

#[test]
fn nodes_are_processes_of_their_own_and_one_can_be_removed() {
    let folder = folder();
    let drive = |name: &str| format!("{}:256M", folder.path().join(name).display());
    let drives = ["a", "b", "c"].map(drive);
    let options: Vec<&str> = drives.iter().flat_map(|drive| ["--drive", drive.as_str()]).collect();
    let server = Server::start(folder.path(), &[&["--nodes", "3", "--copies", "2"], &options[..]].concat());
    let made = server.json(&["volume", "create", "disk", "--size", "32M"]);
    assert_eq!((&made["copies"], &made["pool"]), (&2.into(), &"default".into()));
    wait(|| server.json(&["status"])["health"]["state"] == "ok");
    let nodes = server.json(&["node", "list"]);
    let names: Vec<_> = nodes["nodes"].as_array().unwrap().iter().map(|node| &node["name"]).collect();
    assert_eq!(names, ["node1", "node2", "node3"]);
    // The one that answers is none of them, and has a name all the same.
    let status = server.json(&["status"]);
    let own = format!("process {}", status["services"]["http"].as_str().unwrap());
    assert_eq!(
        (&status["node"]["name"], &status["node"]["process_name"]),
        (&"".into(), &own.as_str().into())
    );
    let data = folder.path().join("data");
    let process = std::fs::read_to_string(data.join("node2/lock")).unwrap();
    assert_ne!(process.trim(), server.child.id().to_string());

    server.fails(&["pool", "create", "wide", "--copies", "4"], "4");
    server.json(&["pool", "create", "scratch", "--copies", "1"]);
    server.json(&["pool", "remove", "scratch"]);
    server.json(&["pool", "create", "scratch", "--copies", "2"]);
    server.json(&["volume", "create", "short", "--size", "1M", "--pool", "scratch"]);
    server.json(&["volume", "remove", "short", "--yes"]);
    server.json(&["pool", "remove", "scratch"]);
    // Asked of the very node that goes, and with it its answers.
    let removal = ["node", "remove", "node2", "--yes", "--dir"];
    let removal = command(&removal).arg(data.join("node2")).stdin(Stdio::null()).output().unwrap();
    assert!(removal.status.success(), "{}", String::from_utf8_lossy(&removal.stderr));
    assert!(String::from_utf8_lossy(&removal.stdout).starts_with("removed node node2"), "{removal:?}");
    wait(|| server.json(&["node", "list"])["nodes"].as_array().unwrap().len() == 2);
    wait(|| std::fs::read_to_string(data.join("nodes.json")).unwrap().contains("[2]"));
    wait(|| server.json(&["status"])["health"]["state"] == "ok");
    server.fails(&["node", "remove", "node1", "--yes"], "apart");
    server.stop();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.json(&["node", "list"])["nodes"].as_array().unwrap().len(), 2);
}

/// The start with five nodes was remembered before it failed, and every later one failed the same way.
#[test]
fn a_start_with_more_nodes_that_fails_changes_nothing() {
    let folder = folder();
    let drive = |name: &str| format!("{}:256M", folder.path().join(name).display());
    let drives = ["a", "b", "c"].map(drive);
    let options: Vec<&str> = drives.iter().flat_map(|drive| ["--drive", drive.as_str()]).collect();
    let data = Server::start(folder.path(), &[&["--nodes", "3"], &options[..]].concat()).stop();
    let remembered = || std::fs::read_to_string(data.join("nodes.json")).unwrap();
    let before = remembered();
    let more = drive("d");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let held = listener.local_addr().unwrap().to_string();
    let fails = |arguments: &[&str], part: &str| {
        let anywhere = ["up", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
        let output = command(&anywhere).args(arguments).arg("--dir").arg(&data).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{error}");
        assert_eq!(remembered(), before);
    };
    fails(&["--nbd", "127.0.0.1:0", "--nodes", "5", "--drive", &more, "--drive", &more], "given twice");
    fails(&["--nbd", &held, "--nodes", "5", "--drive", &more], &held);
    fails(&["--nbd", "127.0.0.1:0", "--nodes", "2"], "has 3 nodes");
    // As a start left it that failed in an older version.
    std::fs::write(data.join("nodes.json"), "{\"nodes\":5}").unwrap();
    let server = Server::start(folder.path(), &["--nodes", "3"]);
    let nodes = server.json(&["node", "list"]);
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 3);
    wait(|| server.json(&["status"])["health"]["state"] == "ok");
    assert_eq!(remembered(), before);
}

/// It was not heard for 40 s, and then it ended as if it had served.
#[test]
fn a_signal_is_heard_while_nodes_of_an_earlier_start_are_waited_for() {
    let folder = folder();
    let data = folder.path().join("data");
    std::fs::create_dir_all(data.join("node1")).unwrap();
    let held = std::fs::File::create(data.join("node1/lock")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let log = folder.path().join("log");
    let anywhere = ["up", "--nodes", "2", "--http", "127.0.0.1:0", "--nbd", "127.0.0.1:0"];
    let mut command = command(&[&anywhere[..], &["--listen", "127.0.0.1:0"]].concat());
    command.arg("--dir").arg(&data).stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let mut server = Server { child, folder: data };
    wait(|| {
        let told = std::fs::read_to_string(&log).unwrap();
        let ended = server.child.try_wait().unwrap();
        assert!(ended.is_none(), "it does not wait: {ended:?}, {told}");
        told.contains("are still stopping")
    });
    let begin = Instant::now();
    server.signal(rustix::process::Signal::INT);
    assert_eq!(server.end(), Some(130), "{}", std::fs::read_to_string(&log).unwrap());
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn the_demo_loses_nothing_and_leaves_nothing() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    let output = command(&["demo", "--seconds", "2", "--json", "--folder", path]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress off a terminal");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["kill"]["blocks_lost"], 0);
    assert!(report["kill"]["writes_acknowledged"].as_u64().unwrap() > 0);
    assert!(report["kill"]["blocks_verified"].as_u64().unwrap() > 0);
    let failover = &report["failover"];
    assert!(failover["writes_acknowledged"].as_u64().unwrap() > 0);
    assert!(failover["moved_bytes"].as_u64().unwrap() > 0 && failover["written_bytes"].as_u64().unwrap() > 0);
    assert!(report["coquina"]["iops"].as_f64().unwrap() > 0.0);
    assert!(report["plain_file"]["iops"].as_f64().unwrap() > 0.0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}
