//! What all processes that serve have in common: how they log, stop, and say where they listen.

pub mod address;
pub mod control;
pub mod drives;
pub mod first_start;
pub mod made;
pub mod membership;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use coquina_base::check_name;
use coquina_control::{FolderLock, MapServiceError, ServerFile};
use coquina_experiments::leftovers::quoted;
use coquina_node::{BindCpu, NodeConfig};
use coquina_store::StoreError;
use serde::Serialize;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::made::Made;
use crate::arguments::{Global, Running, Threads};
use crate::error::{CliError, EXIT_CODE_INTERRUPTED};
use crate::{output, signal};

/// Where NBD is served unless something else is said.
pub const NBD_DEFAULT: &str = "127.0.0.1:10809";
/// The label that a node has unless others are given.
pub const HOST_LABEL: &str = "host";
/// The signal that ends the process at once.
const FORCE_AT: u32 = 2;

/// Said on standard error when a clean stop begins.
pub fn tell_stopping() {
    output::tell("stopping");
}

/// Said on standard error when a clean stop has come to its end.
pub fn tell_stopped() {
    output::tell("stopped");
}

/// Asks for a stop: signals, the end of the input, and the REST interface do.
pub struct Stop {
    serving: Arc<AtomicBool>,
    signalled: Arc<AtomicBool>,
    input_ended: Arc<AtomicBool>,
}

impl Stop {
    /// Calls `ask` when somebody asks for a stop. Until [`serving`](Self::serving) was called, a signal or the end of the input ends
    /// the process at once: nothing that is made at the start can be harmed by that, and a start may wait for long.
    pub fn watch(
        running: &Running,
        ask: impl Fn() + Send + Sync + Clone + 'static,
    ) -> Result<Stop, CliError> {
        let serving = Arc::new(AtomicBool::new(false));
        let (is_serving, on_signal) = (serving.clone(), ask.clone());
        // Whoever has started this one asks by ending the input and by a signal, beside what others send to all processes at once.
        let force_at = if running.stop_with_input { u32::MAX } else { FORCE_AT };
        let signalled = signal::stop_flag(force_at, move || {
            if !is_serving.load(Ordering::Relaxed) {
                std::process::exit(i32::from(EXIT_CODE_INTERRUPTED));
            }
            on_signal();
        })?;
        let input_ended = Arc::new(AtomicBool::new(false));
        if running.stop_with_input {
            let (is_serving, ended) = (serving.clone(), input_ended.clone());
            stop_with_input(move || {
                ended.store(true, Ordering::Relaxed);
                if !is_serving.load(Ordering::Relaxed) {
                    std::process::exit(i32::from(EXIT_CODE_INTERRUPTED));
                }
                ask();
            })?;
        }
        Ok(Stop { serving, signalled, input_ended })
    }

    /// Whether a signal has come.
    pub fn was_signalled(&self) -> bool {
        self.signalled.load(Ordering::Relaxed)
    }

    /// Whether standard input has ended, if that asks for a stop.
    pub fn input_has_ended(&self) -> bool {
        self.input_ended.load(Ordering::Relaxed)
    }

    /// From now on a signal asks for a clean stop.
    pub fn serving(&self) {
        self.serving.store(true, Ordering::Relaxed);
    }
}

/// Asks for a stop when standard input ends: a program that started this one has gone away.
fn stop_with_input(ask: impl Fn() + Send + Sync + 'static) -> Result<(), CliError> {
    let wait = move || {
        // An error of the input is its end too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        ask();
    };
    let thread = std::thread::Builder::new().name("input".to_owned()).spawn(wait);
    thread.map(drop).map_err(|error| CliError::failed(format!("cannot start a thread: {error}")))
}

/// A channel, and what sends into it. A receiver that is gone means that the process is ending anyway.
pub fn stop_channel() -> (impl Fn() + Send + Sync + Clone + 'static, mpsc::Receiver<()>) {
    let (sender, receiver) = mpsc::channel();
    let ask = move || {
        let _ = sender.send(());
    };
    (ask, receiver)
}

/// What is logged: a level, or levels of parts of the program; `info` if nothing is asked for.
fn levels_of(asked: &str) -> Result<Targets, ParseError> {
    if asked.is_empty() { "info" } else { asked }.parse()
}

