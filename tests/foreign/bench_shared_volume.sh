#!/usr/bin/env bash
# coquina bench run: two ways to one volume of a server that runs share what the run makes, and of volumes and pools nothing is left;
# load by `fio --server`.
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
# Names and copies of all pools.
pools() {
    coquina pool list --json |
        "$PYTHON" -c 'import json, sys; print(*((p["name"], p["copies"]) for p in json.load(sys.stdin)["pools"]))' || say "no answer"
}
server_start --drive "$SCRATCH/drive1:$DRIVE_SIZE"
# A cluster of `coquina node` begins without a pool.
coquina pool remove default

bench --out both --target coquina:w --target coquina-nbd:w >both.txt 2>both.log || fail "the run failed: $(tail -n 20 both.log)"
of_report both "[t['copies'] for t in r['targets']] == [2, 2] and r['hosts'] == []"
of_report both "all(t['settings']['pool'] == 'made for the run' for t in r['targets'])"
of_report both "all(len(x['rounds']) == 1 and not x['skipped'] for c in r['cases'] for x in c['results'])"
wait_until 20 volumes_left 0 || fail "volumes are left: $(coquina volume list)"
[[ -z $(pools) ]] || fail "pools are left: $(pools)"

volume_create w-1 4M
expect 1 "w-1" bench --target coquina:w --target coquina-nbd:w
wait_until 20 volumes_left 1 || fail "not only the volume that was there is left: $(coquina volume list)"
[[ $(pools) == "('default', 2)" ]] || fail "not only the pool that the volume made is left: $(pools)"

# Another number of copies needs a pool of its own, also while others make volumes, and after Ctrl-C.
experiment single 4 0.5 'name = "one volume"
volume_size = "32MiB"
copies = 1' '"random_write"' '1, 2, 4, 8, 16, 32'
setsid "$COQUINA" bench run single.toml --dir "$DATA" --folder files --out single --target coquina:v >single.txt 2>single.log &
RUN=$!
note sweep-processes "$RUN"
for ((i = 0; i < 600; i++)); do
    [[ $(pools) == *"'coquina-bench-"*"', 1)"* ]] && break
    sleep 0.1
done
[[ $(pools) == *"'coquina-bench-"*"', 1)"* ]] || fail "no pool was made: $(pools) $(<single.log)"
volume_create u 4M
wait_until 60 test -e single/report.json || fail "no figures after 60 s: $(<single.log)"
kill -INT "$RUN"
wait "$RUN" && fail "an interrupted run ended with success"
of_report single "r['interrupted'] == 'stopped by its user' and r['cases'][0]['results'][0]['rounds']"
of_report single "[(t['copies'], t['settings']['pool']) for t in r['targets']] == [(1, 'made for the run')]"
[[ $(pools) == "('default', 2)" ]] || fail "not only the pool that was there is left: $(pools) $(<single.log)"
if grep -q 'left behind' single.log; then fail "something is left: $(<single.log)"; fi

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
