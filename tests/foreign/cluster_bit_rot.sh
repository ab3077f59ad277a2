#!/usr/bin/env bash
# Bits flip in the file of a drive, while its node runs and while it does not: nobody ever reads wrong data, and with the drive
# replaced all is as it was. Then the same with a file that is deleted under a running node.
source "$(dirname "$0")/../lib/cluster.sh"
source "$(dirname "$0")/../lib/faults.sh"

# Without memory for data, reads come from the drives.
CACHE=(--cache-memory 1M)

flip() { "$PYTHON" "$CLIENTS/flip_bits.py" "$SCRATCH/$1.drive" "$SEED" "$2" || fail "no bit was flipped"; }

drive_is_replaced() {
    local path=$SCRATCH/$1.drive
    rm -f "$path"
    [[ -z ${NODE_PIDS[$1]:-} ]] || node_kill "$1"
    node_start "$1" "${CACHE[@]}" --drive "$SCRATCH/$1.new$2:$NODE_DRIVE_SIZE"
    ask gateway drive remove "$path" --lost --yes
    cluster_heals 90
}

choose_seed
cluster_start "${CACHE[@]}"
ask gateway volume create disk --size 48M
cluster_heals 30
watched_for disk "$SEED" 3

say "# while n1 runs"
flip n1 300
watched_verify disk 1000000

say "# while n1 is down: what it cannot read at its start, it does not serve"
node_kill n1
flip n1 300
node_launch n1 "${CACHE[@]}"
sleep 3
watched_verify disk 1000000
drive_is_replaced n1 1
watched_verify disk

say "# the file of n2 is deleted while it runs, and n2 is started again"
watched_start disk "$((SEED + 1))"
sleep 1
drive_is_replaced n2 1
watched_stop disk
