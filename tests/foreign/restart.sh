#!/usr/bin/env bash
# Volumes and their data are there after a clean stop and after kill -9; a second server on the folder is refused.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs nbdcopy nbdinfo

checksum_of() { nbdcopy "$(uri "$1")" - | sha256sum; }
# A removed volume may be listed as such for a moment.
names() {
    coquina volume list --json | "$PYTHON" -c '
import json, sys
print(*sorted(v["name"] for v in json.load(sys.stdin)["volumes"] if v["state"] == "active"))'
}

server_with_volume disk 64M
volume_create small 8M
dd if=/dev/urandom bs=1M count=40 status=none | nbdcopy --flush -- - "$(uri disk)"
before=$(checksum_of disk)

say "# a second server on the same folder"
expect 1 'already runs' timeout 60 "$COQUINA" up --dir "$DATA" --nbd 127.0.0.1:0 --http 127.0.0.1:0 --listen 127.0.0.1:0
say "# another folder, the same drive"
expect 1 'open|use|lock' timeout 60 "$COQUINA" up --dir "$SCRATCH/other" --drive "$SCRATCH/drive0" --nbd 127.0.0.1:0 \
    --http 127.0.0.1:0 --listen 127.0.0.1:0
server_is_alive

for how in server_stop server_crash server_stop; do
    say "# $how"
    "$how"
    expect 1 'no server runs' coquina status
    server_start
    [[ $(names) == "disk small" ]] || fail "volumes after $how: $(names)"
    [[ $(checksum_of disk) == "$before" ]] || fail "data changed over $how"
done

say "# rename, grow, shrink and remove live on as well"
coquina volume rename small tiny
coquina volume resize disk --size 80M
expect 1 'yes' coquina volume resize disk --size 16M
coquina volume resize tiny --size 4M --yes
server_crash
server_start
[[ $(names) == "disk tiny" ]] || fail "volumes after rename: $(names)"
[[ $(nbdinfo --size "$(uri disk)") == 83886080 ]] || fail "size after growing: $(nbdinfo --size "$(uri disk)")"
[[ $(nbdinfo --size "$(uri tiny)") == 4194304 ]] || fail "size after shrinking: $(nbdinfo --size "$(uri tiny)")"
[[ $(nbdcopy "$(uri disk)" - | head -c 64M | sha256sum) == "$before" ]] || fail "data changed by growing"
nbdcopy "$(uri disk)" - | tail -c 16M | cmp -n 16777216 - /dev/zero || fail "the grown part is not zeroes"
coquina volume remove tiny --yes
server_stop
server_start
[[ $(names) == disk ]] || fail "volumes after removal: $(names)"
expect 0 'clean|no damage|ok|healthy|0' coquina status
server_stop
say "# the stopped drive is sound"
expect 0 '' coquina drive check "$SCRATCH/drive0"
