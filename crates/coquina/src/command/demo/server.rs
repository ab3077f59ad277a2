//! The demo's server: this program with `up`, as a process of its own, with its nodes. None of it outlives the demo.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coquina_control::{Client, FolderError, ServerFile, running_server};
use rustix::process::{Pid, Signal, kill_process};

use super::folder::DemoFolder;
use crate::command::up::plan::node_name;
use crate::error::CliError;

const START_TIME_MAX: Duration = Duration::from_secs(60);
const STOP_TIME_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// What the server is made of.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Nodes, and copies of each block.
    pub nodes: u16,
    /// Size of the drive of each node.
    pub drive_bytes: u64,
}

pub struct Server {
    child: Child,
    file: ServerFile,
    data: PathBuf,
    log: PathBuf,
    nodes: u16,
}

impl Server {
    /// Starts it and waits until it says where it listens.
    pub fn start(folder: &DemoFolder, shape: Shape) -> Result<Server, CliError> {
        let data = folder.path().join("data");
        let log = folder.path().join("server.log");
        let log_file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|error| CliError::io("open", &log, &error))?;
        let program = std::env::current_exe()
            .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
        let mut command = Command::new(&program);
        command.arg("up").arg("--dir").arg(&data);
        command.args(["--nodes", &shape.nodes.to_string(), "--copies", &shape.nodes.to_string()]);
        for number in 1..=shape.nodes {
            let mut drive = folder.path().join(format!("drive{number}")).into_os_string();
            if !Path::new(&drive).exists() {
                drive.push(format!(":{}", shape.drive_bytes));
            }
            command.arg("--drive").arg(drive);
        }
        command.args(["--nbd", "127.0.0.1:0", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
        // The server's input ends when the demo does, however it ends, and the server stops with it.
        command.arg("--stop-with-input").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log_file);
        // Ctrl-C goes to the whole foreground group; the server is stopped by the demo, not by it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| CliError::io("start", &program, &error))?;
        match wait_for_start(&mut child, &data) {
            Ok(file) => Ok(Server { child, file, data, log, nodes: shape.nodes }),
            Err(reason) => {
                end(&mut child);
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                Err(CliError::failed(format!(
                    "the server did not start ({reason}); it said:\n{}",
                    said.trim_end()
                )))
            }
        }
    }

    /// Its processes, those of the nodes included.
    pub fn processes(&self) -> Vec<u32> {
        let nodes = (1..=self.nodes).filter_map(|number| self.node_process(number));
        std::iter::once(self.child.id()).chain(nodes).collect()
    }

    /// The process of a node, if it serves and is not the server's own.
    pub fn node_process(&self, number: u16) -> Option<u32> {
        if self.nodes == 1 {
            return None;
        }
        running_server(&self.node_folder(number)).ok().map(|file| file.process)
    }

    /// A client of the REST interface of a node.
    pub fn node_client(&self, number: u16) -> Result<Client, CliError> {
        Ok(Client::new(&running_server(&self.node_folder(number))?.http)?)
    }

    fn node_folder(&self, number: u16) -> PathBuf {
        self.data.join(node_name(usize::from(number)))
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u16 {
        self.nodes
    }

    /// A client of its REST interface.
    pub fn client(&self) -> Result<Client, CliError> {
        Ok(Client::new(&self.file.http)?)
    }

    /// The NBD URI of a volume.
    pub fn nbd_uri(&self, volume: &str) -> String {
        let address = self.file.nbd.first().map_or("127.0.0.1:10809", String::as_str);
        format!("nbd://{address}/{volume}")
    }

    /// Kills one node hard, as a crash would. The server starts it again.
    pub fn kill_node(&self, number: u16) -> Result<(), CliError> {
        let process = self
            .node_process(number)
            .ok_or_else(|| CliError::failed(format!("{} does not run", node_name(usize::from(number)))))?;
        kill(process)
    }

    /// Kills everything hard and at once, as a power cut would. Does nothing if that was done before.
    pub fn kill(&mut self) -> Result<(), CliError> {
        let nodes: Vec<u32> = (1..=self.nodes).filter_map(|number| self.node_process(number)).collect();
        self.child.kill().map_err(|error| CliError::failed(format!("cannot kill the server: {error}")))?;
        nodes.iter().try_for_each(|process| kill(*process))?;
        self.child
            .wait()
            .map_err(|error| CliError::failed(format!("cannot wait for the server: {error}")))?;
        self.wait_for_nodes()
    }

    /// Waits until no node has its folder any more.
    fn wait_for_nodes(&self) -> Result<(), CliError> {
        let begin = Instant::now();
        for number in (1..=self.nodes).filter(|_| self.nodes > 1) {
            let folder = self.node_folder(number);
            while !matches!(running_server(&folder), Err(FolderError::NotRunning { .. })) {
                if begin.elapsed() > STOP_TIME_MAX {
                    return Err(CliError::failed(format!("the node on {} does not end", folder.display())));
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }

    /// Stops it cleanly.
    pub fn stop(mut self) -> Result<(), CliError> {
        let process = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let sent = process.map(|process| kill_process(process, Signal::TERM));
        if !matches!(sent, Some(Ok(()))) {
            return Err(CliError::failed("cannot ask the server to stop"));
        }
        let start = Instant::now();
        while start.elapsed() < STOP_TIME_MAX {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                    return Err(CliError::failed(format!(
                        "the server stopped with {status}; it said:\n{}",
                        said.trim_end()
                    )));
                }
                Ok(None) => std::thread::sleep(POLL),
                Err(error) => return Err(CliError::failed(format!("cannot wait for the server: {error}"))),
            }
        }
        Err(CliError::failed(format!("the server did not stop within {} s", STOP_TIME_MAX.as_secs())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
        // Nodes of a server that was killed end by themselves; the folder is removed when they have.
        let _ = self.wait_for_nodes();
    }
}

/// A process that has ended already is fine.
fn kill(process: u32) -> Result<(), CliError> {
    let Some(number) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return Ok(()) };
    match kill_process(number, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(CliError::failed(format!("cannot kill process {process}: {error}"))),
    }
}

/// Makes sure that a child is gone. One that has ended already is fine.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn wait_for_start(child: &mut Child, data: &Path) -> Result<ServerFile, String> {
    let start = Instant::now();
    while start.elapsed() < START_TIME_MAX {
        match running_server(data) {
            Ok(file) if file.process == child.id() => return Ok(file),
            _ => {}
        }
        match child.try_wait() {
            Ok(None) => std::thread::sleep(POLL),
            Ok(Some(status)) => return Err(status.to_string()),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("nothing within {} s", START_TIME_MAX.as_secs()))
}
