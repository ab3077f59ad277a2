#!/usr/bin/env bash
# All nodes are killed at once under load, as by a power cut of everything: every acknowledged write is there again.
source "$(dirname "$0")/../lib/cluster.sh"

ROUNDS=${ROUNDS:-3}
SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}

kill_all_under_load() {
    local load_pid status=0 name
    "$PYTHON" "$CLIENTS/acknowledged.py" load "$SCRATCH/state" "$((SEED + $1))" "$(uri disk)" &
    load_pid=$!
    sleep "1.$((RANDOM % 10))"
    kill -9 "${NODE_PIDS[@]}" "$GATEWAY_PID"
    for name in "${!NODE_PIDS[@]}"; do
        wait "${NODE_PIDS[$name]}" 2>/dev/null || true
        unset "NODE_PIDS[$name]"
    done
    wait "$GATEWAY_PID" 2>/dev/null || true
    wait "$load_pid" || status=$?
    ((status == 0)) || fail "round $1: wrong data before the kill, or no operation at all"
}

say "SEED=$SEED"
cluster_start
ask gateway volume create disk --size 48M
cluster_heals 30
for round in $(seq "$ROUNDS"); do
    kill_all_under_load "$round"
    for name in n1 n2 n3; do node_launch "$name"; done
    for name in n1 n2 n3; do wait_until 60 node_answers "$name" || fail "node $name does not answer"; done
    gateway_start
    load_verify disk
    cluster_heals 60
done
