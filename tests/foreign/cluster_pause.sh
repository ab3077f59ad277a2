#!/usr/bin/env bash
# A node is stopped (SIGSTOP) for longer than any lease and goes on as if nothing had happened: I/O goes on meanwhile,
# the node finds that it was left out and catches up, and nobody ever reads or loses anything by it.
source "$(dirname "$0")/../lib/cluster.sh"
source "$(dirname "$0")/../lib/faults.sh"

ROUNDS=${ROUNDS:-3}

# Two gateways: what one has written the other must read, also from a node that has just gone on.
choose_seed
cluster_start
gateway_add other
ask gateway volume create disk --size 48M
cluster_heals 30
watched_start disk "$SEED"
for round in $(seq "$ROUNDS"); do
    name=$(node_of_round "$round")
    sleep 1
    kill -STOP "${NODE_PIDS[$name]}"
    say "round $round: stopped $name"
    since=$(now)
    sleep 6
    pause=$(longest_pause "$since")
    is_at_most "$pause" "$PAUSE_MAX" || fail "$name stopped: I/O paused for $pause s, at most $PAUSE_MAX are allowed"
    kill -CONT "${NODE_PIDS[$name]}"
    watched_lives
    wait_until 30 node_answers "$name" || fail "$name does not answer after it went on"
    cluster_heals 60
    watched_lives
done
watched_stop disk
