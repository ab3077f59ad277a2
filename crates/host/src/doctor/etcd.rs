//! etcd beside data: whether it keeps its log on a drive that holds data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::finding::{Finding, Level};
use super::place::{drives_under, drives_under_for};
use super::root::HostRoot;

const CODE: &str = "ETCD_DRIVE";

/// Looks for etcd and for the drives that hold data: those that are named, and those that a running Coquina has open.
pub fn check(root: &HostRoot, drives: &[PathBuf]) -> Vec<Finding> {
    let processes: Vec<String> = root.names("/proc").into_iter().filter(|name| is_process(name)).collect();
    if processes.is_empty() {
        return vec![Finding::unknown(CODE, "etcd", "processes are not shown here")];
    }
    let mut data: BTreeMap<String, String> = BTreeMap::new();
    for path in drives {
        for drive in drives_under(root, path) {
            data.entry(drive).or_insert_with(|| path.display().to_string());
        }
    }
    let named = |name: &'static str| {
        let is_named =
            move |process: &&String| root.text(&format!("/proc/{process}/comm")).as_deref() == Some(name);
        processes.iter().filter(is_named)
    };
    for process in named("coquina") {
        for path in direct_files(root, process) {
            for drive in drives_under_for(root, process, &path) {
                data.entry(drive).or_insert_with(|| path.display().to_string());
            }
        }
    }
    named("etcd").flat_map(|process| one(root, process, &data)).collect()
}

fn is_process(name: &str) -> bool {
    name.bytes().all(|digit| digit.is_ascii_digit())
}

fn one(root: &HostRoot, process: &str, data: &BTreeMap<String, String>) -> Vec<Finding> {
    let subject = format!("etcd (process {process})");
    let Some(folders) = etcd_folders(root, process) else {
        return vec![Finding::unknown(CODE, subject, "its folder cannot be told")];
    };
    let mut findings = Vec::new();
    for folder in folders {
        let drives = drives_under_for(root, process, &folder);
        let Some(drive) = drives.iter().find(|drive| data.contains_key(*drive)).or(drives.first()) else {
            let reason = format!("which drive is under {} is not shown here", folder.display());
            findings.push(Finding::unknown(CODE, subject.clone(), &reason));
            continue;
        };
        let finding =
            Finding::new(CODE, subject.clone()).is(format!("{} on drive {drive}", folder.display()));
        findings.push(match data.get(drive) {
            Some(holds) => finding
                .is(format!("{} on drive {drive}, with {holds}", folder.display()))
                .should_be(Level::Warning, "a drive of its own")
                .why(
                    "etcd flushes its log for every change and waits for it. Behind a queue of data that takes so long \
                     that etcd elects a new leader, and nodes lose their leases.",
                )
                .how(
                    "give etcd another drive, an SSD of a few GiB is enough: stop it, move its folder, start it with \
                     --data-dir there",
                ),
            None if data.is_empty() => {
                finding.level(Level::Info).why("Name the drives that hold data with --drive to compare.")
            }
            None => finding,
        });
    }
    findings
}

/// Folders for etcd's data and, where it has one, its log: from its options or its environment, or from its configuration file, beside which
/// etcd takes no notice of these.
fn etcd_folders(root: &HostRoot, process: &str) -> Option<Vec<PathBuf>> {
    let bytes = std::fs::read(root.path(&format!("/proc/{process}/cmdline"))).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let arguments: Vec<&str> = text.split('\0').collect();
    // Those of another user cannot be read; then its options have to say it.
    let environment = std::fs::read(root.path(&format!("/proc/{process}/environ"))).unwrap_or_default();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let value = |option: &str, variable: &str| {
        option_value(&arguments, option).or_else(|| {
            let text =
                environment.split('\0').find_map(|pair| pair.strip_prefix(variable)?.strip_prefix('='))?;
            Some(text.to_owned())
        })
    };
    let here = root.link(&format!("/proc/{process}/cwd"));
    let absolute = |path: String| {
        let path = PathBuf::from(path);
        if path.is_absolute() { Some(path) } else { Some(here.as_deref()?.join(path)) }
    };
    let file = value("config-file", "ETCD_CONFIG_FILE").filter(|file| !file.is_empty());
    let [folder, name, log] = match file {
        Some(file) => {
            // As the process sees it, which may run in a container.
            let path = format!("/proc/{process}/root{}", absolute(file)?.display());
            let text = root.text(&path)?;
            ["data-dir", "name", "wal-dir"].map(|key| value_in_yaml(&text, key))
        }
        None => [("data-dir", "ETCD_DATA_DIR"), ("name", "ETCD_NAME"), ("wal-dir", "ETCD_WAL_DIR")]
            .map(|(option, variable)| value(option, variable)),
    };
    let is_given = |text: &String| !text.is_empty();
    // Without one it is named after the member.
    let by_name = || format!("{}.etcd", name.filter(is_given).unwrap_or_else(|| "default".to_owned()));
    let folder = folder.filter(is_given).unwrap_or_else(by_name);
    [folder].into_iter().chain(log.filter(is_given)).map(absolute).collect()
}

/// The value of a key of the outermost map of a YAML file, as etcd's is: `data-dir: "/var/lib/etcd"  # here`.
fn value_in_yaml(text: &str, key: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'))?.trim();
    for quote in ['"', '\''] {
        if let Some((quoted, _)) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return Some(quoted.to_owned());
        }
    }
    let value = if value.starts_with('#') { "" } else { value.split(" #").next().unwrap_or_default() };
    Some(value.trim_end().to_owned())
}

