# shellcheck shell=bash
# A cluster under test: etcd, nodes and an NBD gateway, each a process of its own. A test sources this file.
#
# Nodes are called n1, n2, ...; node K has its folder in $SCRATCH/nK and its drive in $SCRATCH/nK.drive. Members of etcd are
# called e1, e2, ...; gateways "gateway" and what a test calls others.

# shellcheck source=tests/lib/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/server.sh"
needs_coquina
needs etcd
needs_libnbd

NODES=${NODES:-3}
ETCD_MEMBERS=${ETCD_MEMBERS:-1}
NODE_DRIVE_SIZE=${NODE_DRIVE_SIZE:-1G}
# Longest pause of I/O that a failed node may cause, in seconds: 3 is what is promised, the rest is for busy machines.
PAUSE_MAX=${PAUSE_MAX:-5}
declare -A NODE_PIDS NODE_NATIVE NODE_HTTP ETCD_PIDS ETCD_CLIENT ETCD_PEER
# Where somebody listens, and the words before its command: tests/lib/network.sh gives each a network of its own.
declare -A HOST WITHIN
# What a node has instead of a file of its own, as `--drive` takes it.
declare -A NODE_DRIVES
GATEWAY_PID=

end_cluster() {
    local pid
    for pid in $GATEWAY_PID "${NODE_PIDS[@]}" "${ETCD_PIDS[@]}"; do
        # A stopped process ends only when it may go on.
        kill -9 "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
    done
}
at_exit end_cluster

host_of() { printf '%s' "${HOST[$1]:-127.0.0.1}"; }

# Runs a command in the network of somebody: NAME COMMAND...
within() {
    # shellcheck disable=SC2086 # several words are meant
    ${WITHIN[$1]:-} "${@:2}"
}

host_answers() { within "$1" "$PYTHON" -c "import socket; socket.create_connection(('$(host_of "$1")', $2), 5)" 2>/dev/null; }

# Starts a program in the background with a log: LOG COMMAND...; its number is in STARTED_PID.
background() {
    local log=$1
    shift
    "$@" >>"$SCRATCH/$log" 2>&1 &
    STARTED_PID=$!
    note sweep-processes "$STARTED_PID"
}

etcd_prepare() {
    local member ports
    read -r -a ports <<<"$(free_ports $((2 * ETCD_MEMBERS)))"
    for ((member = 1; member <= ETCD_MEMBERS; member++)); do
        ETCD_CLIENT[$member]=${ports[$((2 * member - 2))]}
        ETCD_PEER[$member]=${ports[$((2 * member - 1))]}
    done
}

etcd_start_member() {
    local member=$1 host each all=()
    host=$(host_of "e$member")
    for each in "${!ETCD_PEER[@]}"; do all+=("e$each=http://$(host_of "e$each"):${ETCD_PEER[$each]}"); done
    # shellcheck disable=SC2086 # several words are meant
    background "etcd$member.log" ${WITHIN[e$member]:-} etcd --name "e$member" --data-dir "$SCRATCH/etcd$member" \
        --logger zap --log-level warn \
        --listen-client-urls "http://$host:${ETCD_CLIENT[$member]}" \
        --advertise-client-urls "http://$host:${ETCD_CLIENT[$member]}" \
        --listen-peer-urls "http://$host:${ETCD_PEER[$member]}" \
        --initial-advertise-peer-urls "http://$host:${ETCD_PEER[$member]}" \
        --initial-cluster "$(IFS=, && printf '%s' "${all[*]}")" --initial-cluster-state new
    ETCD_PIDS[$member]=$STARTED_PID
}

etcd_kill_member() {
    kill -9 "${ETCD_PIDS[$1]}"
    wait "${ETCD_PIDS[$1]}" 2>/dev/null || true
    unset "ETCD_PIDS[$1]"
}

etcd_start() {
    local member
    etcd_prepare
    for member in "${!ETCD_CLIENT[@]}"; do etcd_start_member "$member"; done
    for member in "${!ETCD_CLIENT[@]}"; do
        wait_until 30 host_answers "e$member" "${ETCD_CLIENT[$member]}" || fail "etcd member $member does not answer"
    done
}

etcd_options() {
    local member
    for member in "${!ETCD_CLIENT[@]}"; do
        printf -- '--etcd http://%s:%s ' "$(host_of "e$member")" "${ETCD_CLIENT[$member]}"
    done
}

# The command line against a node or the gateway: WHO ARGUMENT...
ask() {
    local port=$HTTP_PORT
    [[ $1 == gateway ]] || port=${NODE_HTTP[$1]}
    within "$1" "$COQUINA" --server "$(host_of "$1"):$port" "${@:2}"
}

# Starts a node, and waits until it serves: NAME ARGUMENT... More arguments go to `coquina node`.
node_start() {
    node_launch "$@"
    wait_until 60 node_answers "$1" || fail "node $1 does not answer; see $(tail -n 5 "$SCRATCH/$1.log")"
}

