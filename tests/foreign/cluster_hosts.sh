#!/usr/bin/env bash
# Hosts with a node and a member of etcd each vanish from the network, one after the other: I/O goes on all the same.
ETCD_MEMBERS=3 FAULTS="leader_isolated node_isolated leader_isolated" exec "$(dirname "$0")/cluster_partition.sh"
