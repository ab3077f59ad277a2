# shellcheck shell=bash
# A volume as a mounted file system, without the kernel's nbd module: nbdfuse shows it as a file, a loop device makes
# that a block device. QEMU 7.2's FUSE export is not used: it corrupts data at queue depths over 1.

FUSE_FOLDER=$SCRATCH/fuse
MOUNT_FOLDER=$SCRATCH/mount
FUSE_PID=
LOOP_DEVICE=
mkdir -p "$FUSE_FOLDER" "$MOUNT_FOLDER"
at_exit detach

# Shows a volume as the file $FUSE_FOLDER/nbd.
fuse_attach() { fuse_start "$(uri "$1")"; }

# The same, for writes from memory that the kernel passes on in odd pieces: nbdkit's filter makes whole sectors of them.
fuse_attach_unaligned() { fuse_start [ nbdkit --exit-with-parent nbd --filter=blocksize "$(uri "$1")" minblock=512 ]; }

fuse_start() {
    nbdfuse "$FUSE_FOLDER/nbd" "$@" &
    FUSE_PID=$!
    note sweep-processes "$FUSE_PID"
    wait_until 30 fuse_ready || fail "nbdfuse shows no file"
}

fuse_ready() {
    kill -0 "$FUSE_PID" 2>/dev/null || fail "nbdfuse ended at its start"
    [[ -e $FUSE_FOLDER/nbd ]]
}

fuse_detach() {
    [[ -n $FUSE_PID ]] || return 0
    umount "$FUSE_FOLDER" 2>/dev/null || umount -l "$FUSE_FOLDER" 2>/dev/null || true
    wait_until 20 process_ended "$FUSE_PID" || kill -9 "$FUSE_PID" 2>/dev/null || true
    wait "$FUSE_PID" 2>/dev/null || true
    FUSE_PID=
}

process_ended() { ! kill -0 "$1" 2>/dev/null; }

# Makes a volume the block device $LOOP_DEVICE.
loop_attach() {
    fuse_attach "$1"
    LOOP_DEVICE=$(losetup --find --show "$FUSE_FOLDER/nbd")
}

# Undoes everything; works in any state, also when the server is dead.
detach() {
    umount "$MOUNT_FOLDER" 2>/dev/null || { mountpoint -q "$MOUNT_FOLDER" && umount -l "$MOUNT_FOLDER"; } || true
    [[ -z $LOOP_DEVICE ]] || losetup -d "$LOOP_DEVICE" || true
    LOOP_DEVICE=
    fuse_detach
}

make_file_system() {
    case $1 in
    ext4) mkfs.ext4 -q "$LOOP_DEVICE" ;;
    xfs) mkfs.xfs -q "$LOOP_DEVICE" ;;
    esac
}

check_file_system() {
    case $1 in
    ext4) fsck.ext4 -fn "$LOOP_DEVICE" ;;
    xfs) xfs_repair -n "$LOOP_DEVICE" ;;
    esac
}

# Mounts a file system, puts a database-like load on it, kills the server in the middle, three times; after each
# restart every record that was synced must be there, and the file system clean. FILE_SYSTEM is ext4 or xfs.
file_system_survives_kill() {
    local round
    needs_root
    needs nbdfuse losetup "mkfs.$1"
    server_with_volume disk 1G
    loop_attach disk
    make_file_system "$1"
    for round in 1 2 3; do
        mount "$LOOP_DEVICE" "$MOUNT_FOLDER"
        kill_under_database_load "$round"
        detach
        server_start
        loop_attach disk
        mount "$LOOP_DEVICE" "$MOUNT_FOLDER" || fail "round $round: the journal cannot be replayed"
        "$PYTHON" "$CLIENTS/database.py" verify "$MOUNT_FOLDER" "$SCRATCH/witness" || fail "round $round: data lost"
        umount "$MOUNT_FOLDER"
        check_file_system "$1" || fail "round $round: the file system is damaged"
    done
}

kill_under_database_load() {
    local load_pid
    "$PYTHON" "$CLIENTS/database.py" load "$MOUNT_FOLDER" "$SCRATCH/witness" "$1" &
    load_pid=$!
    sleep "$((1 + RANDOM % 3)).$((RANDOM % 10))"
    server_crash
    load_went_well "$load_pid" "round $1"
}