node_launch() {
    local name=$1
    if [[ -z ${NODE_NATIVE[$name]:-} ]]; then
        read -r "NODE_NATIVE[$name]" "NODE_HTTP[$name]" <<<"$(free_ports 2)"
    fi
    local drive=(--drive "${NODE_DRIVES[$name]:-$SCRATCH/$name.drive:$NODE_DRIVE_SIZE}")
    # A file that is gone must not be made anew by its size.
    [[ ! -e $SCRATCH/$name/node.json ]] || drive=()
    # shellcheck disable=SC2046,SC2086 # several words are meant
    background "$name.log" ${WITHIN[$name]:-} "$COQUINA" node --name "$name" --dir "$SCRATCH/$name" "${drive[@]}" \
        --listen "$(host_of "$name"):${NODE_NATIVE[$name]}" --http "$(host_of "$name"):${NODE_HTTP[$name]}" \
        $(insecure "$name") $(etcd_options) "${@:2}"
    NODE_PIDS[$name]=$STARTED_PID
}

# Who has a network of its own has to be told to trust it.
insecure() { [[ -z ${HOST[$1]:-} ]] || printf -- --insecure; }

node_answers() {
    kill -0 "${NODE_PIDS[$1]}" 2>/dev/null || fail "node $1 ended: $(tail -n 5 "$SCRATCH/$1.log")"
    ask "$1" status --interval 0 --json >/dev/null 2>&1
}

node_kill() {
    kill -9 "${NODE_PIDS[$1]}"
    wait "${NODE_PIDS[$1]}" 2>/dev/null || true
    unset "NODE_PIDS[$1]"
}

node_stop() {
    local status=0
    kill -TERM "${NODE_PIDS[$1]}"
    wait "${NODE_PIDS[$1]}" || status=$?
    unset "NODE_PIDS[$1]"
    ((status == 0)) || fail "node $1 stopped with status $status"
}

gateway_start() {
    # shellcheck disable=SC2046,SC2086 # several words are meant
    background gateway.log ${WITHIN[gateway]:-} "$COQUINA" nbd --dir "$DATA" --listen "$(host_of gateway):$NBD_PORT" \
        --listen "unix:$SOCKET" --http "$(host_of gateway):$HTTP_PORT" $(insecure gateway) $(etcd_options)
    GATEWAY_PID=$STARTED_PID
    wait_until 30 host_answers gateway "$NBD_PORT" || fail "the gateway does not answer: $(tail -n 5 "$SCRATCH/gateway.log")"
}

gateway_kill() {
    kill -9 "$GATEWAY_PID"
    wait "$GATEWAY_PID" 2>/dev/null || true
    GATEWAY_PID=
}

# Starts etcd, the nodes and the gateway. Arguments go to each node.
cluster_start() {
    local number
    etcd_start
    for ((number = 1; number <= NODES; number++)); do node_start "n$number" "$@"; done
    gateway_start
}

# Starts a cluster with a small volume that has all its copies: VOLUME. Arguments behind it go to each node.
cluster_with_volume() {
    cluster_start "${@:2}"
    ask gateway volume create "$1" --size 48M
    cluster_heals 30
}

# The same, under a verified load.
cluster_under_load() {
    choose_seed
    cluster_with_volume "$@"
    load_start "$1" "$SEED"
}

# The node that is to fail in a round.
node_of_round() { printf 'n%s' "$((($1 - 1) % NODES + 1))"; }

# All copies are where they should be. Health may still tell of something else, such as a full drive.
cluster_is_whole() {
    ask gateway status --interval 0 --json 2>/dev/null | "$PYTHON" -c '
import json, sys
groups = json.load(sys.stdin)["groups"]
sys.exit(groups["total"] == 0 or groups["active_clean"] != groups["total"])' 2>/dev/null
}

# Waits until all copies are where they should be: SECONDS.
cluster_heals() {
    wait_until "$1" cluster_is_whole || fail "not whole after $1 s: $(ask gateway status 2>&1)"
}

# Starts a verified load on a volume that must not notice more than a pause: VOLUME SEED.
load_start() {
    rm -f "$SCRATCH/stop-load"
    background load.log "$PYTHON" "$CLIENTS/acknowledged.py" during "$SCRATCH/state" "$2" "$(uri "$1")" \
        "$SCRATCH/stop-load" "$PAUSE_MAX"
    LOAD_PID=$STARTED_PID
}

load_lives() { kill -0 "$LOAD_PID" 2>/dev/null || fail "the load ended: $(tail -n 5 "$SCRATCH/load.log")"; }

# Ends the load, which must have gone well, and reads everything back: VOLUME.
load_stop() {
    local status=0
    touch "$SCRATCH/stop-load"
    wait "$LOAD_PID" || status=$?
    LOAD_PID=
    tail -n 3 "$SCRATCH/load.log"
    ((status == 0)) || fail "the load failed"
    acknowledged_verify "$1" "in the end"
}
