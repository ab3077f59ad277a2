//! The session against clients that others wrote, and the client against a server that others wrote.
//!
//! A test whose program is not installed says so and passes.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a stand-in for the real driver")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Output, Stdio};
use std::sync::{Arc, Mutex};

use coquina_nbd::{
    BlockState, BlockStatusReply, ClientConfig, ClientHandshake, ClientRequest, ClientRequestKind, Command,
    Cookie, Event, ExportInfo, ExportRefusal, Negotiated, Reply, ReplyEncoder, Request, ServerConfig,
    ServerSession, parse_reply,
};

const DISK_BYTES: usize = 8 << 20;

type Disk = Arc<Mutex<Vec<u8>>>;

/// A socket's place, removed after the test.
struct SocketPath(PathBuf);

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl std::ops::Deref for SocketPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

fn socket_path(name: &str) -> SocketPath {
    let path = std::env::temp_dir().join(format!("coquina-nbd-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    SocketPath(path)
}

fn serve(name: &str) -> (SocketPath, Disk) {
    let path = socket_path(name);
    let disk: Disk = Arc::new(Mutex::new(vec![0; DISK_BYTES]));
    let listener = UnixListener::bind(&*path).unwrap();
    let shared = disk.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let disk = shared.clone();
            std::thread::spawn(move || serve_connection(stream.unwrap(), &disk));
        }
    });
    (path, disk)
}

fn serve_connection(mut stream: UnixStream, disk: &Disk) {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut session = ServerSession::new(ServerConfig::default(), &mut output);
    let mut buffer = vec![0; 256 << 10];
    loop {
        let (consumed_bytes, event) = session.receive(&input, &mut output);
        let is_open = match &event {
            Some(Event::LookUpExport { name, .. }) => {
                let info = ExportInfo::new(DISK_BYTES as u64);
                let answer = if name.as_str() == "disk" { Ok(info) } else { Err(ExportRefusal::Unknown) };
                !matches!(session.export_found(answer, &mut output), Some(Event::Disconnect(_)))
            }
            Some(Event::ListExports) => {
                session.exports_listed(["disk"], &mut output);
                true
            }
            Some(Event::Request(request)) => {
                carry_out(request, session.replies(), &input, &mut disk.lock().unwrap(), &mut output);
                true
            }
            Some(Event::Disconnect(_) | Event::Violation(_)) => false,
            Some(Event::Ready | Event::Refused { .. }) | None => true,
        };
        input.drain(..consumed_bytes);
        if !is_open || event.is_none() {
            let sent = stream.write_all(&output);
            output.clear();
            let received_bytes = stream.read(&mut buffer).unwrap_or(0);
            if !is_open || sent.is_err() || received_bytes == 0 {
                return;
            }
            input.extend_from_slice(&buffer[..received_bytes]);
        }
    }
}

fn carry_out(request: &Request, replies: ReplyEncoder, input: &[u8], disk: &mut [u8], output: &mut Vec<u8>) {
    let &Request { cookie, offset_bytes, length_bytes, .. } = request;
    let range = offset_bytes as usize..offset_bytes as usize + length_bytes as usize;
    match request.command {
        Command::Read { .. } => {
            output.extend_from_slice(replies.read(cookie, offset_bytes, length_bytes).as_bytes());
            output.extend_from_slice(&disk[range]);
            return;
        }
        Command::BlockStatus { one_extent } => {
            let mut reply = BlockStatusReply::new(cookie, length_bytes, one_extent, output);
            for sector in disk[range].chunks(512) {
                let is_hole = sector.iter().all(|byte| *byte == 0);
                reply.push(512, if is_hole { BlockState::HOLE } else { BlockState::DATA });
            }
            return reply.finish();
        }
        Command::Write { payload, .. } => disk[range].copy_from_slice(&input[payload.as_range()]),
        Command::WriteZeroes { .. } | Command::Trim { .. } => disk[range].fill(0),
        Command::Flush | Command::Cache => {}
    }
    replies.success(cookie, output);
}

