//! The REST interface over a real socket: shapes, errors, and what a browser's page may not do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use coquina_cluster::DriveCondition;
use coquina_control::{Client, ClientError, ControlListener, Severity, api};
use serde_json::{Value, json};

use super::world::{CAPACITY_BYTES, FakeNode, World, register_node, unknown_node, volume_request};

/// A cluster of one node.
struct Server {
    world: World,
}

impl Server {
    fn start() -> Server {
        Server { world: World::new(1, 1) }
    }

    fn client(&self) -> Client {
        self.world.processes[0].client()
    }

    fn address(&self) -> &str {
        self.world.processes[0].server.address()
    }

    fn node(&self) -> &FakeNode {
        &self.world.processes[0].node
    }

    fn drive(&self) -> coquina_base::DriveId {
        *self.node().memory().drives.keys().next().unwrap()
    }

    /// Sends a request as it is and returns status and body.
    fn raw(&self, head: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let request = format!("{head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json");
        self.raw(&head, body)
    }
}

fn create(client: &Client, name: &str) -> api::Volume {
    client.create_volume(&volume_request(name, 1 << 30)).unwrap()
}

fn code<T>(result: Result<T, ClientError>) -> (u16, String) {
    match result {
        Err(ClientError::Refused { status, code, .. }) => (status, code),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn a_volume_lives_through_the_client() {
    let server = Server::start();
    let client = server.client();
    assert_eq!(create(&client, "db").size_bytes, 1 << 30);
    let grown = api::ResizeVolume { size_bytes: 2 << 30, allow_shrink: false, force: false };
    assert_eq!(client.resize_volume("db", &grown).unwrap().size_bytes, 2 << 30);
    client.rename_volume("db", &api::RenameVolume { new_name: "web".to_owned() }).unwrap();
    assert_eq!(client.volumes(0).unwrap().volumes[0].name, "web");
    let removed = client.remove_volume("web", &api::RemoveVolume { force: false }).unwrap();
    assert_eq!(removed.state, api::VolumeState::Removing);
    assert_eq!(code(client.volume("web")), (404, "volume_not_found".to_owned()));
    client.shutdown().unwrap();
    assert!(server.node().memory().shutdown_requested);
}

#[test]
fn shapes_are_stable() {
    let server = Server::start();
    let client = server.client();
    let volume = serde_json::to_value(create(&client, "db")).unwrap();
    let fields = [
        "copies",
        "created_unix_ns",
        "groups",
        "groups_degraded",
        "id",
        "io",
        "layer",
        "min_copies",
        "name",
        "placement",
        "pool",
        "rates",
        "shrinking_from_bytes",
        "size_bytes",
        "state",
        "stripe_count",
        "stripe_unit_bytes",
    ];
    assert_eq!(keys(&volume), fields);
    assert_eq!(volume["state"], "active");
    assert_eq!(volume["id"].as_str().unwrap().len(), 32);
    assert_eq!(volume["groups"], 64);
    let share = &volume["placement"][0];
    assert_eq!(keys(share), ["drive", "groups", "groups_out", "node", "path", "primaries", "shard"]);
    assert_eq!(share["drive"], server.drive().to_string());
    assert_eq!(share["path"], "/drives/\"0\"");
    assert_eq!((&share["groups"], &share["primaries"]), (&json!(32), &json!(32)));
    assert_eq!(
        volume["io"]["write_latency"],
        json!({"mean_ns": 100_000, "p50_ns": 131_072, "p99_ns": 131_072})
    );
    // The coordinator tells of the pool that was made for the volume until it has looked at it once more.
    let is_quiet = |_: &World| client.status(0).unwrap().health.entries.is_empty();
    server.world.wait_for("an end of notices", is_quiet);
    let status = serde_json::to_value(client.status(0).unwrap()).unwrap();
    let fields = [
        "cluster", "data", "drives", "groups", "health", "node", "nodes", "pools", "rates", "reactors",
        "recovery", "services", "store",
    ];
    assert_eq!(keys(&status), fields);
    assert_eq!(status["health"], json!({"state": "ok", "entries": []}));
    assert_eq!(status["node"]["version"], "1.2.3");
    assert_eq!(
        (&status["node"]["name"], &status["node"]["process_name"]),
        (&json!("node-0"), &json!("node node-0"))
    );
    assert_eq!(status["services"]["http"], server.address());
    assert_eq!(status["data"]["provisioned_bytes"], 1u64 << 30);
    assert_eq!(status["data"]["provisionable_bytes"], 64u64 << 30);
    assert_eq!(status["drives"][0]["state"], "healthy");
    assert_eq!(status["drives"][0]["node_name"], "node-0");
    assert_eq!(status["drives"][0]["shards"].as_array().unwrap().len(), 2);
    assert_eq!(status["nodes"][0]["state"], "up");
    assert_eq!(status["nodes"][0]["leads"], true);
    assert_eq!(status["pools"][0]["name"], "default");
    assert_eq!((&status["groups"]["total"], &status["groups"]["active_clean"]), (&json!(64), &json!(64)));
    assert_eq!(status["store"]["reachable"], true);
    assert!(status["rates"].is_null());
}

#[test]
fn every_process_tells_of_the_whole_cluster() {
    let world = World::new(3, 1);
    create(&world.processes[0].client(), "db");
    for process in &world.processes {
        process.wait("the volume", |map| map.volume_by_name("db").is_some());
        let client = process.client();
        let status = client.status(0).unwrap();
        assert_eq!(status.node.name, process.name);
        assert_eq!(status.nodes.iter().filter(|node| node.state == api::NodeState::Up).count(), 3);
        assert_eq!(status.nodes.iter().filter(|node| node.leads).count(), 1);
        assert_eq!(status.drives.iter().filter(|drive| drive.state == api::DriveState::Healthy).count(), 3);
        assert_eq!(status.groups.unwrap().active_clean, 64);
        assert_eq!((status.data.live_bytes, status.data.capacity_bytes), (6 << 30, 3 * CAPACITY_BYTES));
        let groups = client.groups(Some("db")).unwrap().groups;
        assert!(groups.iter().all(|group| group.in_sync.len() == 3), "{groups:?}");
        assert_eq!(client.nodes().unwrap().nodes.len(), 3);
        assert_eq!(client.pools().unwrap().pools[0].volumes, 1);
        // 31 GiB are free of each shard, and each has a copy of half of the groups.
        assert_eq!(status.pools[0].available_bytes, Some(62 << 30));
        assert_eq!(client.local().unwrap().node, process.catalogue.node());
    }
    let client = world.processes[0].client();
    let available = || client.pools().unwrap().pools[0].available_bytes;
    world.processes[2].node.memory().more_live_bytes = 21 << 30;
    assert_eq!(available(), Some(20 << 30), "the fullest is full first");
    world.processes[2].node.memory().more_live_bytes = 32 << 30;
    assert_eq!(available(), Some(0), "more than it can hold for users");
    world.processes[2].node.memory().more_live_bytes = 0;
    world.processes[1].kill();
    assert_eq!(available(), Some(62 << 30), "of those that answer");
    let drives = client.drives().unwrap().drives;
    let missing: Vec<_> = drives.iter().filter(|drive| drive.state == api::DriveState::Missing).collect();
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].problem.as_deref(), Some("node node-1 does not answer this process"));
    let data = client.status(0).unwrap().data;
    assert_eq!((data.live_bytes, data.capacity_bytes), (4 << 30, 2 * CAPACITY_BYTES));
    let scrub = client.scrub_drives(&api::ScrubDrives::default()).unwrap();
    let failed: Vec<_> = scrub.failed.iter().map(|failed| failed.name.as_str()).collect();
    assert_eq!((scrub.drives.len(), failed), (3, vec!["node-1"]), "those of the others have begun");
    assert!(scrub.failed[0].reason.contains("cannot reach"), "{scrub:?}");
    let silent = api::ScrubDrives { drive: Some(missing[0].id.to_string()), local_only: false };
    assert_eq!(code(client.scrub_drives(&silent)), (503, "other_node_unreachable".to_owned()));
    assert_eq!(
        world.processes[2].node.memory().scrubs.len() + world.processes[0].node.memory().scrubs.len(),
        2
    );
}

