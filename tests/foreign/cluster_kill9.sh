#!/usr/bin/env bash
# kill -9 of each node in turn under verified load, three copies: I/O goes on after a pause, nothing is lost.
source "$(dirname "$0")/../lib/cluster.sh"

ROUNDS=${ROUNDS:-3}
SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}

say "SEED=$SEED"
cluster_start
ask gateway volume create disk --size 48M
cluster_heals 30
load_start disk "$SEED"
for round in $(seq "$ROUNDS"); do
    name=n$(((round - 1) % NODES + 1))
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
