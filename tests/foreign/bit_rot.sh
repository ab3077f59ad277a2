#!/usr/bin/env bash
# A spoilt block in the drive file is an I/O error, never wrong data; the rest is served, and `drive check` says it.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs qemu-io

# Overwrites one byte in the middle of each place where the pattern of a 4 KiB block lies; says how many.
spoil() {
    "$PYTHON" - "$SCRATCH/drive0" "$1" <<'PYTHON'
import sys
path, pattern = sys.argv[1], bytes([int(sys.argv[2], 16)]) * 4096
found = 0
with open(path, "r+b") as file:
    offset = 0
    while block := file.read(1 << 20):
        for index in range(0, len(block), 4096):
            if block[index : index + 4096] == pattern:
                file.seek(offset + index + 2000)
                file.write(b"\x00")
                found += 1
        offset += len(block)
        file.seek(offset)
print(found)
PYTHON
}

server_with_volume disk 64M
qemu-io -f raw -c 'write -P 0x5a 1M 4k' -c 'write -P 0x77 2M 64k' -c 'write -P 0x5b 3M 4k' "$(uri disk)"
server_stop
expect 0 '' coquina drive check "$SCRATCH/drive0"
[[ $(spoil 5a) -ge 1 ]] || fail "the block's data is not in the drive file"
expect 1 'damage|bad|checksum' coquina drive check "$SCRATCH/drive0"

server_start
expect 1 'input/output error|read failed' qemu-io -f raw -c 'read 1M 4k' "$(uri disk)"
expect 0 'read 65536' qemu-io -f raw -c 'read -P 0x77 2M 64k' -c 'read -P 0x5b 3M 4k' "$(uri disk)"
coquina status || true
coquina status --json | grep -qiE 'bad_block|bad block|BAD' || fail "status does not tell of the bad block"
say "# a scrub finds it too, and writing the block heals it"
expect 1 'bad' coquina drive scrub
expect 0 'read 4096' qemu-io -f raw -c 'write -P 0x11 1M 4k' -c 'read -P 0x11 1M 4k' "$(uri disk)"
