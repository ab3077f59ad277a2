#!/usr/bin/env bash
# The long form of cluster_partition: every way to cut the network, lossy and slow links too.
FAULTS=all exec "$(dirname "$0")/cluster_partition.sh"
