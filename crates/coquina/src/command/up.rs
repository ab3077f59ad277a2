//! `coquina up`: a server for keeps, with everything on this host.
//!
//! One node is served by this process. Several are processes of their own under this one, which has the store of the
//! map, the coordinator, the REST interface and the NBD gateway, and starts a node again that dies.

mod child;
pub mod plan;
mod several;
mod single;
mod supervisor;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coquina_base::{ClusterId, NodeId};
use coquina_control::{Client, ClientError, MapService, NodeFile, api};
use coquina_store::EmbeddedStore;

use self::plan::NodesFile;
use crate::arguments::{Global, Up};
use crate::command::drive_argument::DriveArgument;
use crate::command::serving::{self, address, drives};
use crate::error::CliError;

/// What was checked before anything is made.
struct Checked {
    nbd: Vec<String>,
    drives: Vec<DriveArgument>,
    nodes: NodesFile,
    copies: u32,
}

/// Most copies that the first pool has unless they are asked for.
const COPIES_DEFAULT_MAX: u16 = 3;
/// The pool that is made by itself.
const FIRST_POOL_NAME: &str = "default";
/// How long the server may take to hear of the drives of nodes that have started, on a host that is busy.
const DRIVES_KNOWN_WITHIN: Duration = Duration::from_secs(10);
const DRIVES_POLL: Duration = Duration::from_millis(20);
/// In the folder: where the store of the map lies.
const STORE_FOLDER_NAME: &str = "store";

pub fn run(global: &Global, up: &Up) -> Result<(), CliError> {
    serving::refuse_server(global)?;
    serving::start_logging();
    let checked = check(global, up)?;
    if checked.nodes.nodes == 1 {
        single::run(global, up, checked)
    } else {
        several::run(global, up, checked)
    }
}

fn check(global: &Global, up: &Up) -> Result<Checked, CliError> {
    let nbd = if up.nbd.is_empty() { vec![serving::NBD_DEFAULT.to_owned()] } else { up.nbd.clone() };
    nbd.iter().try_for_each(|nbd| address::check_nbd("--nbd", nbd))?;
    address::check_tcp("--http", &up.http)?;
    address::check_tcp("--listen", &up.listen)?;
    let all = [&[up.http.clone(), up.listen.clone()], nbd.as_slice()].concat();
    address::check_closed(&all, up.running.insecure)?;
    let drives = drives::parse_all(&up.drives)?;
    let nodes = NodesFile::choose(&global.dir, up.nodes)?;
    let count = u16::try_from(nodes.names().len()).unwrap_or(u16::MAX);
    let copies = up.copies.unwrap_or_else(|| u32::from(count.min(COPIES_DEFAULT_MAX)));
    if copies > u32::from(count) && nodes.nodes > 1 {
        return Err(CliError::usage(format!(
            "--copies {copies} needs as many nodes, and there are {count}; give --nodes {copies}, or fewer copies"
        )));
    }
    Ok(Checked { nbd, drives, nodes, copies })
}

/// Sets what is remembered, and makes the first pool if there is none.
fn prepare_pool(http: &str, overcommit: Option<u32>, copies: u32) -> Result<(), CliError> {
    let client = Client::new(http)?;
    if let Some(percent) = overcommit {
        client.set_overcommit(percent)?;
    }
    if client.pools()?.pools.is_empty() {
        let request = api::CreatePool { name: FIRST_POOL_NAME.to_owned(), copies, ..Default::default() };
        let begin = Instant::now();
        while let Err(error) = client.create_pool(&request) {
            if !lacks_drives(&error) || begin.elapsed() >= DRIVES_KNOWN_WITHIN {
                return Err(error.into());
            }
            std::thread::sleep(DRIVES_POLL);
        }
    }
    Ok(())
}

/// Whether a pool was refused for want of drives. Nodes that have just started have told the store of theirs, of which the server may
/// not have heard yet.
fn lacks_drives(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { code, .. } if code == "too_few_domains" || code == "no_healthy_drive")
}

/// The cluster and the node of a folder that nobody serves now, made if there are none.
pub fn identity(folder: &Path) -> Result<(ClusterId, NodeId), CliError> {
    let store = EmbeddedStore::open(&folder.join(STORE_FOLDER_NAME), None)
        .map_err(|error| CliError::failed(error.to_string()))?;
    let maps = MapService::start(Arc::new(store), folder, true, &mut serving::tell_waiting())
        .map_err(serving::map_failed)?;
    let node = NodeFile::open(folder)?.node;
    let cluster = maps.cluster();
    maps.stop();
    Ok((cluster, node))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const REFUSED: &str = "409 Conflict\0{\"code\": \"too_few_domains\", \"message\": \"two of three\"}";

    /// Answers one request after the other, each of a connection of its own: status and body. Gives how many came.
    fn serve(answers: Vec<String>) -> (String, std::thread::JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let thread = std::thread::spawn(move || {
            for answer in &answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                while !is_whole(&request) {
                    let length = stream.read(&mut piece).unwrap();
                    assert!(length > 0, "the request is whole");
                    request.extend_from_slice(&piece[..length]);
                }
                let (status, body) = answer.split_once('\0').unwrap();
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
                stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
            }
            answers.len()
        });
        (address, thread)
    }

    fn is_whole(request: &[u8]) -> bool {
        let text = String::from_utf8_lossy(request).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        match head.split_once("content-length: ") {
            Some((_, length)) => body.len() >= length.lines().next().unwrap().parse::<usize>().unwrap(),
            None => !head.contains("chunked") || body.ends_with("0\r\n\r\n"),
        }
    }

    /// The server knew only two of three drives when the pool was asked for, and the start failed.
    #[test]
    fn the_first_pool_waits_until_the_server_knows_the_drives() {
        let none = serde_json::to_string(&api::PoolList::default()).unwrap();
        let made = serde_json::to_string(&api::Pool::default()).unwrap();
        let answers = [
            format!("200 OK\0{none}"),
            REFUSED.to_owned(),
            REFUSED.to_owned(),
            format!("201 Created\0{made}"),
        ];
        let (address, server) = serve(answers.to_vec());
        prepare_pool(&address, None, 3).unwrap();
        assert_eq!(server.join().unwrap(), 4);
    }

    #[test]
    fn what_else_is_wrong_is_told_at_once() {
        let none = serde_json::to_string(&api::PoolList::default()).unwrap();
        let other = "409 Conflict\0{\"code\": \"name_taken\", \"message\": \"it exists\"}";
        let (address, server) = serve(vec![format!("200 OK\0{none}"), other.to_owned()]);
        let error = prepare_pool(&address, None, 3).unwrap_err();
        assert!(error.to_string().contains("it exists"), "{error}");
        assert_eq!(server.join().unwrap(), 2);
    }
}
