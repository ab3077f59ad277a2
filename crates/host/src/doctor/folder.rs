//! The file system under drive files: whether it can do direct I/O, and whether it copies on write.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::Question;
use super::finding::{Finding, Level};
use super::place::{is_device, is_of_kernel, mount_of};
use super::root::HostRoot;

/// Looks at the folder that is asked about, and at the folders of drives that are files.
pub fn check(root: &HostRoot, question: &Question) -> Vec<Finding> {
    let mut folders: Vec<&Path> = question.folder.iter().map(|folder| folder.as_path()).collect();
    let of_files = question.drives.iter().filter(|drive| !is_device(root, drive));
    folders.extend(of_files.filter_map(|drive| folder_of(root, drive)));
    folders.dedup();
    let mut findings = Vec::new();
    for folder in folders {
        findings.push(file_system(root, folder));
        findings.push(direct_io(root, folder));
        findings.extend(file_times(root, folder));
    }
    findings
}

/// A folder on a drive is where files will be; a file is beside others.
fn folder_of<'a>(root: &HostRoot, drive: &'a Path) -> Option<&'a Path> {
    let is_folder = drive.to_str().is_some_and(|text| root.path(text).is_dir());
    if is_folder { Some(drive) } else { drive.parent() }
}

fn subject(folder: &Path) -> String {
    format!("folder {}", folder.display())
}

fn file_system(root: &HostRoot, folder: &Path) -> Finding {
    const CODE: &str = "FILE_SYSTEM";
    let Some(mount) = mount_of(root, folder) else { return Finding::unknown(CODE, subject(folder), "") };
    let kind = mount.file_system.as_str();
    let finding = Finding::new(CODE, subject(folder)).is(kind);
    if is_of_kernel(kind) {
        return finding
            .should_be(Level::Problem, "ext4, xfs or a block device")
            .why("The kernel shows itself there: no drive is behind it, and it takes no files.")
            .how("choose a folder on a drive");
    }
    if mount.is_read_only {
        return finding
            .is(format!("{kind}, read-only"))
            .should_be(Level::Problem, "writable")
            .why("A drive file is written.")
            .how("mount it writable: mount -o remount,rw MOUNTPOINT");
    }
    let better = "ext4, xfs or a block device";
    match kind {
        "btrfs" | "bcachefs" => finding
            .should_be(Level::Warning, better)
            .why(
                "A file system that copies on write moves each block that is overwritten: it writes its own tree as \
                 well, and the file falls into pieces. Coquina has checksums and a log of its own.",
            )
            .how(format!("use a block device, or before a drive file is made: chattr +C {}", folder.display())),
        "zfs" => finding
            .should_be(Level::Warning, better)
            .why("A file system that copies on write writes each block again with its own tree, and caches it twice.")
            .how("use a block device, or a ZFS volume with a small block size"),
        "overlay" => finding
            .should_be(Level::Warning, "a volume of the container")
            .why("What is in a container's own layers is gone with the container, and its first write copies the file.")
            .how("mount a folder of the host, or hand in a block device: docker run -v /srv/coquina:/data"),
        "tmpfs" | "ramfs" => finding
            .should_be(Level::Warning, better)
            .why("It is in memory: everything is gone when the host stops.")
            .how("choose a folder on a drive"),
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "virtiofs" => finding
            .should_be(Level::Warning, better)
            .why("Each write goes over a network before Coquina sends it over one.")
            .how("choose a folder on a drive of this host"),
        _ if kind.starts_with("fuse") => finding
            .should_be(Level::Warning, better)
            .why("Each request goes through a process of its own.")
            .how("choose a folder on a drive of this host"),
        _ => finding,
    }
}

