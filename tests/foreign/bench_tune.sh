#!/usr/bin/env bash
# coquina bench tune: settings of fio and of a cluster made for the run, in turns; bad ones.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/experiment.sh"
needs_coquina
needs fio

cd "$SCRATCH" || fail "no $SCRATCH"
mkdir files
experiment small 2 0.6 'name = "one volume"
volume_size = "1GiB"' '"random_read"' '8'
tune() { bench tune small.toml --quick --folder files --store-size 512M "$@"; }

# Bad settings: each is told before anything is changed, and leaves nothing.
expect 0 "depth 8: 32 runs" tune --target plain-file --set fio:a=1 --set fio:b=1 --set fio:a=2 --plan
expect 2 "give 3 at least" tune --target plain-file --rounds 2 --set fio:thinktime=0 --set fio:thinktime=5000
expect 2 "is not KEY=VALUE" tune --target plain-file --set nonsense
expect 2 "no setting .*that can be changed" tune --target plain-file --set speed=high
expect 2 "Bad option <thinktme=3>" tune --target plain-file --set fio:thinktme=3
expect 2 "would make columns unequal" tune --target plain-file --set fio:iodepth=1
expect 2 "fio does not make the load" tune --target coquina-local --set fio:thinktime=3
expect 2 "coquina:nodes is no option of .coquina up. that can be tried" tune --target coquina-local --set coquina:nodes=5
expect 2 "invalid value 'much' for '--index-memory" tune --target coquina-local --set coquina:index-memory=much
nothing_is_left

# Of fio: with pauses between operations there are fewer.
tune --out paused --target plain-file --rounds 4 --set fio:thinktime=0 --set fio:thinktime=5000 \
    >paused.txt 2>paused.log || fail "not tuned: $(tail -n 20 paused.log)"
of_report paused "any(c['metric'] == 'iops' and c['target'] == 'fio:thinktime=5000' and c['verdict'] == 'worse' for c in r['comparisons'])"
grep -q 'worse' paused.txt || fail "no verdict in $(<paused.txt)"
nothing_is_left

# Of the cluster: it is started again before each turn, holds what it held, and has the room of the copies that volumes get.
tune --out started --target coquina-local --rounds 3 --set coquina:index-memory=64M --set coquina:index-memory=96M \
    >started.txt 2>started.log || fail "not tuned: $(tail -n 20 started.log)"
of_report started "[t['copies'] for t in r['targets']] == [3, 3]"
of_report started "[t['settings']['coquina:index-memory'] for t in r['targets']] == ['64M', '96M']"
of_report started "all(len(x['rounds']) == 3 and not x['skipped'] for c in r['cases'] for x in c['results'])"
of_report started "all(y['total']['iops'] > 10 and y['errors'] == 0 for c in r['cases'] for x in c['results'] for y in x['rounds'])"
grep -q 'started again before each turn (9 times' started.txt || fail "not told of starts: $(<started.txt)"
nothing_is_left
