#!/usr/bin/env bash
# What can be done wrongly with a cluster: names taken twice, nodes and drives of another cluster, the last copy taken away,
# an etcd that is not there, slow, wiped, or restored from an old backup. Each has a clear error, and nothing is lost.
source "$(dirname "$0")/../lib/cluster.sh"
needs qemu-io etcdctl

# `coquina node` that must not come up: FOLDER NAME ARGUMENT...
node_refused() {
    # shellcheck disable=SC2046 # several words are meant
    timeout 30 "$COQUINA" node --name "$2" --dir "$SCRATCH/$1" --listen 127.0.0.1:0 --http 127.0.0.1:0 "${@:3}"
}

# A node that could not use its drive is no part of the cluster.
nobody_joined() {
    local listed
    listed=$(ask gateway node list) || fail "nodes cannot be listed"
    ! grep -qw "$1" <<<"$listed" || fail "$1 is in the cluster: $listed"
}

data_is_there() { expect 0 'read 8388608' qemu-io -f raw -c 'read -P 0x42 0 8M' "$(unix_uri disk)"; }

log_says() { grep -qiE -- "$2" "$SCRATCH/$1.log"; }

status_says() { ask "$1" status --interval 0 2>&1 | grep -q "$2"; }

etcd_ctl() { ETCDCTL_API=3 command etcdctl --endpoints "http://127.0.0.1:${ETCD_CLIENT[1]}" "$@"; }

# Stops or starts all that use the map.
all_stop() {
    local name
    for name in "${!NODE_PIDS[@]}"; do node_kill "$name"; done
    gateway_kill
}

all_start() {
    local name
    for name in n1 n2 n3; do node_launch "$name"; done
    for name in n1 n2 n3; do wait_until 60 node_answers "$name" || fail "node $name does not answer"; done
    gateway_start
    cluster_heals 60
}

# A member with other data: FOLDER.
etcd_with() {
    etcd_kill_member 1
    mv "$SCRATCH/etcd1" "$SCRATCH/etcd.kept"
    [[ ! -e $1 ]] || mv "$1" "$SCRATCH/etcd1"
    etcd_start_member 1
    wait_until 30 port_answers "${ETCD_CLIENT[1]}" || fail "etcd does not answer"
}

etcd_as_it_was() {
    etcd_kill_member 1
    rm -rf "$SCRATCH/etcd1"
    mv "$SCRATCH/etcd.kept" "$SCRATCH/etcd1"
    etcd_start_member 1
    wait_until 30 port_answers "${ETCD_CLIENT[1]}" || fail "etcd does not answer"
}

start_without_etcd() {
    etcd_prepare
    node_launch n1
    wait_until 20 log_says n1 'etcd|store' || fail "the node does not say that etcd is missing"
    kill -0 "${NODE_PIDS[n1]}" || fail "the node did not wait for etcd: $(cat "$SCRATCH/n1.log")"
    etcd_start_member 1
    wait_until 30 port_answers "${ETCD_CLIENT[1]}" || fail "etcd does not answer"
    wait_until 30 node_answers n1 || fail "the node does not start when etcd is there"
}

start_with_slow_etcd() {
    kill -STOP "${ETCD_PIDS[1]}"
    node_launch n2
    sleep 3
    kill -0 "${NODE_PIDS[n2]}" || fail "the node did not wait for etcd: $(cat "$SCRATCH/n2.log")"
    kill -CONT "${ETCD_PIDS[1]}"
    wait_until 30 node_answers n2 || fail "the node does not start when etcd answers again"
}

bad_nodes() {
    local etcd file="$SCRATCH/new.drive:256M"
    etcd=$(etcd_options)
    # shellcheck disable=SC2086 # several words are meant
    {
        expect 1 'another --name' node_refused twin n1 --drive "$file" $etcd
        [[ ! -e $SCRATCH/new.drive ]] || fail "a node that may not join has made a drive"
        expect 1 'its directory .* does not exist' node_refused nowhere n7 --drive "$SCRATCH/none/drive:256M" $etcd
        expect 2 'name' node_refused twin 'a b' --drive "$file" $etcd
        expect 1 'in use|already' node_refused n1 n1 $etcd
        expect 2 'nodes' "$COQUINA" up --dir "$SCRATCH/up" --nodes 0
    }
    nobody_joined n7
    expect 1 'domain|nodes|copies' ask gateway pool create many --copies 5
}

# A node and a drive of another cluster, which has a store of its own.
other_cluster() {
    local process log=$SCRATCH/other.log
    background other.log "$COQUINA" up --dir "$SCRATCH/other" --drive "$SCRATCH/other.drive:256M" --nbd 127.0.0.1:0 \
        --http 127.0.0.1:0 --listen 127.0.0.1:0
    process=$STARTED_PID
    wait_until 30 "$COQUINA" --dir "$SCRATCH/other" status >/dev/null 2>&1 || fail "no other cluster: $(cat "$log")"
    kill -TERM "$process"
    wait "$process" || fail "the other cluster does not stop: $(cat "$log")"
    # shellcheck disable=SC2046 # several words are meant
    expect 1 'belongs to cluster' node_refused other n4 --drive "$SCRATCH/other.drive" $(etcd_options)
    # shellcheck disable=SC2046 # several words are meant
    expect 1 'another cluster|other cluster|belongs to' node_refused fresh n4 --drive "$SCRATCH/other.drive" $(etcd_options)
    nobody_joined n4
}