/// Whether each flush of a drive file writes its inode as well, as it does every 4 ms (a tick of the kernel's clock) on ext4 without a
/// journal (`fs/ext4/fsync.c`, `ext4_fsync_nojournal`); none where that is no question.
fn file_times(root: &HostRoot, folder: &Path) -> Option<Finding> {
    let mount = mount_of(root, folder).filter(|mount| mount.file_system == "ext4" && !mount.is_read_only)?;
    let device = root.real(Path::new(&format!("/sys/dev/block/{}", mount.device)));
    let journal = root.text(&format!("/sys/fs/ext4/{}/journal_task", device.file_name()?.to_str()?))?;
    let finding = Finding::new("FILE_TIMES", subject(folder));
    if journal.trim() != "<none>" {
        return Some(finding.is("with a journal"));
    }
    if mount.has_lazy_times {
        return Some(finding.is("without a journal, lazytime"));
    }
    let point = mount.point.display();
    Some(
        finding
            .is("without a journal, not lazytime")
            .should_be(Level::Advice, "lazytime")
            .why(
                "Without a journal, ext4 writes the time of a file's last change with the flush of a durable write, every few \
                 milliseconds: such writes take a third longer. With lazytime it stays in memory for up to a day; a power cut \
                 loses it, and no data.",
            )
            .how(format!("mount -o remount,lazytime {point}"))
            .undo(format!("mount -o remount,nolazytime {point}")),
    )
}

/// Tries to open a file past the page cache. Leaves nothing behind.
fn direct_io(root: &HostRoot, folder: &Path) -> Finding {
    const CODE: &str = "DIRECT_IO";
    if let Some(mount) = mount_of(root, folder).filter(|mount| is_of_kernel(&mount.file_system)) {
        let reason = format!("{} takes no files", mount.file_system);
        return Finding::unknown(CODE, subject(folder), &reason);
    }
    if !root.is_here() {
        return Finding::unknown(CODE, subject(folder), "");
    }
    let unnamed =
        || OpenOptions::new().write(true).custom_flags(libc::O_DIRECT | libc::O_TMPFILE).open(folder);
    let finding = Finding::new(CODE, subject(folder));
    let result = match unnamed() {
        // A file system without unnamed files.
        Err(error) if [Some(libc::EOPNOTSUPP), Some(libc::EISDIR)].contains(&error.raw_os_error()) => {
            named(folder)
        }
        result => result.map(drop),
    };
    match result {
        Ok(()) => finding.is("works"),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => finding
            .is("refused (EINVAL)")
            .should_be(Level::Problem, "works")
            .why("Coquina opens drive files with O_DIRECT, so that what it calls durable does not wait in the page cache.")
            .how("put drive files on ext4, xfs or a block device"),
        Err(error) if error.kind() == ErrorKind::NotFound && !folder.exists() => {
            Finding::unknown(CODE, subject(folder), "there is no such folder")
        }
        Err(error) => Finding::unknown(CODE, subject(folder), &format!("a file cannot be made there: {error}")),
    }
}

