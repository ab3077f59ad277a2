#!/usr/bin/env bash
# A small drive, mostly live, overwritten several times over: the cleaner works, nothing is lost, also over kill -9.
DRIVE_SIZE=512M
source "$(dirname "$0")/../lib/server.sh"
needs fio

fio_on() { fio --name="$1" --ioengine=nbd --uri="$(uri disk)" --size=300M --bs=4k --iodepth=64 --verify=crc32c "${@:2}"; }

server_with_volume disk 320M
fio_on fill --rw=write --do_verify=0
for round in 1 2 3; do
    say "round $round"
    fio_on overwrite --rw=randwrite --io_size=300M --norandommap --serialize_overlap=1 --do_verify=0 \
        --randseed="$round"
    ((round != 2)) || { server_crash && server_start; }
    fio_on check --rw=read --bs=4k --verify_fatal=1
done
fio_on settled --rw=randwrite --verify_fatal=1