#[test]
fn a_process_that_does_not_lead_says_who_does() {
    let world = World::new(2, 1);
    for process in &world.processes {
        let address = process.server.address();
        let mut stream = TcpStream::connect(address).unwrap();
        let request = "GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let leader = world.leader().unwrap().server.address();
        match address == leader {
            true => assert!(answer.contains("200 OK"), "{answer}"),
            false => assert!(answer.contains("not_leading") && answer.contains(leader), "{answer}"),
        }
    }
}

#[test]
fn live_rates_come_with_an_interval() {
    let server = Server::start();
    let client = server.client();
    create(&client, "db");
    let rates = client.status(20).unwrap().rates.unwrap();
    assert!(rates.interval_ns >= 20_000_000);
    assert!(rates.writes_per_s > 0.0 && rates.write_bytes_per_s > rates.writes_per_s);
    assert_eq!(rates.reads_per_s, 0.0);
    assert!(client.volumes(20).unwrap().volumes[0].rates.is_some());
    assert_eq!(code(client.status(10_001)), (400, "bad_request".to_owned()));
}

#[test]
fn health_says_503_only_if_something_does_not_work() {
    let server = Server::start();
    let get = "GET /health HTTP/1.1\r\nHost: x";
    assert_eq!(server.raw(get, "").0, 200);
    server.node().memory().poisoned = true;
    let (status, body) = server.raw(get, "");
    assert_eq!(status, 200, "nothing is on it");
    assert_eq!(body["state"], "warning");
    assert_eq!(body["entries"][0]["code"], "DRIVE_READ_ONLY");
    assert_eq!(keys(&body["entries"][0]), ["advice", "code", "message", "severity", "subject"]);
    assert_eq!(server.client().drives().unwrap().drives[0].state, api::DriveState::ReadOnly);
    create(&server.client(), "db");
    assert_eq!(server.raw(get, "").0, 503, "there is no other copy");
    server.node().memory().poisoned = false;
    assert_eq!(server.raw(get, "").0, 200);
    let drive = server.drive();
    server.node().memory().drives.insert(drive, DriveCondition::Failed);
    server.world.wait_for("its groups are down", |_| server.raw(get, "").0 == 503);
    let health = server.client().health().unwrap();
    assert_eq!(health.entries[0].severity, Severity::Error);
}

