#!/usr/bin/env bash
# qemu-io writes, reads, zeroes and discards patterns of odd sizes, also below 4 KiB and across chunk borders.
source "$(dirname "$0")/../lib/server.sh"
needs qemu-io

# Runs qemu-io commands on the volume; each pattern that is read must be the one given.
io() {
    local arguments=() command output
    for command in "$@"; do arguments+=(-c "$command"); done
    output=$(qemu-io -f raw -t none "${arguments[@]}" "$(uri disk)" 2>&1) || fail "qemu-io $*: $output"
    if grep -qiE 'failed|error' <<<"$output"; then fail "qemu-io $*: $output"; fi
    say "ok: $*"
}

server_with_volume disk 64M
io 'read -P 0 0 64M'
io 'write -P 0x5a 0 64k' 'read -P 0x5a 0 64k' 'read -P 0 64k 64k'

say "# below 4 KiB, aligned to 512"
io 'write -P 0x11 1M 4k' 'write -P 0x22 1049088 512' 'write -P 0x33 1051648 1024'
io 'read -P 0x11 1M 512' 'read -P 0x22 1049088 512' 'read -P 0x11 1049600 2048' 'read -P 0x33 1051648 1024'
io 'write -P 0x44 2096640 1024' 'read -P 0 2096128 512' 'read -P 0x44 2096640 1024' 'read -P 0 2097664 512'
io 'write -P 0x45 3m 7680' 'write -P 0x46 3149312 5120' 'read -P 0x45 3m 3584' 'read -P 0x46 3149312 5120'

say "# single bytes, which QEMU merges itself"
io 'write -P 0x66 5000001 3' 'read -P 0x66 5000001 3' 'read -P 0 5000000 1' 'read -P 0 5000004 60'

say "# across the border of a 4 MiB chunk, and large"
io 'write -P 0x77 4190208 16k' 'read -P 0x77 4190208 16k'
io 'write -P 0x78 6M 9M' 'read -P 0x78 6M 9M'

say "# discard and write zeroes, aligned and not"
io 'discard 7M 1M' 'read -P 0 7M 1M' 'read -P 0x78 6M 1M' 'read -P 0x78 8M 1M'
io 'write -z 9M 64k' 'read -P 0 9M 64k' 'write -z -u 10M 64k' 'read -P 0 10M 64k'
io 'write -z 11535360 1024' 'read -P 0x78 11534336 1024' 'read -P 0 11535360 1024' 'read -P 0x78 11536384 2560'
io 'discard 12583424 512' 'read -P 0x78 12582912 512' 'read -P 0x78 12583936 3584'
io 'write -z -u 12M 13k' 'read -P 0 12M 13k' 'read -P 0x78 12596224 1024'

say "# forced unit access, vectors, several in flight, and all of it after reopening"
io 'write -f -P 0x21 20M 4k' 'writev -P 0x23 21M 512 1024 4096 512' 'read -P 0x23 21M 6k'
io 'aio_write -P 0x31 30M 1M' 'aio_write -P 0x32 31M 1M' 'aio_write -P 0x33 32M 1M' 'aio_flush'
io 'read -P 0x31 30M 1M' 'read -P 0x32 31M 1M' 'read -P 0x33 32M 1M' 'read -P 0x21 20M 4k' 'flush'
io 'write -P 0x99 67107840 1024' 'read -P 0x99 67107840 1024'
