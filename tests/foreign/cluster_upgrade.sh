#!/usr/bin/env bash
# Nodes are given another program, one after the other and under verified load, and the former one again, as docs/operations.md
# ("Upgrading") says: copies of two versions bring each other up, also after kill -9, and nothing is lost.
#
# COQUINA_OLD   the other program, such as one that was built from an earlier commit
source "$(dirname "$0")/../lib/cluster.sh"

[[ -n ${COQUINA_OLD:-} ]] || skip "COQUINA_OLD does not name another program, such as one of an earlier commit"
[[ -x $COQUINA_OLD ]] || fail "there is no program $COQUINA_OLD"
COQUINA_NEW=$COQUINA
# Two programs that are the same would show nothing.
! cmp -s "$COQUINA_OLD" "$COQUINA_NEW" || fail "$COQUINA_OLD is the same program as $COQUINA_NEW"

# Gives a node another program: NAME PROGRAM HOW.
change_program() {
    "node_$3" "$1"
    sleep 2
    load_lives
    COQUINA=$2 node_start "$1"
    cluster_heals 60
    load_lives
    # While there are two, each of them must bring the other's copies up.
    node_kill "$1"
    sleep 3
    COQUINA=$2 node_start "$1"
    cluster_heals 60
    load_lives
    say "$1 runs $2 (before: $3)"
}

COQUINA=$COQUINA_OLD
cluster_under_load disk
for name in n1 n2 n3; do change_program "$name" "$COQUINA_NEW" stop; done
for name in n3 n1 n2; do change_program "$name" "$COQUINA_OLD" kill; done
change_program n2 "$COQUINA_NEW" kill
load_stop disk
gateway_kill
COQUINA=$COQUINA_NEW gateway_start
acknowledged_verify disk "with the new gateway"
ask gateway volume create another --size 16M || fail "no volume can be made while there are two versions"
cluster_heals 30
