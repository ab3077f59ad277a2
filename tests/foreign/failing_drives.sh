#!/usr/bin/env bash
# Drives that go missing or fail under a running server: the others go on, the state is told and remembered.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/folders.sh"
source "$(dirname "$0")/../lib/frozen.sh"
needs_coquina
needs qemu-io

SECOND=$SCRATCH/second

# Whether a drive is in a state: PATH STATE.
state_of() {
    coquina drive list --json | "$PYTHON" -c '
import json, sys
print(*(drive["state"] for drive in json.load(sys.stdin)["drives"] if drive["path"] == sys.argv[1]))' "$1"
}
is_in_state() { [[ $(state_of "$1") == "$2" ]]; }
is_well() { coquina status --interval 0 | grep -qE 'health +OK'; }
# How many placement groups have a copy on a drive.
groups_on() {
    coquina drive list --json | "$PYTHON" -c '
import json, sys
print(*(drive["groups"] for drive in json.load(sys.stdin)["drives"] if drive["path"] == sys.argv[1]))' "$1"
}
# A third of 64 groups, and nothing moves any more.
has_its_share() { (($(groups_on "$1") >= 21)) && coquina status --interval 0 | grep -q '64 of 64 active and clean'; }

# Reads a chunk of a volume whose only copy may be out of reach, and says how that went.
read_chunk() {
    if qemu-io -f raw -c "read -P 0x42 $(($1 * 4))M 4M" "$(uri wide)" >"$SCRATCH/chunk$1" 2>&1 &&
        ! grep -q failed "$SCRATCH/chunk$1"; then
        echo good
    elif grep -qi 'Input/output error' "$SCRATCH/chunk$1"; then
        echo bad
    else
        echo "another error: $(cat "$SCRATCH/chunk$1")"
    fi
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
    # Chunks of 4 MiB lie on either drive. A client waits for a while for the node to come back.
    local chunk good bad processes=()
    for chunk in {0..15}; do
        read_chunk "$chunk" >"$SCRATCH/result$chunk" &
        processes+=($!)
    done
    wait "${processes[@]}"
    good=$(cat "$SCRATCH"/result* | grep -cx good || true)
    bad=$(cat "$SCRATCH"/result* | grep -cx bad || true)
    ((good > 0 && bad > 0 && good + bad == 16)) || fail "$good chunks can be read and $bad cannot: $(cat "$SCRATCH"/result*)"
    expect 1 'failed' timeout 100 "$COQUINA" bench io --dir "$DATA" --target volume:wide --rw read --bs 4M \
        --depth 1 --runtime 1
    expect 1 'missing.*--los' coquina drive remove "$SECOND" --yes
    server_kill
    mv "$SCRATCH/away" "$SECOND"
    server_start
    wait_until 30 is_in_state "$SECOND" healthy || fail "the drive is $(state_of "$SECOND")"
    expect 0 'read 67108864' qemu-io -f raw -c 'read -P 0x42 0 64M' "$(uri wide)"
    wait_until 30 is_well || fail "not well: $(coquina status)"
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
    wait_until 90 has_its_share "$LOOP" || fail "only $(groups_on "$LOOP") groups move to a new drive"
    volume_create onto 64M
    coquina volume info onto | grep -F "$LOOP" || fail "the volume has nothing on the device"
    qemu-io -f raw -c 'write -P 0x42 0 64M' "$(uri onto)" >/dev/null
    blockdev --setro "$LOOP"
    timeout 100 qemu-io -f raw -c 'write -P 0x43 0 64M' "$(uri onto)" >"$SCRATCH/out" 2>&1 || true
    grep -qi 'Input/output error' "$SCRATCH/out" || fail "the write did not fail: $(cat "$SCRATCH/out")"
    wait_until 20 is_in_state "$LOOP" read_only || fail "the drive is $(state_of "$LOOP")"
    expect 0 'DRIVE_READ_ONLY' coquina status
    server_kill
    blockdev --setrw "$LOOP"
    server_start
    wait_until 30 is_in_state "$LOOP" healthy || fail "the drive is $(state_of "$LOOP")"
    expect 0 'wrote 67108864' qemu-io -f raw -c 'write -P 0x44 0 64M' "$(uri onto)"
    server_stop
}

is_unlocked() { flock --exclusive --nonblock "$1" true; }

# A clean stop leaves a drive alone that does not answer, says so, and loses nothing.
silent_drive() {
    [[ $(id -u) == 0 ]] || return 0
    local begun
    at_exit melt
    at_exit server_kill
    at_exit thaw
    frozen_device 512M 700M
    rm -rf "$DATA" "$SCRATCH/drive0" "$SECOND"
    server_start --drive "$FROZEN"
    wait_until 90 has_its_share "$FROZEN" || fail "only $(groups_on "$FROZEN") groups move to a new drive"
    volume_create still 64M
    qemu-io -f raw -c 'write -P 0x42 0 64M' "$(uri still)" >/dev/null
    freeze
    begun=$SECONDS
    server_stop
    ((SECONDS - begun >= 20 && SECONDS - begun < 40)) || fail "the stop took $((SECONDS - begun)) s"
    [[ $(grep -c 'has not answered for 20 s: the stop does not wait' "$SCRATCH/server.log") == 1 ]] ||
        fail "it is not told, or of another drive as well"
    thaw
    wait_until 20 is_unlocked "$FROZEN" || fail "the drive stays locked"
    server_start
    expect 0 'read 67108864' qemu-io -f raw -c 'read -P 0x42 0 64M' "$(uri still)"
    server_stop
    melt
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
for part in missing_drive locked_drive failing_writes silent_drive full_file_system; do
    say "# $part"
    "$part"
done
