#!/usr/bin/env bash
# coquina bench run: two ways to one volume of a server that runs share what the run makes; load by `fio --server`.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/experiment.sh"
needs_coquina
needs fio

cd "$SCRATCH" || fail "no $SCRATCH"
mkdir files
experiment small 1 0.5 'name = "two volumes"
volumes = 2
volume_size = "32MiB"' '"random_write"' 4
bench() { "$COQUINA" bench run small.toml --dir "$DATA" --folder files "$@"; }
# What is being removed is still listed for a moment.
volumes_left() { [[ $(coquina volume list --json | grep -c '"name"') == "$1" ]]; }
server_start

bench --out both --target coquina:w --target coquina-nbd:w >both.txt 2>both.log || fail "the run failed: $(tail -n 20 both.log)"
of_report both "[t['copies'] for t in r['targets']] == [1, 1] and r['hosts'] == []"
of_report both "all(len(x['rounds']) == 1 and not x['skipped'] for c in r['cases'] for x in c['results'])"
wait_until 20 volumes_left 0 || fail "volumes are left: $(coquina volume list)"

volume_create w-1 4M
expect 1 "w-1" bench --target coquina:w --target coquina-nbd:w
wait_until 20 volumes_left 1 || fail "not only the volume that was there is left: $(coquina volume list)"

expect 2 "this host's loopback" bench --target coquina-nbd:x --client 192.0.2.7
PORT=$(free_ports 1)
CLIENT=127.0.0.1,$PORT
command fio --aux-path="$SCRATCH" --server="$CLIENT" >fio.log 2>&1 &
FIO=$!
note sweep-processes "$FIO"
end_fio() { kill "$FIO" 2>/dev/null || true; }
at_exit end_fio
wait_until 20 port_answers "$PORT" || fail "fio's server does not answer: $(<fio.log)"
bench --out there --target coquina-nbd:x --client "$CLIENT" >there.txt 2>there.log || fail "the run failed: $(tail -n 20 there.log)"
of_report there "r['hosts'] == ['$CLIENT']"
grep -q "Load made by fio on: $CLIENT" there.txt || fail "the hosts are not named in $(<there.txt)"
grep -q "load made on.*$CLIENT" there/report.html || fail "the page does not name the hosts"
