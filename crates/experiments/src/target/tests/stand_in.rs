//! A program in the place of `coquina`, and a server that it speaks to.

use std::path::{Path, PathBuf};

/// A program that answers like `coquina` with a server whose volumes get 2 copies, whose pools are in the file `pools`, and that
/// has 6 GiB of room; it notes what is made and removed. Beside each volume the one that had its name before is still being removed.
/// A pool that is made is in the file `own-pools`, not clean at first, and cannot be removed while there is a file `others`.
pub fn fake_coquina(folder: &Path, nbd: &str) -> PathBuf {
    let program = folder.join("coquina");
    let script = format!(
        r#"#!/bin/sh
cd {folder} || exit 1
case "$1 $2" in
"status --interval") echo '{{"node":{{"version":"1","process":1}},"services":{{"http":"192.0.2.1:1","nbd":["{nbd}"]}},"drives":[]}}' ;;
"volume list")
    printf '{{"volumes":['
    comma=
    for name in $(cat volumes 2>/dev/null); do
        printf '%s{{"name":"%s","state":"removing","size_bytes":67108864,"copies":1}},' "$comma" "$name"
        printf '{{"name":"%s","state":"active","size_bytes":67108864,"copies":2}}' "$name"
        comma=,
    done
    echo ']}}'
    ;;
"df --json") echo '{{"free_bytes":6442450944,"provisioned_bytes":0,"provisionable_bytes":6442450944,"drives":['"$(cat drives 2>/dev/null)"']}}' ;;
"pool list")
    echo "{{\"pools\":[$( (cat pools; echo; cat own-pools) 2>/dev/null | grep . | paste -sd, -)]}}"
    [ ! -e own-pools ] || sed -i 's/"active_clean":7/"active_clean":8/' own-pools
    ;;
"pool create")
    [ "$5" -lt 9 ] || exit 1
    echo "pool create $5" >>log
    echo '{{"name":"'"$3"'","copies":'"$5"',"state":"active","groups":8,"states":{{"active_clean":7}}}}' >>own-pools
    echo '{{}}'
    ;;
"pool remove")
    echo "pool remove" >>log
    [ ! -e others ] && grep -q "$3" own-pools || exit 1
    grep -v "$3" own-pools >rest
    mv rest own-pools
    ;;
"volume create")
    case "$*" in *--copies*--pool* | *--pool*--copies*) exit 2 ;; esac
    echo "create $3" >>log
    echo "$*" >>created
    [ ! -e own-pools ] || ! grep -q '"active_clean":7' own-pools || exit 1
    echo "$3" >>volumes
    echo '{{}}'
    ;;
"volume remove") echo "remove $3" >>log; [ "$3" = stays ] && exit 1; grep -vx "$3" volumes >rest; mv rest volumes ;;
*) exit 1 ;;
esac
"#,
        folder = folder.display()
    );
    // What this process has open for writing, also in a child that another test is just starting, cannot be run.
    std::fs::write(folder.join("script"), script).unwrap();
    let copied = std::process::Command::new("install").arg(folder.join("script")).arg(&program).status();
    assert!(copied.unwrap().success());
    program
}

/// What was made and removed.
pub fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// The commands that made volumes.
pub fn created(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("created")).unwrap_or_default()
}
