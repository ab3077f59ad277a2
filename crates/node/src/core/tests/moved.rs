//! A drive that was this node's and is another one's by a newer map.

use std::net::TcpListener;

use coquina_base::{LayerId, VolumeId};
use coquina_cluster::{
    BlockId, DriveRecord, DriveState, GroupBlock, GroupId, GroupRecord, NodeAddresses, NodeRecord,
    POOL_GROUPS_MAX, PoolId, PoolRecord, PoolState, VersionRange, VolumeRecord, VolumeState, Wanted,
};

use super::answers::open;
use super::hung::ask;
use super::*;
use crate::follow::Owner;
use crate::request::Answer as NbdAnswer;

const OWN: NodeId = NodeId(Id128([1; 16]));
const OTHER: NodeId = NodeId(Id128([2; 16]));

fn node(id: NodeId, name: &str, address: &str) -> (Key, u64, Record) {
    let addresses =
        NodeAddresses { native: address.to_owned(), http: String::new(), peer: address.to_owned() };
    let versions = VersionRange { min: 1, max: 1 };
    let record = NodeRecord {
        id,
        name: name.to_owned(),
        addresses,
        domains: Default::default(),
        versions,
        wanted: Wanted::In,
    };
    (Key::Node(id), 1, Record::Node(record))
}

/// A map with a volume on the drive, which is a node's.
fn map_of(revision: u64, owner: NodeId, other_address: &str) -> Arc<MapView> {
    let cluster = ClusterRecord {
        layer_next: 2,
        pool_next: 2,
        copy_next: 2,
        group_next: 2 * POOL_GROUPS_MAX,
        ..ClusterRecord::new(ClusterId(Id128([1; 16])))
    };
    let drive = DriveRecord {
        id: DRIVE,
        node: owner,
        path: "/drive".to_owned(),
        size_bytes: 16 << 20,
        capacity_bytes: 8 << 20,
        shards: 1,
        weight: 1,
        copy_first: 1,
        state: DriveState::Healthy,
        wanted: Wanted::In,
        dead_ms: 0,
    };
    let pool = PoolRecord {
        id: PoolId(1),
        name: "data".to_owned(),
        copies: 1,
        min_copies: 1,
        domain: "drive".to_owned(),
        group_first: GroupId(POOL_GROUPS_MAX),
        group_count: 1,
        state: PoolState::Active,
    };
    let group = GroupRecord {
        id: pool.group_first,
        pool: pool.id,
        epoch: 1,
        in_sync: vec![ShardRef { drive: DRIVE, shard: 0 }],
        others: Vec::new(),
        wanted: Vec::new(),
    };
    let volume = VolumeRecord {
        id: VolumeId(Id128([9; 16])),
        name: "disk".to_owned(),
        size_bytes: 1 << 20,
        layer: LayerId(1),
        created_unix_ns: 0,
        state: VolumeState::Active,
        attach_generation: 1,
        shrinking_from_bytes: None,
        size_max_bytes: None,
        pool: pool.id,
        family: 1,
        stripe_unit_bytes: Striping::PLAIN.stripe_unit_bytes,
        stripe_count: Striping::PLAIN.stripe_count,
    };
    let block = BlockId(pool.group_first.0 / coquina_cluster::BLOCK_GROUPS);
    let records = vec![
        (Key::Cluster, 1, Record::Cluster(cluster)),
        node(OWN, "own", "127.0.0.1:1"),
        node(OTHER, "other", other_address),
        (Key::Drive(DRIVE), revision, Record::Drive(drive)),
        (Key::Pool(pool.id), 1, Record::Pool(pool)),
        (Key::Groups(block), 1, Record::Groups(GroupBlock { groups: vec![group] })),
        (Key::Volume(volume.id), 1, Record::Volume(volume)),
    ];
    Arc::new(MapView::load(records, revision).unwrap())
}

/// A write of an NBD client.
fn write(core: &mut Core, client: usize) {
    ask(core, client, RequestKind::Write, NbdAnswer::Success);
    core.look_after_gateways();
}

