#!/usr/bin/env bash
# The network between nodes, etcd and gateways is cut, wholly and one way, without a word to anybody: I/O goes on after a
# pause, no acknowledged write is lost, and no gateway ever reads something old. FAULTS are those of tests/lib/partitions.sh.
source "$(dirname "$0")/../lib/cluster.sh"
source "$(dirname "$0")/../lib/network.sh"
source "$(dirname "$0")/../lib/faults.sh"
source "$(dirname "$0")/../lib/partitions.sh"

FAULTS=${FAULTS:-leader_isolated one_way_in everybody_cut}
[[ $FAULTS != all ]] || FAULTS=${PARTITIONS[*]}

choose_seed
partitions_prepare
cluster_start
gateway_add other
ask gateway volume create disk --size 48M
cluster_heals 30
watched_start disk "$SEED"
sleep 1
for fault in $FAULTS; do network_fault "$fault"; done
watched_stop disk
