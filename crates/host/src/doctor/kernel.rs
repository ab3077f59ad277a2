//! The kernel: its version, whether io_uring may be used, the clock source, and the limits of a process.

use super::finding::{Finding, Level};
use super::root::HostRoot;

const HOST: &str = "host";

/// A connection and a drive take a file each; a reactor takes up to 16,384 connections.
const OPEN_FILES: u64 = 65_536;

/// Looks at the kernel.
pub fn check(root: &HostRoot) -> Vec<Finding> {
    vec![
        version(root),
        io_uring(root),
        clock_source(root),
        limit(root, "OPEN_FILES_LIMIT", "Max open files"),
        limit(root, "LOCKED_MEMORY_LIMIT", "Max locked memory"),
    ]
}

fn release(root: &HostRoot) -> Option<(String, (u32, u32))> {
    let release = root.text("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((release, version))
}

fn version(root: &HostRoot) -> Finding {
    const CODE: &str = "KERNEL_VERSION";
    let Some((release, version)) = release(root) else { return Finding::unknown(CODE, HOST, "") };
    let finding = Finding::new(CODE, HOST).is(release);
    if version < (5, 19) {
        return finding
            .should_be(Level::Problem, "5.19 or newer")
            .why("Coquina needs operations of io_uring that came with Linux 5.19.")
            .how("install a newer kernel of the distribution and boot it");
    }
    if version < (6, 1) {
        return finding
            .should_be(Level::Advice, "6.1 or newer")
            .why("Linux 6.1 lets io_uring finish its work in the thread that asked for it, which costs less CPU time.")
            .how("install a newer kernel of the distribution and boot it");
    }
    finding
}

fn io_uring(root: &HostRoot) -> Finding {
    const CODE: &str = "IO_URING";
    const SECCOMP: &str = "in a container allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp \
                           profile (docker: --security-opt seccomp=unconfined)";
    let sysctl = root.number("/proc/sys/kernel/io_uring_disabled");
    let finding = Finding::new(CODE, HOST);
    let allow = |finding: Finding| match sysctl {
        Some(value @ 1..) => {
            let finding = finding.how(format!("sysctl kernel.io_uring_disabled=0; {SECCOMP}"));
            finding.undo(format!("sysctl kernel.io_uring_disabled={value}"))
        }
        _ => finding.how(SECCOMP),
    };
    let why = "Coquina does all of its I/O with io_uring and does not start without it.";
    match (root.try_io_uring(), sysctl) {
        (Some(Err(errno)), _) if [libc::EPERM, libc::EACCES].contains(&errno) => {
            let by = if sysctl.unwrap_or(0) == 0 { "" } else { ", by kernel.io_uring_disabled" };
            allow(finding.is(format!("forbidden{by}")).should_be(Level::Problem, "allowed").why(why))
        }
        (Some(Err(libc::ENOSYS)), _) => {
            allow(finding.is("not there (ENOSYS)").should_be(Level::Problem, "allowed").why(why))
        }
        (Some(Err(errno)), _) => finding
            .is(format!("a try failed: {}", std::io::Error::from_raw_os_error(errno)))
            .should_be(Level::Warning, "usable")
            .why(why)
            .how("see whether memory and file descriptors are left: free -m; ulimit -n; ulimit -l"),
        (None, Some(2)) => {
            allow(finding.is("kernel.io_uring_disabled is 2").should_be(Level::Problem, "0").why(why))
        }
        (_, Some(1)) => allow(
            finding
                .is("for root and one group only")
                .should_be(Level::Advice, "allowed, or nodes run as that group")
                .why("kernel.io_uring_disabled is 1: only root and members of kernel.io_uring_group may use it."),
        ),
        (Some(Ok(())), _) => finding.is("allowed"),
        (None, Some(0)) => finding.is("allowed by kernel.io_uring_disabled; not tried"),
        (None, _) => Finding::unknown(CODE, HOST, ""),
    }
}

fn clock_source(root: &HostRoot) -> Finding {
    const CODE: &str = "CLOCK_SOURCE";
    const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";
    let Some(source) = root.text(&format!("{FOLDER}/current_clocksource")) else {
        return Finding::unknown(CODE, HOST, "");
    };
    let finding = Finding::new(CODE, HOST).is(source.clone());
    if !["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit", "xen"].contains(&source.as_str()) {
        return finding;
    }
    let available = root.text(&format!("{FOLDER}/available_clocksource")).unwrap_or_default();
    let finding = finding
        .should_be(Level::Warning, "tsc, or the one of the hypervisor (kvm-clock)")
        .why(
            "Each I/O reads the clock several times. From this source each reading is a system call of a microsecond \
             or so; from the CPU's own counter it takes nanoseconds.",
        )
        .how(
            "see why the kernel gave the CPU's counter up: dmesg | grep -i -e tsc -e clocksource; new firmware or the \
             boot option tsc=reliable may help",
        );
    // Not applied: the kernel may have had a reason, and time that jumps is worse than time that is slow to read.
    match available.split_ascii_whitespace().find(|name| ["tsc", "kvm-clock"].contains(name)) {
        Some(better) => finding
            .how(format!("if dmesg does not call it unstable: echo {better} > {FOLDER}/current_clocksource"))
            .undo(format!("echo {source} > {FOLDER}/current_clocksource")),
        None => finding,
    }
}

/// The soft limit of this process, which is that of what is started in the same way.
fn soft_limit(root: &HostRoot, name: &str) -> Option<Option<u64>> {
    let text = root.text("/proc/self/limits")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(None),
        number => Some(Some(number.parse().ok()?)),
    }
}

