# shellcheck shell=bash
# Networks of its own for each part of a cluster under test, joined by a bridge that can be told to lose packets. A test
# sources this file after tests/lib/cluster.sh, and calls `network_start` before `cluster_start`.
#
# Invariants:
# - nothing of this is in the machine's own network: each namespace, the bridge's included, is held by a process of the
#   test, has no name, and goes with the last process in it;
# - what is lost is lost silently: no reset, no "unreachable". ARP goes through, or the kernel would notice.

needs_root
needs ip nft nsenter unshare

declare -A NETWORK_PIDS HOST WITHIN
NETWORK_NUMBER=0

end_network() {
    local pid
    for pid in "${NETWORK_PIDS[@]}"; do kill -9 "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
}
at_exit end_network

# A process that holds a network namespace: NAME.
namespace_hold() {
    # Its name is how the sweep knows whose it is.
    # shellcheck disable=SC2016 # expanded by the inner shell
    background network.log unshare --net bash -c 'exec -a "$0" sleep infinity' "$SCRATCH/network-$1"
    NETWORK_PIDS[$1]=$STARTED_PID
    WITHIN[$1]="nsenter --net=/proc/$STARTED_PID/ns/net --"
    wait_until 10 namespace_is_there "$1" || skip "no network namespace can be made: $(tail -n 1 "$SCRATCH/network.log")"
}

namespace_is_there() {
    local pid=${NETWORK_PIDS[$1]}
    kill -0 "$pid" 2>/dev/null || return 0
    [[ $(tr '\0' ' ' <"/proc/$pid/cmdline") == "$SCRATCH/network-$1"* ]]
}

# Makes the bridge, and a network for each name: NAME...
network_start() {
    local name
    namespace_hold bridge
    within bridge true 2>/dev/null || skip "no network namespace can be made"
    within bridge ip link add name bridge type bridge 2>/dev/null || skip "this kernel has no bridge"
    within bridge ip link set bridge up
    within bridge nft -f - <<'NFT' 2>/dev/null || skip "this kernel has no nft for bridges"
table bridge faults {
    set cut { type ifname . ifname; }
    set lossy { type ifname . ifname; }
    chain forward {
        type filter hook forward priority 0; policy accept;
        ether type arp accept
        meta iifname . meta oifname @cut counter drop
        meta iifname . meta oifname @lossy numgen random mod 100 < 20 counter drop
    }
}
NFT
    for name in "$@"; do network_add "$name"; done
}

network_add() {
    local name=$1
    NETWORK_NUMBER=$((NETWORK_NUMBER + 1))
    namespace_hold "$name"
    ip link add name eth0 netns "${NETWORK_PIDS[$name]}" type veth peer name "$name" netns "${NETWORK_PIDS[bridge]}"
    within bridge ip link set "$name" master bridge up
    within "$name" ip link set lo up
    within "$name" ip address add "10.77.0.$NETWORK_NUMBER/24" dev eth0
    within "$name" ip link set eth0 up
    HOST[$name]=10.77.0.$NETWORK_NUMBER
}

# Puts somebody into the network of another: NAME WITH-WHOM.
network_share() {
    HOST[$1]=${HOST[$2]}
    WITHIN[$1]=${WITHIN[$2]}
}

# Nothing goes from one to another any more; the other way it does: FROM TO.
cut_one_way() { within bridge nft add element bridge faults cut "{ $1 . $2 }"; }

cut_both_ways() {
    cut_one_way "$1" "$2"
    cut_one_way "$2" "$1"
}

# Nothing goes from or to somebody any more.
isolate() {
    local name
    for name in "${!NETWORK_PIDS[@]}"; do
        if [[ $name != bridge && $name != "$1" ]]; then cut_both_ways "$1" "$name"; fi
    done
}

# Each fifth packet between two is lost: NAME NAME.
make_lossy() { within bridge nft add element bridge faults lossy "{ $1 . $2, $2 . $1 }"; }

# What goes to somebody is slow: NAME RATE.
make_slow() { within bridge tc qdisc replace dev "$1" root tbf rate "$2" burst 32k latency 200ms; }

network_mend() {
    local name
    within bridge nft flush set bridge faults cut
    within bridge nft flush set bridge faults lossy
    for name in "${!NETWORK_PIDS[@]}"; do
        [[ $name == bridge ]] || within bridge tc qdisc delete dev "$name" root 2>/dev/null || true
    done
}
