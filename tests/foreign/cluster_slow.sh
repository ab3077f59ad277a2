#!/usr/bin/env bash
# A node that is slow rather than dead: its process gets the processor in pulses, then its drive takes little. I/O goes on,
# slower, and nothing is lost or read wrongly.
source "$(dirname "$0")/../lib/cluster.sh"
source "$(dirname "$0")/../lib/faults.sh"


choose_seed
cluster_start
gateway_add other
ask gateway volume create disk --size 48M
cluster_heals 30
watched_start disk "$SEED"
for node in n1 n2 n3; do
    since=$(now)
    pulses "$node" 8
    say "$node in pulses: I/O paused for $(longest_pause "$since") s"
    heals "pulses of $node" 60
    since=$(now)
    slow_drive "$node" 8
    say "slow drive of $node: I/O paused for $(longest_pause "$since") s"
    heals "the slow drive of $node" 60
done
watched_stop disk