/// Its requests went to the place that the drive had here, and failed after 30 s.
#[test]
fn a_gateway_goes_to_the_node_that_has_a_drive_which_was_removed_here() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let other_address = listener.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut core = Core { node: OWN, ..core_with_drive(&folder) };
    core.follow(map_of(2, OWN, &other_address));
    add_gateway_of(&mut core, 0);
    core.refresh_gateways();
    let (client, _theirs) = open(&mut core, 0);
    let serial = core.serial_next;
    write(&mut core, client);
    assert_eq!(core.serial_next, serial + 1, "the shard here was asked");

    release(&mut core);
    core.follow(map_of(3, OTHER, &other_address));
    write(&mut core, client);
    for _ in 0..TURNS_MAX {
        core.service();
        turn(&mut core);
        if listener.accept().is_ok() {
            return;
        }
    }
    panic!("nobody asked the other node");
}

/// A reactor whose node has the drive, with an NBD client of the volume on it.
fn core_that_serves(folder: &TempDir) -> (Core, usize, UnixStream) {
    let mut core = Core { node: OWN, ..core_with_drive(folder) };
    core.follow(map_of(2, OWN, "127.0.0.1:1"));
    add_gateway_of(&mut core, 0);
    core.refresh_gateways();
    let (client, theirs) = open(&mut core, 0);
    (core, client, theirs)
}

/// Has what was asked for done.
fn turn_often(core: &mut Core) {
    for _ in 0..10 {
        core.service();
        turn(core);
    }
}

/// Bytes of the drive.
fn bytes_of(folder: &TempDir) -> Vec<u8> {
    std::fs::read(folder.path().join("drive")).unwrap()
}

/// Groups and links were kept, and letting go of it wrote a checkpoint, while the other node may have been writing to the same log.
#[test]
fn nothing_is_written_to_a_drive_that_belongs_to_another_node_now() {
    let folder = tempfile::tempdir().unwrap();
    let (mut core, client, _theirs) = core_that_serves(&folder);
    write(&mut core, client);
    turn_often(&mut core);
    let group = core.shards[0].copies().groups()[0];
    assert!(!core.shards[0].copies().is_halted(group));
    // This one is with the shard when the map comes.
    write(&mut core, client);
    core.service();
    core.follow(map_of(3, OTHER, "127.0.0.1:1"));
    assert!(core.shards[0].copies().is_halted(group), "it answers nothing any more");
    assert!(core.requests.is_empty(), "and owes nothing");
    turn_often(&mut core);
    let before = bytes_of(&folder);
    release(&mut core);
    assert!(bytes_of(&folder) == before);
    assert!(core.shards[0].damage.is_empty(), "nothing is wrong with it");
}

/// It is registered before its reactor hears of that.
#[test]
fn a_drive_that_has_just_come_is_not_let_go_of_by_an_older_map() {
    let folder = tempfile::tempdir().unwrap();
    let mut core = Core { node: OWN, ..core_with_drive(&folder) };
    core.follow(map_of(2, OTHER, "127.0.0.1:1"));
    assert_eq!(core.shards[0].copies().groups().len(), 0, "another node may serve them yet");
    core.follow(map_of(3, OWN, "127.0.0.1:1"));
    let copies = core.shards[0].copies();
    assert_eq!(copies.groups().len(), 1);
    assert!(!copies.is_halted(copies.groups()[0]) && !copies.shard().stats().poisoned);
}

/// The map in which it was here came and went before its reactor heard of it.
#[test]
fn nothing_is_written_to_a_drive_that_moved_on_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut core, client, _theirs) = core_that_serves(&folder);
    write(&mut core, client);
    turn_often(&mut core);
    // As it is when it has been replayed: a checkpoint is due.
    core.shards[0].owner = Owner::Unseen;
    core.follow(map_of(3, OTHER, "127.0.0.1:1"));
    let before = bytes_of(&folder);
    release(&mut core);
    assert!(bytes_of(&folder) == before);
}
