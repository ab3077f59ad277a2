#!/usr/bin/env bash
# /metrics is Prometheus text with what it should name, /health answers, and the counters follow the load.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs fio

get() { "$PYTHON" -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' "http://127.0.0.1:$HTTP_PORT$1"; }

# Fails unless every line is a comment or a sample, every sample has a type, and names have the right suffixes.
check_metrics() {
    "$PYTHON" - "$1" <<'PYTHON'
import re, sys
types, samples = {}, {}
for line in open(sys.argv[1]).read().splitlines():
    if line.startswith("# TYPE "):
        name, kind = line.split()[2:4]
        assert name not in types, f"two types for {name}"
        types[name] = kind
    elif not line.startswith("#") and line:
        match = re.fullmatch(r'([a-zA-Z_:][\w:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)', line)
        assert match, f"not a sample: {line}"
        float(match[3].replace("Inf", "inf"))
        assert match[1] + (match[2] or "") not in samples, f"twice: {line}"
        samples[match[1] + (match[2] or "")] = float(match[3])
        base = re.sub(r"_(bucket|sum|count)$", "", match[1])
        kind = types.get(match[1]) or types.get(base) or types.get(re.sub("_total$", "", match[1]))
        assert kind, f"no type for {match[1]}"
        assert kind != "counter" or match[1].endswith("_total"), f"a counter without _total: {match[1]}"
assert len(samples) > 10 and all(name.startswith(("coquina_", "process_")) for name in types), sorted(types)
print(f"{len(samples)} samples of {len(types)} metrics")
PYTHON
}

server_with_volume disk 64M
get /metrics >"$SCRATCH/before"
check_metrics "$SCRATCH/before"
fio --name=load --ioengine=nbd --uri="$(uri disk)" --rw=randwrite --bs=4k --size=16M --iodepth=16 >/dev/null
get /metrics >"$SCRATCH/after"
check_metrics "$SCRATCH/after"
cmp -s "$SCRATCH/before" "$SCRATCH/after" && fail "the metrics did not follow the load"
grep -q 'volume="disk"' "$SCRATCH/after" || fail "no series of the volume"
health=$(get /health)
say "health: $health"
grep -qi ok <<<"$health" || fail "a new server is not healthy"
coquina status
coquina status --json | "$PYTHON" -m json.tool >/dev/null
