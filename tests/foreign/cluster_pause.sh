#!/usr/bin/env bash
# A node is stopped (SIGSTOP) for longer than any lease and goes on as if nothing had happened: I/O goes on meanwhile,
# the node finds that it was left out and catches up, and nobody ever reads or loses anything by it.
source "$(dirname "$0")/../lib/cluster.sh"

ROUNDS=${ROUNDS:-3}

cluster_under_load disk
for round in $(seq "$ROUNDS"); do
    name=$(node_of_round "$round")
    sleep 1
    kill -STOP "${NODE_PIDS[$name]}"
    say "round $round: stopped $name"
    sleep 6
    kill -CONT "${NODE_PIDS[$name]}"
    load_lives
    wait_until 30 node_answers "$name" || fail "$name does not answer after it went on"
    cluster_heals 60
    load_lives
done
load_stop disk