/// Eight times what a node locks at most.
const LOCKED_BYTES: u64 = 1 << 30;

fn limit(root: &HostRoot, code: &str, name: &str) -> Finding {
    const SESSION: &str = "this session";
    let Some(limit) = soft_limit(root, name) else { return Finding::unknown(code, SESSION, "") };
    let is_files = code == "OPEN_FILES_LIMIT";
    let text = match limit {
        None => "unlimited".to_owned(),
        Some(files) if is_files => files.to_string(),
        Some(bytes) => format!("{} KiB", bytes >> 10),
    };
    let finding = Finding::new(code, SESSION).is(text);
    if is_files && limit.is_some_and(|files| files < OPEN_FILES) {
        let level = if limit < Some(4096) { Level::Advice } else { Level::Info };
        return finding
            .should_be(level, format!("{OPEN_FILES} or more"))
            .why("Each connection and each drive takes a file; clients wait when there are none left. (Coquina's nodes raise this to the hard limit.)")
            .how(format!(
                "ulimit -n {OPEN_FILES}; of a service: LimitNOFILE={OPEN_FILES} in its systemd unit"
            ));
    }
    if !is_files && limit.is_some_and(|bytes| bytes < LOCKED_BYTES) {
        // Rings count towards this limit before 5.12 only, which Coquina does not run on.
        return finding
            .should_be(Level::Info, format!("{} KiB or more, or unlimited", LOCKED_BYTES >> 10))
            .why(
                "Coquina's nodes keep up to 128 MiB of buffers locked, from which large writes take less CPU: an eighth of this limit at most, \
                 and none below 16 MiB. fio with fixed buffers is limited by it, too. Programs of root are not.",
            )
            .how("of a service: LimitMEMLOCK=infinity in its systemd unit".to_owned());
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::super::test_host::TestHost;
    use super::*;

    #[test]
    fn old_kernels_are_a_problem_and_slow_ones_are_named() {
        for (release, level) in [
            ("4.19.0-27-amd64", Level::Problem),
            ("5.18.19", Level::Problem),
            ("5.19.0-50-generic", Level::Advice),
            ("6.1.0-28-arm64", Level::Ok),
            ("10.0", Level::Ok),
            ("strange", Level::Unknown),
        ] {
            let host = TestHost::empty();
            host.file("proc/sys/kernel/osrelease", release);
            assert_eq!(version(&host.root()).level, level, "{release}");
        }
    }

    #[test]
    fn io_uring_is_tried_and_the_obstacle_named() {
        for (sysctl, answer, level, part) in [
            ("0", Some(Ok(())), Level::Ok, "allowed"),
            ("", Some(Ok(())), Level::Ok, "allowed"),
            ("0", Some(Err(libc::EPERM)), Level::Problem, "forbidden"),
            ("2", Some(Err(libc::EPERM)), Level::Problem, "kernel.io_uring_disabled"),
            ("2", None, Level::Problem, "is 2"),
            ("1", Some(Ok(())), Level::Advice, "one group"),
            ("0", Some(Err(libc::ENOSYS)), Level::Problem, "not there"),
            ("0", Some(Err(libc::ENOMEM)), Level::Warning, "a try failed"),
            ("0", None, Level::Ok, "not tried"),
            ("", None, Level::Unknown, "not known"),
        ] {
            let host = TestHost::empty();
            host.file("proc/sys/kernel/io_uring_disabled", sysctl);
            let root = answer.map_or(host.root(), |answer| host.root().with_io_uring(answer));
            let finding = io_uring(&root);
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.is.contains(part), "{finding:?}");
            assert!(finding.change.is_none(), "what is allowed is for people to decide");
            if level == Level::Problem {
                assert!(finding.how.contains("seccomp"), "{finding:?}");
                assert_eq!(finding.undo.is_some(), sysctl == "2", "{finding:?}");
            }
        }
    }

    #[test]
    fn a_slow_clock_source_is_named() {
        const FOLDER: &str = "sys/devices/system/clocksource/clocksource0";
        let host = TestHost::empty();
        host.file(&format!("{FOLDER}/current_clocksource"), "tsc\n");
        assert_eq!(clock_source(&host.root()).level, Level::Ok);
        host.file(&format!("{FOLDER}/current_clocksource"), "hpet\n");
        let finding = clock_source(&host.root());
        assert_eq!((finding.level, finding.undo), (Level::Warning, None));
        host.file(&format!("{FOLDER}/available_clocksource"), "tsc hpet acpi_pm\n");
        let finding = clock_source(&host.root());
        assert!(finding.how.contains("echo tsc") && finding.change.is_none(), "{finding:?}");
        assert!(finding.undo.unwrap().contains("echo hpet"));
    }

    #[test]
    fn limits_of_this_session_are_read() {
        let host = TestHost::empty();
        let limits = |files: &str| {
            let text = format!(
                "Limit   Soft Limit  Hard Limit  Units\nMax open files   {files}   524288   files\n\
                 Max locked memory   8388608   8388608   bytes\n"
            );
            host.file("proc/self/limits", &text);
            let findings = check(&host.root());
            (findings[3].clone(), findings[4].clone())
        };
        let (files, memory) = limits("1024");
        assert_eq!((files.level, files.is.as_str()), (Level::Advice, "1024"));
        assert_eq!((memory.level, memory.is.as_str()), (Level::Info, "8192 KiB"));
        assert_eq!(limits("20000").0.level, Level::Info);
        assert_eq!(limits("unlimited").0.level, Level::Ok);
        assert_eq!(limits("some").0.level, Level::Unknown);
    }
}
