#!/usr/bin/env bash
# A drive answers nothing while the process of its node lives: its groups are handed on after 5 s, so that I/O goes on, and
# when it answers again it comes back.
source "$(dirname "$0")/../lib/cluster.sh"
source "$(dirname "$0")/../lib/folders.sh"
source "$(dirname "$0")/../lib/frozen.sh"
needs_root

# What a drive has for an answer, and what any other failure may take.
PAUSE_MAX=$((5 + PAUSE_MAX))

has_groups() {
    ask gateway drive list --json | "$PYTHON" -c '
import json, sys
sys.exit(not any(drive["path"] == sys.argv[1] and drive["groups"] > 0 for drive in json.load(sys.stdin)["drives"]))' "$FROZEN"
}

at_exit melt
at_exit end_cluster
at_exit thaw
frozen_device 1G 1500M
NODE_DRIVES[n1]=$FROZEN
cluster_under_load disk
has_groups || fail "nothing lies on the drive that is to hang"
sleep 1
freeze
# Less than the 30 s after which the drive would be given up.
sleep 20
load_lives
ask gateway status --interval 0 | grep -E 'have been on their way for over 5 s' || fail "the drive is not told of: $(ask gateway status --interval 0)"
grep -q 'the drive has not answered for 5 s: groups with enough other copies go on' "$SCRATCH/n1.log" || fail "n1 has kept its groups"
thaw
cluster_heals 60
grep -q 'the drive answers again' "$SCRATCH/n1.log" || fail "n1 does not know that its drive answers"
load_lives
load_stop disk