/// Sends log messages to standard error.
pub fn start_logging() {
    let asked = std::env::var("COQUINA_LOG").unwrap_or_default();
    let (levels, refusal) = match levels_of(&asked) {
        Ok(levels) => (levels, None),
        Err(refusal) => (levels_of("info").unwrap_or_default(), Some(refusal)),
    };
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        // It would say so on standard error, and panic if that is what failed.
        .log_internal_errors(false);
    // Fails only if logging was started before, and then it works.
    let _ = tracing_subscriber::registry().with(lines).with(levels).try_init();
    if let Some(refusal) = refusal {
        tracing::warn!(%refusal, asked, "COQUINA_LOG is not understood: write a level, as debug, or levels of parts, as info,coquina_node=debug");
    }
}

/// Refuses `--server` for what serves by itself.
pub fn refuse_server(global: &Global) -> Result<(), CliError> {
    match &global.server {
        None => Ok(()),
        Some(_) => {
            Err(CliError::usage("this starts a server here; --server is for commands to a running one"))
        }
    }
}

/// This host's name, as far as the rule for names allows.
pub fn host_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if check_name(&host).is_ok() { host } else { "node".to_owned() }
}

/// A node without drives: an NBD server that is a client of the cluster.
pub fn gateway_config(nbd: Vec<String>, running: &Running, threads: &Threads) -> NodeConfig {
    NodeConfig {
        identity: None,
        drives: Vec::new(),
        native: None,
        nbd,
        insecure: running.insecure,
        index_memory_bytes: None,
        // A gateway keeps no blocks.
        cache_memory_bytes: Some(0),
        zero_ahead_bytes: 0,
        tcp_only: true,
        busy_poll_ns: threads.busy_poll.limit_ns(),
        bind_cpu: BindCpu::Never,
        reactors: threads.reactors.map(usize::from),
        folder: None,
    }
}

/// Says once what a start waits for.
pub fn tell_waiting() -> impl FnMut(&StoreError) {
    let mut told = String::new();
    move |error| {
        let text = error.to_string();
        if text != told {
            output::tell(format_args!("waiting for the store of the cluster map: {text}"));
            told = text;
        }
    }
}

/// An error of the start, with what to do about it.
pub fn map_failed(error: MapServiceError) -> CliError {
    CliError::failed(error.to_string())
}

/// What is printed as JSON of a start.
#[derive(Serialize)]
struct Announced<'a> {
    #[serde(flatten)]
    server: &'a ServerFile,
    #[serde(flatten)]
    made: Option<&'a Made>,
}

/// Says what was made, and where the server listens, in its folder and on standard output.
pub fn announce(
    global: &Global,
    lock: &FolderLock,
    file: &ServerFile,
    what: &str,
    hint: &str,
    made: Option<&Made>,
) -> Result<(), CliError> {
    lock.announce(file)?;
    if global.json {
        return output::print_json(&Announced { server: file, made });
    }
    let mut text = made.map(Made::to_string).unwrap_or_default();
    text += &format!("coquina {} serves {what}\n", file.version);
    if !file.nbd.is_empty() {
        text += &format!("  nbd     {}\n", file.nbd.join(", "));
    }
    if !file.native.is_empty() {
        text += &format!("  native  {}\n", file.native);
    }
    text += &format!("  http    {}\n{hint}stop:           Ctrl-C\n", file.http);
    output::print(&text)
}

/// How a volume is made, with the option that names the folder, if it is not the one that commands look in anyway.
pub fn volume_hint(folder: &Path) -> String {
    let found_anyway = std::env::var_os("COQUINA_DIR").is_some() || folder == Path::new("./coquina-data");
    let option = if found_anyway { String::new() } else { format!(" --dir {}", quoted(folder)) };
    format!("make a volume:  coquina volume create NAME --size 10G{option}\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tracing::Level;

    use super::{levels_of, volume_hint};

    #[test]
    fn a_command_that_is_told_can_be_pasted() {
        let hint = |folder: &str| volume_hint(std::path::Path::new(folder));
        assert!(hint("/srv/d").ends_with(" --dir /srv/d\n"));
        assert!(hint("/srv/d \u{e4}").ends_with(" --dir '/srv/d \u{e4}'\n"));
        assert!(hint("it's").ends_with(" --dir 'it'\\''s'\n"));
    }

    #[test]
    fn levels_are_those_that_were_asked_for() {
        let usual = levels_of("").unwrap();
        assert!(usual.would_enable("coquina_node", &Level::INFO));
        assert!(!usual.would_enable("coquina_node", &Level::DEBUG));
        assert!(levels_of("debug").unwrap().would_enable("coquina_node", &Level::DEBUG));
        let parts = levels_of("warn,coquina_node=trace").unwrap();
        assert!(parts.would_enable("coquina_node::io", &Level::TRACE));
        assert!(!parts.would_enable("coquina_control", &Level::INFO));
        assert!(levels_of("coquina_node=loud").is_err());
    }
}
