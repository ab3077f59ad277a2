#!/usr/bin/env bash
# coquina bench run: bad input. Each says what to do, and leaves nothing.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/experiment.sh"
needs_coquina
needs fio nbdkit nbdinfo

cd "$SCRATCH" || fail "no $SCRATCH"
mkdir files

experiment small 2 0.6 "$SCENARIO" '"random_write", "random_read"' '1, 8'

expect 2 "built in are: curve-vs-ceph" bench run no-such-experiment
sed 's/^depth/dept/' small.toml >unknown-key.toml
expect 2 "unknown field .dept." bench run unknown-key.toml
sed 's/"4KiB"/"5"/' small.toml >bad-block.toml
expect 2 "must be a multiple of 512" bench run bad-block.toml
for wrong in floppy:a nbdx://127.0.0.1/x foo; do
    expect 2 "is not a target; .*write coquina-local.* device:PATH" bench run small.toml --folder files --target "$wrong"
    expect 2 "is not a target; .*write coquina-local" bench run small.toml --folder files --peer "$wrong"
    expect 2 "is not a target; .*write coquina-local" bench run small.toml --folder files --target "$wrong" --plan
    expect 2 "is not a target; .*write coquina-local" bench tune small.toml --folder files --target "$wrong" --set fio:iodepth=1
done
expect 2 "write it as rbd:POOL/IMAGE" bench run small.toml --folder files --target rbd:pool
expect 1 "could not connect" bench run small.toml --folder files --target nbd://127.0.0.1:9/nobody
expect 1 "does not exist" bench run small.toml --folder files --target file:/nonexistent/disk
expect 1 "not a block device" bench run small.toml --folder files --target "device:$PWD"
expect 2 "named twice" bench run small.toml --folder files --target plain-file --target plain-file
expect 2 "no case of small contains depth 99" bench run small.toml --folder files --only 'depth 99'
expect 1 "are needed, .* are free" bench run small.toml --folder files --volume-size 4EiB
expect 2 "needs 16M at least" bench run small.toml --folder files --volume-size 8M
expect 2 "needs 64M at least" bench run small.toml --folder files --store-size 16M
sed 's/"random_write"/"random_wirte"/' small.toml >misspelt.toml
expect 2 "unknown variant .random_wirte., expected one of .random_read., .random_write." bench run misspelt.toml
expect 1 "does not exist; make it" bench run small.toml --folder nowhere
expect 1 "no server runs on" bench run small.toml --folder files --target coquina:disk --dir "$SCRATCH/none"
expect 1 "no fio answers at port 9 .*start .fio --server. there" bench run small.toml --folder files --client 127.0.0.1,9
expect 1 "install the Debian package fio" env PATH=/nonexistent "$COQUINA" bench run small.toml --folder files
mkdir without-engine
# shellcheck disable=SC2016
printf '#!/bin/sh\ncase $1 in --enghelp) echo libaio ;; esac\n' >without-engine/fio
chmod +x without-engine/fio
expect 1 "no engine nbd; install the Debian package fio" \
    env "PATH=$PWD/without-engine:$PATH" "$COQUINA" bench run small.toml --folder files --target coquina-local-nbd
mkdir mine taken && echo precious >taken/report.html
expect 1 "does not exist" bench run small.toml --folder files --target file:/nonexistent/disk --out mine
expect 1 "holds a report already" bench run small.toml --folder files --target plain-file --out taken
[[ -d mine && $(<taken/report.html) == precious ]] || fail "folders of others were changed"
echo precious >precious
expect 1 "add --destroy-data $PWD/precious" bench run small.toml --folder files --target "file:$PWD/precious"
sed 's/^copies = 1/volumes = 2/' small.toml >two.toml
echo precious >disk-1
expect 1 "add --destroy-data $PWD/disk-1" bench run two.toml --folder files --target "file:$PWD/disk" --destroy-data "file:$PWD/disk"
ln -s precious link
# What fio would take for another name is refused.
# shellcheck disable=SC2016
for name in 'precious#2' 'precious;2' 'p${NAME}'; do
    expect 2 "would use something else" env NAME=recious "$COQUINA" bench run small.toml --folder files --target "file:$name"
done
for twice in "file:$PWD/precious,precious" "file:$PWD/precious,link" "file:$PWD/new,./new"; do
    expect 2 "name each file or device once" bench run small.toml --folder files --target "$twice" --destroy-data "$PWD/precious"
done
for only_here in "file:$PWD/new" plain-file device:/dev/null nbd://127.0.0.1:9/x coquina-local coquina-local-nbd ceph-local; do
    expect 2 "client 192.0.2.7 cannot make load" bench run small.toml --folder files --target "$only_here" --client 192.0.2.7
done
[[ $(<precious) == precious && $(<disk-1) == precious && ! -e disk && ! -e new ]] || fail "files were changed: $(ls -l)"
mkdir only-fio && ln -s "$(type -P fio)" only-fio/fio
expect 1 "install the Debian package libnbd-bin" env "PATH=$PWD/only-fio" "$COQUINA" bench run small.toml --folder files --target nbd://h/x
nothing_is_left
expect 1 "are needed, .* are free" bench run small.toml --folder files --target coquina-local --store-size 7E
expect 1 "are needed, .* are free" bench run small.toml --folder files --target ceph-local --store-size 7E
[[ -z $(ls -d coquina-bench-* 2>/dev/null) ]] || fail "empty reports are left: $(ls -d coquina-bench-*)"