/// Sends a request of which nobody waits for the answer.
fn post_and_go_on(server: &Server, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json");
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream
}

#[test]
fn changes_whose_clients_went_away_count_until_they_are_done() {
    const CHANGES_MAX: u64 = 16;
    let server = Server::start();
    let store = &server.world.processes[0].store;
    *store.held_prefix.lock().unwrap() = "coquina/map/cluster";
    store.transactions_held.store(true, Ordering::SeqCst);
    let change = || post_and_go_on(&server, "/v1/cluster/overcommit", r#"{"percent":150}"#);
    let held = || store.held.load(Ordering::SeqCst);
    let streams: Vec<TcpStream> = (0..CHANGES_MAX).map(|_| change()).collect();
    server.world.wait_for("all are on their way", |_| held() == CHANGES_MAX);
    drop(streams);
    let _more: Vec<TcpStream> = (0..4).map(|_| change()).collect();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(held(), CHANGES_MAX);
    store.transactions_held.store(false, Ordering::SeqCst);
    server.world.wait_for("the others had their turn", |_| {
        server.client().status(0).is_ok_and(|status| status.data.overcommit_percent == 150)
    });
}

#[test]
fn scrubs_are_started_by_path_identity_or_for_all() {
    let server = Server::start();
    let client = server.client();
    let scrub = |drive: Option<&str>| {
        client.scrub_drives(&api::ScrubDrives { drive: drive.map(str::to_owned), local_only: false })
    };
    assert_eq!(scrub(None).unwrap().drives[0].scrub_percent, Some(25.0));
    scrub(Some("/drives/\"0\"")).unwrap();
    let id = server.drive();
    scrub(Some(&id.to_string())).unwrap();
    assert_eq!(code(scrub(Some("/other"))), (404, "drive_not_found".to_owned()));
    assert_eq!(server.node().memory().scrubs, [None, Some(id), Some(id)]);
}

#[test]
fn errors_are_json_with_code_and_message() {
    let server = Server::start();
    create(&server.client(), "db");
    let cases = [
        ("/v1/volumes", "{", 400, "bad_request"),
        ("/v1/volumes", "{}", 422, "bad_request"),
        ("/v1/volumes", "[1,2]", 422, "bad_request"),
        ("/v1/volumes", r#"{"name":"x","size_bytes":-1}"#, 422, "bad_request"),
        ("/v1/volumes", r#"{"name":"x","size_bytes":1.5}"#, 422, "bad_request"),
        ("/v1/volumes", r#"{"name":"x","size_bytes":"1G"}"#, 422, "bad_request"),
        ("/v1/volumes", r#"{"name":"x","size_bytes":4096,"typo":1}"#, 422, "bad_request"),
        ("/v1/volumes", r#"{"name":"x","size_bytes":0}"#, 400, "bad_size"),
        ("/v1/volumes", r#"{"name":"../x","size_bytes":4096}"#, 400, "bad_name"),
        ("/v1/volumes", r#"{"name":"db","size_bytes":4096}"#, 409, "volume_exists"),
        ("/v1/volumes", r#"{"name":"x","size_bytes":1099511627776}"#, 507, "no_room"),
        ("/v1/volumes/db/resize", r#"{"size_bytes":4096}"#, 409, "shrink_not_confirmed"),
        ("/v1/volumes/none/resize", r#"{"size_bytes":4096}"#, 404, "volume_not_found"),
        ("/v1/volumes/%2e%2e%2fx/resize", r#"{"size_bytes":4096}"#, 404, "volume_not_found"),
        ("/v1/volumes/%ff/resize", r#"{"size_bytes":4096}"#, 400, "bad_request"),
        ("/v1/pools/%ff/remove", "{}", 400, "bad_request"),
        ("/v1/volumes/db", "{}", 405, "wrong_method"),
        ("/health", "{}", 405, "wrong_method"),
        ("/v1/nothing", "{}", 404, "not_found"),
    ];
    for (path, body, status, code) in cases {
        let (seen, answer) = server.post(path, body);
        assert_eq!(seen, status, "{path} {body}: {answer}");
        assert_eq!(answer["code"], code, "{path} {body}: {answer}");
        assert_eq!(keys(&answer), ["code", "message"]);
    }
    let (status, answer) = server.raw("GET /v1/volumes/%FF HTTP/1.1\r\nHost: localhost", "");
    assert_eq!((status, keys(&answer)), (400, vec!["code", "message"]), "{answer}");
    let large = format!(r#"{{"name":"{}","size_bytes":4096}}"#, "x".repeat(100_000));
    assert_eq!(server.post("/v1/volumes", &large).0, 413);
    assert_eq!(server.client().volumes(0).unwrap().volumes.len(), 1);
    // Not so of a removal that names very many volumes: the drive works, and that is why it is refused.
    let volumes = vec![coquina_base::VolumeId::default(); 10_000];
    let drive = server.drive().to_string();
    let request = api::RemoveDrive { drive, lose_data: true, volumes: Some(volumes), ..Default::default() };
    let refused = server.client().remove_drive(&request).unwrap_err();
    assert!(matches!(&refused, ClientError::Refused { code, .. } if code == "drive_works"), "{refused:?}");
}

#[test]
fn a_page_in_a_browser_cannot_drive_the_server() {
    let server = Server::start();
    let body = r#"{"name":"x","size_bytes":4096}"#;
    let json = "Content-Type: application/json";
    let post = |headers: &str| server.raw(&format!("POST /v1/volumes HTTP/1.1\r\n{headers}"), body);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let (status, answer) = post(&format!("Host: localhost\r\nContent-Type: {kind}"));
        assert_eq!((status, &answer["code"]), (415, &json!("not_json")));
    }
    assert_eq!(post("Host: localhost").0, 415);
    let rebound = post(&format!("Host: evil.example:10810\r\n{json}"));
    assert_eq!((rebound.0, &rebound.1["code"]), (403, &json!("host_refused")));
    assert_eq!(server.raw("GET /v1/volumes HTTP/1.1\r\nHost: evil.example", "").0, 403);
    assert_eq!(server.client().volumes(0).unwrap().volumes.len(), 0);
    assert_eq!(post(&format!("Host: {}\r\n{json}; charset=utf-8", server.address())).0, 201);
}

/// More than the nodes of a small cluster and a careless monitoring leave open.
#[test]
fn connections_on_which_nothing_is_asked_keep_nobody_out() {
    let server = Server::start();
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let (sender, answered) = std::sync::mpsc::channel();
    let client = server.client();
    std::thread::spawn(move || drop(sender.send(client.local().map(drop))));
    answered.recv_timeout(super::world::PATIENCE).expect("an answer in time").unwrap();
    drop(idle);
}

/// Each waits until this very process refuses the old size, for which it has to ask itself.
#[test]
fn shrinks_leave_threads_for_what_they_wait_for() {
    let server = Server::start();
    let names: Vec<String> = (0..48).map(|number| format!("db{number}")).collect();
    for name in &names {
        server.client().create_volume(&volume_request(name, 1 << 30)).unwrap();
    }
    let shrink = api::ResizeVolume { size_bytes: 1 << 29, allow_shrink: true, force: false };
    let done = std::thread::scope(|scope| {
        // The first one takes until all others are asked for.
        let trimmer = &server.world.trimmer;
        trimmer.held.store(true, Ordering::SeqCst);
        let shrinks: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| server.client().resize_volume(name, &shrink).unwrap()))
            .collect();
        server.world.wait_for("the first one", |_| !trimmer.trims.lock().unwrap().is_empty());
        std::thread::sleep(Duration::from_secs(1));
        trimmer.held.store(false, Ordering::SeqCst);
        shrinks.into_iter().map(|shrink| shrink.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(done.iter().all(|volume| volume.shrinking_from_bytes.is_none()), "{done:?}");
}

/// Load balancers and monitoring ask all the time, and each waited for the silent node on a thread of its own: other processes
/// took this one for silent, too.
#[test]
fn who_asks_how_all_are_leaves_threads_for_what_processes_ask_each_other() {
    let server = Server::start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    register_node(&server.world.processes[0].map, unknown_node(), "silent", &address).unwrap();
    let before = server.node().memory().snapshots;
    std::thread::scope(|scope| {
        for number in 0..120 {
            let client = server.client();
            scope.spawn(move || match number % 4 {
                0 => client.health().map(drop).unwrap(),
                1 => client.status(0).map(drop).unwrap(),
                2 => client.drives().map(drop).unwrap(),
                _ => client.nodes().map(drop).unwrap(),
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        let asked = std::time::Instant::now();
        server.client().local().unwrap();
        assert!(asked.elapsed() < Duration::from_millis(1500), "{:?}", asked.elapsed());
    });
    let samples = server.node().memory().snapshots - before;
    assert!(samples < 20, "{samples} samples were taken");
}

/// Each waited on a thread of its own for a reactor that hangs, until there was none for anything else.
#[test]
fn who_asks_what_this_process_counts_leaves_threads_for_what_processes_ask_each_other() {
    let server = Server::start();
    let before = server.node().memory().snapshots;
    server.node().memory().snapshot_takes = Duration::from_secs(2);
    let ask = |number: u64| {
        let path = if number % 2 == 0 { "/v1/local" } else { "/metrics" };
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        stream
    };
    let streams: Vec<TcpStream> = (0..80).map(ask).collect();
    std::thread::sleep(Duration::from_millis(300));
    let asked = std::time::Instant::now();
    let (status, _) = server.raw("GET /v1/health HTTP/1.1\r\nHost: localhost", "");
    assert!(asked.elapsed() < Duration::from_millis(1500), "{:?}", asked.elapsed());
    assert_eq!(status, 200);
    for mut stream in streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let samples = server.node().memory().snapshots - before;
    assert!(samples <= 8, "{samples} samples were taken");
}

#[test]
fn the_client_says_what_is_wrong_with_an_address() {
    let server = Server::start();
    let address = server.address().to_owned();
    assert!(server.client().metrics().unwrap().contains("coquina_uptime_seconds"));
    drop(server);
    let error = Client::new(&address).unwrap().status(0).unwrap_err().to_string();
    assert!(error.contains("cannot reach the server") && error.contains(&address), "{error}");
    for bad in ["", "localhost", "localhost:", "localhost:x", "127.0.0.1:99999"] {
        let error = Client::new(bad).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("--server HOST:PORT"), "{bad}: {error}");
    }
}

#[test]
fn a_port_in_use_names_the_flag() {
    let first = ControlListener::bind("127.0.0.1:0").unwrap();
    let error = ControlListener::bind(first.address()).unwrap_err().to_string();
    assert!(error.contains(first.address()) && error.contains("--http"), "{error}");
}
