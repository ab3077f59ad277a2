#!/usr/bin/env bash
# The file system of a node's drive hangs, so that the thread which writes to it may hang in the kernel: the drive's groups are handed on
# all the same, I/O goes on, and when the file system answers again the drive comes back.
source "$(dirname "$0")/../lib/cluster.sh"
source "$(dirname "$0")/../lib/folders.sh"
source "$(dirname "$0")/../lib/frozen.sh"
needs_root

# What a drive has for an answer, and what any other failure may take.
PAUSE_MAX=$((5 + PAUSE_MAX))
INNER=$SCRATCH/inner

melt_inner() {
    thaw
    if mountpoint -q "$INNER"; then umount "$INNER"; fi
    melt
}

at_exit melt_inner
at_exit end_cluster
at_exit thaw
frozen_device 1400M 1800M
mkfs.ext4 -q "$FROZEN"
mkdir -p "$INNER"
mount "$FROZEN" "$INNER"
NODE_DRIVES[n1]=$INNER/drive:1G
cluster_under_load disk
sleep 1
freeze
# Less than the 30 s after which the drive would be given up.
sleep 20
load_lives
grep -qE 'the (drive has not answered|thread of a reactor has hung) for 5 s' "$SCRATCH/n1.log" || fail "n1 has kept its groups: $(tail -n 5 "$SCRATCH/n1.log")"
thaw
cluster_heals 60
grep -qE 'the drive answers again|the thread of the reactor goes on again' "$SCRATCH/n1.log" || fail "n1 does not know that its drive answers"
load_lives
load_stop disk
