//! The demo's server: this program with `up`, as a process of its own. It never outlives the demo.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coquina_control::{Client, ServerFile, running_server};
use rustix::process::{Pid, Signal, kill_process};

use super::folder::DemoFolder;
use crate::error::CliError;

const START_TIME_MAX: Duration = Duration::from_secs(30);
const STOP_TIME_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

pub struct Server {
    child: Child,
    file: ServerFile,
    log: PathBuf,
}

impl Server {
    /// Starts it and waits until it says where it listens.
    pub fn start(folder: &DemoFolder, drive_bytes: u64) -> Result<Server, CliError> {
        let data = folder.path().join("data");
        let log = folder.path().join("server.log");
        let log_file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|error| CliError::io("open", &log, &error))?;
        let program = std::env::current_exe()
            .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
        let mut drive = folder.path().join("drive").into_os_string();
        if !std::path::Path::new(&drive).exists() {
            drive.push(format!(":{drive_bytes}"));
        }
        let mut command = Command::new(&program);
        command.arg("up").arg("--dir").arg(&data).arg("--drive").arg(drive);
        command.args(["--nbd", "127.0.0.1:0", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
        // The server's input ends when the demo does, however it ends, and the server stops with it.
        command.arg("--stop-with-input").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log_file);
        // Ctrl-C goes to the whole foreground group; the server is stopped by the demo, not by it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| CliError::io("start", &program, &error))?;
        match wait_for_start(&mut child, &data) {
            Ok(file) => Ok(Server { child, file, log }),
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

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
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

    /// Kills it hard, as a crash would. Does nothing if it was killed before.
    pub fn kill(&mut self) -> Result<(), CliError> {
        self.child.kill().map_err(|error| CliError::failed(format!("cannot kill the server: {error}")))?;
        self.child
            .wait()
            .map(drop)
            .map_err(|error| CliError::failed(format!("cannot wait for the server: {error}")))
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
    }
}

/// Makes sure that a child is gone. One that has ended already is fine.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn wait_for_start(child: &mut Child, data: &std::path::Path) -> Result<ServerFile, String> {
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
