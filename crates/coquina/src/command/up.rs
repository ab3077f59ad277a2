//! `coquina up`: a server for keeps.
//!
//! The order of the start: lock, HTTP port, cluster state, drives and node, catalogue, interface; the server says
//! where it listens last. The stop goes backwards.

mod address;
mod drives;

use std::path::Path;
use std::sync::{Arc, mpsc};

use coquina_base::check_name;
use coquina_control::{
    Catalogue, ControlListener, ControlServer, Coordinator, EmbeddedCoordinator, FolderLock, MetricsOptions,
    ServerConfig, ServerFile, set_overcommit_percent,
};
use coquina_node::{Node, NodeConfig};

use crate::arguments::{Global, Up};
use crate::error::CliError;
use crate::{output, signal};

const NBD_DEFAULT: &str = "127.0.0.1:10809";

pub fn run(global: &Global, up: &Up) -> Result<(), CliError> {
    if global.server.is_some() {
        return Err(CliError::usage("`up` starts a server here; --server is for commands to a running one"));
    }
    start_logging();
    let nbd = if up.nbd.is_empty() { vec![NBD_DEFAULT.to_owned()] } else { up.nbd.clone() };
    nbd.iter().try_for_each(|address| address::check_nbd(address))?;
    address::check_tcp("--http", &up.http)?;
    address::check_tcp("--listen", &up.listen)?;
    let given = drives::parse_all(&up.drives)?;

    let lock = FolderLock::acquire(&global.dir)?;
    let listener = ControlListener::bind(&up.http)?;
    let coordinator = Arc::new(EmbeddedCoordinator::open(&global.dir, &node_name())?);
    if let Some(percent) = up.overcommit {
        set_overcommit_percent(&*coordinator, percent)?;
    }
    let chosen = drives::choose(&global.dir, given, &coordinator.map(), coordinator.node_id(), up.force)?;
    chosen.notes.iter().for_each(|note| eprintln!("{note}"));

    let (sender, stopped) = mpsc::channel();
    let on_signal = sender.clone();
    // A receiver that is gone means that the process is ending anyway.
    signal::stop_flag(2, move || {
        let _ = on_signal.send(());
    })?;
    if up.stop_with_input {
        stop_with_input(sender.clone())?;
    }
    let config = NodeConfig {
        folder: global.dir.clone(),
        drives: chosen.drives,
        native: up.listen.clone(),
        nbd,
        index_memory_bytes: up.index_memory,
        cache_memory_bytes: up.cache_memory,
        reactors: up.reactors.map(usize::from),
    };
    let node = Node::start(config, coordinator.clone())?;
    let served = serve(&node, coordinator, listener, up, sender);
    let result = served.and_then(|running| {
        let announced = announce(global, &lock, &running.file);
        if announced.is_ok() {
            // An error would mean that nobody can ask for a stop any more.
            let _ = stopped.recv();
        }
        running.server.stop();
        running.catalogue.stop();
        announced
    });
    node.stop();
    result.and(lock.withdraw().map_err(CliError::from))
}

/// Asks for a stop when standard input ends: a program that started this one has gone away.
fn stop_with_input(stop: mpsc::Sender<()>) -> Result<(), CliError> {
    let wait = move || {
        // An error of the input is its end too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = stop.send(());
    };
    let thread = std::thread::Builder::new().name("input".to_owned()).spawn(wait);
    thread.map(drop).map_err(|error| CliError::failed(format!("cannot start a thread: {error}")))
}

/// What runs beside the node.
struct Running {
    catalogue: Arc<Catalogue>,
    server: ControlServer,
    file: ServerFile,
}

fn serve(
    node: &Arc<Node>,
    coordinator: Arc<EmbeddedCoordinator>,
    listener: ControlListener,
    up: &Up,
    stop: mpsc::Sender<()>,
) -> Result<Running, CliError> {
    let catalogue = Catalogue::start(coordinator, node.clone())
        .map_err(|error| CliError::failed(format!("cannot start a thread: {error}")))?;
    let catalogue = Arc::new(catalogue);
    let (nbd, native) = (node.nbd_addresses(), node.native_address());
    let http = listener.address().to_owned();
    let health = address::open_interfaces(&[&[http.clone(), native.clone()], nbd.as_slice()].concat());
    health.iter().for_each(|entry| eprintln!("warning: {}; {}", entry.message, entry.advice));
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let config = ServerConfig {
        version: version.clone(),
        nbd: nbd.clone(),
        native: native.clone(),
        metrics: MetricsOptions { per_volume: !up.no_volume_metrics },
        health,
        // As for signals.
        shutdown: Box::new(move || {
            let _ = stop.send(());
        }),
    };
    let server = ControlServer::start(listener, config, catalogue.clone())?;
    let file = ServerFile { version, process: std::process::id(), http, nbd, native };
    Ok(Running { catalogue, server, file })
}

fn announce(global: &Global, lock: &FolderLock, file: &ServerFile) -> Result<(), CliError> {
    lock.announce(file)?;
    if global.json {
        return output::print_json(file);
    }
    let folder = shell_word(&global.dir);
    output::print(&format!(
        "coquina {} serves {}\n  nbd     {}\n  native  {}\n  http    {}\n\
         make a volume:  coquina volume create NAME --size 10G{folder}\n\
         stop:           Ctrl-C\n",
        file.version,
        global.dir.display(),
        file.nbd.join(", "),
        file.native,
        file.http,
    ))
}

/// The option that names the folder, if it is not the one that commands look in by themselves.
fn shell_word(folder: &Path) -> String {
    let found_anyway = std::env::var_os("COQUINA_DIR").is_some() || folder == Path::new("./coquina-data");
    if found_anyway { String::new() } else { format!(" --dir {}", folder.display()) }
}

fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("COQUINA_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // Fails only if logging was started before, and then it works.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .try_init();
}

/// This host's name, as far as the rule for names allows.
fn node_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if check_name(&host).is_ok() { host } else { "node".to_owned() }
}
