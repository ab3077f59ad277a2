#!/bin/sh
# The first and only program of the Linux guest of tests/foreign/linux_guest.sh: a volume through the kernel's own NBD client, or as a disk.
# The kernel's command line has `coquina.step=STEP` and `coquina.port=PORT`. What the test waits for is on the console, a line each that
# begins with `guest:`; the last one is `guest: END`, or `guest: FAILED` with the reason.

export PATH=/bin
say() { echo "guest: $* ($(cut -d " " -f 1 /proc/uptime) s)"; }

fail() {
    say "FAILED: $*"
    dmesg | tail -n 20
    poweroff -f
}

# The value of an option of the kernel's command line: NAME.
option() { sed -n "s/.*coquina\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }

# A file with something else each time, durable before it is told: NUMBER.
write_durably() {
    dd if=/dev/urandom of="/mnt/f$1" bs=16k count=3 conv=fsync 2>/dev/null || fail "f$1 cannot be written"
    say "DONE f$1 $(sha256sum <"/mnt/f$1" | cut -d ' ' -f 1)"
}

is_equal() { [ "$2" = "$3" ] || fail "$1 is $2 instead of $3"; }

# Of the device's queue: NAME.
queue() { cat "/sys/block/nbd0/queue/$1"; }

attach() {
    # Options go to nbd-client.
    nbd-client 10.0.2.2 "$PORT" /dev/nbd0 -N disk "$@" >/tmp/attach 2>&1 || fail "nbd-client: $(cat /tmp/attach)"
    [ "$(cat /sys/block/nbd0/size)" -gt 0 ] || fail "the device has no size"
}

detach() { nbd-client -d /dev/nbd0 >/dev/null 2>&1 || fail 'the device cannot be given back'; }

# Files on a file system: KIND OPTION-OF-MKFS-TO-OVERWRITE.
try_file_system() {
    "mkfs.$1" "$2" -q /dev/nbd0 || fail "mkfs.$1"
    mount -t "$1" -o discard /dev/nbd0 /mnt || fail "mount of $1"
    { cp /tmp/random /mnt/one && cp /tmp/random /mnt/two && rm /mnt/one; } || fail "files in $1"
    { umount /mnt && mount -t "$1" /dev/nbd0 /mnt; } || fail "mount of $1 again"
    cmp /mnt/two /tmp/random || fail "files in $1 differ"
    umount /mnt || fail "umount of $1"
    say "FILE SYSTEM $1"
}

# What the kernel makes of what the export says, raw requests, and two file systems.
step_use() {
    attach -connections 4
    is_equal 'the size in sectors' "$(cat /sys/block/nbd0/size)" "$((512 * 2048))"
    is_equal 'the write cache' "$(queue write_cache)" 'write back'
    is_equal 'FUA' "$(queue fua)" 1
    is_equal 'read-only' "$(cat /sys/block/nbd0/ro)" 0
    [ "$(queue discard_max_bytes)" -gt 0 ] || fail 'there is no discard'
    say "block sizes $(queue logical_block_size) $(queue physical_block_size) discard $(queue discard_granularity)"

    dd if=/dev/urandom of=/tmp/random bs=64k count=32 2>/dev/null
    dd if=/tmp/random of=/dev/nbd0 bs=64k seek=100 oflag=direct conv=fsync 2>/dev/null || fail 'raw writes'
    # 512 bytes: less than a block of the store.
    dd if=/tmp/random of=/dev/nbd0 bs=512 seek=8191 count=3 oflag=direct 2>/dev/null || fail 'small raw writes'
    echo 3 >/proc/sys/vm/drop_caches
    dd if=/dev/nbd0 bs=64k skip=100 count=32 iflag=direct 2>/dev/null | cmp - /tmp/random || fail 'raw reads differ'
    dd if=/dev/nbd0 bs=512 skip=8191 count=3 iflag=direct 2>/dev/null >/tmp/small
    dd if=/tmp/random bs=512 count=3 2>/dev/null | cmp - /tmp/small || fail 'small raw reads differ'
    say 'RAW'

    blkdiscard -o $((100 * 65536)) -l $((32 * 65536)) /dev/nbd0 || fail 'blkdiscard'
    dd if=/dev/nbd0 bs=64k skip=100 count=32 iflag=direct 2>/dev/null | cmp -n $((32 * 65536)) - /dev/zero || fail 'discarded, but not zero'
    say 'DISCARD'

    try_file_system ext4 -F
    try_file_system xfs -f
    detach
}

# Files without end, until the power is cut.
step_load() {
    attach -connections 4
    mkfs.ext4 -F -q /dev/nbd0 || fail 'mkfs.ext4'
    mount -t ext4 /dev/nbd0 /mnt || fail 'mount'
    sync
    number=0
    while :; do
        write_durably $number
        # Room for those that follow, and work for the journal.
        [ $number -lt 20 ] || { rm "/mnt/f$((number - 20))" && say "GONE f$((number - 20))"; }
        number=$((number + 1))
    done
}

# All that was told durable is there; /told has it.
step_check() {
    attach
    # Replays the journal first.
    mount -t ext4 /dev/nbd0 /mnt || fail 'mount after the power cut'
    count=0
    while read -r name sum; do
        [ -f "/mnt/$name" ] || fail "$name is gone"
        is_equal "$name" "$(sha256sum <"/mnt/$name" | cut -d ' ' -f 1)" "$sum"
        count=$((count + 1))
    done </told
    umount /mnt || fail 'umount after the power cut'
    e2fsck -f -n /dev/nbd0 >/tmp/fsck 2>&1 || fail "e2fsck: $(cat /tmp/fsck)"
    say "CHECKED $count"
    detach
}

# Writes to a device that the server's end must not break, and reads each back: DEVICE.
write_on() {
    number=0
    while [ $number -lt 150 ]; do
        dd if=/dev/urandom of=/tmp/block bs=16k count=1 2>/dev/null
        dd if=/tmp/block of="$1" bs=16k seek=$number conv=fsync oflag=direct 2>/tmp/error || fail "write $number: $(cat /tmp/error)"
        dd if="$1" bs=16k skip=$number count=1 iflag=direct 2>/tmp/error | cmp - /tmp/block || fail "read $number: $(cat /tmp/error)"
        say "WRITTEN $number"
        number=$((number + 1))
    done
}

# I/O of a disk of the guest, which QEMU has from the server, goes on when that is killed or stopped, and started again.
step_disk() {
    modprobe virtio_blk || fail 'no module virtio_blk'
    write_on /dev/vda
}

# The kernel's client ends with its server: errors, no hang. All that was written before is there once it is attached anew.
step_kernel() {
    attach -connections 4 -timeout 30
    number=0
    mkdir /tmp/written
    while dd if=/dev/urandom of=/tmp/block bs=16k count=1 2>/dev/null &&
        dd if=/tmp/block of=/dev/nbd0 bs=16k seek=$number conv=fsync oflag=direct 2>/tmp/error; do
        mv /tmp/block /tmp/written/$number
        say "WRITTEN $number"
        number=$((number + 1))
        [ $number -lt 2000 ] || fail 'nothing ended'
    done
    say "ENDED $(grep -m 1 "^dd:" /tmp/error)"
    nbd-client -d /dev/nbd0 >/dev/null 2>&1
    tries=0
    until nbd-client 10.0.2.2 "$PORT" /dev/nbd0 -N disk >/tmp/attach 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || fail "attached anew: $(cat /tmp/attach)"
        sleep 1
    done
    last=$number number=0
    while [ $number -lt $last ]; do
        dd if=/dev/nbd0 bs=16k skip=$number count=1 iflag=direct 2>/tmp/error | cmp - /tmp/written/$number ||
            fail "read $number after the end of the server: $(cat /tmp/error)"
        number=$((number + 1))
    done
    say "KEPT $last"
    detach
}

mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
# Nothing but the test's own lines, and what is wrong.
echo 4 >/proc/sys/kernel/printk
STEP=$(option step) PORT=$(option port)
for module in virtio_pci virtio_net nbd ext4 xfs; do modprobe $module || fail "no module $module"; done
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
say "Linux $(uname -r), $STEP"
"step_$STEP"
say END
poweroff -f
