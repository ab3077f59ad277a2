#!/usr/bin/env bash
# coquina bench run and show: an experiment on a small cluster, a file and an NBD export.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/experiment.sh"
needs_coquina
needs fio nbdinfo

cd "$SCRATCH" || fail "no $SCRATCH"
mkdir files

experiment small 2 0.6 "$SCENARIO" '"random_write", "random_read"' '1, 8'

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
