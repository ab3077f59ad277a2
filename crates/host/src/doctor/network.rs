//! Network interfaces: the size of their frames.

use super::finding::{Finding, Level};
use super::root::HostRoot;

/// What is called a jumbo frame.
const JUMBO_BYTES: u64 = 9000;
/// Below this speed the wire is full before the CPU is, whatever the frames.
const FAST_MBIT_S: u64 = 10_000;

/// Looks at the interfaces that have hardware and are up. Loopback, bridges and other virtual ones are left out: they
/// follow the hardware, or never leave the host.
pub fn check(root: &HostRoot) -> Vec<Finding> {
    let folder = "/sys/class/net";
    let interfaces = root.names(folder).into_iter();
    let is_up = |name: &String| {
        let state = root.text(&format!("{folder}/{name}/operstate"));
        state.is_none_or(|state| state == "up" || state == "unknown")
    };
    let is_wired_hardware = |name: &String| {
        root.has(&format!("{folder}/{name}/device")) && !root.has(&format!("{folder}/{name}/wireless"))
    };
    let findings: Vec<Finding> = interfaces
        .filter(|name| is_wired_hardware(name) && is_up(name))
        .map(|name| mtu(root, &name))
        .collect();
    if findings.is_empty() {
        return vec![Finding::unknown("MTU", "interfaces", "none with hardware is up here")];
    }
    findings
}

fn mtu(root: &HostRoot, name: &str) -> Finding {
    const CODE: &str = "MTU";
    let subject = format!("interface {name}");
    let folder = format!("/sys/class/net/{name}");
    let Some(mtu) = root.number(&format!("{folder}/mtu")) else { return Finding::unknown(CODE, subject, "") };
    let finding = Finding::new(CODE, subject).is(mtu.to_string());
    if mtu >= JUMBO_BYTES {
        return finding;
    }
    let path = std::fs::canonicalize(root.path(&folder)).unwrap_or_default();
    let device = root.link(&format!("{folder}/device")).unwrap_or_default();
    let is_virtual =
        path.to_string_lossy().contains("/virtio") || device.to_string_lossy().contains("virtio");
    if is_virtual {
        return finding.level(Level::Info).why("The network of a virtual machine is set on its host.");
    }
    // What is a part of a bond has the bond's, which gives it to all of them.
    let bond = root.link(&format!("{folder}/master"));
    let bond = bond.as_deref().and_then(|path| path.file_name()?.to_str());
    let set = bond.filter(|bond| root.has(&format!("/sys/class/net/{bond}/bonding"))).unwrap_or(name);
    // The kernel gives -1 where the speed is not known.
    let speed_mbit_s = root.number(&format!("{folder}/speed"));
    let why = "Larger frames cost less CPU time for each byte, on both ends. Everything on the way has to take them, \
               switches too: a single one that does not makes connections hang.";
    match speed_mbit_s {
        Some(FAST_MBIT_S..) => finding
            .should_be(Level::Advice, JUMBO_BYTES.to_string())
            .why(why)
            // Not applied: it can cut off whoever works on this host over the network.
            .how(format!(
                "ip link set dev {set} mtu {JUMBO_BYTES}, on all hosts and switches; then ping -M do -s 8972 HOST"
            ))
            .undo(format!("ip link set dev {set} mtu {mtu}")),
        Some(speed) => finding.level(Level::Info).why(format!("At {speed} Mbit/s jumbo frames change little.")),
        None => finding
            .level(Level::Info)
            .why(format!("Its speed is not shown; from 10 Gbit/s on, jumbo frames of {JUMBO_BYTES} bytes pay.")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_host::TestHost;
    use super::*;

    fn interface(host: &TestHost, name: &str, mtu: &str, speed: &str, driver: &str) {
        let folder = format!("sys/class/net/{name}");
        host.file(&format!("{folder}/mtu"), mtu);
        host.file(&format!("{folder}/speed"), speed);
        host.file(&format!("{folder}/operstate"), "up\n");
        host.folder(&format!("sys/devices/{driver}"));
        host.link(&format!("{folder}/device"), &format!("../../../devices/{driver}"));
    }

    #[test]
    fn fast_hardware_wants_jumbo_frames_and_others_are_left_alone() {
        let host = TestHost::empty();
        interface(&host, "eth0", "1500\n", "25000\n", "0000:01:00.0");
        interface(&host, "eth1", "9000\n", "25000\n", "0000:01:00.1");
        interface(&host, "eth2", "1500\n", "1000\n", "0000:01:00.2");
        interface(&host, "eth3", "1500\n", "-1\n", "0000:01:00.3");
        interface(&host, "eth4", "1450\n", "-1\n", "virtio0");
        interface(&host, "eth5", "1500\n", "25000\n", "0000:01:00.5");
        host.file("sys/class/net/eth5/operstate", "down\n");
        host.file("sys/class/net/lo/mtu", "65536\n");
        host.file("sys/class/net/br0/mtu", "1500\n");
        let found: Vec<(String, Level)> =
            check(&host.root()).into_iter().map(|finding| (finding.subject, finding.level)).collect();
        let expected = [
            ("interface eth0", Level::Advice),
            ("interface eth1", Level::Ok),
            ("interface eth2", Level::Info),
            ("interface eth3", Level::Info),
            ("interface eth4", Level::Info),
        ];
        assert_eq!(found, expected.map(|(name, level)| (name.to_owned(), level)));
        let finding = &check(&host.root())[0];
        assert_eq!(finding.undo.as_deref(), Some("ip link set dev eth0 mtu 1500"));
        assert!(finding.change.is_none(), "it may cut off who applies it");
    }

    #[test]
    fn a_part_of_a_bond_is_set_with_the_bond() {
        let host = TestHost::empty();
        interface(&host, "eth0", "1500\n", "25000\n", "0000:01:00.0");
        interface(&host, "eth1", "1500\n", "25000\n", "0000:01:00.1");
        host.folder("sys/class/net/bond0/bonding");
        host.folder("sys/class/net/br0/bridge");
        host.link("sys/class/net/eth0/master", "../bond0");
        host.link("sys/class/net/eth1/master", "../br0");
        let commands: Vec<(String, Option<String>)> =
            check(&host.root()).into_iter().map(|finding| (finding.how, finding.undo)).collect();
        assert!(commands[0].0.starts_with("ip link set dev bond0 mtu 9000"), "{commands:?}");
        assert_eq!(commands[0].1.as_deref(), Some("ip link set dev bond0 mtu 1500"));
        assert!(
            commands[1].0.starts_with("ip link set dev eth1 mtu 9000"),
            "a bridge takes the least of its parts"
        );
    }

    #[test]
    fn without_hardware_it_is_not_known() {
        let host = TestHost::empty();
        host.file("sys/class/net/lo/mtu", "65536\n");
        assert_eq!(check(&host.root())[0].level, Level::Unknown);
    }
}
