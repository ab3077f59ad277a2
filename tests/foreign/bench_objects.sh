#!/usr/bin/env bash
# coquina bench run: whole objects of a real Ceph are there in full while they are read, and gone when the run has ended, however it did.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/experiment.sh"
needs_coquina
needs ceph ceph-mon ceph-mgr ceph-osd rados

PEER_FOLDER=$SCRATCH/peer
PEER=$REPOSITORY/bench/peers/ceph
FREE_MIB_MIN=4096
(($(df --output=avail -BM "$SCRATCH" | tail -n 1 | tr -dc 0-9) >= FREE_MIB_MIN)) || skip "needs $FREE_MIB_MIN MiB of free space"
OBJECT_BYTES=65536
OBJECTS=512

peer() { "$PEER" "$1" --dir "$PEER_FOLDER" "${@:2}"; }

end_peer() { peer down >/dev/null 2>&1; }
at_exit end_peer

# The objects of runs; fails if they cannot be listed.
objects() {
    local all
    all=$(peer exec -- rados -p bench ls) || fail "the pool cannot be listed"
    sed -n '/^coquina-bench-/p' <<<"$all"
}

no_objects() { [[ -z $(objects) ]] || fail "objects are left: $(objects | head -n 3)"; }

# Waits until a run is in this phase: PATTERN of its generator's arguments.
wait_for_generator() {
    for ((i = 0; i < 600; i++)); do
        ! pgrep -f -- "--target rados:admin@bench/coquina-bench-.* $1" >/dev/null || return 0
        kill -0 "$RUN" 2>/dev/null || fail "the run ended before: $(tail -n 20 ./*.log)"
        sleep 0.1
    done
    fail "no generator with $1 after 60 s: $(tail -n 20 ./*.log)"
}

begin_run() {
    setsid "$PEER" exec --dir "$PEER_FOLDER" -- "$COQUINA" bench run objects.toml --quick --folder files --out "$1" --target rados:bench \
        >"$1.txt" 2>"$1.log" &
    RUN=$!
    note sweep-processes "$RUN"
}

cd "$SCRATCH" || fail "no $SCRATCH"
mkdir files
peer up --osds 1 --copies 1 --osd-size 1GiB --db-size 1GiB --pgs 8 >/dev/null
while read -r process; do note sweep-processes "$process"; done < <(cat "$PEER_FOLDER"/*.pid)

# The generator by itself: what is not there, or not whole, has not been read; others are not touched.
io() { peer exec -- "$COQUINA" bench io --baseline 0 --target rados:bench/own- --bs 64k --size 1M "$@"; }
peer exec -- rados -p bench put other "$PEER"
expect 1 "read at byte 0: No such file or directory" io --rw read --runtime 1
expect 0 "write" io --rw write --depth 4 --bytes 1M
[[ $(peer exec -- rados -p bench stat own-15) == *"size $OBJECT_BYTES" ]] || fail "own-15 is not whole"
expect 0 "read" io --rw read --depth 4 --runtime 1
peer exec -- rados -p bench truncate own-3 65535
expect 1 "read at byte 196608: No data available" io --rw read --depth 1 --bytes 1M
peer exec -- rados -p bench rm own-7
expect 0 "" io --remove
expect 0 "" io --remove
[[ $(peer exec -- rados -p bench ls) == other ]] || fail "not only the other one is there: $(peer exec -- rados -p bench ls)"
expect 2 "say with --size" peer exec -- "$COQUINA" bench io --target rados:bench/own- --bs 64k --rw read
expect 2 "only whole objects are removed" peer exec -- "$COQUINA" bench io --target rbd:bench/disk --size 1M --remove
expect 1 "no such pool" peer exec -- "$COQUINA" bench io --target rados:none/own- --size 1M

# From the first round of reads to the first of writes, the first and the last are there, with their size; in the end none is.
experiment objects 3 1.5 'name = "objects"
volume_size = "1GiB"
copies = 1
warm_reads = true' '"object_read", "object_write"' '8'
sed -i 's/"4KiB"/"64KiB"/' objects.toml
begin_run whole
wait_for_generator '--rw read .*--runtime'
seen=0
until pgrep -f -- '--target rados:admin@bench/coquina-bench-.*--rw write .*--runtime' >/dev/null; do
    kill -0 "$RUN" || fail "no writes were measured: $(tail -n 20 whole.log)"
    prefix=$(objects | sed -n '1s/[0-9]*$//p')
    for number in 0 $((OBJECTS - 1)); do
        found=$(peer exec -- rados -p bench stat "$prefix$number") || fail "$prefix$number is not there"
        [[ $found == *"size $OBJECT_BYTES" ]] || fail "not whole: $found"
    done
    [[ $(objects | wc -l) == "$OBJECTS" ]] || fail "$(objects | wc -l) objects instead of $OBJECTS"
    seen=$((seen + 1))
done
((seen > 1)) || fail "they were looked at $seen times only"
say "objects were whole $seen times in the rounds of reads and between them"
wait "$RUN" || fail "the run failed: $(tail -n 20 whole.log)"
no_objects
of_report whole "[t['generator'] for t in r['targets']] == ['coquina bench io'] and [t['copies'] for t in r['targets']] == [1]"
of_report whole "[len(x['rounds']) for c in r['cases'] for x in c['results']] == [3, 3]"
of_report whole "all(y['errors'] == 0 and y['total']['iops'] > 10 and y['generator'] == 'coquina bench io' for c in r['cases'] for x in c['results'] for y in x['rounds'])"
nothing_is_left

# Stopped while it writes, it removes them.
begin_run stopped
wait_for_generator '--rw write'
kill -INT "$RUN"
wait "$RUN" && fail "an interrupted run ended with success"
no_objects
nothing_is_left

# Killed, it cannot; the next one tells the command that does.
begin_run killed
wait_for_generator '--rw read'
kill -KILL "$RUN"
wait "$RUN" 2>/dev/null || true
[[ $(objects | wc -l) == "$OBJECTS" ]] || fail "$(objects | wc -l) objects instead of $OBJECTS"
begin_run after
wait_for_generator '--rw write'
kill -INT "$RUN"
wait "$RUN" && fail "an interrupted run ended with success"
removal=$(sed -n 's/.*objects of the pool bench: //p' after.log | head -n 1)
[[ $removal == *" bench io --remove --target rados:admin@bench/coquina-bench-"* && $removal != *" ls"* ]] || fail "not told: $(<after.log)"
say "$removal"
bash -c "$removal" || fail "what was told does not remove them"
no_objects
[[ $(peer exec -- rados -p bench ls) == other ]] || fail "the other one is gone"
peer down
[[ ! -e $PEER_FOLDER ]] || fail "files are left: $(find "$PEER_FOLDER" | head)"
