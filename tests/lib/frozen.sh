# shellcheck shell=bash
# A drive that answers nothing for a while: a block device whose file lies in a file system that can be frozen. A test sources this file
# after tests/lib/folders.sh. All needs root.

FROZEN_FOLDER=$SCRATCH/frozen
FROZEN=

# Makes the device, and its name $FROZEN: BYTES, BYTES of the file system around it.
frozen_device() {
    truncate --size "$2" "$SCRATCH/frozen-disk"
    loop_device "$SCRATCH/frozen-disk"
    mkfs.ext4 -q "$LOOP"
    mkdir -p "$FROZEN_FOLDER"
    mount "$LOOP" "$FROZEN_FOLDER"
    truncate --size "$1" "$FROZEN_FOLDER/device"
    FROZEN=$(losetup --find --show "$FROZEN_FOLDER/device")
}

freeze() { fsfreeze --freeze "$FROZEN_FOLDER"; }

thaw() { if mountpoint -q "$FROZEN_FOLDER"; then fsfreeze --unfreeze "$FROZEN_FOLDER" 2>/dev/null || true; fi; }

# Takes it away, whatever state it is in. Who has it open must have ended.
melt() {
    thaw
    [[ -z $FROZEN ]] || losetup -d "$FROZEN"
    FROZEN=
    if mountpoint -q "$FROZEN_FOLDER"; then umount "$FROZEN_FOLDER"; fi
}
