#!/usr/bin/env bash
# The thread that serves a node's drive hangs, as it may in a file system's journal, while the process lives: the drive's groups are
# handed on, I/O goes on, and when the thread goes on the drive comes back.
source "$(dirname "$0")/../lib/cluster.sh"
needs_root
# Some containers and settings of Yama allow it for children only.
sleep 20 &
SLEEPER=$!
CAN_STOP=1
"$PYTHON" "$CLIENTS/stop_thread.py" "$SLEEPER" sleep 0 || CAN_STOP=
kill "$SLEEPER"
[[ -n $CAN_STOP ]] || skip "threads of other processes cannot be stopped here"

# What a thread has for its turn, and what any other failure may take.
PAUSE_MAX=$((6 + PAUSE_MAX))

at_exit end_cluster
cluster_under_load disk
sleep 1
# Less than the 30 s after which a drive would be given up.
"$PYTHON" "$CLIENTS/stop_thread.py" "${NODE_PIDS[n1]}" reactor 12 || fail "the thread could not be stopped"
load_lives
grep -q 'the thread of a reactor has hung for 5 s' "$SCRATCH/n1.log" || fail "n1 has kept its groups: $(tail -n 5 "$SCRATCH/n1.log")"
cluster_heals 60
grep -q 'the thread of the reactor goes on again' "$SCRATCH/n1.log" || fail "n1 does not know that its thread goes on"
load_lives
load_stop disk
