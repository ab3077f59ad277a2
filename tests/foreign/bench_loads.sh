#!/usr/bin/env bash
# coquina bench run: load that fails, by libaio, from another host, and at a rate.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/experiment.sh"
needs_coquina
needs fio nbdkit nbdinfo

cd "$SCRATCH" || fail "no $SCRATCH"
mkdir files
experiment small 2 0.6 "$SCENARIO" '"random_write", "random_read"' '1, 8'
experiment other 1 0.6 "$SCENARIO" '"random_read"' '1, 8'

# An export that reads nothing back has no figures of reads, and never those of quick failures.
nbdkit -f --unix "$SOCKET_FOLDER/failing.sock" --filter=error memory 64M error-pread-rate=100% 2>/dev/null &
FAILING=$!
note sweep-processes "$FAILING"
URI="nbd+unix:///?socket=$SOCKET_FOLDER/failing.sock"
for ((i = 0; i < 100; i++)); do
    [[ -S $SOCKET_FOLDER/failing.sock ]] && break
    sleep 0.1
done
if bench run small.toml --quick --folder files --out failing --target "$URI" --destroy-data "$URI" >failing.txt 2>failing.log; then
    fail "reads that failed are no error: $(tail -n 20 failing.log)"
fi
kill "$FAILING"
grep -q 'failed in all rounds at depth 1, depth 8: there are no figures' failing.txt || fail "not told: $(<failing.txt)"
of_report failing "sum(f['kind'] == 'failed' and 'left out of all figures' in f['text'] for f in r['findings']) == 4"
of_report failing "all(bool(x['skipped']) == ('read' in c['id']) for c in r['cases'] for x in c['results'])"

# Where io_uring may not be used, fio uses libaio, and the report says so.
mkdir without-io-uring
cat >without-io-uring/fio <<SH
#!/bin/bash
if [[ "\$*" == *io_uring* ]] || grep -qs ioengine=io_uring "\${!#}"; then echo "fio: error=Operation not permitted" >&2; exit 1; fi
exec $(type -P fio) "\$@"
SH
chmod +x without-io-uring/fio
PATH="$PWD/without-io-uring:$PATH" bench run small.toml --quick --folder files --out libaio --target plain-file --only 'depth 8' \
    >libaio.txt 2>libaio.log || fail "the run failed: $(tail -n 20 libaio.log)"
grep -q 'fio uses libaio, because io_uring cannot be used here: .*Operation not permitted' libaio.log || fail "not told: $(<libaio.log)"
grep -q 'fio uses libaio' libaio.txt || fail "not in the report: $(<libaio.txt)"
of_report libaio "r['targets'][0]['generator'] == 'fio libaio' and all(x['rounds'] for c in r['cases'] for x in c['results'])"

# Load from another host, by fio's server at a port of its own: its log of operations per second has another name there.
PORT=$(free_ports 1)
timeout 120 fio "--server=127.0.0.1,$PORT" >fio-server.log 2>&1 &
FIO_SERVER=$!
end_fio_server() { kill "$FIO_SERVER" 2>/dev/null || true; }
at_exit end_fio_server
for ((i = 0; i < 100; i++)); do
    (: <"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && break
    sleep 0.1
done
bench run small.toml --quick --folder files --out remote --target plain-file --only 'depth 8' --client "127.0.0.1,$PORT" \
    >remote.txt 2>remote.log || fail "the run failed: $(tail -n 20 remote.log)"
end_fio_server
of_report remote "all(y['series'] and y['total']['iops'] > 10 and not y['contradictions'] for c in r['cases'] for x in c['results'] for y in x['rounds'])"
nothing_is_left

# Operations that fail, and a target without figures: the report is written, and a script notices.
cat >fails <<SH
#!/bin/bash
[[ "\$*" == *job.fio* ]] && grep -q rw=randread "\${!#}" && { echo "fio: no reads today" >&2; exit 1; }
exec $(type -P fio) "\$@"
SH
mkdir fails-to-read && chmod +x fails && mv fails fails-to-read/fio
expect 1 "plain-file has no figures|plain file has no figures: .*no reads today" \
    env "PATH=$PWD/fails-to-read:$PATH" "$COQUINA" bench run other.toml --quick --folder files --out failed --target plain-file
[[ -s failed/report.html ]] || fail "no page of a run that failed"
of_report failed "r['interrupted'] is None and any(f['kind'] == 'failed' for f in r['findings'])"
nothing_is_left

# An open loop: what was offered is told, and the generator is the one that counts latency from when an operation was due.
bench run other.toml --quick --folder files --out rated --target plain-file --only 'depth 8' --rounds 1 --runtime 1 --rate 300 \
    >rated.txt 2>rated.log || fail "the run failed: $(tail -n 20 rated.log)"
of_report rated "[c['point']['rate_iops'] for c in r['cases']] == [300] and r['cases'][0]['id'].endswith('/ 300 per second')"
of_report rated "r['cases'][0]['results'][0]['rounds'][0]['generator'] == 'coquina bench io'"
of_report rated "r['targets'][0]['generator'] == 'fio io_uring; at a rate coquina bench io'"
for title in 'offered IOPS' 'achieved IOPS'; do
    grep -q "$title" rated.txt || fail "not told what was offered: $(<rated.txt)"
done

# 8 at a time, 20 ms each, are at most 400 per second: of 2000 most are late by half of the run. fio would say 20 ms.
nbdkit --exit-with-parent --foreground --unix "$SOCKET" --filter=delay memory 64M rdelay=20ms &
note sweep-processes "$!"
SLOW=$!
for ((i = 0; i < 100; i++)); do
    [[ -S $SOCKET ]] && break
    sleep 0.1
done
bench run other.toml --quick --folder files --out late --target "nbd+unix:///?socket=$SOCKET" --only 'depth 8' --rounds 1 --runtime 1 \
    --rate 2000 >late.txt 2>late.log || fail "the run failed: $(tail -n 20 late.log)"
kill "$SLOW"
of_report late "r['cases'][0]['results'][0]['rounds'][0]['total']['latency_ns_p99'] > 500e6"
of_report late "r['cases'][0]['results'][0]['rounds'][0]['contradictions'] == []"
of_report late "'rate-not-reached' in [f['kind'] for f in r['findings']]"
grep -q 'offered 2000/s, achieved' late.txt || fail "not told that the rate was missed: $(<late.txt)"
