#!/usr/bin/env bash
# nbdcopy copies a file into a volume and out again over several connections, and from volume to volume.
source "$(dirname "$0")/../lib/server.sh"
needs nbdcopy

source_file=$SCRATCH/source
target_file=$SCRATCH/target

server_with_volume disk 128M
volume_create other 128M
truncate --size 128M "$source_file"
dd if=/dev/urandom of="$source_file" bs=1M count=20 seek=5 conv=notrunc status=none
dd if=/dev/urandom of="$source_file" bs=4k count=1000 seek=20000 conv=notrunc status=none

nbdcopy --flush --connections=4 --requests=32 "$source_file" "$(uri disk)"
nbdcopy --connections=4 "$(uri disk)" "$target_file"
cmp "$source_file" "$target_file"
say "# volume to volume, zeroes allocated and not"
nbdcopy --flush "$(uri disk)" "$(uri other)"
nbdcopy "$(uri other)" - | cmp "$source_file" -
nbdcopy --flush --allocated --request-size=2097152 "$source_file" "$(unix_or_tcp_uri other)"
nbdcopy --synchronous "$(uri other)" - | cmp "$source_file" -
