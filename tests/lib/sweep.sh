#!/usr/bin/env bash
# Removes what a foreign test left behind that was killed itself: FOLDER is the folder of all tests' scratch folders, NAME that of
# the test; without a name, of all.
#
# A test notes in its scratch folder which processes it started; one is ended only if it still has that folder, or
# its socket's, in its command line.
set -uo pipefail

sweep() {
    local scratch=$1 loops device
    # Once their file system is gone, they do not tell any more whose they were.
    loops=$(loops_below "$scratch")
    end_processes "$scratch"
    unmount_below "$scratch"
    for device in $loops; do losetup -d "$device"; done
    [[ ! -f $scratch/sweep-folders ]] || xargs -r -d '\n' rm -rf <"$scratch/sweep-folders"
    rm -rf "$scratch"
}

end_processes() {
    local process
    [[ -f $1/sweep-processes ]] || return 0
    while read -r process; do
        [[ -r /proc/$process/cmdline ]] || continue
        if tr '\0' ' ' <"/proc/$process/cmdline" | grep -qF "$1"; then kill -9 "$process"; fi
    done <"$1/sweep-processes"
}

unmount_below() {
    local folder
    # The last one mounted comes first.
    awk -v prefix="$1/" 'index($2, prefix) == 1 {print $2}' /proc/mounts | tac | while read -r folder; do
        umount -l "$folder"
    done
}

loops_below() {
    losetup --list --noheadings --output NAME,BACK-FILE 2>/dev/null |
        awk -v prefix="$1/" 'index($2, prefix) == 1 {print $1}'
}

for scratch in "$1/${2:+$2.}"*/; do
    [[ -d $scratch ]] && sweep "${scratch%/}"
done
exit 0
