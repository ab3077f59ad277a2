//! Real members of etcd on free ports of the loopback, in a folder of their own. They die with this process.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use coquina_store::{EtcdOptions, EtcdStore, Store};

pub struct Cluster {
    pub folder: tempfile::TempDir,
    members: Vec<Member>,
    scheme: &'static str,
}

struct Member {
    arguments: Vec<String>,
    data: PathBuf,
    log: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Member {
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn start(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        // Dies with the thread that started it: the test's own.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "etcd"]).args(&self.arguments);
        command.env_remove("ETCD_UNSUPPORTED_ARCH").stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    fn signal(&self, name: &str) {
        let process = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
    }
}

/// Whether etcd is there; says so if not.
pub fn is_installed() -> bool {
    let there = ["etcd", "etcdctl", "setpriv"].iter().all(|program| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    if !there {
        eprintln!("SKIPPED etcd is not installed (apt-get install etcd-server etcd-client)");
    }
    there
}

/// A port that is free, and that nobody else in this process was given: the system may name one twice before anybody listens there.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap();
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if given.insert(port) {
            return port;
        }
    }
}

/// The system named the same port to two members, 1 time in some thousands, and etcd refused it.
#[test]
fn no_port_is_given_twice() {
    let ports: BTreeSet<u16> = (0..3_000).map(|_| free_port()).collect();
    assert_eq!(ports.len(), 3_000);
}

impl Cluster {
    /// Members that answer, or `None` if etcd is not installed.
    pub fn start(count: usize, extra: &[&str]) -> Option<Cluster> {
        let cluster = Cluster::start_with(count, extra, "http")?;
        cluster.wait();
        Some(cluster)
    }

    /// The same, without waiting.
    pub fn start_with(count: usize, extra: &[&str], scheme: &'static str) -> Option<Cluster> {
        if !is_installed() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let ports: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(index, (_, peer))| format!("m{index}=http://127.0.0.1:{peer}"))
            .collect();
        let members = ports.iter().enumerate().map(|(index, (client, peer))| {
            let data = folder.path().join(format!("m{index}"));
            let client_url = format!("{scheme}://127.0.0.1:{client}");
            let peer_url = format!("http://127.0.0.1:{peer}");
            let mut arguments: Vec<String> = [
                ("--name", format!("m{index}")),
                ("--data-dir", data.display().to_string()),
                ("--listen-client-urls", client_url.clone()),
                ("--advertise-client-urls", client_url),
                ("--listen-peer-urls", peer_url.clone()),
                ("--initial-advertise-peer-urls", peer_url),
                ("--initial-cluster", peers.join(",")),
                ("--heartbeat-interval", "50".to_owned()),
                ("--election-timeout", "500".to_owned()),
                ("--log-level", "warn".to_owned()),
            ]
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect();
            arguments.extend(extra.iter().map(|argument| (*argument).to_owned()));
            let log = folder.path().join(format!("m{index}.log"));
            let mut member = Member { arguments, data, log, port: *client, child: None };
            member.start();
            member
        });
        let members = members.collect();
        Some(Cluster { folder, members, scheme })
    }

    pub fn wait(&self) {
        let begin = Instant::now();
        while let Err(error) = crate::block_on(self.store().read(b"/")) {
            assert!(begin.elapsed() < Duration::from_secs(30), "{error}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn logs(&self) -> String {
        self.members.iter().map(|member| fs::read_to_string(&member.log).unwrap_or_default()).collect()
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("{}://127.0.0.1:{}", self.scheme, member.port)).collect()
    }

    pub fn address(&self, index: usize) -> String {
        format!("127.0.0.1:{}", self.members[index].port)
    }

    pub fn options(&self) -> EtcdOptions {
        EtcdOptions::new(self.endpoints())
    }

    pub fn store(&self) -> EtcdStore {
        EtcdStore::new(self.options()).unwrap()
    }

    pub fn kill(&mut self, index: usize) {
        self.members[index].kill();
    }

    pub fn restart(&mut self, index: usize) {
        self.members[index].start();
    }

    pub fn stop(&self, index: usize) {
        self.members[index].signal("-STOP");
    }

    pub fn go_on(&self, index: usize) {
        self.members[index].signal("-CONT");
    }

    pub fn data(&self, index: usize) -> &Path {
        &self.members[index].data
    }

    /// The member that leads.
    pub fn leader(&self) -> usize {
        let begin = Instant::now();
        loop {
            for (index, endpoint) in self.endpoints().iter().enumerate() {
                let output = self.etcdctl(&["--endpoints", endpoint, "endpoint", "status", "-w", "json"]);
                let field = |name: &str| {
                    let rest = &output[output.find(name)? + name.len()..];
                    rest.split([',', '}']).next().map(str::to_owned)
                };
                let (own, leader) = (field("\"member_id\":"), field("\"leader\":"));
                if own.is_some() && own == leader {
                    return index;
                }
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "no leader\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Runs etcdctl, whatever comes of it.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        let endpoints = self.endpoints().join(",");
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3");
        if !arguments.contains(&"--endpoints") {
            command.args(["--endpoints", &endpoints]);
        }
        let output = command.args(arguments).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}
