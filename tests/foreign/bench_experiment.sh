#!/usr/bin/env bash
# coquina bench run, tune and show: an experiment on a small cluster, a file and an NBD export; bad input; an interrupted run.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs fio nbdkit nbdinfo

cd "$SCRATCH" || fail "no $SCRATCH"
mkdir files

experiment() { # NAME ROUNDS OPERATIONS
    cat >"$1.toml" <<TOML
format = 1
name = "$1"
title = "A small one"
targets = ["plain-file"]
[modes]
quick = { rounds = $2, runtime_s = 0.6, warmup_s = 0, volume_bytes_max = "32MiB" }
default = { rounds = $2, runtime_s = 0.6, warmup_s = 0, volume_bytes_max = "32MiB" }
full = { rounds = $2, runtime_s = 0.6, warmup_s = 0, volume_bytes_max = "32MiB" }
[[scenario]]
name = "one volume"
volume_size = "1GiB"
copies = 1
[[scenario.sweep]]
operation = [$3]
block = "4KiB"
depth = [1, 8]
TOML
}

experiment small 2 '"random_write", "random_read"'
bench() { "$COQUINA" bench "$@"; }
of_report() { # FOLDER PYTHON-EXPRESSION of `r`
    "$PYTHON" -c "import json, sys; r = json.load(open(sys.argv[1])); sys.exit(not ($2))" "$1/report.json" ||
        fail "not so in $1/report.json: $2"
}
nothing_is_left() {
    [[ -z $(ls -A files) ]] || fail "files are left: $(ls -A files)"
    if grep -lszF -- "$SCRATCH/files" /proc/[0-9]*/cmdline >&2; then fail "processes are left"; fi
}

# Bad input: each says what to do, and leaves nothing.
expect 2 "built in are: curve-vs-ceph" bench run no-such-experiment
sed 's/^depth/dept/' small.toml >unknown-key.toml
expect 2 "unknown field .dept." bench run unknown-key.toml
sed 's/"4KiB"/"5"/' small.toml >bad-block.toml
expect 2 "must be a multiple of 512" bench run bad-block.toml
expect 1 "is not a target; write coquina-local" bench run small.toml --folder files --target floppy:a
expect 1 "is not a target; write coquina-local" bench run small.toml --folder files --target floppy:a --plan
expect 1 "could not connect" bench run small.toml --folder files --target nbd://127.0.0.1:9/nobody
expect 1 "does not exist" bench run small.toml --folder files --target file:/nonexistent/disk
expect 1 "not a block device" bench run small.toml --folder files --target "device:$PWD"
expect 2 "named twice" bench run small.toml --folder files --target plain-file --target plain-file
expect 2 "no case of small contains depth 99" bench run small.toml --folder files --only 'depth 99'
expect 1 "are needed, .* are free" bench run small.toml --folder files --volume-size 4EiB
expect 1 "does not exist; make it" bench run small.toml --folder nowhere
expect 1 "no server runs on" bench run small.toml --folder files --target coquina:disk --dir "$SCRATCH/none"
expect 2 "is not KEY=VALUE" bench tune small.toml --folder files --target plain-file --set nonsense
expect 1 "no setting .*that can be changed" bench tune small.toml --folder files --target plain-file --set speed=high
expect 1 "install the Debian package fio" env PATH=/nonexistent "$COQUINA" bench run small.toml --folder files
echo precious >precious
expect 1 "add --destroy-data $PWD/precious" bench run small.toml --folder files --target "file:$PWD/precious"
[[ $(<precious) == precious ]] || fail "the file was changed"
nothing_is_left
[[ -z $(ls -d coquina-bench-* 2>/dev/null) ]] || fail "empty reports are left: $(ls -d coquina-bench-*)"

# Three nodes, natively and over NBD, beside a file.
bench run small.toml --folder files --out three --store-size 512M --seed 7 \
    --target coquina-local --target coquina-local-nbd --target plain-file >three.txt 2>three.log ||
    fail "the run failed: $(tail -n 20 three.log)"
