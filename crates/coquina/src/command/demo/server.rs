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
/// How long nodes without a server have to end by themselves: one that still starts does not look whether it is to stop.
const NODE_STOP_TIME_MAX: Duration = Duration::from_secs(10);
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
            Err(reason) => Err(give_up(&mut child, &data, shape.nodes, &log, &reason)),
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
        running_server(&node_folder(&self.data, number)).ok().map(|file| file.process)
    }

    /// A client of the REST interface of a node.
    pub fn node_client(&self, number: u16) -> Result<Client, CliError> {
        Ok(Client::new(&running_server(&node_folder(&self.data, number))?.http)?)
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
        wait_for_nodes(&self.data, self.nodes, STOP_TIME_MAX)
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
        end_nodes(&self.data, self.nodes);
    }
}

/// Ends a server that does not start, with its nodes, and says what it said.
fn give_up(child: &mut Child, data: &Path, nodes: u16, log: &Path, reason: &str) -> CliError {
    end(child);
    end_nodes(data, nodes);
    let said = std::fs::read_to_string(log).unwrap_or_default();
    CliError::failed(format!("the server did not start ({reason}); it said:\n{}", said.trim_end()))
}

/// Makes sure that no node of a server that is gone writes to the folder, which is removed then.
fn end_nodes(data: &Path, nodes: u16) {
    // Without their server they end by themselves, as a rule.
    if wait_for_nodes(data, nodes, NODE_STOP_TIME_MAX).is_ok() {
        return;
    }
    for number in 1..=nodes {
        let process = match running_server(&node_folder(data, number)) {
            Ok(file) => Some(file.process),
            Err(FolderError::Starting { process, .. }) => process,
            Err(_) => None,
        };
        // If it still does not end, the folder cannot be removed, which is told.
        let _ = process.map(kill);
    }
    let _ = wait_for_nodes(data, nodes, STOP_TIME_MAX);
}

/// Waits until no node has its folder any more.
fn wait_for_nodes(data: &Path, nodes: u16, patience: Duration) -> Result<(), CliError> {
    let begin = Instant::now();
    for number in (1..=nodes).filter(|_| nodes > 1) {
        let folder = node_folder(data, number);
        while !matches!(running_server(&folder), Err(FolderError::NotRunning { .. })) {
            if begin.elapsed() > patience {
                return Err(CliError::failed(format!("the node on {} does not end", folder.display())));
            }
            std::thread::sleep(POLL);
        }
    }
    Ok(())
}

fn node_folder(data: &Path, number: u16) -> PathBuf {
    data.join(node_name(usize::from(number)))
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

#[cfg(test)]
mod tests {
    use coquina_control::FolderLock;

    use super::*;

    /// The folder was removed while nodes still wrote to it: it stayed, and that was all that was said.
    #[test]
    fn nodes_of_a_server_that_did_not_start_have_ended_when_the_folder_is_removed() {
        let folder = DemoFolder::make(Some(&std::env::temp_dir()), 0).expect("a folder");
        let (data, log) = (folder.path().join("data"), folder.path().join("server.log"));
        std::fs::write(&log, "the disk is slow\n").expect("written");
        let lock = FolderLock::acquire(&node_folder(&data, 2)).expect("a lock");
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(500));
                std::fs::write(node_folder(&data, 2).join("late"), "x").expect("the folder is there");
                drop(lock);
            });
            let error = give_up(&mut child, &data, 2, &log, "nothing within 60 s").to_string();
            assert!(error.contains("(nothing within 60 s); it said:\nthe disk is slow"), "{error}");
            assert!(node_folder(&data, 2).join("late").exists(), "the node had not ended");
        });
        assert!(matches!(child.try_wait(), Ok(Some(_))), "the server runs");
        folder.remove().expect("removed");
    }
}
