#!/usr/bin/env bash
# All nodes are killed at once under load, as by a power cut of everything: every acknowledged write is there again.
source "$(dirname "$0")/../lib/cluster.sh"

ROUNDS=${ROUNDS:-3}

kill_all_under_load() {
    local name
    acknowledged_load_start disk "$((SEED + $1))"
    sleep "1.$((RANDOM % 10))"
    # One that is killed is enough for `kill` to succeed.
    for name in "${NODE_PIDS[@]}" "$GATEWAY_PID" "$LOAD_PID"; do kill -0 "$name" || fail "$name had ended before it was killed"; done
    kill -9 "${NODE_PIDS[@]}" "$GATEWAY_PID"
    for name in "${!NODE_PIDS[@]}"; do
        wait "${NODE_PIDS[$name]}" 2>/dev/null || true
        unset "NODE_PIDS[$name]"
    done
    wait "$GATEWAY_PID" 2>/dev/null || true
    load_went_well "$LOAD_PID" "round $1"
}

choose_seed
cluster_with_volume disk
for round in $(seq "$ROUNDS"); do
    kill_all_under_load "$round"
    for name in n1 n2 n3; do node_launch "$name"; done
    for name in n1 n2 n3; do wait_until 60 node_answers "$name" || fail "node $name does not answer"; done
    gateway_start
    acknowledged_verify disk "round $round"
    cluster_heals 60
done