nothing_is_left
grep -q 'one volume' three.txt || fail "no table in $(head -n 50 three.txt)"
of_report three "r['interrupted'] is None and len(r['cases']) == 4 and len(r['targets']) == 3"
of_report three "all(len(x['rounds']) == 2 and not x['skipped'] for c in r['cases'] for x in c['results'])"
of_report three "all(y['total']['iops'] > 10 and y['errors'] == 0 for c in r['cases'] for x in c['results'] for y in x['rounds'])"
of_report three "all(y['limit']['kind'] for c in r['cases'] for x in c['results'] for y in x['rounds'])"
of_report three "all(y['cpu']['servers_us_per_io'] > 0 for c in r['cases'] for x in c['results'][:2] for y in x['rounds'])"
of_report three "[t['copies'] for t in r['targets']] == [1, 1, 1] and r['versions']['fio']"
of_report three "{(c['target'], c['reference']) for c in r['comparisons']} == {('Coquina, NBD', 'Coquina')}"
grep -q '<svg' three/report.html || fail "no plot in the page"
if grep -qE '(src|href)="?http' three/report.html; then fail "the page needs a network"; fi
expect 1 "holds a report already" bench run small.toml --folder files --out three

# What was written can be shown again.
bench show three >again.txt 2>&1 || fail "not shown: $(<again.txt)"
cmp -s three.txt again.txt || fail "shown differently: $(diff three.txt again.txt | head)"
echo '{}' >none.json
expect 1 "is not a report" bench show none.json
sed 's/"report_version":1/"report_version":99/' three/report.json >newer.json
expect 1 "version 99" bench show newer.json
experiment other 1 '"random_read"'
bench run other.toml --folder files --out other >/dev/null 2>other.log || fail "the run failed: $(tail -n 20 other.log)"
expect 1 "different experiments|not the same experiment|are of" bench compare three other
bench compare three three --json >compared.json || fail "not compared: $(<compared.json)"
if grep -qE '"verdict": "?(faster|slower)' compared.json; then fail "a report differs from itself: $(<compared.json)"; fi
grep -q '"verdict": "no' compared.json || fail "no verdict in $(head -n 50 compared.json)"

# Settings in turns, of fio: half the operations at once are fewer.
bench tune other.toml --folder files --out tuned --target plain-file --only 'depth 8' --rounds 4 \
    --set fio:iodepth=8 --set fio:iodepth=1 >tuned.txt 2>tuned.log || fail "not tuned: $(tail -n 20 tuned.log)"
of_report tuned "any(c['metric'] == 'iops' and c['target'] == 'fio:iodepth=1' and c['verdict'] == 'worse' for c in r['comparisons'])"
grep -q 'worse' tuned.txt || fail "no verdict in $(<tuned.txt)"

# An open loop: what was offered is told, and the generator is the one that counts latency from when an operation was due.
bench run other.toml --folder files --out rated --target plain-file --only 'depth 8' --rounds 1 --runtime 1 --rate 300 \
    >rated.txt 2>rated.log || fail "the run failed: $(tail -n 20 rated.log)"
of_report rated "[c['point']['rate_iops'] for c in r['cases']] == [300] and r['cases'][0]['id'].endswith('/ 300 per second')"
of_report rated "r['cases'][0]['results'][0]['rounds'][0]['generator'] == 'coquina bench io'"
of_report rated "r['targets'][0]['generator'] == 'fio io_uring; at a rate coquina bench io'"
for title in 'offered IOPS' 'achieved IOPS'; do
    grep -q "$title" rated.txt || fail "not told what was offered: $(<rated.txt)"
done
expect 2 "leave --client out" bench run other.toml --folder files --target plain-file --rate 300 --client nowhere
expect 2 "takes no option of fio" bench tune other.toml --folder files --target plain-file --rate 300 --set fio:iodepth=1

# 8 at a time, 20 ms each, are at most 400 per second: of 2000 most are late by half of the run. fio would say 20 ms.
nbdkit --exit-with-parent --foreground --unix "$SOCKET" --filter=delay memory 64M rdelay=20ms &
note sweep-processes "$!"
SLOW=$!
for ((i = 0; i < 100; i++)); do
    [[ -S $SOCKET ]] && break
    sleep 0.1
done
bench run other.toml --folder files --out late --target "nbd+unix:///?socket=$SOCKET" --only 'depth 8' --rounds 1 --runtime 1 \
    --rate 2000 >late.txt 2>late.log || fail "the run failed: $(tail -n 20 late.log)"
kill "$SLOW"
of_report late "r['cases'][0]['results'][0]['rounds'][0]['total']['latency_ns_p99'] > 500e6"
of_report late "r['cases'][0]['results'][0]['rounds'][0]['contradictions'] == []"
of_report late "'rate-not-reached' in [f['kind'] for f in r['findings']]"
grep -q 'offered 2000/s, achieved' late.txt || fail "not told that the rate was missed: $(<late.txt)"

# Ctrl-C in the middle: what was measured is kept and marked.
experiment long 20 '"random_write", "random_read"'
setsid "$COQUINA" bench run long.toml --folder files --out cut --store-size 512M --target coquina-local --target plain-file \
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
