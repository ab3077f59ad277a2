use std::path::Path;

use super::*;
use crate::target::Target;
use crate::target::servers::tests::wait_for;

/// Puts a script into a folder under the names of programs.
pub fn install(folder: &Path, script: &str, programs: &[&str]) {
    std::fs::write(folder.join("script"), format!("#!/bin/sh\n{script}")).unwrap();
    // What this process has open for writing, also in a child that another test is just starting, cannot be run.
    for program in programs {
        let install = std::process::Command::new("install")
            .arg(folder.join("script"))
            .arg(folder.join(program))
            .status();
        assert!(install.unwrap().success());
    }
}

/// Programs that answer like those of a cluster of which osd.0 is down, and osd.1 has options from elsewhere. The client's file
/// has one as well.
const ANSWERS: &str = r#"
case "$(basename "$0") $*" in
ceph-conf\ -c\ /c/ceph.conf\ --name\ client.admin\ --lookup\ rbd_cache) echo false ;;
ceph-conf*broken) exit 2 ;;
ceph-conf*) exit 1 ;;
ceph*config\ help*) echo '{"can_update_at_runtime":true,"flags":["runtime"]}' ;;
ceph*config\ dump*) echo '[]' ;;
ceph*node\ ls*) echo '{"osd":{"a":[0,1,2]},"mgr":{}}' ;;
ceph*config\ show\ osd.1*) echo '[{"name":"debug_ms","value":"1/1","source":"file"},{"name":"osd_memory_target","value":"9","source":"mon"}]' ;;
ceph*config\ show\ osd.2*) echo '[{"name":"debug_bluestore","value":"1/1","source":"cmdline"}]' ;;
*) exit 2 ;;
esac
"#;

#[test]
fn the_memory_of_osds_is_among_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let answers = r#"
case "$*" in
*--version) echo 'ceph version 16.2.15 (hash) pacific (stable)' ;;
*mon\ dump*) echo '{"mons":[]}' ;;
*osd\ pool\ ls) echo pool ;;
*get\ pool\ size) echo 'size: 3' ;;
*get\ pool\ min_size) echo 'min_size: 2' ;;
*config\ get\ osd\ osd_memory_target) echo 4294967296 ;;
*) exit 1 ;;
esac
"#;
    install(folder.path(), answers, &["ceph"]);
    let system = running("pool");
    system.borrow_mut().programs = folder.path().to_owned();
    let context = crate::target::tests::context(folder.path());
    system.borrow_mut().begin("rbd:pool/disk", &context).unwrap();
    let settings = system.borrow().settings();
    assert_eq!(settings.get(MEMORY_TARGET).map(String::as_str), Some("4294967296"), "{settings:?}");
}

#[test]
fn daemons_of_this_host_are_found_where_all_are_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let bind = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (of_monitor, of_osd) = (bind(), bind());
    let (monitor, here) = (of_monitor.local_addr().unwrap(), of_osd.local_addr().unwrap());
    let answer = |osds: &str| {
        let answers = format!(
            r#"
case "$*" in
*--version) echo 'ceph version 16.2.15 (hash) pacific (stable)' ;;
*mon\ dump*) echo '{{"mons":[{{"public_addr":"{monitor}/0"}}]}}' ;;
*osd\ dump*) echo '{{"osds":[{osds}]}}' ;;
*osd\ pool\ ls) echo pool ;;
*get\ pool\ size) echo 'size: 3' ;;
*get\ pool\ min_size) echo 'min_size: 2' ;;
*) exit 1 ;;
esac
"#
        );
        install(folder.path(), &answers, &["ceph"]);
    };
    let context = crate::target::tests::context(folder.path());
    let begun = |osds: &str| {
        answer(osds);
        let system = running("pool");
        system.borrow_mut().programs = folder.path().to_owned();
        system.borrow_mut().begin("rbd:pool/disk", &context).unwrap();
        system
    };
    let osd = |up: u32, address: &str| format!(r#"{{"up":{up},"public_addr":"{address}"}}"#);
    let (here, there) = (osd(1, &format!("{here}/7")), "192.0.2.1:6800/7");
    let (me, one_is_down) = (vec![std::process::id()], format!("{here},{}", osd(0, there)));
    wait_for(&me, || begun(&here).borrow().processes());
    wait_for(&me, || begun(&one_is_down).borrow().processes());
    let system = begun(&format!("{here},{}", osd(1, there)));
    assert!(system.borrow().processes().is_empty(), "a part is not the whole");
    // What is started, or started again, in the meantime is found by the next scenario.
    let mut target = crate::target::rados::RadosTarget::of("rados:pool", system);
    let layout = crate::target::tests::layout(1);
    answer(&here);
    wait_for(&me, || {
        target.lay_out(&layout, &context).unwrap();
        target.processes()
    });
    drop(of_osd);
    wait_for(&vec![], || {
        target.lay_out(&layout, &context).unwrap();
        target.processes()
    });
}

#[test]
fn what_counts_above_the_cluster_s_settings_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), ANSWERS, &["ceph", "ceph-conf"]);
    let system = running("pool");
    system.borrow_mut().programs = folder.path().to_owned();
    system.borrow_mut().conf = Some("/c/ceph.conf".to_owned());
    let context = crate::target::tests::context(folder.path());
    let effect = |key: &str| system.borrow().effect("rbd:pool/disk", key, &context);
    let refused = |key: &str| effect(key).unwrap_err().to_string();
    for key in ["client:rbd_cache", "client.admin:rbd_cache", "global:rbd_cache"] {
        let refused = refused(key);
        let wanted = "rbd:pool/disk: /c/ceph.conf sets rbd_cache = false for client.admin, ";
        assert!(refused.starts_with(wanted) && refused.contains("nothing was changed"), "{refused}");
    }
    for key in ["debug_ms", "osd:debug_ms", "global:debug_ms", "osd.1:debug_ms"] {
        let refused = refused(key);
        let wanted = "rbd:pool/disk: osd.1 has debug_ms = 1/1 from its configuration file, ";
        assert!(refused.starts_with(wanted) && refused.contains("nothing was changed"), "{refused}");
    }
    assert!(refused("osd.2:debug_bluestore").contains("from its command line"));
    // Set by the monitors, by nobody, on a daemon of a host whose first one answered, on one that is down, and on none.
    for key in ["osd_memory_target", "osd_op_queue", "debug_bluestore", "osd.0:debug_ms", "mgr:debug_ms"] {
        assert_eq!(effect(key).unwrap(), Effect::AtOnce, "{key}");
    }
    assert_eq!(effect("client:rbd_cache_size").unwrap(), Effect::AtOnce);
    assert!(matches!(effect("client:broken"), Err(TargetError::Program { .. })), "who cannot be asked");
}
