//! The map: what comes from the store, what must not go backwards, and what updates cost at full size.

use std::collections::BTreeMap;
use std::sync::Arc;

use coquina_base::LayerId;
use coquina_cluster::operation;
use coquina_cluster::{
    Action, BLOCK_GROUPS, BlockId, ClusterRecord, Coordinator, DriveCondition, DriveRecord, DriveReport,
    DriveState, Event, GroupBlock, GroupId, GroupRecord, Heartbeat, Key, MapError, MapView, NodeAddresses,
    NodeRecord, POOL_GROUPS_MAX, PoolId, PoolRecord, PoolState, Record, SKIPPED_RANGES_MAX, Settings,
    ShardRef, VersionRange, VolumeRecord, VolumeState, Wanted, Write, mix,
};

use crate::world::{CLUSTER, MILLISECOND_NS, World, all_records, drive_id, node_id};

/// The first block of the first pool.
const FIRST: BlockId = BlockId(POOL_GROUPS_MAX / BLOCK_GROUPS);

fn small() -> World {
    let mut world = World::new(5);
    (0..4).for_each(|node| world.add_node(node, node, 2));
    world.add_pool("pool", 3, "node", 128).unwrap();
    world.elect();
    world.run_until_clean(200);
    world
}

#[test]
fn records_are_read_back_as_written_and_look_ups_follow() {
    let mut world = small();
    let record = world.volume(1, "disk");
    let write = operation::create_volume(&world.store, &record).unwrap().unwrap();
    assert!(world.write(write));
    let again = operation::create_volume(&world.store, &VolumeRecord { layer: LayerId(9), ..record.clone() });
    assert!(again.is_err());
    let view = &world.store;
    assert_eq!(*view.volume_by_name("disk").unwrap().value, record);
    assert!(view.volume_by_name("dis").is_none() && view.volume_by_name("disk2").is_none());
    for chunk in 0..300 {
        let group = view.locate(&record, chunk).unwrap();
        for shard in group.members() {
            assert!(view.groups_on(shard).contains(&group.id));
            assert_eq!(view.shard_of(view.copy_of(shard).unwrap()), Some(shard));
            let node = view.node_of(shard).unwrap();
            assert!(view.drives_of(node).any(|drive| drive.id == shard.drive));
        }
    }
    let loaded = MapView::load(all_records(view), view.revision()).unwrap();
    assert_eq!(all_records(&loaded), all_records(view));
    let used = |view: &MapView| {
        view.used_shards().map(|(shard, groups)| (shard, groups.to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(used(&loaded), used(view), "tables kept up by changes are those of a new view");
}

#[test]
fn a_volume_that_is_renamed_or_removed_gives_its_name_free() {
    let mut world = small();
    let record = world.volume(1, "a");
    let mut put = |record: &VolumeRecord| {
        let revision = world.store.revision() + 1;
        world
            .store
            .apply(revision, vec![(Key::Volume(record.id), Some(Record::Volume(record.clone())))])
            .unwrap();
        ["a", "b"].map(|name| world.store.volume_by_name(name).is_some())
    };
    assert_eq!(put(&record), [true, false]);
    let renamed = VolumeRecord { name: "b".to_owned(), ..record };
    assert_eq!(put(&renamed), [false, true]);
    assert_eq!(put(&VolumeRecord { state: VolumeState::Removing, ..renamed }), [false, false]);
}

#[test]
fn what_goes_backwards_is_fatal_and_changes_nothing() {
    let mut world = small();
    let mut view = world.store.clone();
    let block = (*view.block(FIRST).unwrap().value).clone();
    let revision = view.revision();
    let put = |view: &mut MapView, block: &GroupBlock| {
        let revision = view.revision() + 1;
        view.apply(revision, vec![(Key::Groups(FIRST), Some(Record::Groups(block.clone())))])
    };
    let mut swapped = block.clone();
    swapped.groups[0].in_sync.reverse();
    assert!(matches!(put(&mut view, &swapped), Err(MapError::Invalid(_))), "an epoch has one configuration");
    swapped.groups[0].epoch += 1;
    assert_eq!(put(&mut view, &swapped).unwrap().groups, [GroupId(POOL_GROUPS_MAX)]);
    assert!(matches!(put(&mut view, &block), Err(MapError::WentBack { .. })));
    let gone = view.apply(view.revision() + 1, vec![(Key::Groups(FIRST), None)]);
    assert!(matches!(gone, Err(MapError::WentBack { .. })), "groups go with their pool only");
    assert_eq!(view.revision(), revision + 1);
    let cluster = ClusterRecord { layer_next: 0, ..view.cluster().unwrap().clone() };
    let back = view.apply(view.revision() + 1, vec![(Key::Cluster, Some(Record::Cluster(cluster)))]);
    assert!(matches!(back, Err(MapError::WentBack { .. })));
    let newer = ClusterRecord { feature_level: 99, ..view.cluster().unwrap().clone() };
    let text =
        view.apply(view.revision() + 1, vec![(Key::Cluster, Some(Record::Cluster(newer)))]).unwrap_err();
    assert!(text.to_string().contains("use a newer coquina"), "{text}");
    assert!(matches!(MapView::load(Vec::new(), 7), Err(MapError::Empty)));
    world.store = view;
}

/// What operators are told of two versions in one cluster.
#[test]
fn fields_of_a_newer_version_are_passed_over_and_not_written_again() {
    let world = small();
    for (key, _, record) in all_records(&world.store) {
        let mut newer: serde_json::Value = serde_json::from_slice(&record.encode()).unwrap();
        newer["of_a_newer_version"] = 7.into();
        let read = Record::decode(&key, newer.to_string().as_bytes()).unwrap();
        assert_eq!(read, record);
        assert!(!String::from_utf8_lossy(&read.encode()).contains("newer"), "{key}");
    }
}

#[test]
fn a_revision_that_is_known_changes_nothing() {
    let world = small();
    let mut view = MapView::load(all_records(&world.store), world.store.revision()).unwrap();
    for (revision, changes) in &world.history {
        assert_eq!(view.apply(*revision, changes.clone()).unwrap().keys, []);
    }
    assert_eq!(all_records(&view), all_records(&world.store));
}

#[test]
fn damaged_records_are_refused() {
    let world = small();
    for (key, _, record) in all_records(&world.store) {
        let text = record.encode();
        assert_eq!(Record::decode(&key, &text).unwrap(), record);
        assert!(Record::decode(&key, &text[..text.len() - 1]).is_err());
        let other = match key {
            Key::Groups(block) => Key::Groups(BlockId(block.0 + 1)),
            Key::Pool(pool) => Key::Pool(PoolId(pool.0 + 1)),
            Key::Node(_) => Key::Node(node_id(99)),
            Key::Drive(_) => Key::Drive(drive_id(99)),
            Key::Cluster | Key::Volume(_) => continue,
        };
        assert!(Record::decode(&other, &text).is_err(), "{key} as {other}");
    }
}

/// Records of older versions lack it, and of a volume that never shrank there is nothing to keep.
#[test]
fn the_largest_size_of_a_volume_is_kept_and_may_be_missing() {
    let mut world = small();
    let record = world.volume(1, "disk");
    let key = Key::Volume(record.id);
    let read_back = |record: &VolumeRecord| {
        let text = Record::Volume(record.clone()).encode();
        assert_eq!(Record::decode(&key, &text).unwrap(), Record::Volume(record.clone()));
        (String::from_utf8(text).unwrap().contains("size_max_bytes"), record.largest_bytes())
    };
    assert_eq!(read_back(&record), (false, 1 << 30));
    let shrinking = VolumeRecord { size_bytes: 4096, shrinking_from_bytes: Some(1 << 30), ..record.clone() };
    assert_eq!(read_back(&shrinking), (false, 1 << 30));
    let shrunk = VolumeRecord { size_bytes: 4096, size_max_bytes: Some(1 << 30), ..record.clone() };
    assert_eq!(read_back(&shrunk), (true, 1 << 30));
    let grown = VolumeRecord { size_bytes: 1 << 31, ..shrunk };
    assert_eq!(read_back(&grown), (true, 1 << 31));
    let wild = Record::Volume(VolumeRecord { size_max_bytes: Some(1), ..record });
    assert!(Record::decode(&key, &wild.encode()).is_err());
}

/// A group that is taken for gone is forgotten by who holds it: it must not be one that is only newer than the map.
#[test]
fn a_group_is_gone_if_its_pool_cannot_come_any_more() {
    let pool = PoolRecord {
        id: PoolId(1),
        name: "p".to_owned(),
        copies: 3,
        min_copies: 2,
        domain: "node".to_owned(),
        group_first: GroupId(POOL_GROUPS_MAX),
        group_count: 64,
        state: PoolState::Active,
    };
    let view = |pools_claimed: u32, has_pool: bool| {
        let cluster = ClusterRecord {
            group_next: (1 + pools_claimed) * POOL_GROUPS_MAX,
            pool_next: 1 + pools_claimed,
            ..ClusterRecord::new(CLUSTER)
        };
        let mut records = vec![(Key::Cluster, 1, Record::Cluster(cluster))];
        if has_pool {
            records.push((Key::Pool(pool.id), 1, Record::Pool(pool.clone())));
        }
        MapView::load(records, 1).unwrap()
    };
    let first = GroupId(POOL_GROUPS_MAX + 63);
    let second = GroupId(2 * POOL_GROUPS_MAX);
    assert!(!view(0, false).is_gone(first), "its pool has not even claimed its numbers");
    assert!(!view(1, false).is_gone(first), "its pool may just be about to be recorded");
    assert!(view(2, false).is_gone(first));
    assert!(!view(2, false).is_gone(second));
    assert!(!view(2, true).is_gone(first) && !view(2, true).is_gone(GroupId(first.0 + 1)));
    let mut one = view(2, true);
    one.apply(2, vec![(Key::Pool(pool.id), None)]).unwrap();
    assert!(one.is_gone(first) && !one.is_gone(second) && !one.is_gone(GroupId(7 * POOL_GROUPS_MAX)));
}

/// A map that was put back counts on from where it was. The first numbers that a process claims lie behind all that can have
/// been given out since, and the ones in between count as nobody's: what drives hold of them is kept.
#[test]
fn first_claims_leave_out_what_a_lost_map_may_have_given() {
    let written = |view: &mut MapView, write: Write| {
        view.apply(view.revision() + 1, vec![(write.key, write.record)]).unwrap();
    };
    let mut world = small();
    let view = &mut world.store;
    let before = view.cluster().unwrap().clone();
    let (layer, write) = operation::claim_layer(view, 1 << 40).unwrap();
    written(view, write);
    let (next, write) = operation::claim_layer(view, 0).unwrap();
    written(view, write);
    let (after_all, write) = operation::claim_layer(view, 17).unwrap();
    written(view, write);
    assert_eq!([layer, next, after_all].map(|layer| layer.0), [1 << 40, (1 << 40) + 1, (1 << 40) + 2]);
    let (copy, write) = operation::claim_copies(view, 3, 1 << 41).unwrap();
    written(view, write);
    let (next, write) = operation::claim_copies(view, 1, 1 << 41).unwrap();
    written(view, write);
    assert_eq!((copy, next), (1 << 41, (1 << 41) + 3));
    let (first_pool, first_group, write) = operation::claim_pool(view, true).unwrap();
    written(view, write);
    let (_, second_group, write) = operation::claim_pool(view, false).unwrap();
    written(view, write);
    assert!(first_pool.0 > before.pool_next + 1 && first_group.0 > before.group_next + POOL_GROUPS_MAX);
    assert_eq!(second_group.0, first_group.0 + POOL_GROUPS_MAX);
    let cluster = view.cluster().unwrap().clone();
    let given = [before.layer_next, (1 << 40) - 1, 1 << 40, cluster.layer_next]
        .map(|layer| cluster.has_given_layer(LayerId(layer)));
    assert_eq!(given, [false, false, true, false]);
    assert!(!view.is_gone(GroupId(before.group_next)), "a pool of the lost map may have it");
    assert!(view.is_gone(first_group), "nobody recorded the pool");
    let write = operation::forget_lost(view, 1 << 50).unwrap().unwrap();
    written(view, write);
    let cluster = view.cluster().unwrap();
    assert!(cluster.has_given_layer(LayerId(before.layer_next)) && cluster.has_given_layer(LayerId(1 << 49)));
    assert!(view.is_gone(GroupId(before.group_next)));
    assert_eq!(operation::forget_lost(view, 1 << 50), Ok(None));
    // Many starts, each with a first claim: the record stays small.
    for number in 1..=2 * SKIPPED_RANGES_MAX as u64 {
        let (_, write) = operation::claim_layer(view, (1 << 50) + number * 1000).unwrap();
        written(view, write);
    }
    let skipped = &view.cluster().unwrap().layers_skipped;
    assert_eq!(skipped.len(), SKIPPED_RANGES_MAX);
    assert!(skipped.iter().all(|range| range.first < range.end));
}

/// One wild value in the store must not end every process that adds to it.
#[test]
fn numbers_that_nobody_can_have_counted_to_are_refused() {
    let world = small();
    let wild = |record: &Record| match record.clone() {
        Record::Cluster(cluster) => vec![
            Record::Cluster(ClusterRecord { layer_next: u64::MAX, ..cluster.clone() }),
            Record::Cluster(ClusterRecord { copy_next: u64::MAX, ..cluster }),
        ],
        Record::Drive(drive) => vec![Record::Drive(DriveRecord { copy_first: u64::MAX, ..drive })],
        Record::Groups(mut block) => {
            block.groups[0].epoch = u64::MAX;
            vec![Record::Groups(block)]
        }
        Record::Volume(volume) => vec![Record::Volume(VolumeRecord { layer: LayerId(u64::MAX), ..volume })],
        Record::Node(_) | Record::Pool(_) => Vec::new(),
    };
    let mut refused = 0;
    for (key, _, record) in all_records(&world.store) {
        for wild in wild(&record) {
            assert!(Record::decode(&key, &wild.encode()).is_err(), "{wild:?}");
            let mut view = world.store.clone();
            let error = view.apply(view.revision() + 1, vec![(key, Some(wild))]).unwrap_err();
            assert!(matches!(error, MapError::Invalid(_)), "{error}");
            refused += 1;
        }
    }
    assert!(refused > 4);
}

const NODES: u64 = 500;
const DRIVES: u64 = 10_000;
const GROUPS: u32 = 1 << 18;

fn large() -> Vec<(Key, u64, Record)> {
    let cluster = ClusterRecord {
        copy_next: DRIVES + 1,
        group_next: GROUPS,
        pool_next: 2,
        ..ClusterRecord::new(CLUSTER)
    };
    let mut records = vec![(Key::Cluster, 1, Record::Cluster(cluster))];
    for number in 0..NODES {
        let node = NodeRecord {
            id: node_id(number),
            name: format!("n{number}"),
            addresses: NodeAddresses::default(),
            domains: BTreeMap::new(),
            versions: VersionRange { min: 1, max: 1 },
            wanted: Wanted::In,
        };
        records.push((Key::Node(node.id), 1, Record::Node(node)));
    }
    for number in 0..DRIVES {
        let drive = DriveRecord {
            id: drive_id(number),
            node: node_id(number % NODES),
            path: format!("/dev/{number}"),
            size_bytes: 1 << 44,
            capacity_bytes: 1 << 43,
            shards: 1,
            weight: 1,
            copy_first: 1 + number,
            state: DriveState::Healthy,
            wanted: Wanted::In,
            dead_ms: 0,
        };
        records.push((Key::Drive(drive.id), 1, Record::Drive(drive)));
    }
    let pool = PoolRecord {
        id: PoolId(1),
        name: "p".to_owned(),
        copies: 3,
        min_copies: 2,
        domain: "node".to_owned(),
        group_first: GroupId(POOL_GROUPS_MAX),
        group_count: GROUPS,
        state: PoolState::Active,
    };
    records.push((Key::Pool(pool.id), 1, Record::Pool(pool)));
    for block in 0..GROUPS / BLOCK_GROUPS {
        let groups = (0..BLOCK_GROUPS)
            .map(|index| large_group(POOL_GROUPS_MAX + block * BLOCK_GROUPS + index))
            .collect();
        let id = BlockId::of(GroupId(POOL_GROUPS_MAX + block * BLOCK_GROUPS));
        records.push((Key::Groups(id), 1, Record::Groups(GroupBlock { groups })));
    }
    records
}

/// Three drives of different nodes.
fn large_group(id: u32) -> GroupRecord {
    let first = mix(u64::from(id)) % DRIVES;
    let shard = |number: u64| ShardRef { drive: drive_id(number % DRIVES), shard: 0 };
    let step = 1 + mix(u64::from(id) + 7) % 100;
    let in_sync = vec![shard(first), shard(first + step), shard(first + 2 * step + 1)];
    GroupRecord {
        id: GroupId(id),
        pool: PoolId(1),
        epoch: 1,
        in_sync,
        others: Vec::new(),
        wanted: Vec::new(),
    }
}

/// 500 nodes, 10,000 drives, 262,144 groups: what an update, a look-up and a dead node cost, counted.
#[test]
fn the_map_stays_workable_at_full_size() {
    let records = large();
    assert_eq!(records.len(), 1 + 500 + 10_000 + 1 + 4_096);
    let bytes_max = records.iter().map(|(_, _, record)| record.encode().len()).max().unwrap();
    assert!(bytes_max < 16 << 10, "the largest record has {bytes_max} bytes");
    let view = Arc::new(MapView::load(records, 1).unwrap());

    // One group loses a copy: a reader keeps its view, the update copies a few pages.
    let mut next = (*view).clone();
    let mut block = (*view.block(BlockId(FIRST.0 + 77)).unwrap().value).clone();
    let moved = block.groups[5].in_sync.pop().unwrap();
    (block.groups[5].others, block.groups[5].epoch) = (vec![moved], 2);
    let group = block.groups[5].id;
    let applied =
        next.apply(2, vec![(Key::Groups(BlockId(FIRST.0 + 77)), Some(Record::Groups(block)))]).unwrap();
    assert_eq!((applied.keys.len(), &applied.groups[..]), (1, &[group][..]));
    assert!(applied.copied <= 128, "{} entries were copied", applied.copied);
    assert_eq!((view.group(group).unwrap().epoch, next.group(group).unwrap().epoch), (1, 2));

    // A node dies: only blocks with groups on it are written, each once.
    let dead = node_id(123);
    let actions = let_a_node_die(next, dead);
    let named: Vec<GroupId> = view
        .drives_of(dead)
        .flat_map(|drive| view.used_shards_of(drive.id).flat_map(|(_, groups)| groups.to_vec()))
        .collect();
    let mut blocks: Vec<BlockId> = named.iter().map(|group| BlockId::of(*group)).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let written: Vec<Key> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Write(write) => Some(write.key),
            _ => None,
        })
        .collect();
    println!(
        "a dead node: {} groups in {} blocks; {} writes; largest record {bytes_max} bytes; an update copies {} entries",
        named.len(),
        blocks.len(),
        written.len(),
        applied.copied
    );
    let keys: Vec<Key> = blocks.into_iter().map(Key::Groups).collect();
    assert!(named.len() < 2_500 && keys.iter().all(|key| written.contains(key)));
    // Unanswered writes are tried again after a while; the groups that lost a copy before may move too.
    let mut different = written;
    different.sort_unstable();
    different.dedup();
    assert!(different.len() <= keys.len() + 1, "{} keys for {} blocks", different.len(), keys.len());
}

/// What a coordinator does when one of all the nodes falls silent after a second.
fn let_a_node_die(view: MapView, dead: coquina_base::NodeId) -> Vec<Action> {
    let mut coordinator = Coordinator::new(Settings::default(), view, 0);
    let mut actions = Vec::new();
    for step in 0..40 {
        let now_ns = step * 100 * MILLISECOND_NS;
        for node in (0..NODES).map(node_id).filter(|node| *node != dead || step < 10) {
            let drives = coordinator.map().drives_of(node);
            let serving = |drive: &DriveRecord| DriveReport {
                drive: drive.id,
                condition: DriveCondition::Serving,
                hung: false,
            };
            let drives = drives.map(serving).collect();
            let heartbeat = Heartbeat {
                node,
                cluster: CLUSTER,
                map_revision: 2,
                stopping: false,
                drives,
                proposals: Vec::new(),
                returning: Some(Vec::new()),
            };
            coordinator.apply(now_ns, Event::Heartbeat(heartbeat), &mut actions);
        }
        coordinator.apply(now_ns, Event::Tick, &mut actions);
    }
    actions
}
