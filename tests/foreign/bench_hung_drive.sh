#!/usr/bin/env bash
# coquina bench run: the file system below coquina-local hangs. After Ctrl-C the report is written all the same, and the processes and
# files that are left behind are told; when it answers again, nothing is left of them.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/experiment.sh"
source "$(dirname "$0")/../lib/folders.sh"
source "$(dirname "$0")/../lib/frozen.sh"
needs_coquina
needs_root

# Of the generator 60 s, of the cluster 75 s, of notes and the folder 30 s.
END_SECONDS_MAX=190
RUN=

end_run() {
    thaw
    [[ -z $RUN ]] || wait "$RUN" || true
    melt
}
at_exit end_run

cd "$SCRATCH" || fail "no $SCRATCH"
frozen_device 16M 3G
mkdir "$FROZEN_FOLDER/files"
experiment hung 1 15 "$SCENARIO" '"random_write"' '4, 8'
setsid "$COQUINA" bench run hung.toml --folder "$FROZEN_FOLDER/files" --out out --store-size 512M --target coquina-local >out.txt 2>out.log &
RUN=$!
note sweep-processes "$RUN"
wait_until 120 test -e out/report.json || fail "no figures after 120 s: $(<out.log)"
# In the middle of the other case.
sleep 7
freeze
sleep 2
kill -INT "$RUN"
BEGIN=$SECONDS
is_told() { grep -q 'left behind:' out.log && [[ -e out/report.html ]]; }
wait_until "$END_SECONDS_MAX" is_told || fail "not told after $((SECONDS - BEGIN)) s: $(<out.log)"
say "told after $((SECONDS - BEGIN)) s: $(<out.log)"
[[ $(grep -c '^  coquina node (process ' out.log) -ge 1 ]] || fail "no node is told: $(<out.log)"
grep -q "^  the folder $FROZEN_FOLDER/files/coquina-bench-.*: rm -r " out.log || fail "the folder is not told: $(<out.log)"
of_report out "r['interrupted'] == 'stopped by its user' and r['cases'][0]['results'][0]['rounds']"
thaw
wait "$RUN" && fail "an interrupted run ended with success"
RUN=
is_nothing_left() { ! processes_with "$FROZEN_FOLDER/files" >/dev/null; }
wait_until 30 is_nothing_left || fail "processes are left: $(processes_with "$FROZEN_FOLDER/files")"
