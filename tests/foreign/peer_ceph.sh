#!/usr/bin/env bash
# bench/peers/ceph: a real Ceph comes up, takes writes, says what it is, and leaves nothing behind, also when interrupted.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs fio ceph ceph-mon ceph-mgr ceph-osd rbd

SMALL=(--osds 1 --copies 1 --osd-size 2GiB --db-size 1GiB --pgs 8)
PEER_FOLDER=$SCRATCH/peer
FREE_MIB_MIN=4096
(($(df --output=avail -BM "$SCRATCH" | tail -n 1 | tr -dc 0-9) >= FREE_MIB_MIN)) || skip "needs $FREE_MIB_MIN MiB of free space"

# The script as a program carries it: nothing beside it.
PEER=$SCRATCH/ceph-peer
cp "$REPOSITORY/bench/peers/ceph" "$PEER"

peer() { "$PEER" "$1" --dir "$PEER_FOLDER" "${@:2}"; }

UP_PROCESS=

end_peer() {
    # It removes what it has begun.
    [[ -z $UP_PROCESS ]] || { kill -TERM "$UP_PROCESS" && wait "$UP_PROCESS"; } 2>/dev/null
    peer down >/dev/null 2>&1
}
at_exit end_peer

# A part of the status: PYTHON-EXPRESSION of `s` must hold.
status_has() {
    peer status --json | "$PYTHON" -c "import json, sys; s = json.load(sys.stdin); sys.exit(not ($1))" ||
        fail "not so: $1 in $(peer status --json)"
}

# Processes that have the folder in their command line.
processes_left() { processes_with "--conf=$PEER_FOLDER/"; }

nothing_is_left() {
    [[ ! -e $PEER_FOLDER ]] || fail "files are left: $(find "$PEER_FOLDER" | head)"
    if processes_left >&2; then fail "processes are left"; fi
}

expect 2 "unknown command" "$PEER" sideways
expect 2 "dir is missing" "$PEER" up
expect 2 "needs as many OSDs" peer up --osds 1
expect 2 "not a size" peer up --osd-size plenty
expect 2 "db-size 64MiB is too small" peer up --db-size 64MiB
expect 1 "GiB are needed.*are free" peer up --osd-size 1000TiB
expect 0 "nothing is up" peer down
expect 1 "nothing is up in" peer restart
status_has "not s['up'] and s['processes'] == []"
nothing_is_left
mkdir "$PEER_FOLDER"
touch "$PEER_FOLDER/somebodys"
expect 1 "holds other files" peer up
rm -r "$PEER_FOLDER"

