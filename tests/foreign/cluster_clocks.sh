#!/usr/bin/env bash
# Clocks that are wrong: each node runs with another time since start (a time namespace) and with a clock that drifts within
# the bound that is promised; wall clocks jump by days; a node comes back with its clocks far from where they were. Nobody
# notices.
source "$(dirname "$0")/../lib/cluster.sh"
source "$(dirname "$0")/../lib/faults.sh"
needs unshare cc
needs_root


# A node's clocks: NAME SECONDS-SINCE-START DRIFT-PPM.
clocks() {
    WITHIN[$1]="unshare --time --boottime $2 --monotonic $2 -- env LD_PRELOAD=$SCRATCH/skewed_clock.so"
    WITHIN[$1]+=" COQUINA_CLOCK_DRIFT_PPM=$3 COQUINA_WALL_CLOCK_FILE=$SCRATCH/wall-$1"
    jump "$1" 0
}

# A wall clock jumps: NAME SECONDS.
jump() {
    printf '%s' "$2" >"$SCRATCH/wall-$1.new"
    mv "$SCRATCH/wall-$1.new" "$SCRATCH/wall-$1"
}

cc -O1 -shared -fPIC -o "$SCRATCH/skewed_clock.so" "$REPOSITORY/tests/lib/skewed_clock.c" || skip "no C compiler"
unshare --time --boottime 1000 true 2>/dev/null || skip "no time namespace can be made"

choose_seed
clocks n1 0 400
clocks n2 900000 -400
clocks n3 90000000 0
cluster_start
gateway_add other
ask gateway volume create disk --size 48M
cluster_heals 30
watched_start disk "$SEED"
since=$(now)
for jump in 86400 -86400 3600 -1; do
    for node in n1 n2 n3; do jump "$node" "$jump"; done
    sleep 2
    jump=$((jump * 400))
    jump n2 "$jump"
    sleep 1
done
io_goes_on || fail "no I/O with wall clocks that jump"
say "wall clocks that jump by days and years: I/O paused for $(longest_pause "$since") s"
cluster_heals 30

for shift in 5 90000000; do
    since=$(now)
    node_kill n1
    clocks n1 "$shift" -400
    pause_is_short "n1 killed, and back with its clocks $shift s ahead" "$since"
    node_start n1
    heals "n1 with other clocks" 60
done
watched_stop disk
