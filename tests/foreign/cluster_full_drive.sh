#!/usr/bin/env bash
# The drives of all nodes become full: writers get ENOSPC and nothing worse, nothing is lost when a node is killed then,
# and after trims all goes on.
NODE_DRIVE_SIZE=512M
source "$(dirname "$0")/../lib/cluster.sh"

full_drive() { "$PYTHON" "$CLIENTS/full_drive.py" "$1" "$SCRATCH/state" "$(uri disk)"; }

cluster_start --overcommit 4
ask gateway volume create disk --size 1G
cluster_heals 30
full_drive fill
ask gateway status
node_kill n2
sleep 4
full_drive verify
node_start n2
sleep 4
full_drive verify
for round in 1 2; do
    say "round $round"
    full_drive recover
done
cluster_heals 120
full_drive verify
