#!/usr/bin/env bash
# Ten times kill -9 under random writes, trims and zeroes: every acknowledged one is there after each restart.
source "$(dirname "$0")/../lib/server.sh"
needs_libnbd

ROUNDS=${ROUNDS:-10}

kill_under_load() {
    acknowledged_load_start disk "$((SEED + $1))"
    sleep "$((RANDOM % 2)).$((3 + RANDOM % 7))"
    server_crash
    load_went_well "$LOAD_PID" "round $1"
}

choose_seed
server_with_volume disk 48M
for round in $(seq "$ROUNDS"); do
    kill_under_load "$round"
    server_start
    acknowledged_verify disk "round $round"
done
