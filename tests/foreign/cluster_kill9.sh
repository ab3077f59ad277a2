#!/usr/bin/env bash
# kill -9 of each node in turn under verified load, three copies: I/O goes on after a pause, nothing is lost.
source "$(dirname "$0")/../lib/cluster.sh"

ROUNDS=${ROUNDS:-3}

cluster_under_load disk
for round in $(seq "$ROUNDS"); do
    name=$(node_of_round "$round")
    sleep 1
    node_kill "$name"
    say "round $round: killed $name"
    sleep 5
    load_lives
    node_start "$name"
    cluster_heals 60
    load_lives
done
load_stop disk
