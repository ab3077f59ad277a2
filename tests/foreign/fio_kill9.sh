#!/usr/bin/env bash
# kill -9 under fio: what fio had written and verified before stays valid, and every overwritten block is whole.
source "$(dirname "$0")/../lib/server.sh"
needs fio

fio_on() { fio --ioengine=nbd --uri="$(uri "$1")" --size=96M --bs=4k --iodepth=32 --verify=crc32c "${@:2}"; }

server_with_volume settled 96M
volume_create busy 96M
fio_on settled --name=settled --rw=write --verify_fatal=1
fio_on busy --name=busy --rw=write --do_verify=0
for round in 1 2 3; do
    say "round $round"
    fio_on busy --name=overwrite --rw=randwrite --do_verify=0 --time_based --runtime=60 --randseed="$round" \
        >"$SCRATCH/overwrite.log" 2>&1 &
    load_pid=$!
    sleep "1.$((RANDOM % 10))"
    kill -0 "$load_pid" 2>/dev/null || fail "fio ended before the server did: $(cat "$SCRATCH/overwrite.log")"
    server_crash
    wait "$load_pid" && fail "fio did not notice the end of the server"
    server_start
    fio_on settled --name=settled --rw=read --verify_fatal=1
    fio_on busy --name=whole --rw=read --verify_fatal=1
done
