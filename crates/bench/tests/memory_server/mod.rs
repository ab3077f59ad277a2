//! A small NBD server in memory on a Unix socket, with faults on demand.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coquina_nbd::{
    Command, ErrorCode, Event, ExportInfo, ExportRefusal, Request, ServerConfig, ServerSession,
};

/// What goes wrong with the write of this number, counted over all connections.
#[derive(Clone, Copy)]
pub enum Fault {
    None,
    /// It is acknowledged and forgotten.
    Lose(u64),
    /// It fails.
    Refuse(u64),
    /// Instead of an answer the connection is closed.
    HangUp(u64),
    /// Its answer, and all behind it, come later.
    Stall(u64, Duration),
    /// Whatever came together, of all commands, is answered together and so late.
    Late(Duration),
}

pub struct MemoryServer {
    disk: Mutex<Vec<u8>>,
    fault: Fault,
    writes: AtomicU64,
}

impl MemoryServer {
    /// Serves the export `disk` in the background until the process ends.
    pub fn start(socket: &Path, size_bytes: usize, fault: Fault) -> Arc<Self> {
        let listener = UnixListener::bind(socket).unwrap();
        let disk = Mutex::new(vec![0; size_bytes]);
        let server = Arc::new(MemoryServer { disk, fault, writes: AtomicU64::new(0) });
        let accepting = Arc::clone(&server);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, stream) = (Arc::clone(&accepting), stream.unwrap());
                std::thread::spawn(move || server.serve(stream));
            }
        });
        server
    }

    pub fn writes(&self) -> u64 {
        self.writes.load(Relaxed)
    }

    fn serve(&self, mut stream: UnixStream) {
        let (mut input, mut output, mut piece) = (Vec::new(), Vec::new(), vec![0; 1 << 20]);
        let mut session = ServerSession::new(ServerConfig::default(), &mut output);
        loop {
            if let Fault::Late(length) = self.fault {
                std::thread::sleep(length);
            }
            if stream.write_all(&output).is_err() {
                return;
            }
            output.clear();
            let Ok(length @ 1..) = stream.read(&mut piece) else { return };
            input.extend_from_slice(&piece[..length]);
            if !self.take_input(&mut session, &mut input, &mut output) {
                return;
            }
        }
    }

    /// False once the connection ends.
    fn take_input(&self, session: &mut ServerSession, input: &mut Vec<u8>, output: &mut Vec<u8>) -> bool {
        loop {
            let (consumed, event) = session.receive(input, output);
            let waits = event.is_none();
            let goes_on = match event {
                Some(Event::LookUpExport { name, .. }) => {
                    let size_bytes = self.disk.lock().unwrap().len() as u64;
                    let found = if name.as_str() == "disk" {
                        Ok(ExportInfo::new(size_bytes))
                    } else {
                        Err(ExportRefusal::Unknown)
                    };
                    session.export_found(found, output);
                    true
                }
                Some(Event::Request(request)) => self.request(session, &request, input, output),
                Some(Event::Disconnect(_) | Event::Violation(_)) => false,
                _ => true,
            };
            input.drain(..consumed);
            if waits || !goes_on {
                return goes_on;
            }
        }
    }

    fn request(
        &self,
        session: &ServerSession,
        request: &Request,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> bool {
        let replies = session.replies();
        let start = request.offset_bytes as usize;
        let range = start..start + request.length_bytes as usize;
        let mut disk = self.disk.lock().unwrap();
        match request.command {
            Command::Read { .. } => {
                let header = replies.read(request.cookie, request.offset_bytes, request.length_bytes);
                output.extend_from_slice(header.as_bytes());
                output.extend_from_slice(&disk[range]);
            }
            Command::Write { payload, .. } => {
                let number = self.writes.fetch_add(1, Relaxed);
                match self.fault {
                    Fault::HangUp(at) if at == number => return false,
                    Fault::Refuse(at) if at == number => {
                        replies.error(request.cookie, ErrorCode::NoSpace, "full", output);
                        return true;
                    }
                    Fault::Lose(at) if at == number => {}
                    Fault::Stall(at, length) if at == number => std::thread::sleep(length),
                    _ => disk[range].copy_from_slice(&input[payload.as_range()]),
                }
                replies.success(request.cookie, output);
            }
            _ => replies.success(request.cookie, output),
        }
        true
    }
}
