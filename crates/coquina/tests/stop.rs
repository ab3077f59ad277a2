//! How servers stop that others have started: at the end of their input, and of signals that come to many processes at once.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longest wait for a server to start or stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that does not outlive its test.
struct Server {
    child: Child,
    folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coquina"));
    command.env_remove("COQUINA_DIR").args(arguments);
    command
}

/// A drive that is made in the folder.
fn drive_in(folder: &TempDir, name: &str) -> String {
    format!("{}:256M", folder.path().join(name).display())
}

impl Server {
    fn start(folder: TempDir, stdin: Stdio, arguments: &[&str]) -> Server {
        let mut command = command(arguments);
        command.arg("--dir").arg(folder.path().join("data"));
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = command.stdin(stdin).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Server { child, folder }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    #[track_caller]
    fn wait(&mut self, what: &str, holds: impl Fn(&Server) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "{what}: {ended:?}, {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it serves.
    #[track_caller]
    fn serves(&mut self) {
        self.wait("it serves", |server| {
            let status =
                command(&["status", "--interval", "0", "--dir"]).arg(server.data()).output().unwrap();
            status.status.success()
        });
    }

    /// Waits for its end, and gives its exit code.
    #[track_caller]
    fn end(&mut self) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begin.elapsed() < PATIENCE, "it does not stop: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn process_in(folder: &Path) -> Pid {
    let number = std::fs::read_to_string(folder.join("lock")).unwrap();
    Pid::from_raw(number.trim().parse().unwrap()).unwrap()
}

const ANYWHERE: [&str; 7] =
    ["up", "--nbd", "127.0.0.1:0", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0"];

#[test]
fn a_server_whose_starter_died_stops_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let drive = drive_in(&folder, "drive");
    let arguments = [&ANYWHERE[..], &["--drive", &drive, "--stop-with-input"]].concat();
    let mut server = Server::start(folder, Stdio::piped(), &arguments);
    server.serves();
    drop(server.child.stdin.take());
    assert_eq!(server.end(), Some(0), "{}", server.log());
}

/// It was not heard, so that the process waited for ever, with a lock on its folder.
#[test]
fn a_start_that_waits_hears_that_its_starter_died() {
    let listen = ["--http", "127.0.0.1:0", "--stop-with-input", "--etcd", "http://127.0.0.1:1"];
    for what in
        [&["node", "--name", "one", "--listen", "127.0.0.1:0"][..], &["nbd", "--listen", "127.0.0.1:0"]]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start(folder, Stdio::piped(), &[what, &listen].concat());
        server.wait("it waits", |server| server.log().contains("waiting for the store"));
        drop(server.child.stdin.take());
        assert_eq!(server.end(), Some(130), "{}", server.log());
    }
}

/// As systemd does, which sends SIGTERM to all processes of a unit: a node took what its supervisor sent for the second signal, which
/// ends a process at once, and replayed its log at every start.
#[test]
fn nodes_stop_cleanly_when_all_processes_are_signalled_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let drives = ["a", "b"].map(|name| drive_in(&folder, name));
    let options = ["--nodes", "2", "--drive", &drives[0], "--drive", &drives[1]];
    let mut server = Server::start(folder, Stdio::null(), &[&ANYWHERE[..], &options].concat());
    server.serves();
    let nodes = ["node1", "node2"].map(|name| server.data().join(name));
    let told = |node: &PathBuf| node.join("server.json");
    assert!(nodes.iter().all(|node| told(node).exists()));
    let children = nodes.each_ref().map(|node| process_in(node));
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    for child in children {
        kill_process(child, Signal::TERM).unwrap();
    }
    // A session that ends sends this as well.
    for child in children {
        let _ = kill_process(child, Signal::HUP);
    }
    assert_eq!(server.end(), Some(0), "{}", server.log());
    // What a process that ends uncleanly leaves behind.
    assert!(!nodes.iter().any(|node| told(node).exists()), "{}", server.log());
}
