#!/usr/bin/env bash
# coquina bench run and show: an experiment on a small cluster, a file and an NBD export; bad input; an interrupted run.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/experiment.sh"
needs_coquina
needs fio nbdkit nbdinfo

cd "$SCRATCH" || fail "no $SCRATCH"
mkdir files

experiment small 2 0.6 "$SCENARIO" '"random_write", "random_read"' '1, 8'

# Bad input: each says what to do, and leaves nothing.
expect 2 "built in are: curve-vs-ceph" bench run no-such-experiment
sed 's/^depth/dept/' small.toml >unknown-key.toml
expect 2 "unknown field .dept." bench run unknown-key.toml
sed 's/"4KiB"/"5"/' small.toml >bad-block.toml
expect 2 "must be a multiple of 512" bench run bad-block.toml
for wrong in floppy:a nbdx://127.0.0.1/x foo; do
    expect 2 "is not a target; write coquina-local.* device:PATH" bench run small.toml --folder files --target "$wrong"
    expect 2 "is not a target; write coquina-local" bench run small.toml --folder files --peer "$wrong"
    expect 2 "is not a target; write coquina-local" bench run small.toml --folder files --target "$wrong" --plan
    expect 2 "is not a target; write coquina-local" bench tune small.toml --folder files --target "$wrong" --set fio:iodepth=1
done
expect 2 "write it as rbd:POOL/IMAGE" bench run small.toml --folder files --target rbd:pool
expect 1 "could not connect" bench run small.toml --folder files --target nbd://127.0.0.1:9/nobody
expect 1 "does not exist" bench run small.toml --folder files --target file:/nonexistent/disk
expect 1 "not a block device" bench run small.toml --folder files --target "device:$PWD"
expect 2 "named twice" bench run small.toml --folder files --target plain-file --target plain-file
expect 2 "no case of small contains depth 99" bench run small.toml --folder files --only 'depth 99'
expect 1 "are needed, .* are free" bench run small.toml --folder files --volume-size 4EiB
expect 2 "needs 16M at least" bench run small.toml --folder files --volume-size 8M
expect 2 "needs 64M at least" bench run small.toml --folder files --store-size 16M
sed 's/"random_write"/"random_wirte"/' small.toml >misspelt.toml
expect 2 "unknown variant .random_wirte., expected one of .random_read., .random_write." bench run misspelt.toml
expect 1 "does not exist; make it" bench run small.toml --folder nowhere
expect 1 "no server runs on" bench run small.toml --folder files --target coquina:disk --dir "$SCRATCH/none"
expect 1 "no fio answers at port 9 .*start .fio --server. there" bench run small.toml --folder files --client 127.0.0.1,9
expect 1 "install the Debian package fio" env PATH=/nonexistent "$COQUINA" bench run small.toml --folder files
mkdir without-engine
# shellcheck disable=SC2016
printf '#!/bin/sh\ncase $1 in --enghelp) echo libaio ;; esac\n' >without-engine/fio
chmod +x without-engine/fio
expect 1 "no engine nbd; install the Debian package fio" \
    env "PATH=$PWD/without-engine:$PATH" "$COQUINA" bench run small.toml --folder files --target coquina-local-nbd
mkdir mine taken && echo precious >taken/report.html
expect 1 "does not exist" bench run small.toml --folder files --target file:/nonexistent/disk --out mine
expect 1 "holds a report already" bench run small.toml --folder files --target plain-file --out taken
[[ -d mine && $(<taken/report.html) == precious ]] || fail "folders of others were changed"
echo precious >precious
expect 1 "add --destroy-data $PWD/precious" bench run small.toml --folder files --target "file:$PWD/precious"
sed 's/^copies = 1/volumes = 2/' small.toml >two.toml
echo precious >disk-1
expect 1 "add --destroy-data $PWD/disk-1" bench run two.toml --folder files --target "file:$PWD/disk" --destroy-data "file:$PWD/disk"
ln -s precious link
# What fio would take for another name is refused.
# shellcheck disable=SC2016
for name in 'precious#2' 'precious;2' 'p${NAME}'; do
    expect 2 "would use something else" env NAME=recious "$COQUINA" bench run small.toml --folder files --target "file:$name"
done
for twice in "file:$PWD/precious,precious" "file:$PWD/precious,link" "file:$PWD/new,./new"; do
    expect 2 "name each file or device once" bench run small.toml --folder files --target "$twice" --destroy-data "$PWD/precious"
done
for only_here in "file:$PWD/new" plain-file device:/dev/null nbd://127.0.0.1:9/x coquina-local coquina-local-nbd ceph-local; do
    expect 2 "client 192.0.2.7 cannot make load" bench run small.toml --folder files --target "$only_here" --client 192.0.2.7
done
[[ $(<precious) == precious && $(<disk-1) == precious && ! -e disk && ! -e new ]] || fail "files were changed: $(ls -l)"
mkdir only-fio && ln -s "$(type -P fio)" only-fio/fio
expect 1 "install the Debian package libnbd-bin" env "PATH=$PWD/only-fio" "$COQUINA" bench run small.toml --folder files --target nbd://h/x
nothing_is_left
expect 1 "are needed, .* are free" bench run small.toml --folder files --target coquina-local --store-size 7E
expect 1 "are needed, .* are free" bench run small.toml --folder files --target ceph-local --store-size 7E
[[ -z $(ls -d coquina-bench-* 2>/dev/null) ]] || fail "empty reports are left: $(ls -d coquina-bench-*)"

