#!/usr/bin/env bash
# The file of a drive is deleted while its node is down: the others serve on, the drive is shown as missing, is replaced
# by another one, and its copies are made anew.
source "$(dirname "$0")/../lib/cluster.sh"

drive_is_missing() { ask gateway drive list | grep -F "$SCRATCH/n2.drive" | grep -q missing; }

cluster_under_load disk
sleep 1
node_kill n2
rm "$SCRATCH/n2.drive"
node_launch n2
sleep 3
load_lives
wait_until 30 drive_is_missing || fail "the drive is not shown as missing: $(ask gateway drive list)"
[[ ! -e $SCRATCH/n2.drive ]] || fail "something was made in the place of the lost drive"
kill -0 "${NODE_PIDS[n2]}" 2>/dev/null && node_stop n2
node_start n2 --drive "$SCRATCH/n2.new:$NODE_DRIVE_SIZE"
ask gateway drive remove "$SCRATCH/n2.drive" --lost --yes
cluster_heals 90
expect 0 "$SCRATCH/n2.new" ask gateway drive list
load_stop disk
