#!/usr/bin/env bash
# Several volumes under load at once over TCP and a Unix socket; each keeps its own data.
source "$(dirname "$0")/../lib/server.sh"
needs fio nbdcopy

verify_job() {
    fio --name="$1" --ioengine=nbd --uri="$2" --rw=randwrite --bsrange=4k-32k --ba=4k --size=64M --iodepth=16 \
        --verify=crc32c --verify_fatal=1 --serialize_overlap=1 --randseed="$3" >"$SCRATCH/$1.log" 2>&1
}

server_start
processes=()
for number in 1 2 3 4; do
    volume_create "volume$number" 64M
    address=$(uri "volume$number")
    ((number % 2)) || address=$(unix_or_tcp_uri "volume$number")
    verify_job "volume$number" "$address" "$number" &
    processes+=($!)
done
for number in 1 2 3 4; do
    wait "${processes[number - 1]}" || fail "volume$number: $(tail -n 20 "$SCRATCH/volume$number.log")"
done
say "# both ways in show the same data"
[[ $(nbdcopy "$(uri volume1)" - | sha256sum) == $(nbdcopy "$(unix_or_tcp_uri volume1)" - | sha256sum) ]] ||
    fail "TCP and Unix socket differ"
[[ $(nbdcopy "$(uri volume1)" - | sha256sum) != $(nbdcopy "$(uri volume2)" - | sha256sum) ]] ||
    fail "two volumes hold the same data"

say "# what is written of the volumes is what the drives hold"
volume_create thin 1G
fio --name=thin --ioengine=nbd --uri="$(uri thin)" --rw=write --bs=64k --size=8M --iodepth=4 >"$SCRATCH/thin.log" 2>&1 ||
    fail "$(tail -n 5 "$SCRATCH/thin.log")"
coquina volume du --json >"$SCRATCH/du.json"
coquina df --json >"$SCRATCH/df.json"
"$PYTHON" - "$SCRATCH/du.json" "$SCRATCH/df.json" <<'END' || fail "volume du and df differ"
import json, sys
du, df = (json.load(open(name)) for name in sys.argv[1:])
written = {volume["name"]: volume["data_bytes"] for volume in du["volumes"]}
print(written, du["drives_bytes"], df["used_bytes"])
assert written["thin"] == 8 << 20 and written["volume1"] == 64 << 20
assert du["drives_bytes"] == df["used_bytes"] == sum(written.values())
END
