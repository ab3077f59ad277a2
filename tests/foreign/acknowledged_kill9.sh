#!/usr/bin/env bash
# Ten times kill -9 under random writes, trims and zeroes: every acknowledged one is there after each restart.
source "$(dirname "$0")/../lib/server.sh"
needs_libnbd

ROUNDS=${ROUNDS:-10}
SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}

kill_under_load() {
    local load_pid status=0
    "$PYTHON" "$CLIENTS/acknowledged.py" load "$SCRATCH/state" "$((SEED + $1))" "$(uri disk)" &
    load_pid=$!
    sleep "$((RANDOM % 2)).$((3 + RANDOM % 7))"
    server_kill
    wait "$load_pid" || status=$?
    ((status == 0)) || fail "round $1: wrong data before the kill, or no operation at all"
}

say "SEED=$SEED"
server_with_volume disk 48M
for round in $(seq "$ROUNDS"); do
    kill_under_load "$round"
    server_start
    "$PYTHON" "$CLIENTS/acknowledged.py" verify "$SCRATCH/state" "$(uri disk)" || fail "round $round: data lost"
done
