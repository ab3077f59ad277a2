#!/usr/bin/env bash
# Runs COMMAND... where the kernel hands programs for aarch64 to QEMU, also those that others start: in a user namespace of
# its own (Linux 6.7 or newer), so that the machine itself does not change.
#
#   unshare --user --map-root-user --mount tests/lib/emulated.sh COMMAND...
set -euo pipefail

# The head of an ELF file: 64 bits, little endian, a program or a shared object, for aarch64.
MAGIC='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
MASK='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
FOLDER=/proc/sys/fs/binfmt_misc

mount -t binfmt_misc none "$FOLDER"
printf ':aarch64:M::%s:%s:%s:F' "$MAGIC" "$MASK" "$(command -v qemu-aarch64-static)" >"$FOLDER/register"
exec "$@"
