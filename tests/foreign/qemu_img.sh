#!/usr/bin/env bash
# qemu-img copies an image with holes onto a volume and back, compares both, and sees the holes in its map.
source "$(dirname "$0")/../lib/server.sh"
needs qemu-img qemu-io

image=$SCRATCH/image.qcow2
back=$SCRATCH/back.raw

make_image() {
    qemu-img create -q -f qcow2 "$image" 256M
    qemu-io -f qcow2 -c 'write -P 1 0 3M' -c 'write -P 2 5M 68k' -c 'write -P 3 100M 20M' -c 'write -z 110M 1M' \
        -c 'write -P 4 268369920 64k' "$image" >/dev/null
}

# Bytes of the volume that hold data, as qemu-img sees them.
data_bytes() {
    qemu-img map -f raw --output=json "$(uri "$1")" | tee "$SCRATCH/map.json" |
        "$PYTHON" -c 'import json, sys; print(sum(e["length"] for e in json.load(sys.stdin) if e["data"]))'
}

make_image
server_with_volume disk 256M
qemu-img convert -n -f qcow2 -O raw "$image" "$(uri disk)"
qemu-img compare -f qcow2 -F raw "$image" "$(uri disk)"
used=$(data_bytes disk)
say "data: $used bytes of 256 MiB"
((used >= 22 << 20 && used <= 26 << 20)) || fail "the map does not show the holes: $(cat "$SCRATCH/map.json")"
say "# over old data, several requests out of order, holes asked for"
qemu-io -f raw -c 'write -P 0xee 0 64M' "$(uri disk)" >/dev/null
qemu-img convert -n -W -m 8 -f qcow2 -O raw "$image" "$(uri disk)"
qemu-img compare -f qcow2 -F raw "$image" "$(uri disk)"
say "# back into a file"
qemu-img convert -f raw -O raw "$(uri disk)" "$back"
qemu-img compare -f raw -F qcow2 "$back" "$image"
say "# qemu-img's own load"
qemu-img bench -f raw -w -c 2000 -d 32 -s 4k -t none --flush-interval=64 "$(uri disk)"
qemu-img info "$(uri disk)" | grep -q '256 MiB' || fail "wrong size in qemu-img info"
