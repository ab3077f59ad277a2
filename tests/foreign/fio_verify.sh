#!/usr/bin/env bash
# fio writes a mix of sizes at depth 32 with flushes, reads everything back and checks its own checksums.
source "$(dirname "$0")/../lib/server.sh"
needs fio

server_with_volume disk 256M
fio --name=mix --ioengine=nbd --uri="$(uri disk)" --rw=randrw --bsrange=4k-64k --ba=4k --size=128M --iodepth=32 \
    --verify=crc32c --verify_backlog=256 --verify_fatal=1 --fsync=64 --serialize_overlap=1 --output-format=normal
fio --name=small --ioengine=nbd --uri="$(unix_or_tcp_uri disk)" --offset=128M --size=32M --rw=randwrite \
    --bsrange=512-8k --ba=512 --iodepth=16 --verify=crc32c --verify_fatal=1 --serialize_overlap=1
fio --name=trim --ioengine=nbd --uri="$(uri disk)" --offset=160M --size=64M --rw=randtrimwrite --bs=16k \
    --iodepth=8 --verify=crc32c --verify_fatal=1
