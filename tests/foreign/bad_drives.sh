#!/usr/bin/env bash
# Drives that must be refused with the reason: missing, folder, too small, foreign, mounted, read-only, damaged.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/folders.sh"
needs_coquina
needs fio qemu-img

# A server that starts although it must not is stopped, and the status is then 124.
up() {
    timeout 60 "$COQUINA" up --dir "$SCRATCH/$1" --nbd 127.0.0.1:0 --http 127.0.0.1:0 --listen 127.0.0.1:0 "${@:2}"
}
file_of() { truncate --size "$2" "$SCRATCH/$1" && printf '%s' "$SCRATCH/$1"; }

bad_files() {
    expect 1 'size|does not exist' up a --drive "$SCRATCH/missing"
    expect 1 'director|cannot make|no such' up a --drive "$SCRATCH/no/such/folder/drive:1G"
    mkdir "$SCRATCH/folder"
    expect 1 'director|folder' up a --drive "$SCRATCH/folder"
    expect 1 '256|least|small' up a --drive "$SCRATCH/small:1M"
    expect 1 '256|least|small' up a --drive "$(file_of tiny 4k)"
    expect 2 'twice' up a --drive "$SCRATCH/x:1G" --drive "$SCRATCH/x:1G"
    expect 1 'device|character|file' up a --drive /dev/null
    head -c 300M /dev/urandom >"$SCRATCH/noise"
    expect 1 'holds|force' up a --drive "$SCRATCH/noise"
    qemu-img create -q -f qcow2 "$SCRATCH/image.qcow2" 1G && truncate --size 300M "$SCRATCH/image.qcow2"
    expect 1 'qcow' up a --drive "$SCRATCH/image.qcow2"
    [[ ! -e $SCRATCH/missing && ! -e $SCRATCH/small ]] || fail "a refused drive was made"
}

bad_devices() {
    [[ $(id -u) == 0 ]] || return 0
    loop_device "$(file_of plain 512M)"
    mkfs.ext4 -q "$LOOP"
    expect 1 'ext4|ext2' up b --drive "$LOOP"
    mkdir -p "$SCRATCH/mounted"
    mount "$LOOP" "$SCRATCH/mounted"
    expect 1 'mounted|use' up b --drive "$LOOP"
    expect 1 'mounted|use' up b --drive "$LOOP" --force
    umount "$SCRATCH/mounted"
    fsck.ext4 -fn "$LOOP" >/dev/null || fail "the refused device was changed"
    loop_device "$(file_of readonly 512M)" --read-only
    expect 1 'read-only|permission|permitted' up b --drive "$LOOP"
}

# The server of this test has formatted drive0; copies of it are damaged here.
damaged_superblocks() {
    local drive=$SCRATCH/drive0 copy=$SCRATCH/copy offset offsets
    mapfile -t offsets < <(superblock_offsets "$drive")
    ((${#offsets[@]} == 2)) || fail "a superblock pair was expected, found at: ${offsets[*]}"
    for offset in "${offsets[@]}"; do
        cp --sparse=always "$drive" "$copy"
        overwrite_half_block "$copy" "$offset"
        expect 0 'cluster' "$COQUINA" --dir "$DATA" drive info "$copy"
        expect 0 '' "$COQUINA" --dir "$DATA" drive check "$copy"
    done
    overwrite_half_block "$copy" "${offsets[0]}"
    expect 1 'superblock' "$COQUINA" --dir "$DATA" drive info "$copy"
    expect 1 'superblock' "$COQUINA" --dir "$DATA" drive check "$copy"
    expect 1 'superblock|force' up c --drive "$copy"
    rm "$copy"
    cp --sparse=always "$drive" "$copy"
    for offset in "${offsets[@]}"; do spoil_fields "$copy" "$offset"; done
    expect 1 'both.*superblock' "$COQUINA" --dir "$DATA" drive info "$copy"
    expect 1 'both.*superblock' "$COQUINA" --dir "$DATA" drive check "$copy"
    expect 1 'superblock' up c --drive "$copy"
    rm "$copy"
    expect 1 'belongs to cluster' up c --drive "$drive"
    cp --sparse=always "$drive" "$copy"
    truncate --size 400M "$copy"
    expect 1 'cut off|bytes' "$COQUINA" --dir "$DATA" drive check "$copy"
}

# Where the superblock and its copy lie: two blocks with the same first 16 bytes, one at the start of the drive.
superblock_offsets() {
    "$PYTHON" - "$1" <<'PYTHON'
import sys
with open(sys.argv[1], "rb") as file:
    data = file.read(1 << 20)
    magic = data[:8]
    assert any(magic), "the drive does not start with a superblock"
    for offset in range(0, len(data), 4096):
        if data[offset : offset + 8] == magic:
            print(offset)
PYTHON
}

overwrite_half_block() { dd if=/dev/urandom of="$1" bs=512 seek="$(($2 / 512))" count=4 conv=notrunc status=none; }

# Leaves the magic, spoils what follows it.
spoil_fields() { dd if=/dev/urandom of="$1" bs=1 seek="$(($2 + 16))" count=40 conv=notrunc status=none; }

# A block device works as a drive like a file does.
works_on_a_device() {
    [[ $(id -u) == 0 ]] || return 0
    loop_device "$(file_of device 512M)"
    expect 0 'cluster' "$COQUINA" --dir "$DATA" drive format "$LOOP"
    server_start --drive "$LOOP"
    coquina status
    volume_create wide 600M
    fio --name=wide --ioengine=nbd --uri="$(uri wide)" --rw=randwrite --bs=16k --size=600M --io_size=64M \
        --iodepth=16 --verify=crc32c --verify_fatal=1 >/dev/null
    server_stop
    expect 0 '' coquina drive check "$LOOP"
}

DRIVE_SIZE=512M
server_with_volume disk 64M
expect 1 'open|use|lock' coquina drive check "$SCRATCH/drive0"
# A copy says that it is the drive that is served.
cp --sparse=always "$SCRATCH/drive0" "$SCRATCH/twin"
expect 1 'copy of the other' coquina drive add "$SCRATCH/twin"
rm "$SCRATCH/twin"
server_stop
for part in bad_files bad_devices damaged_superblocks works_on_a_device; do
    say "# $part"
    "$part"
done
