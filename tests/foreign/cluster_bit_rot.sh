#!/usr/bin/env bash
# Bits flip in the file of a drive, while its node runs and while it does not: nobody ever reads wrong data, and with the drive
# replaced all is as it was.
NODE_DRIVE_SIZE=256M
source "$(dirname "$0")/../lib/cluster.sh"
source "$(dirname "$0")/../lib/faults.sh"

needs nbdcopy

# Without memory for data, reads come from the drives.
CACHE=(--cache-memory 1M)

flip() { "$PYTHON" "$CLIENTS/flip_bits.py" "$SCRATCH/$1.drive" "$SEED" "$2" || fail "no bit was flipped"; }

all_is_read() { nbdcopy "$(unix_uri "$1")" null: 2>/dev/null; }

choose_seed
cluster_start "${CACHE[@]}"
ask gateway volume create disk --size 48M
cluster_heals 30
watched_for disk "$SEED" 3

say "# while n1 runs"
flip n1 300
watched_verify disk

say "# while n1 is down: what it cannot read at its start, it does not serve"
node_kill n1
flip n1 300
node_launch n1 "${CACHE[@]}"
sleep 3
# The two others have all of it, once they answer for what n1 answered for.
wait_until 30 all_is_read disk || fail "not all can be read with two good copies"
watched_verify disk

say "# n1 is given another drive, while the file of the first one is deleted"
rm "$SCRATCH/n1.drive"
if kill -0 "${NODE_PIDS[n1]}" 2>/dev/null; then node_kill n1; fi
node_start n1 "${CACHE[@]}" --drive "$SCRATCH/n1.new:$NODE_DRIVE_SIZE"
ask gateway drive remove "$SCRATCH/n1.drive" --lost --yes
cluster_heals 90
watched_verify disk
