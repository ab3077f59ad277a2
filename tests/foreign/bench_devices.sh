#!/usr/bin/env bash
# coquina bench run on block devices: none is written to that was not given up by name, or that somebody uses.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/folders.sh"
source "$(dirname "$0")/../lib/experiment.sh"
needs_coquina
needs_root
needs fio losetup mkfs.ext4 mount

cd "$SCRATCH" || fail "no $SCRATCH"
mkdir files mounted
SCENARIO='name = "one drive"
volume_size = "32MiB"'
experiment writes 1 0.5 "$SCENARIO" '"random_write"' 4
experiment reads 1 0.5 "$SCENARIO" '"random_read"' 4
bench() { "$COQUINA" bench run "$@" --folder files; }
is_empty() { [[ $(tr -d '\0' <backing | wc -c) == 0 ]] || fail "the device was written to by: $1"; }

truncate -s 64M backing
loop_device backing
DEVICE=$LOOP
NAMED=${DEVICE#/dev/}

expect 1 "its first MiB is empty.*add --destroy-data $DEVICE" bench writes.toml --target "device:$DEVICE"
expect 2 "is named twice" bench writes.toml --target "device:$DEVICE,$DEVICE" --destroy-data "$DEVICE"
ln -s "$DEVICE" link
expect 2 "are the same" bench writes.toml --target "device:$DEVICE,$PWD/link" --destroy-data "$DEVICE"
is_empty "what was refused"

expect 2 "are the same, or overlap" bench writes.toml --target "device:$DEVICE" --target "file:$PWD/backing" \
    --destroy-data "$DEVICE" --destroy-data "$PWD/backing"
expect 1 "is in use: it is behind $DEVICE" bench writes.toml --target "file:$PWD/backing" --destroy-data "$PWD/backing"
expect 1 "is in use: it is behind $DEVICE" "$COQUINA" bench io --target "file:$PWD/backing" --rw randwrite --runtime 1
is_empty "what was refused"

# Reads alone fill nothing that was not given up.
bench reads.toml --target "device:$DEVICE" --out reads >reads.txt || fail "the run failed: $(<reads.txt)"
is_empty "reads"
grep -q 'written full before (not raw drive: read only' reads.txt || fail "told that it was written: $(<reads.txt)"
grep -q 'nobody gave the data up' reads/report.json || fail "the report does not say that nothing was written before"

# So do reads of whole objects, which are written before where that is allowed.
experiment objects 1 0.5 "$SCENARIO" '"object_read"' 4
bench objects.toml --target "device:$DEVICE" --out objects >objects.txt || fail "the run failed: $(<objects.txt)"
is_empty "reads of objects"

loop_device "$DEVICE"
expect 1 "is in use: $NAMED is behind ${LOOP#/dev/}" bench writes.toml --target "device:$DEVICE" --destroy-data "$DEVICE"
expect 1 "is in use: $NAMED is behind ${LOOP#/dev/}" "$COQUINA" bench io --target "device:$DEVICE" --rw randwrite --runtime 1 --yes
is_empty "a run on a device behind another one"
undo_folders

loop_device backing
DEVICE=$LOOP
NAMED=${DEVICE#/dev/}
mkfs.ext4 -q "$DEVICE"
expect 1 "its first MiB is not empty.*add --destroy-data $DEVICE" bench writes.toml --target "device:$DEVICE"
mount "$DEVICE" mounted
echo precious >mounted/precious
expect 1 "is in use: $NAMED is mounted on .*/mounted" bench writes.toml --target "device:$DEVICE" --destroy-data "$DEVICE"
expect 1 "is in use: $NAMED is mounted on .*/mounted" bench reads.toml --target "device:$DEVICE"
umount mounted
mount "$DEVICE" mounted
[[ $(<mounted/precious) == precious ]] || fail "the file system was changed"
umount mounted

# By a path from here, the device is written to, not a file in the folder of a generator; and by any of its names it is given up.
rm link && ln -s "$DEVICE" link
expect 0 "raw drive" bench writes.toml --target device:link --destroy-data "$DEVICE" --out writes
if mount "$DEVICE" mounted 2>/dev/null; then fail "the file system is still there: the device was not written to"; fi
