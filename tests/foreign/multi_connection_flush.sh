#!/usr/bin/env bash
# A flush on one connection covers writes that completed on all others: they are there after kill -9.
source "$(dirname "$0")/../lib/server.sh"
needs_libnbd

server_with_volume disk 16M
for round in 1 2; do
    say "round $round"
    "$PYTHON" "$CLIENTS/flush_semantics.py" write "$(uri disk)"
    server_crash
    server_start
    "$PYTHON" "$CLIENTS/flush_semantics.py" verify "$(uri disk)"
done