# Three nodes, natively and over NBD, beside a file.
bench run small.toml --quick --folder files --out three --store-size 512M --seed 7 \
    --only 'depth 8' --target coquina-local --target coquina-local-nbd --target plain-file >three.txt 2>three.log ||
    fail "the run failed: $(tail -n 20 three.log)"
nothing_is_left
grep -q 'one volume' three.txt || fail "no table in $(head -n 50 three.txt)"
of_report three "r['interrupted'] is None and len(r['cases']) == 2 and len(r['targets']) == 3"
of_report three "all(len(x['rounds']) == 2 and not x['skipped'] for c in r['cases'] for x in c['results'])"
of_report three "all(y['total']['iops'] > 10 and y['errors'] == 0 for c in r['cases'] for x in c['results'] for y in x['rounds'])"
of_report three "all(y['limit']['kind'] for c in r['cases'] for x in c['results'] for y in x['rounds'])"
of_report three "all(y['cpu']['servers_us_per_io'] > 0 for c in r['cases'] for x in c['results'][:2] for y in x['rounds'])"
# Rounds of 0.6 s are long enough to see what they take.
of_report three "all(min(y['cpu']['machine_us_per_io'], y['cpu']['client_us_per_io']) > 0 for c in r['cases'] for x in c['results'] for y in x['rounds'])"
of_report three "[t['copies'] for t in r['targets']] == [1, 1, 1] and r['versions']['fio']"
of_report three "{(c['target'], c['reference']) for c in r['comparisons']} == {('Coquina, NBD', 'Coquina'), ('Coquina', 'plain file')}"
of_report three "[t['is_plain'] for t in r['targets']] == [False, False, True]"
grep -q 'CPU at depth 8, us/IO: ' three.txt || fail "not told who takes the CPU: $(head -n 60 three.txt)"
grep -q '<svg' three/report.html || fail "no plot in the page"
if grep -qE '(src|href)="?http' three/report.html; then fail "the page needs a network"; fi
expect 1 "holds a report already" bench run small.toml --folder files --out three

# A store that was aged settles under each case's load before that is measured, where that leaves it as old as it was.
experiment aged 2 0.6 'name = "aged"
volume_size = "1GiB"
copies = 1
aged = { full_percent = 50, overwrites = 1, block = "64KiB" }' '"random_write", "sequential_write"' '8'
bench run aged.toml --quick --folder files --out aged --store-size 128M --settle 2 --target coquina-local >aged.txt 2>aged.log ||
    fail "the run failed: $(tail -n 20 aged.log)"
nothing_is_left
of_report aged "[c['results'][0]['settled_s'] > 0 for c in r['cases']] == [True, False] and 2 <= r['cases'][0]['results'][0]['settled_s'] <= 8"
of_report aged "all(len(c['results'][0]['rounds']) == 2 for c in r['cases'])"
grep -q 'the first begins after 2 to 8 s of the same load' aged.txt || fail "not told: $(grep 'each case' aged.txt)"
expect 1 "there is no no-report.json; name the folder" bench show no-report.json

# Who reads its messages may go away: the run goes on, and cleans up.
"$PYTHON" - "$COQUINA" bench run small.toml --quick --folder files --out unread --target plain-file --only 'depth 8' >unread.txt <<'PYTHON' ||
import os, subprocess, sys
read, write = os.pipe()
os.close(read)
sys.exit(subprocess.run(sys.argv[1:], stderr=write).returncode)
PYTHON
    fail "a run without a reader of its messages ended with $?"
of_report unread "r['interrupted'] is None and all(x['rounds'] for c in r['cases'] for x in c['results'])"
nothing_is_left

# What was written can be shown again.
bench show three >again.txt 2>&1 || fail "not shown: $(<again.txt)"
cmp -s three.txt again.txt || fail "shown differently: $(diff three.txt again.txt | head)"
echo '{}' >none.json
expect 1 "is not a report" bench show none.json
sed 's/"report_version":1/"report_version":99/' three/report.json >newer.json
expect 1 "version 99" bench show newer.json
experiment other 1 0.6 "$SCENARIO" '"random_read"' '1, 8'
bench run other.toml --quick --folder files --out other >/dev/null 2>other.log || fail "the run failed: $(tail -n 20 other.log)"
expect 1 "different experiments|not the same experiment|are of" bench compare three other
bench compare three three --json >compared.json || fail "not compared: $(<compared.json)"
if grep -qE '"verdict": "?(faster|slower)' compared.json; then fail "a report differs from itself: $(<compared.json)"; fi
grep -q '"verdict": "no' compared.json || fail "no verdict in $(head -n 50 compared.json)"

expect 2 "leave --client out" bench run other.toml --folder files --target plain-file --rate 300 --client 127.0.0.1
expect 2 "takes no option of fio" bench tune other.toml --folder files --target plain-file --rate 300 --set fio:iodepth=1

# Ctrl-C in the middle: what was measured is kept and marked.
experiment long 8 0.6 "$SCENARIO" '"random_write", "random_read"' '1, 8'
setsid "$COQUINA" bench run long.toml --quick --folder files --out cut --store-size 512M --target coquina-local --target plain-file \
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
setsid "$COQUINA" bench run few.toml --quick --folder files --out thrice --store-size 512M --target coquina-local --target plain-file \
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