fn named(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".coquina-doctor-{}", std::process::id()));
    let result = OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(&path);
    // With EINVAL some file systems have made the file before they look at the flag.
    let is_mine = !matches!(&result, Err(error) if error.kind() == ErrorKind::AlreadyExists);
    if is_mine {
        let _ = std::fs::remove_file(&path);
    }
    result.map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::test_host::TestHost;
    use super::*;

    #[test]
    fn file_systems_that_cost_or_lose_are_named() {
        let host = TestHost::empty();
        for (kind, options, level) in [
            ("ext4", "rw", Level::Ok),
            ("xfs", "rw", Level::Ok),
            ("btrfs", "rw", Level::Warning),
            ("zfs", "rw", Level::Warning),
            ("tmpfs", "rw", Level::Warning),
            ("overlay", "rw", Level::Warning),
            ("fuse.sshfs", "rw", Level::Warning),
            ("nfs4", "rw", Level::Warning),
            ("ext4", "ro", Level::Problem),
        ] {
            host.file("proc/self/mountinfo", &format!("22 1 8:1 / / {options} - {kind} /dev/sda1 rw\n"));
            let finding = file_system(&host.root(), Path::new("/srv"));
            assert_eq!(finding.level, level, "{finding:?}");
        }
    }

    #[test]
    fn folders_of_drive_files_are_looked_at_and_devices_are_not() {
        let host = TestHost::empty();
        host.file("proc/self/mountinfo", "22 1 8:1 / / rw - btrfs /dev/sda1 rw\n");
        let question =
            Question { drives: vec!["/dev/sda".into(), "/srv/drive1".into()], folder: Some("/data".into()) };
        let subjects: Vec<String> =
            check(&host.root(), &question).into_iter().map(|finding| finding.subject).collect();
        assert_eq!(subjects, ["folder /data", "folder /data", "folder /srv", "folder /srv"]);
    }

    #[test]
    fn a_folder_that_is_named_as_a_drive_is_looked_at_itself() {
        let host = TestHost::empty();
        host.file(
            "proc/self/mountinfo",
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:17 / /data rw - btrfs /dev/sdb1 rw\n",
        );
        host.folder("data");
        let question = Question { drives: vec!["/data".into()], folder: None };
        let found = &check(&host.root(), &question)[0];
        assert_eq!((found.subject.as_str(), found.is.as_str()), ("folder /data", "btrfs"));
    }

    #[test]
    fn a_view_of_the_kernel_is_there_and_takes_no_files() {
        let question = Question { drives: Vec::new(), folder: Some("/proc".into()) };
        let found = check(&HostRoot::here(), &question);
        assert_eq!((found[0].level, found[0].is.as_str()), (Level::Problem, "proc"), "{found:?}");
        assert_eq!(found[1].is, "not known: proc takes no files");
        // Without such a file system: it is there, whatever a try to make a file says.
        let device = direct_io(&HostRoot::here(), Path::new("/dev/null"));
        assert!(!device.is.contains("no such folder"), "{device:?}");
    }

    #[test]
    fn times_of_files_are_asked_about_on_ext4_without_a_journal() {
        let host = TestHost::empty();
        host.ssd("sda", "8:0");
        let found = |kind: &str, options: &str, journal: Option<&str>| {
            host.file(
                "proc/self/mountinfo",
                &format!("22 1 8:1 / /srv {options} - {kind} /dev/sda1 {options}\n"),
            );
            match journal {
                Some(text) => host.file("sys/fs/ext4/sda1/journal_task", text),
                None => host.file("sys/fs/ext4/sdb1/journal_task", "<none>\n"),
            }
            file_times(&host.root(), Path::new("/srv/drive"))
        };
        assert_eq!(found("ext4", "rw", None), None, "nothing is guessed");
        let advice = found("ext4", "rw,relatime", Some("<none>\n")).unwrap();
        assert_eq!((advice.level, advice.how.as_str()), (Level::Advice, "mount -o remount,lazytime /srv"));
        assert_eq!(advice.undo.as_deref(), Some("mount -o remount,nolazytime /srv"));
        assert_eq!(found("ext4", "rw,lazytime", Some("<none>\n")).unwrap().level, Level::Ok);
        assert_eq!(found("ext4", "rw", Some("312\n")).unwrap().level, Level::Ok);
        assert_eq!(found("ext4", "ro", Some("<none>\n")), None);
        assert_eq!(found("xfs", "rw", Some("<none>\n")), None);
    }

    #[test]
    fn direct_io_is_tried_and_nothing_is_left() {
        // Not in /tmp, which may be a file system without O_DIRECT.
        let program = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let finding = direct_io(&HostRoot::here(), folder.path());
        assert!(finding.level == Level::Ok || finding.level == Level::Problem, "{finding:?}");
        let _ = named(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let missing = direct_io(&HostRoot::here(), &folder.path().join("missing"));
        assert_eq!(missing.level, Level::Unknown);
    }
}
