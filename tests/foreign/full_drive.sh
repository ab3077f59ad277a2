#!/usr/bin/env bash
# A full drive answers ENOSPC and loses nothing, also over kill -9; trims work on it, and then it takes writes again.
DRIVE_SIZE=512M
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs_libnbd
needs fio

is_empty() {
    coquina status --interval 0 --json |
        "$PYTHON" -c 'import json, sys; sys.exit(json.load(sys.stdin)["data"]["live_bytes"] > 0)'
}
full_drive() { "$PYTHON" "$CLIENTS/full_drive.py" "$1" "$SCRATCH/state" "$(uri disk)"; }

server_start --overcommit 4
volume_create disk 1G
full_drive fill
coquina status || true
server_crash
server_start
full_drive verify
for round in 1 2; do
    say "round $round"
    full_drive recover
done
server_stop
server_start
full_drive verify
say "# removing the volume gives everything back"
coquina volume remove disk --yes
wait_until 60 is_empty || fail "the space of a removed volume does not come back"
volume_create next 300M
fio --name=next --ioengine=nbd --uri="$(uri next)" --rw=write --bs=64k --size=256M --iodepth=8 --verify=crc32c \
    --verify_fatal=1
