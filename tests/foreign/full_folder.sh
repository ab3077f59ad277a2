#!/usr/bin/env bash
# The file system of the server's folder is full: I/O goes on, changes of the map are refused, and once there is room they are taken
# again without a restart. What was told as made is there, also after a kill, and what was refused is not.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs_libnbd
needs_root

unmount_data() {
    server_kill
    if mountpoint -q "$DATA"; then umount "$DATA"; fi
}
at_exit unmount_data

status_says() {
    coquina status --interval 0 --json | "$PYTHON" -c "import json, sys; health = json.load(sys.stdin)['health']; sys.exit(not ($1))"
}
volume_names() {
    coquina volume list --json | "$PYTHON" -c "import json, sys; print(*sorted(v['name'] for v in json.load(sys.stdin)['volumes']))"
}
# Writes a byte all over a block, and reads it back: BYTE.
io_works() {
    "$PYTHON" -c "
import nbd
handle = nbd.NBD()
handle.connect_uri('$(uri disk)')
handle.pwrite(bytes([$1]) * 4096, 8192)
assert handle.pread(4096, 8192) == bytes([$1]) * 4096"
}

mkdir -p "$DATA"
mount -t tmpfs -o size=4M tmpfs "$DATA"
server_with_volume disk 64M
for round in 1 2; do
    say "# round $round"
    dd if=/dev/zero of="$DATA/ballast" bs=4k status=none 2>/dev/null || true
    # The file's last page has room for some.
    for ((number = 0; number < 100; number++)); do
        coquina volume create "r$round-$number" --size 1M >/dev/null 2>&1 || break
    done
    ((number < 100)) || fail "the folder does not become full"
    expect 1 "space left|not known" coquina volume create refused --size 1M
    io_works "$round"
    wait_until 20 status_says "any(entry['code'] == 'STORE_UNREACHABLE' for entry in health['entries'])" ||
        fail "nothing is said of it: $(coquina status)"
    rm "$DATA/ballast"
    wait_until 20 coquina volume create "after$round" --size 1M || fail "no change is taken with room again"
    wait_until 60 status_says "health['state'] == 'ok'" || fail "not well: $(coquina status)"
    names=$(volume_names)
    for ((each = 0; each < number; each++)); do
        grep -qw -- "r$round-$each" <<<"$names" || fail "r$round-$each was made, and is gone: $names"
    done
    if grep -qw -- refused <<<"$names"; then fail "what was refused was made: $names"; fi
    io_works "$round"
    server_kill
    server_start
    [[ $(volume_names) == "$names" ]] || fail "after a kill: $(volume_names) instead of $names"
done
