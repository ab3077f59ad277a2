#!/usr/bin/env bash
# Drives that go missing or fail under a running server: the others go on, the state is told and remembered.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/folders.sh"
needs_coquina
needs qemu-io

SECOND=$SCRATCH/second

# State and map entry of a drive: what `status` shows, and what `cluster.json` holds.
state_of() {
    coquina drive list --json | "$PYTHON" -c '
import json, sys
print(*(drive["state"] for drive in json.load(sys.stdin)["drives"] if drive["path"] == sys.argv[1]))' "$1"
}
recorded_state_of() {
    "$PYTHON" - "$DATA/cluster.json" "$1" <<'PYTHON'
import json, sys
def find(node):
    if isinstance(node, dict):
        if node.get("path") == sys.argv[2]:
            print(node["state"])
        for child in node.values():
            find(child)
# The first line is the file's own header.
find(json.loads(open(sys.argv[1]).read().split("\n", 1)[1]))
PYTHON
}
is_recorded() { [[ $(recorded_state_of "$1") == "$2" ]]; }
paths_of() {
    coquina volume info "$1" --json | "$PYTHON" -c 'import json, sys; print(*sorted(p["path"] for p in json.load(sys.stdin)["placement"]))'
}

missing_drive() {
    server_start --drive "$SECOND:512M"
    volume_create wide 64M
    qemu-io -f raw -c 'write -P 0x42 0 64M' "$(uri wide)" >/dev/null
    server_stop
    mv "$SECOND" "$SCRATCH/away"
    server_start --drive "$SECOND:512M"
    [[ ! -e $SECOND ]] || fail "a new file was made where a drive is missing"
    [[ $(state_of "$SECOND") == missing ]] || fail "the drive is $(state_of "$SECOND")"
    expect 0 'DRIVE_MISSING.*second' coquina status
    expect 0 'any more' coquina drive list
    say "# what lies on the missing drive fails, the rest works"
    # Chunks of 4 MiB lie on the two drives in turn.
    local chunk good=0 bad=0
    for chunk in {0..15}; do
        if qemu-io -f raw -c "read -P 0x42 $((chunk * 4))M 4M" "$(uri wide)" >"$SCRATCH/out" 2>&1 &&
            ! grep -q 'failed' "$SCRATCH/out"; then
            good=$((good + 1))
        else
            grep -qi 'Input/output error' "$SCRATCH/out" || fail "another error: $(cat "$SCRATCH/out")"
            bad=$((bad + 1))
        fi
    done
    ((good == 8 && bad == 8)) || fail "$good chunks can be read and $bad cannot"
    # A native client is told at once, and does not look for the shard elsewhere.
    expect 1 'operation.*failed.*Input/output error' timeout 20 "$COQUINA" bench io --dir "$DATA" --target volume:wide --rw read --bs 4M \
        --depth 1 --runtime 1
    volume_create narrow 64M
    [[ $(paths_of narrow) == "$SCRATCH/drive0" ]] || fail "narrow lies on $(paths_of narrow)"
    qemu-io -f raw -c 'write -P 0x17 0 64M' "$(uri narrow)" >/dev/null
    server_kill
    mv "$SCRATCH/away" "$SECOND"
    server_start
    [[ $(state_of "$SECOND") == healthy ]] || fail "the drive is $(state_of "$SECOND")"
    expect 0 'read 67108864' qemu-io -f raw -c 'read -P 0x42 0 64M' "$(uri wide)"
    expect 0 'read 67108864' qemu-io -f raw -c 'read -P 0x17 0 64M' "$(uri narrow)"
    expect 0 'health +OK' coquina status
    server_stop
}

# A drive that another process has is not missing: that is for a person to decide.
locked_drive() {
    local holder
    (exec 9<"$SECOND" && flock --exclusive 9 && exec sleep 100) &
    holder=$!
    note sweep-processes "$holder"
    sleep 0.3
    expect 1 'in use by another process.*stop' timeout 60 "$COQUINA" up --dir "$DATA" --nbd 127.0.0.1:0 --http 127.0.0.1:0 \
        --listen 127.0.0.1:0
    kill "$holder"
    wait "$holder" 2>/dev/null || true
}

# A loop device stays read-only for whoever uses it next.
make_writable() { blockdev --setrw "${LOOPS[0]}"; }

# A device whose writes fail takes no changes any more, its reads go on, and the map knows.
failing_writes() {
    [[ $(id -u) == 0 ]] || return 0
    truncate --size 512M "$SCRATCH/device"
    loop_device "$SCRATCH/device"
    at_exit make_writable
    server_start --drive "$LOOP"
    volume_create onto 64M
    [[ $(paths_of onto) == *"$LOOP"* ]] || fail "onto lies on $(paths_of onto)"
    qemu-io -f raw -c 'write -P 0x42 0 64M' "$(uri onto)" >/dev/null
    blockdev --setro "$LOOP"
    qemu-io -f raw -c 'write -P 0x43 0 64M' "$(uri onto)" >"$SCRATCH/out" 2>&1 || true
    grep -qi 'Input/output error' "$SCRATCH/out" || fail "the write did not fail: $(cat "$SCRATCH/out")"
    wait_until 20 is_recorded "$LOOP" read_only || fail "the map says $(recorded_state_of "$LOOP")"
    expect 0 "$LOOP.*read-only" coquina status
    expect 0 'DRIVE_READ_ONLY' coquina status
    volume_create elsewhere 16M
    [[ $(paths_of elsewhere) != *"$LOOP"* ]] || fail "a new volume lies on a read-only drive"
    expect 1 'has data of' coquina drive remove "$LOOP" --yes
    server_kill
    blockdev --setrw "$LOOP"
    server_start
    is_recorded "$LOOP" healthy || fail "the map says $(recorded_state_of "$LOOP")"
    volume_create back 16M
    [[ $(paths_of back) == *"$LOOP"* ]] || fail "a drive that works again takes no data"
    server_stop
}

# The space of a drive's file is taken when it is made, so that a full file system does not fail its writes.
full_file_system() {
    [[ $(id -u) == 0 ]] || return 0
    truncate --size 600M "$SCRATCH/small-disk"
    loop_device "$SCRATCH/small-disk"
    mkfs.ext4 -q "$LOOP"
    mkdir -p "$SCRATCH/mounted"
    mount "$LOOP" "$SCRATCH/mounted"
    expect 1 'no room.*smaller' timeout 60 "$COQUINA" up --dir "$SCRATCH/x" --drive "$SCRATCH/mounted/large:2G" \
        --nbd 127.0.0.1:0 --http 127.0.0.1:0 --listen 127.0.0.1:0
    [[ ! -e $SCRATCH/mounted/large ]] || fail "a refused drive was made"
    rm -rf "$DATA" "$SCRATCH/drive0" "$SECOND"
    server_start --drive "$SCRATCH/mounted/drive:300M"
    dd if=/dev/zero of="$SCRATCH/mounted/filler" bs=1M status=none 2>/dev/null && fail "the file system is not full"
    volume_create full 500M
    expect 0 'wrote 524288000' qemu-io -f raw -c 'write -P 0x42 0 500M' "$(uri full)"
    [[ $(state_of "$SCRATCH/mounted/drive") == healthy ]] || fail "it is $(state_of "$SCRATCH/mounted/drive")"
    server_stop
}

DRIVE_SIZE=512M
for part in missing_drive locked_drive failing_writes full_file_system; do
    say "# $part"
    "$part"
done
