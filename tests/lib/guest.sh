# shellcheck shell=bash
# A Linux guest whose disk is a volume, by the kernel's own NBD client: QEMU without KVM, so that it runs anywhere. A test sources this
# file after tests/lib/server.sh.
#
# It has no disk image: all that it needs is in its initramfs, made of programs of this machine and of a kernel that is not
# installed, only unpacked (`./test foreign` downloads it into target/tools/guest).

GUEST_KERNEL_FOLDER=${GUEST_KERNEL_FOLDER:-$TARGET/tools/guest}
GUEST_PROGRAMS=(nbd-client mkfs.ext4 e2fsck mkfs.xfs blkdiscard)
GUEST_MODULES=(virtio_pci virtio_net virtio_blk nbd ext4 xfs)
# More options of QEMU for the next guest.
GUEST_OPTIONS=()
GUEST_PID=

export PATH=$PATH:/sbin:/usr/sbin
needs qemu-system-x86_64 busybox cpio depmod "${GUEST_PROGRAMS[@]}"
[[ $(uname -m) == x86_64 ]] || skip 'the guest is an x86_64 machine, whose programs are this machine'"'"'s'
compgen -G "$GUEST_KERNEL_FOLDER/boot/vmlinuz-*" >/dev/null || skip "there is no kernel in $GUEST_KERNEL_FOLDER: ./test foreign downloads it"

guest_kill() {
    [[ -n $GUEST_PID ]] || return 0
    kill -9 "$GUEST_PID" 2>/dev/null || true
    wait "$GUEST_PID" 2>/dev/null || true
    GUEST_PID=
}
at_exit guest_kill

# Copies a program and the libraries that it needs into a root: ROOT PROGRAM.
copy_program() {
    local library
    cp -L "$(command -v "$2")" "$1/bin/"
    while read -r library; do
        mkdir -p "$1$(dirname "$library")"
        cp -L "$library" "$1$library"
    done < <(ldd "$(command -v "$2")" | grep -oE '/[^ ]+')
}

# Makes the guest's initramfs.
guest_prepare() {
    local root=$SCRATCH/guest version program
    version=$(basename "$GUEST_KERNEL_FOLDER"/lib/modules/*)
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,mnt,"lib/modules/$version"}
    cp "$(command -v busybox)" "$root/bin/busybox"
    for program in $(busybox --list | grep -vx busybox); do ln -s busybox "$root/bin/$program"; done
    for program in "${GUEST_PROGRAMS[@]}"; do
        rm -f "$root/bin/$program"
        copy_program "$root" "$program"
    done
    # A module, and those that it needs.
    depmod -b "$GUEST_KERNEL_FOLDER" "$version"
    cp "$GUEST_KERNEL_FOLDER/lib/modules/$version"/modules.* "$root/lib/modules/$version/"
    (cd "$GUEST_KERNEL_FOLDER" && modprobe --dirname . --set-version "$version" --show-depends --all "${GUEST_MODULES[@]}") |
        sed -nE 's/^insmod (\S+).*/\1/p' | sort -u | while read -r program; do
        program=${program#*lib/modules/}
        install -D "$GUEST_KERNEL_FOLDER/lib/modules/$program" "$root/lib/modules/$program"
    done
    install "$CLIENTS/guest_init.sh" "$root/init"
    (cd "$root" && find . | cpio --create --format newc --quiet) >"$SCRATCH/guest.initrd"
}

# Boots the guest: STEP [FILE-THAT-IT-GETS-AS-/told]. Its console is $SCRATCH/console.STEP.
guest_start() {
    local initrd=$SCRATCH/guest.$1.initrd
    cp "$SCRATCH/guest.initrd" "$initrd"
    if [[ -n ${2:-} ]]; then
        mkdir -p "$SCRATCH/more"
        cp "$2" "$SCRATCH/more/told"
        # The kernel takes several archives one behind the other.
        (cd "$SCRATCH/more" && echo told | cpio --create --format newc --quiet) >>"$initrd"
    fi
    CONSOLE=$SCRATCH/console.$1
    : >"$CONSOLE"
    qemu-system-x86_64 -machine q35 -accel tcg -cpu qemu64 -m 512 -nodefaults -no-reboot -display none -serial "file:$CONSOLE" \
        -netdev user,id=net -device virtio-net-pci,netdev=net "${GUEST_OPTIONS[@]}" \
        -kernel "$(compgen -G "$GUEST_KERNEL_FOLDER/boot/vmlinuz-*" | tail -n 1)" -initrd "$initrd" \
        -append "console=ttyS0 quiet panic=-1 no_timer_check tsc=unstable clocksource=acpi_pm coquina.step=$1 coquina.port=$NBD_PORT" >>"$SCRATCH/qemu.log" 2>&1 &
    GUEST_PID=$!
    note sweep-processes "$GUEST_PID"
}

# What the guest has said: PATTERN.
guest_said() { grep -qE "^guest: $1" "$CONSOLE"; }

# The same, or it has failed.
guest_said_or_ended() { guest_said "$1" || guest_said FAILED || ! kill -0 "$GUEST_PID" 2>/dev/null; }

# Waits for a line of the guest: SECONDS PATTERN.
guest_says() {
    wait_until "$1" guest_said_or_ended "$2" || fail "the guest did not say \"$2\" within $1 s: $(tail -n 20 "$CONSOLE")"
    guest_said "$2" || fail "the guest did not say \"$2\": $(tail -n 40 "$CONSOLE"; tail -n 5 "$SCRATCH/qemu.log")"
}

# Waits for the guest's end, which must be a good one: SECONDS.
guest_ends() {
    guest_says "$1" END
    wait "$GUEST_PID" || fail "QEMU ended with status $?"
    GUEST_PID=
    grep '^guest: ' "$CONSOLE" | tr -d '\r' | grep -vE 'DONE|GONE|WRITTEN' || true
}
