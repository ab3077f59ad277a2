#!/usr/bin/env bash
# Bad sizes, names, addresses and folders on the command line: a clear error, the right exit code, nothing lost.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/folders.sh"
needs_coquina
needs qemu-io

create() { coquina volume create "$1" --size "$2"; }
# A server that starts although it must not is stopped, and the status is then 124.
up() { timeout 60 "$COQUINA" up --nbd 127.0.0.1:0 --http 127.0.0.1:0 --listen 127.0.0.1:0 "$@"; }

bad_sizes() {
    expect 2 'size 0|above zero' create other 0
    expect 2 'negative' create other -1G
    expect 2 'negative' create other -1
    expect 2 'not a size' create other ten
    expect 2 'not a size' create other ''
    expect 2 'not a size' create other 10X
    expect 2 '64 bits' create other 99999E
    expect 1 'not fit|more than' create other 3G
    expect 2 'not fit|more than' create other 15E
    expect 1 'not fit|more than' coquina volume resize disk --size 100G
    expect 2 'size 0|above zero' coquina volume resize disk --size 0 --yes
}

bad_names() {
    expect 2 'empty' create '' 1G
    expect 2 '1 to 63' create "$(printf 'x%.0s' {1..300})" 1G
    expect 2 '/' create a/b 1G
    expect 2 "holds" create volumé 1G
    expect 2 'holds' create 'a b' 1G
    expect 2 'start' create .x 1G
    expect 1 'exists' create disk 16M
    expect 1 'no volume' coquina volume info missing
    expect 1 'no volume' coquina volume resize missing --size 1G
    expect 1 'no volume' coquina volume rename missing other
    expect 1 'no volume' coquina volume remove missing --yes
    expect 2 'holds' coquina volume rename disk a/b
}

nothing_without_confirmation() {
    expect 1 'yes' coquina volume remove disk
    expect 1 'yes' coquina volume resize disk --size 4M
}

bad_places() {
    expect 1 'in use|already' up --dir "$SCRATCH/a" --nbd "127.0.0.1:$NBD_PORT" --drive "$SCRATCH/a-drive:256M"
    expect 1 'in use|already' timeout 60 "$COQUINA" up --dir "$SCRATCH/b" --http "127.0.0.1:$HTTP_PORT" \
        --nbd 127.0.0.1:0 --listen 127.0.0.1:0
    expect 1 'in use|already' timeout 60 "$COQUINA" up --dir "$SCRATCH/c" --listen "127.0.0.1:$NATIVE_PORT" \
        --nbd 127.0.0.1:0 --http 127.0.0.1:0 --drive "$SCRATCH/c-drive:256M"
    expect 2 'address' up --nbd nonsense
    expect 1 'already runs' up --dir "$DATA"
    touch "$SCRATCH/file"
    expect 1 'not a folder' up --dir "$SCRATCH/file"
    expect 1 'no server' "$COQUINA" --dir "$SCRATCH/nowhere" status
    expect 2 'not a workload' "$COQUINA" --dir "$SCRATCH/nowhere" bench io --target volume:disk --rw randwritee
    expect 1 'cannot reach' "$COQUINA" --server 127.0.0.1:1 status
}

read_only_folder() {
    [[ $(id -u) == 0 ]] || return 0
    mount_read_only
    expect 1 'read-only|permission' up --dir "$READ_ONLY_FOLDER"
    expect 1 'read-only|permission' up --dir "$READ_ONLY_FOLDER/data"
    expect 1 'read-only|permission' up --dir "$SCRATCH/d" --drive "$READ_ONLY_FOLDER/drive:256M"
}

server_with_volume disk 64M
qemu-io -f raw -c 'write -P 0x42 0 64M' "$(uri disk)" >/dev/null
for part in bad_sizes bad_names nothing_without_confirmation bad_places read_only_folder; do
    say "# $part"
    "$part"
    server_is_alive
done
say "# nothing was lost, nothing was made"
expect 0 'read 67108864' qemu-io -f raw -c 'read -P 0x42 0 64M' "$(uri disk)"
[[ $(coquina volume list --json | grep -c '"name"') == 1 ]] || fail "another volume was made"
