#!/usr/bin/env bash
# coquina bench run and tune: Ctrl-C, once and three times. What was measured is kept, and nothing else is left.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/experiment.sh"
needs_coquina
needs fio

cd "$SCRATCH" || fail "no $SCRATCH"
mkdir files

# Ctrl-C in the middle: what was measured is kept and marked.
experiment long 8 0.6 "$SCENARIO" '"random_write", "random_read"' '1, 8'
setsid "$COQUINA" bench run long.toml --quick --folder files --out cut --store-size 128M --target coquina-local --target plain-file \
    >cut.txt 2>cut.log &
RUN=$!
note sweep-processes "$RUN"
for ((i = 0; i < 600; i++)); do
    [[ -e cut/report.json ]] && break
    sleep 0.1
done
[[ -e cut/report.json ]] || fail "no report after 60 s: $(tail -n 20 cut.log)"
sleep 1
kill -INT "$RUN"
wait "$RUN" && fail "an interrupted run ended with success"
of_report cut "r['interrupted'] == 'stopped by its user' and r['cases'][0]['results'][0]['rounds']"
grep -q 'ended early: stopped by its user' cut.log || fail "not told: $(tail -n 5 cut.log)"
nothing_is_left

# Three times: the second says what is waited for, the third ends at once and says what is left.
experiment few 3 0.6 "$SCENARIO" '"random_write", "random_read"' '1, 8'
setsid "$COQUINA" bench run few.toml --quick --folder files --out thrice --store-size 128M --target coquina-local --target plain-file \
    >thrice.txt 2>thrice.log &
RUN=$!
note sweep-processes "$RUN"
for ((i = 0; i < 600; i++)); do
    [[ -e thrice/report.json ]] && break
    sleep 0.1
done
[[ -e thrice/report.json ]] || fail "no report after 60 s: $(tail -n 20 thrice.log)"
for told in 'what was measured is kept' 'still cleaning up, waiting for: ' 'Left behind:'; do
    kill -INT "$RUN" 2>/dev/null || fail "ended before it was asked to: $(<thrice.log)"
    for ((i = 0; i < 50; i++)); do
        grep -q "$told" thrice.log && break
        sleep 0.02
    done
    grep -q "$told" thrice.log || fail "not told $told: $(<thrice.log)"
done
STATUS=0
wait "$RUN" || STATUS=$?
[[ $STATUS == 130 ]] || fail "status $STATUS after three times Ctrl-C"
LEFT=$(grep -o 'rm -r .*' thrice.log | tail -n 1)
[[ $LEFT == "rm -r $PWD/files/coquina-bench-"* ]] || fail "no folder is named: $(<thrice.log)"
grep -q 'Coquina nodes .* end by themselves' thrice.log || fail "no processes are named: $(<thrice.log)"
of_report thrice "r['interrupted'] == 'the run is not finished'"
for ((i = 0; i < 300; i++)); do
    processes_with "$SCRATCH/files" >/dev/null || break
    sleep 0.1
done
rm -r "${LEFT#rm -r }"
nothing_is_left

experiment reads 2 0.6 'name = "one volume"
volume_size = "1GiB"' '"random_read"' '8'
# Of tune, while its cluster starts again: nothing waits for that start.
setsid "$COQUINA" bench tune reads.toml --quick --folder files --store-size 128M --out untuned --target coquina-local \
    --set coquina:index-memory=64M --set coquina:index-memory=96M >untuned.txt 2>untuned.log &
RUN=$!
note sweep-processes "$RUN"
for ((i = 0; i < 600; i++)); do
    ! grep -q 'starting the target again' untuned.log || break
    sleep 0.1
done
grep -q 'starting the target again' untuned.log || fail "not started again within 60 s: $(<untuned.log)"
kill -INT "$RUN"
STATUS=0
wait "$RUN" || STATUS=$?
[[ $STATUS == 1 ]] || fail "status $STATUS after Ctrl-C: $(<untuned.log)"
[[ $(grep -c 'starting the target again' untuned.log) == 1 ]] || fail "it went on: $(<untuned.log)"
nothing_is_left