drive_moved_between_nodes() {
    node_stop n2
    node_stop n3
    mv "$SCRATCH/n2.drive" "$SCRATCH/moved.drive"
    node_start n3 --drive "$SCRATCH/moved.drive"
    expect 0 'n3 .*healthy .*moved.drive' ask gateway drive list
    data_is_there
    # Without a drive it has nothing to do; with one it gets the copies that must not be on one node.
    node_start n2 --drive "$SCRATCH/n2.new:$NODE_DRIVE_SIZE"
    cluster_heals 90
    data_is_there
}

last_good_copy() {
    node_kill n2
    # What is acknowledged is on all copies in sync, so the one that was killed is not among them any more. Nor is the other
    # one when a read is answered, which all in sync must allow; a write would be kept by too few.
    expect 0 'wrote 4096' qemu-io -f raw -c 'write -P 0x42 0 4k' "$(unix_uri disk)"
    node_kill n3
    # Until n3 is out of sync it has a good copy, too.
    sleep 5
    data_is_there
    expect 1 'keep its copies apart' ask gateway drive remove "$SCRATCH/n1.drive" --yes --no-wait
    expect 1 'works' ask gateway drive remove "$SCRATCH/n1.drive" --lost --yes --no-wait
    expect 1 'answers' ask gateway node remove n1 --lost --yes --no-wait
    data_is_there
    node_kill n1
    node_launch n2
    node_launch n3
    wait_until 60 node_answers n3 || fail "n3 does not answer"
    sleep 3
    # Who leads must have been silent to n1 for long enough: refused it is in any case.
    wait_until 20 is_kept_as_last || fail "$(ask gateway node remove n1 --lost --yes --no-wait 2>&1)"
    expect 1 'last|only|no other' ask gateway drive remove "$SCRATCH/n1.drive" --lost --yes --no-wait
    expect 1 'last|only|no other' ask gateway node remove n1 --lost --yes --no-wait
    node_start n1
}

is_kept_as_last() {
    local output
    output=$(ask gateway node remove n1 --lost --yes --no-wait 2>&1 || true)
    grep -qE 'last|only|no other' <<<"$output"
}

# A store that is not what it was: I/O is refused, whoever started when. `$1` says what was done to it.
refused() {
    wait_until 20 status_says gateway MAP_WENT_BACK || fail "$1: not noticed: $(ask gateway status 2>&1)"
    wait_until 20 status_says n1 MAP_WENT_BACK || fail "$1: not noticed by n1: $(ask n1 status 2>&1)"
    expect 1 'error|failed|not' qemu-io -f raw -c 'read 0 8M' "$(unix_uri disk)"
    expect 1 'error|failed|not' qemu-io -f raw -c 'write -P 0x43 0 8M' "$(unix_uri disk)"
    node_kill n1
    # shellcheck disable=SC2046 # several words are meant
    expect 1 'lost changes' node_refused n1 n1 $(etcd_options)
}

etcd_wiped() {
    etcd_with "$SCRATCH/nothing"
    refused "etcd wiped"
    all_stop
    etcd_as_it_was
    forget_refusal
    all_start
    data_is_there
}

etcd_restored() {
    etcd_ctl snapshot save "$SCRATCH/backup" >/dev/null 2>&1 || fail "etcdctl cannot save"
    ask gateway volume create later --size 16M
    ETCDCTL_API=3 etcdctl snapshot restore "$SCRATCH/backup" --name e1 --data-dir "$SCRATCH/etcd.old" \
        --initial-cluster "e1=http://127.0.0.1:${ETCD_PEER[1]}" \
        --initial-advertise-peer-urls "http://127.0.0.1:${ETCD_PEER[1]}" >/dev/null 2>&1 || fail "etcdctl cannot restore"
    etcd_with "$SCRATCH/etcd.old"
    refused "etcd restored from an old backup"
    all_stop
    etcd_as_it_was
    forget_refusal
    all_start
    data_is_there
    expect 0 later ask gateway volume list
}

# What the message says: once it is certain that the store is the newest.
forget_refusal() { rm -f "$SCRATCH"/n?/cluster.json "$DATA/cluster.json"; }

say "# start_without_etcd"
start_without_etcd
say "# start_with_slow_etcd"
start_with_slow_etcd
node_start n3
gateway_start
ask gateway volume create disk --size 32M
cluster_heals 30
qemu-io -f raw -c 'write -P 0x42 0 8M' "$(unix_uri disk)" >/dev/null
for part in ${PARTS:-bad_nodes other_cluster etcd_wiped etcd_restored drive_moved_between_nodes last_good_copy}; do
    say "# $part"
    "$part"
done
cluster_heals 90
data_is_there
