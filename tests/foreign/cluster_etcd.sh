#!/usr/bin/env bash
# Members of etcd are killed and started again, then all of them: I/O goes on, and afterwards the map can be changed
# again without anybody's help.
ETCD_MEMBERS=3
source "$(dirname "$0")/../lib/cluster.sh"

cluster_under_load disk
for member in 1 2 3; do
    etcd_kill_member "$member"
    say "killed member $member"
    sleep 2
    wait_until 30 ask gateway volume create "while-$member-was-gone" --size 1M ||
        fail "no change of the map with two of three members"
    etcd_start_member "$member"
    wait_until 30 port_answers "${ETCD_CLIENT[$member]}" || fail "etcd member $member does not come back"
    sleep 2
    load_lives
done
for member in 1 2 3; do etcd_kill_member "$member"; done
say "killed all members"
sleep 5
load_lives
expect 1 "store|etcd" ask gateway volume create not-now --size 1M
for member in 1 2 3; do etcd_start_member "$member"; done
wait_until 60 ask gateway volume create later --size 1M || fail "no change of the map after etcd came back"
cluster_heals 60
load_stop disk
