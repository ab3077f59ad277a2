# shellcheck shell=bash
# Folders and devices of special kinds, for tests of bad input. All need root.

READ_ONLY_FOLDER=$SCRATCH/read-only
LOOPS=()
at_exit undo_folders

# A folder that not even root can write to.
mount_read_only() {
    mkdir -p "$READ_ONLY_FOLDER"
    mount -t tmpfs -o ro,size=1M tmpfs "$READ_ONLY_FOLDER"
}

# Makes a file a block device, and its name $LOOP: FILE [OPTION...].
loop_device() {
    LOOP=$(losetup --find --show "${@:2}" "$1")
    LOOPS+=("$LOOP")
}

undo_folders() {
    local loop folder
    for folder in "$READ_ONLY_FOLDER" "$SCRATCH/mounted"; do
        if mountpoint -q "$folder"; then umount "$folder"; fi
    done
    for loop in "${LOOPS[@]}"; do losetup -d "$loop"; done
    LOOPS=()
}