/// None if the program is not installed.
fn output_of(program: &mut Program) -> Option<Output> {
    let output = program.stdin(Stdio::null()).output();
    if output.is_err() {
        println!("skipped: {} is not installed", program.get_program().display());
    }
    output.ok()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn uri(export: &str, path: &Path) -> String {
    format!("nbd+unix:///{export}?socket={}", path.display())
}

#[test]
fn nbdinfo_lists_and_describes() {
    let (path, disk) = serve("nbdinfo");
    disk.lock().unwrap()[4096..8192].fill(1);
    let Some(output) = output_of(Program::new("nbdinfo").arg("--list").arg(uri("", &path))) else { return };
    let listed = text(&output);
    assert!(output.status.success(), "{listed}");
    for expected in [
        "export=\"disk\"",
        "export-size: 8388608",
        "base:allocation",
        "using structured packets",
        "block_size_minimum: 512",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "is_read_only: false",
    ] {
        assert!(listed.contains(expected), "{expected} is missing from {listed}");
    }
    let map = text(&output_of(Program::new("nbdinfo").arg("--map").arg(uri("disk", &path))).unwrap());
    let fields: Vec<&str> = map.split_whitespace().collect();
    assert_eq!(
        fields,
        "0 4096 3 hole,zero 4096 4096 0 data 8192 8380416 3 hole,zero".split(' ').collect::<Vec<_>>()
    );
    let missing = output_of(Program::new("nbdinfo").arg(uri("missing", &path))).unwrap();
    // libnbd 1.14 shows words of its own for an unknown export.
    assert!(!missing.status.success() && text(&missing).contains("No such file"), "{}", text(&missing));
}

#[test]
fn libnbd_reads_writes_and_is_refused_cleanly() {
    let (path, _) = serve("nbdsh");
    let script = r#"
h.set_strict_mode(0)
h.pwrite(b"\x07" * 4096, 8192, nbd.CMD_FLAG_FUA)
assert h.pread(4096, 8192) == b"\x07" * 4096
assert h.pread(512, 8192, nbd.CMD_FLAG_DF) == b"\x07" * 512
h.zero(4096, 8192, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(4096, 8192) == bytes(4096)
h.trim(4096, 0); h.flush(); h.cache(4096, 0)
big = bytes(range(256)) * 16384
h.pwrite(big, 0)
assert h.pread(len(big), 0) == big
def refused(call, number):
    try: call()
    except nbd.Error as error: assert error.errnum == number, error
    else: assert False, "not refused"
refused(lambda: h.pread(512, 8 << 20), 22)
refused(lambda: h.pwrite(bytes(512), 8 << 20), 28)
refused(lambda: h.pwrite(bytes(100), 1), 22)
refused(lambda: h.pread(100, 1), 22)
refused(lambda: h.zero(0, 0), 22)
refused(lambda: h.trim(512, 0, 64), 22)
assert h.pread(512, 0) == big[:512]
"#;
    let program = &mut Program::new("nbdsh");
    // It runs the first python3 in the path, which has to be the one that libnbd was packaged for.
    program.env("PATH", "/usr/bin:/bin");
    let program = program.arg("--base-allocation").arg("--uri").arg(uri("disk", &path)).arg("-c").arg(script);
    let Some(output) = output_of(program) else { return };
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn qemu_io_verifies_patterns() {
    let (path, _) = serve("qemu-io");
    let mut program = Program::new("qemu-io");
    program.args(["-f", "raw"]);
    for command in [
        "write -P 5 4k 64k",
        "read -P 5 4k 64k",
        "write -z -u 8k 4k",
        "read -P 0 8k 4k",
        "discard 0 1M",
        "flush",
    ] {
        program.args(["-c", command]);
    }
    program.args(["-c", "write -P 9 512 3M", "-c", "read -P 9 512 3M", "-c", "map"]);
    let Some(output) = output_of(program.arg(uri("disk", &path))) else { return };
    assert!(output.status.success() && !text(&output).contains("failed"), "{}", text(&output));
}

fn receive_more(stream: &mut UnixStream, input: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    let received_bytes = stream.read(&mut buffer).unwrap();
    assert!(received_bytes > 0, "the server hung up");
    input.extend_from_slice(&buffer[..received_bytes]);
}

fn connect(path: &Path, export: &str) -> (UnixStream, Negotiated, Vec<u8>) {
    let mut stream = (0..200)
        .find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            UnixStream::connect(path).ok()
        })
        .expect("the server listens within four seconds");
    let export = export.parse().unwrap();
    let mut client =
        ClientHandshake::new(ClientConfig { export, structured_replies: true, block_status: true });
    let (mut input, mut output) = (Vec::new(), Vec::new());
    loop {
        receive_more(&mut stream, &mut input);
        let (consumed_bytes, negotiated) = client.receive(&input, &mut output).unwrap();
        input.drain(..consumed_bytes);
        stream.write_all(&output).unwrap();
        output.clear();
        if let Some(negotiated) = negotiated {
            return (stream, negotiated, input);
        }
    }
}

/// Sends one request and checks that it succeeds; returns the data of a read.
fn call(
    stream: &mut UnixStream,
    kind: ClientRequestKind,
    offset_bytes: u64,
    length_bytes: u32,
    data: &[u8],
) -> Vec<u8> {
    let request = ClientRequest { cookie: Cookie(5), kind, offset_bytes, length_bytes };
    stream.write_all(&request.header()).unwrap();
    stream.write_all(data).unwrap();
    let (mut input, mut read) = (Vec::new(), vec![0; length_bytes as usize]);
    loop {
        let Some((used, reply)) = parse_reply(&input).unwrap() else {
            receive_more(stream, &mut input);
            continue;
        };
        let (is_last, at, data_bytes) = match reply {
            Reply::Simple { error: None, .. } | Reply::Done { .. } => (true, 0, 0),
            Reply::Data { offset_bytes: at, length_bytes, last, .. } => {
                (last, at - offset_bytes, length_bytes as usize)
            }
            Reply::Hole { last, .. } | Reply::BlockStatus { last, .. } => (last, 0, 0),
            Reply::Simple { .. } | Reply::Error { .. } => panic!("{reply:?}"),
        };
        while input.len() < used + data_bytes {
            receive_more(stream, &mut input);
        }
        read[at as usize..at as usize + data_bytes].copy_from_slice(&input[used..used + data_bytes]);
        input.drain(..used + data_bytes);
        if is_last {
            assert!(input.is_empty());
            return read;
        }
    }
}

#[test]
fn the_client_speaks_with_nbdkit() {
    let path = socket_path("nbdkit");
    let mut program = Program::new("nbdkit");
    let program = program
        .arg("--foreground")
        .arg("--exit-with-parent")
        .arg("--unix")
        .arg(&*path)
        .args(["memory", "1M"]);
    let Ok(mut server) = program.stdout(Stdio::null()).spawn() else { return println!("skipped: no nbdkit") };
    let (mut stream, negotiated, rest) = connect(&path, "");
    assert!(rest.is_empty() && negotiated.structured_replies && negotiated.allocation_context_id.is_some());
    assert_eq!(negotiated.size_bytes, 1 << 20);
    call(&mut stream, ClientRequestKind::Write { force_unit_access: true }, 4096, 8192, &[3; 8192]);
    let read = call(&mut stream, ClientRequestKind::Read { dont_fragment: false }, 0, 16384, &[]);
    assert_eq!(read, [vec![0; 4096], vec![3; 8192], vec![0; 4096]].concat());
    call(&mut stream, ClientRequestKind::BlockStatus { one_extent: false }, 0, 1 << 20, &[]);
    call(&mut stream, ClientRequestKind::Trim { force_unit_access: false }, 4096, 8192, &[]);
    call(&mut stream, ClientRequestKind::Flush, 0, 0, &[]);
    let kind = ClientRequestKind::Disconnect;
    let goodbye = ClientRequest { cookie: Cookie(1), kind, offset_bytes: 0, length_bytes: 0 };
    stream.write_all(&goodbye.header()).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
}
