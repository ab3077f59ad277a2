#!/usr/bin/env bash
# `coquina up --nodes 3` says what it makes. A lost drive is replaced as docs/operations.md says, in either order. The new drive goes
# to the node that lost its own; what keeps that node from starting is said once. A node that is removed while it is down stays away.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina

# Arguments go to `coquina up`.
up() {
    "$COQUINA" up --dir "$DATA" --nbd "127.0.0.1:$NBD_PORT" --http "127.0.0.1:$HTTP_PORT" --listen 127.0.0.1:0 "$@" \
        >>"$SCRATCH/server.log" 2>&1 &
    SERVER_PID=$!
    note sweep-processes "$SERVER_PID"
    wait_until 60 server_answers || fail "the server does not answer"
}

is_whole() {
    coquina status --interval 0 --json | "$PYTHON" -c '
import json, sys
groups = json.load(sys.stdin)["groups"]
sys.exit(groups["active_clean"] != groups["total"] or groups["total"] == 0)'
}

# How often the server's log says something.
count_of() { grep -cF -- "$1" "$SCRATCH/server.log" || true; }

is_told() { (($(count_of "$1") > 0)); }

node2_process() { head -n 1 "$DATA/node2/lock"; }

is_tried_again() { [[ $(node2_process) != "$first_try" ]]; }

node_of() { coquina drive list --json | "$PYTHON" -c '
import json, sys
print(*(drive["node"] for drive in json.load(sys.stdin)["drives"] if drive["path"] == sys.argv[1]))' "$1"; }

up --nodes 3 --drive "$SCRATCH/a:300M" --drive "$SCRATCH/b:300M" --drive "$SCRATCH/c:300M"
volume_create disk 16M
wait_until 30 is_whole || fail "not whole: $(coquina status)"
second=$(node_of "$SCRATCH/b")
is_told "made a new cluster in $DATA" || fail "it is not said that the cluster is new"
is_told "/b of 300 MiB" || fail "it is not said that a drive was made"
server_stop
[[ $(grep -xE 'stopping|stopped' "$SCRATCH/server.log" | tr '\n' ' ') == "stopping stopped " ]] || fail "the stop is not told"

# Add another one, then remove the lost one.
rm "$SCRATCH/b"
up --drive "$SCRATCH/b2:300M"
[[ $(node_of "$SCRATCH/b2") == "$second" ]] || fail "the new drive is not node2's: $(coquina drive list)"
coquina drive remove "node2:$SCRATCH/b" --lost --yes
wait_until 60 is_whole || fail "not whole: $(coquina status)"
server_stop

# Remove the lost one, which has no place to go to yet, then add another one.
rm "$SCRATCH/b2"
up
first_try=$(node2_process)
wait_until 20 is_told "node2: error: none of the server's drives can be used" || fail "nothing is said of node2"
# Until the coordinator has missed node2 for long enough, it may be there.
wait_until 10 coquina drive remove "node2:$SCRATCH/b2" --lost --yes --no-wait || fail "the drive is not given up"
wait_until 20 is_tried_again || fail "node2 is not tried again"
server_stop
(($(count_of "node2: error: none of the server's drives can be used") == 1)) || fail "the reason is not said once"
(($(count_of "there is no $SCRATCH/b2 any more") <= 3)) || fail "the same is said again and again"
up --drive "$SCRATCH/b3:300M"
[[ $(node_of "$SCRATCH/b3") == "$second" ]] || fail "the new drive is not node2's: $(coquina drive list)"
wait_until 60 is_whole || fail "not whole: $(coquina status)"
server_stop

# A fourth node is removed while it is down: it does not come back, and nothing is made for it.
fourth_is_told() { is_told "node4: error: none of the server's drives can be used"; }
up --nodes 4 --drive "$SCRATCH/d:300M"
[[ $(node_of "$SCRATCH/d") == $(coquina node list --json | "$PYTHON" -c '
import json, sys
print(*(node["id"] for node in json.load(sys.stdin)["nodes"] if node["name"] == "node4"))') ]] || fail "no drive of node4: $(coquina drive list)"
mv "$SCRATCH/d" "$SCRATCH/away"
kill -9 "$(head -n 1 "$DATA/node4/lock")"
wait_until 20 fourth_is_told || fail "node4 is not missed"
wait_until 10 coquina node remove node4 --lost --yes || fail "node4 is not removed"
server_stop
up
[[ $(coquina node list) != *node4* ]] || fail "node4 came back: $(coquina node list)"
grep -q '"removed":\[4\]' "$DATA/nodes.json" || fail "the removal was not noted: $(cat "$DATA/nodes.json")"
[[ ! -e $DATA/node4/drive0 ]] || fail "a drive was made for a node that was removed"

# It says so with exit code 3, which systemd does not start again; also of a version that took no note of having joined.
mv "$SCRATCH/away" "$SCRATCH/d"
node4=("$COQUINA" node --name node4 --dir "$DATA/node4" --store-folder "$DATA/store" --no-coordinator
    --listen 127.0.0.1:0 --http 127.0.0.1:0 --drive "$SCRATCH/d")
expect 3 "node4 was removed from the cluster" "${node4[@]}"
"$PYTHON" - "$DATA/node4/node.json" <<'PYTHON'
import json, sys
node = json.load(open(sys.argv[1]))
del node["joined"]
json.dump(node, open(sys.argv[1], "w"))
PYTHON
expect 3 "node4 was removed from the cluster" "${node4[@]}"
server_stop

# What was made is said once: six drives, and one cluster.
(($(count_of "made drive") == 6 && $(count_of "made a new cluster") == 1)) || fail "what was there is said to be made"

# Nodes that stop together have nobody to hand over to, and do not complain.
(($(count_of "not all groups had another primary") == 0)) || fail "nodes that stop together say that they hand nothing over"
