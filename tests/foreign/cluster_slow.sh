#!/usr/bin/env bash
# A node that is slow rather than dead: its process gets the processor in pulses, then its drive takes little. I/O goes on,
# slower, and nothing is lost or read wrongly.
source "$(dirname "$0")/../lib/cluster.sh"
source "$(dirname "$0")/../lib/faults.sh"

# Slower is not still: WHAT.
judge_pause() {
    local pause
    pause=$(longest_pause "$since")
    say "$1: I/O paused for $pause s"
    is_at_most "$pause" "$PAUSE_MAX" || fail "$1: I/O paused for $pause s, at most $PAUSE_MAX are allowed"
}

choose_seed
cluster_start
gateway_add other
ask gateway volume create disk --size 48M
cluster_heals 30
watched_start disk "$SEED"
for node in n1 n2 n3; do
    since=$(now)
    pulses "$node" 8
    judge_pause "$node in pulses"
    heals "pulses of $node" 60
    since=$(now)
    slow_drive "$node" 8
    judge_pause "slow drive of $node"
    heals "the slow drive of $node" 60
done
watched_stop disk