/// `--option VALUE`, `--option=VALUE`, or the same with one dash.
fn option_value(arguments: &[&str], option: &str) -> Option<String> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
        match name.and_then(|name| name.strip_prefix(option)) {
            Some("") => return arguments.next().map(|value| (*value).to_owned()),
            Some(rest) if rest.starts_with('=') => return Some(rest[1..].to_owned()),
            _ => {}
        }
    }
    None
}

/// Files and block devices that a process has open past the page cache: its drives.
fn direct_files(root: &HostRoot, process: &str) -> Vec<PathBuf> {
    let is_direct = |number: &String| {
        let text = root.text(&format!("/proc/{process}/fdinfo/{number}"))?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = i32::from_str_radix(flags.trim(), 8).ok()?;
        Some(flags & libc::O_DIRECT != 0)
    };
    let numbers = root.names(&format!("/proc/{process}/fd")).into_iter();
    let direct = numbers.filter(|number| is_direct(number) == Some(true));
    let links = direct.filter_map(|number| root.link(&format!("/proc/{process}/fd/{number}")));
    // Pipes and sockets are no paths.
    links.filter(|path| path.starts_with(Path::new("/"))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_host::TestHost;
    use super::*;

    const MOUNTS: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:17 / /srv rw - xfs /dev/sdb1 rw\n";

    /// A system drive and a data drive, with etcd running.
    fn host(command: &str) -> TestHost {
        let host = TestHost::empty();
        host.ssd("sda", "8:0");
        host.hdd("sdb", "8:16");
        host.file("proc/self/mountinfo", MOUNTS);
        host.file("proc/77/comm", "etcd\n");
        host.file("proc/77/cmdline", &command.replace(' ', "\0"));
        host.file("proc/77/mountinfo", MOUNTS);
        host.link("proc/77/cwd", "/srv/work");
        host
    }

    fn running_coquina(host: &TestHost, drive: &str) {
        host.file("proc/99/comm", "coquina\n");
        host.file("proc/99/mountinfo", MOUNTS);
        host.link("proc/99/fd/7", drive);
        host.file("proc/99/fdinfo/7", &format!("pos:\t0\nflags:\t{:o}\n", libc::O_DIRECT | libc::O_RDWR));
        host.link("proc/99/fd/8", "/var/log/some");
        host.file("proc/99/fdinfo/8", "pos:\t0\nflags:\t02\n");
    }

    #[test]
    fn etcd_on_a_data_drive_is_named() {
        for command in ["etcd --data-dir /srv/etcd", "etcd -data-dir=/srv/etcd", "etcd --name x", "etcd"] {
            let host = host(command);
            let findings = check(&host.root(), &["/dev/sdb".into()]);
            assert_eq!(findings.len(), 1, "{command}: {findings:?}");
            assert_eq!(findings[0].level, Level::Warning, "{command}: {findings:?}");
            assert!(findings[0].is.contains("drive sdb, with /dev/sdb"), "{findings:?}");
        }
    }

    #[test]
    fn drives_of_a_running_coquina_are_seen_by_what_it_has_open() {
        let host = host("etcd --data-dir /srv/etcd --wal-dir /var/wal");
        let levels = |host: &TestHost| -> Vec<Level> {
            check(&host.root(), &[]).into_iter().map(|finding| finding.level).collect()
        };
        assert_eq!(levels(&host), [Level::Info, Level::Info], "nothing to compare with");
        running_coquina(&host, "/srv/coquina/drive0");
        assert_eq!(levels(&host), [Level::Warning, Level::Ok]);
    }

    #[test]
    fn etcd_on_a_drive_of_its_own_is_fine_and_no_etcd_is_nothing() {
        let host = host("etcd --data-dir /var/etcd");
        assert_eq!(check(&host.root(), &["/dev/sdb1".into()])[0].level, Level::Ok);
        host.file("proc/77/environ", "A=b\0ETCD_WAL_DIR=/srv/wal\0");
        let findings = check(&host.root(), &["/dev/sdb1".into()]);
        assert_eq!((findings.len(), findings[1].level), (2, Level::Warning));
        host.file("proc/77/comm", "other\n");
        assert!(check(&host.root(), &[]).is_empty());
    }

    #[test]
    fn a_folder_that_cannot_be_told_is_not_known() {
        let host = host("etcd --config-file /etc/etcd.yml");
        assert_eq!(check(&host.root(), &[])[0].level, Level::Unknown);
    }

    #[test]
    fn the_configuration_file_names_the_folders() {
        // Where there is a file, etcd takes no notice of other options.
        let host = host("etcd --config-file /etc/etcd.yml --data-dir /var/other");
        let levels = |text: &str| -> Vec<Level> {
            host.file("proc/77/root/etc/etcd.yml", text);
            check(&host.root(), &["/dev/sdb".into()]).into_iter().map(|finding| finding.level).collect()
        };
        let on_data = [Level::Warning];
        for line in [
            "data-dir: /srv/etcd",
            "data-dir: '/srv/etcd' # here",
            "data-dir : \"/srv/etcd\"",
            "name: 'x'",
            "",
        ] {
            assert_eq!(levels(&format!("# etcd\nlog-level: info\n{line}\nwal-dir:\n")), on_data, "{line}");
        }
        assert_eq!(levels("data-dir: /var/etcd\nwal-dir: /srv/wal # fast\n"), [Level::Ok, Level::Warning]);
        assert_eq!(
            levels("client-transport-security:\n  data-dir: /srv/x\ndata-dir: /var/etcd\n"),
            [Level::Ok]
        );
    }
}
