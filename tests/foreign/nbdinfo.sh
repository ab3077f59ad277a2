#!/usr/bin/env bash
# nbdinfo lists every export, its size, block sizes and abilities, and the map of its data and holes.
source "$(dirname "$0")/../lib/server.sh"
needs nbdinfo qemu-io

# Evaluates a Python expression on the JSON of an export, called `e`: NAME EXPRESSION.
export_has() {
    nbdinfo --json "$(uri "$1")" | "$PYTHON" -c "
import json, sys
e = json.load(sys.stdin)['exports'][0]
assert $2, e" || fail "export $1: not $2"
}

# The map of an export as lines `offset length type`.
map_of() { nbdinfo --map "$(uri "$1")" | awk '{print $1, $2, $3}'; }

server_start
volume_create alpha 64M
volume_create beta.2 1G
volume_create gamma-3_x 4k
for size in alpha:67108864 beta.2:1073741824 gamma-3_x:4096; do
    [[ $(nbdinfo --size "$(uri "${size%:*}")") == "${size#*:}" ]] || fail "wrong size of ${size%:*}"
    export_has "${size%:*}" "e['export-size'] == ${size#*:}"
done
for ability in flush fua multi_conn trim zero; do
    nbdinfo --can "${ability//_/-}" "$(uri alpha)" || fail "no $ability"
done
export_has alpha "not e['is_read_only'] and not e['is_rotational']"
export_has alpha "'base:allocation' in e['contexts']"
if [[ $SERVER_UNDER_TEST == coquina ]]; then
    for ability in df fast-zero cache; do nbdinfo --can "$ability" "$(uri alpha)" || fail "no $ability"; done
    export_has alpha "e['block_size_minimum'] in (1, 512) and e['block_size_preferred'] == 4096"
    export_has alpha "e['block_size_maximum'] >= 1 << 20"
fi

listed=$(nbdinfo --list --json "nbd://127.0.0.1:$NBD_PORT" |
    "$PYTHON" -c 'import json, sys; print(*sorted(e["export-name"] for e in json.load(sys.stdin)["exports"]))')
[[ $listed == "alpha beta.2 gamma-3_x" ]] || fail "listed: $listed"

[[ $(map_of alpha) == "0 67108864 3" ]] || fail "a new volume is not all hole: $(map_of alpha)"
qemu-io -f raw -c 'write 1M 64k' -c 'write 3M 4k' "$(uri alpha)" >/dev/null
map_of alpha
[[ $(map_of alpha) == $'0 1048576 3\n1048576 65536 0\n1114112 2031616 3\n3145728 4096 0\n3149824 63959040 3' ]] ||
    fail "wrong map after two writes"
qemu-io -f raw -c 'discard 1M 64k' "$(uri alpha)" >/dev/null
[[ $(map_of alpha) == $'0 3145728 3\n3145728 4096 0\n3149824 63959040 3' ]] || fail "wrong map after a discard"

if nbdinfo "$(uri missing)" 2>/dev/null; then fail "an export that does not exist was served"; fi
