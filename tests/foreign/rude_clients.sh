#!/usr/bin/env bash
# Clients that flood, stall half-open, lie about lengths and break off do no harm to one that behaves.
source "$(dirname "$0")/../lib/server.sh"
needs_libnbd

server_with_volume disk 128M
"$PYTHON" "$CLIENTS/rude_clients.py" "$NBD_PORT" disk "$SERVER_PID"
server_is_alive
