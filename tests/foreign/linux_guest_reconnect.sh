#!/usr/bin/env bash
# A Linux guest whose server is killed, or stopped, and started again under its I/O: a disk that QEMU has from the server goes on; the
# kernel's own NBD client gives errors, and all that was written is there when it is attached again.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
source "$(dirname "$0")/../lib/guest.sh"

guest_prepare
server_with_volume disk 512M

# shellcheck disable=SC2054 # one option's commas
GUEST_OPTIONS=(-blockdev "driver=nbd,node-name=disk,server.type=inet,server.host=127.0.0.1,server.port=$NBD_PORT,export=disk,reconnect-delay=60"
    -device virtio-blk-pci,drive=disk)
guest_start disk
guest_says 90 'WRITTEN 30 '
server_crash
server_start
guest_says 60 'WRITTEN 90 '
server_stop
server_start
guest_ends 90

GUEST_OPTIONS=()
guest_start kernel
guest_says 90 'WRITTEN 30 '
server_crash
guest_says 60 'ENDED '
server_start
guest_ends 90