peer up "${SMALL[@]}" --json >"$SCRATCH/status"
while read -r process; do note sweep-processes "$process"; done < <(cat "$PEER_FOLDER"/*.pid)
[[ $(<"$SCRATCH/status") == "$(peer status --json)" ]] || fail "up --json and status --json differ"
status_has "s['up'] and s['copies'] == s['min_copies'] == s['osds'] == 1 and s['pgs'] == 8 and s['pool'] == 'bench'"
status_has "s['osd_bytes'] == 2 << 30 and s['db_bytes'] == 1 << 30 and s['settings']['rbd_cache'] == 'false'"
status_has "[f.split('/')[-1] for f in s['block_files']] == ['block', 'block.db']"
status_has "sorted(p['role'] for p in s['processes']) == ['mgr', 'mon', 'osd.0'] and s['version'] and s['conf']"
expect 1 "already up in .*; use down" peer up "${SMALL[@]}"

# Space that is only allocated would cost the file system a change with each first write, which drives do not have. Some file
# systems do not say.
for file in "$PEER_FOLDER"/osd.0/block{,.db}; do
    extents=$(filefrag -v "$file" 2>/dev/null) || continue
    if grep unwritten <<<"$extents" >&2; then fail "$file has space that was never written"; fi
done

peer exec -- ceph osd metadata 0 | grep -q '"bluefs_dedicated_db": "1"' || fail "RocksDB has no file of its own"

peer exec -- rbd create bench/disk --size 64M
"$PYTHON" -c 'print("coquina" * 1000)' >"$SCRATCH/written"
truncate --size 1M "$SCRATCH/written"
peer exec -- rbd import --no-progress "$SCRATCH/written" bench/copied
peer exec -- rbd export --no-progress bench/copied "$SCRATCH/read"
cmp "$SCRATCH/written" "$SCRATCH/read" || fail "read back something else"
peer exec -- fio --aux-path="$SCRATCH" --name=x --ioengine=rbd --clientname=admin --pool=bench --rbdname=disk --rw=randwrite \
    --bs=4k --iodepth=16 --size=8M --verify=crc32c --verify_fatal=1
# The same by librbd and this program's own generator, which makes open loops.
peer exec -- "$COQUINA" bench io --target rbd:bench/disk --rw mix --depth 8 --size 8M --runtime 1 --warmup 0 --rate 200 --verify --json \
    >"$SCRATCH/open-loop.json" || fail "no open loop: $(<"$SCRATCH/open-loop.json")"
"$PYTHON" -c "
import json, sys
r = json.load(open(sys.argv[1]))
sys.exit(not (r['total']['operations'] > 20 and r['verify']['blocks_checked'] > 20 and r['verify']['mismatches'] == 0))" \
    "$SCRATCH/open-loop.json" || fail "not so: $(<"$SCRATCH/open-loop.json")"
expect 1 "no such image" peer exec -- "$COQUINA" bench io --target rbd:bench/none --runtime 1
expect 1 "no usable ceph.conf" env CEPH_CONF=/nonexistent "$COQUINA" bench io --target rbd:bench/disk --runtime 1
expect 3 "" peer exec -- bash -c 'exit 3'

# Started again, it has what was written, and what an OSD reads at its start.
before=$(<"$PEER_FOLDER/osd.0.pid")
peer exec -- ceph config set osd osd_op_num_shards 3
peer restart --json >"$SCRATCH/status"
note sweep-processes "$(<"$PEER_FOLDER/osd.0.pid")"
[[ $(<"$PEER_FOLDER/osd.0.pid") != "$before" ]] || fail "osd.0 is the process of before"
[[ $(<"$SCRATCH/status") == "$(peer status --json)" ]] || fail "restart --json and status --json differ"
status_has "s['up'] and sorted(p['role'] for p in s['processes']) == ['mgr', 'mon', 'osd.0']"
peer exec -- ceph pg stat | grep -qE '^([0-9]+) pgs: \1 active\+clean;' || fail "not active+clean after restart"
[[ $(peer exec -- ceph config show osd.0 osd_op_num_shards) == 3 ]] || fail "osd.0 has not read the new value"
peer exec -- rbd export --no-progress bench/copied "$SCRATCH/read-again"
cmp "$SCRATCH/written" "$SCRATCH/read-again" || fail "read back something else after restart"

# With a setting with which an OSD does not start it fails; without that it starts again.
peer exec -- ceph config set osd bluestore_rocksdb_options no_such_option=1
expect 1 "osd.0 ended 5 times.*" peer restart
expect 0 "" peer exec -- ceph config rm osd bluestore_rocksdb_options
expect 0 "started again" peer restart
note sweep-processes "$(<"$PEER_FOLDER/osd.0.pid")"

# Interrupted, it removes nothing.
env --default-signal=INT "$PEER" restart --dir "$PEER_FOLDER" &
UP_PROCESS=$!
note sweep-processes "$UP_PROCESS"
sleep 0.7
status=0
kill -INT "$UP_PROCESS"
wait "$UP_PROCESS" || status=$?
UP_PROCESS=
[[ $status == 130 ]] || fail "status $status instead of 130"
expect 0 "started again" peer restart
note sweep-processes "$(<"$PEER_FOLDER/osd.0.pid")"
peer exec -- rbd export --no-progress bench/copied "$SCRATCH/read-at-last"
cmp "$SCRATCH/written" "$SCRATCH/read-at-last" || fail "read back something else after an interrupted restart"

# Ended when the program that holds the input is gone.
sleep 3 | peer down --after-input &
UP_PROCESS=$!
status_has "s['up']"
wait "$UP_PROCESS"
UP_PROCESS=
nothing_is_left
expect 0 "nothing is up" peer down

# Also when it is not up yet.
peer up "${SMALL[@]}" &
UP_PROCESS=$!
note sweep-processes "$UP_PROCESS"
sleep 1
peer down --after-input </dev/null
wait "$UP_PROCESS"
UP_PROCESS=
nothing_is_left
peer down

# Interrupted at several moments. A process in the background of a script ignores SIGINT unless told otherwise.
for seconds in 0.3 2 6; do
    env --default-signal=INT "$PEER" up --dir "$PEER_FOLDER" "${SMALL[@]}" &
    UP_PROCESS=$!
    note sweep-processes "$UP_PROCESS"
    sleep "$seconds"
    status=0
    kill -INT "$UP_PROCESS"
    wait "$UP_PROCESS" || status=$?
    UP_PROCESS=
    say "interrupted after $seconds s: status $status"
    [[ $status == 130 ]] || fail "status $status instead of 130"
    nothing_is_left
done
