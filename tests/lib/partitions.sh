# shellcheck shell=bash
# Ways to cut the network of a cluster of three nodes n1 to n3, etcd's member e1, and the gateways `gateway` and `other`.
# A test sources this file after tests/lib/network.sh and tests/lib/faults.sh, and calls `network_fault` with one of
# PARTITIONS.

# shellcheck disable=SC2034 # of those who source this
PARTITIONS=(leader_isolated node_isolated one_way_in one_way_out between_leader_and_node between_nodes
    leader_without_etcd node_without_etcd etcd_isolated gateway_cut everybody_cut node_lossy node_slow)
EVERYBODY=(n1 n2 n3 e1 gateway other)

# With three members of etcd, each is on the host of a node.
partitions_prepare() {
    local member
    [[ $ETCD_MEMBERS == 1 ]] || EVERYBODY=(n1 n2 n3 gateway other)
    network_start "${EVERYBODY[@]}"
    [[ $ETCD_MEMBERS != 1 ]] || return 0
    for ((member = 1; member <= ETCD_MEMBERS; member++)); do network_share "e$member" "n$member"; done
}

# Makes a fault, looks at how long I/O pauses, ends the fault, and looks again: NAME.
network_fault() {
    LEADER=$(leader_name)
    OTHER=$(node_but "$LEADER")
    SINCE=$(now)
    "$1"
    network_mend
    MENDED=$(now)
    heals "$1" 90
    goes_on_after "$1" "$MENDED"
}

# The first node that is none of those: NAME...
node_but() {
    local name
    for name in n1 n2 n3; do
        # Not all of them into `head`: it may end before the last is written, and with it this test, without a word.
        [[ " $* " == *" $name "* ]] || { printf '%s\n' "$name" && return; }
    done
}

# Somebody is cut off from everybody, etcd included.
leader_isolated() { isolate "$LEADER" && pause_is_short "$LEADER, which leads, cut off" "$SINCE"; }
node_isolated() { isolate "$OTHER" && pause_is_short "$OTHER cut off" "$SINCE"; }

# What a node sends arrives, but it hears nothing.
one_way_in() {
    local name
    for name in "${EVERYBODY[@]}"; do [[ $name == "$OTHER" ]] || cut_one_way "$name" "$OTHER"; done
    pause_is_short "$OTHER deaf" "$SINCE"
}

# A node hears all, but nothing of what it sends arrives. The leader, for a change.
one_way_out() {
    local name
    for name in "${EVERYBODY[@]}"; do [[ $name == "$LEADER" ]] || cut_one_way "$LEADER" "$name"; done
    pause_is_short "$LEADER, which leads, mute" "$SINCE"
}

between_leader_and_node() {
    cut_both_ways "$LEADER" "$OTHER"
    pause_is_short "cut between $LEADER, which leads, and $OTHER" "$SINCE"
}

between_nodes() {
    local third
    third=$(node_but "$LEADER" "$OTHER")
    cut_both_ways "$OTHER" "$third"
    pause_is_short "cut between $OTHER and $third" "$SINCE"
}

leader_without_etcd() {
    cut_both_ways "$LEADER" e1
    pause_is_short "$LEADER, which leads, cut from etcd" "$SINCE"
}

node_without_etcd() { cut_both_ways "$OTHER" e1 && pause_is_short "$OTHER cut from etcd" "$SINCE"; }
etcd_isolated() { isolate e1 && pause_is_short "etcd cut off" "$SINCE"; }

# Each node is alone, as when a switch fails. Nothing can be done before it is over, which is long enough for TCP to wait 6 s
# more by itself.
everybody_cut() {
    local name
    for name in n1 n2 n3; do isolate "$name"; done
    sleep $((HOLD + 2))
}

# Nobody can help a gateway that does not reach the primary. The others must not notice, and it goes on afterwards.
gateway_cut() {
    cut_both_ways gateway "$OTHER"
    pause_is_short "gateway cut from $OTHER, as another gateway sees it" "$SINCE" 1
}

node_lossy() {
    local name
    for name in "${EVERYBODY[@]}"; do [[ $name == "$OTHER" ]] || make_lossy "$name" "$OTHER"; done
    sleep "$HOLD"
    say "each fifth packet of $OTHER lost: I/O paused for $(longest_pause "$SINCE") s"
}

node_slow() {
    make_slow "$OTHER" 2mbit
    sleep "$HOLD"
    say "2 Mbit/s to $OTHER: I/O paused for $(longest_pause "$SINCE") s"
}
