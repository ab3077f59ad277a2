#!/usr/bin/env bash
# `coquina up --nodes 3`: a node that dies or is stopped is started again while I/O goes on; a second start is refused; when the
# supervisor is killed its nodes end too; and nothing is lost by any of it.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs_libnbd


up() {
    "$COQUINA" up --nodes 3 --copies 3 --dir "$DATA" --drive "$SCRATCH/a:1G" --drive "$SCRATCH/b:1G" \
        --drive "$SCRATCH/c:1G" --nbd "127.0.0.1:$NBD_PORT" --http "127.0.0.1:$HTTP_PORT" --listen 127.0.0.1:0 \
        >>"$SCRATCH/server.log" 2>&1 &
    SERVER_PID=$!
    note sweep-processes "$SERVER_PID"
    wait_until 60 server_answers || fail "the server does not answer"
}

# The process of a node, by its folder.
node_process() { head -n 1 "$DATA/$1/lock"; }

is_well() { [[ $(coquina status --json | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["health"]["state"])') == ok ]]; }

processes_are_gone() {
    local process
    for process in "$@"; do ! kill -0 "$process" 2>/dev/null || return 1; done
}

choose_seed
up
volume_create disk 48M
wait_until 30 is_well || fail "not well: $(coquina status)"
expect 1 "already runs" "$COQUINA" up --nodes 3 --dir "$DATA" --http 127.0.0.1:0 --nbd 127.0.0.1:0
expect 2 "was made for 3 nodes" "$COQUINA" up --nodes 1 --dir "$DATA" --http 127.0.0.1:0 --nbd 127.0.0.1:0

"$PYTHON" "$CLIENTS/acknowledged.py" during "$SCRATCH/state" "$SEED" "$(uri disk)" "$SCRATCH/stop-load" 5 &
LOAD_PID=$!
for node in node1 node2 node3; do
    sleep 1
    before=$(node_process "$node")
    # One of them is asked to stop: it hands over what it answers for, and is started again, too.
    if [[ $node == node2 ]]; then kill -TERM "$before"; else kill -9 "$before"; fi
    wait_until 30 eval "[[ \$(node_process $node) != $before ]]" || fail "$node is not started again"
    wait_until 60 is_well || fail "not well: $(coquina status)"
done
touch "$SCRATCH/stop-load"
wait "$LOAD_PID" || fail "the load failed"
LOAD_PID=
acknowledged_verify disk "after the failover"

mapfile -t nodes < <(for node in node1 node2 node3; do node_process "$node"; done)
server_crash
wait_until 30 processes_are_gone "${nodes[@]}" || fail "nodes outlive the supervisor"
up
acknowledged_verify disk "after the restart"
mapfile -t nodes < <(for node in node1 node2 node3; do node_process "$node"; done)
server_stop
processes_are_gone "${nodes[@]}" || fail "nodes outlive a clean stop"
