#!/usr/bin/env bash
# libnbd and a bare socket send requests past the end, unaligned, empty, too large, with unknown commands and flags.
source "$(dirname "$0")/../lib/server.sh"
needs_libnbd

server_with_volume disk 64M
"$PYTHON" "$CLIENTS/bad_requests.py" "$NBD_PORT" disk
server_is_alive
