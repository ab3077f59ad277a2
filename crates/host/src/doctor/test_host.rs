//! A made-up host for tests: `/proc` and `/sys` in a temporary folder.

use std::path::Path;

use tempfile::TempDir;

use super::root::HostRoot;

pub struct TestHost(TempDir);

impl TestHost {
    pub fn empty() -> Self {
        TestHost(tempfile::tempdir().unwrap())
    }

    pub fn root(&self) -> HostRoot {
        HostRoot::below(self.0.path())
    }

    pub fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.0.path().join(path)).unwrap()
    }

    pub fn remove(&self, path: &str) {
        std::fs::remove_file(self.0.path().join(path)).unwrap();
    }

    pub fn folder(&self, path: &str) {
        std::fs::create_dir_all(self.0.path().join(path)).unwrap();
    }

    /// A symbolic link whose target is written as it is.
    pub fn link(&self, path: &str, target: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(Path::new(target), path).unwrap();
    }

    /// A drive with the files of its queue, and its first partition.
    pub fn drive(&self, name: &str, device: &str, queue: &[(&str, &str)]) {
        self.file(&format!("sys/block/{name}/size"), "1000000\n");
        self.file(&format!("sys/block/{name}/dev"), &format!("{device}\n"));
        self.folder(&format!("sys/block/{name}/device"));
        for (file, text) in queue {
            self.file(&format!("sys/block/{name}/queue/{file}"), &format!("{text}\n"));
        }
        self.link(&format!("sys/class/block/{name}"), &format!("../../block/{name}"));
        self.link(&format!("sys/dev/block/{device}"), &format!("../../block/{name}"));
        self.file(&format!("sys/block/{name}/{name}1/partition"), "1\n");
        self.link(&format!("sys/class/block/{name}1"), &format!("../../block/{name}/{name}1"));
        let (major, minor) = device.split_once(':').unwrap();
        let minor = minor.parse::<u32>().unwrap() + 1;
        self.link(&format!("sys/dev/block/{major}:{minor}"), &format!("../../block/{name}/{name}1"));
    }

    pub fn hdd(&self, name: &str, device: &str) {
        self.drive(
            name,
            device,
            &[
                ("rotational", "1"),
                ("scheduler", "[none] mq-deadline kyber bfq"),
                ("read_ahead_kb", "128"),
                ("write_cache", "write back"),
                ("nr_requests", "64"),
            ],
        );
    }

    pub fn ssd(&self, name: &str, device: &str) {
        self.drive(
            name,
            device,
            &[
                ("rotational", "0"),
                ("scheduler", "none [mq-deadline]"),
                ("read_ahead_kb", "128"),
                ("write_cache", "write back"),
            ],
        );
    }

    pub fn nvme(&self, name: &str, device: &str) {
        self.drive(
            name,
            device,
            &[
                ("rotational", "0"),
                ("scheduler", "[none] mq-deadline"),
                ("read_ahead_kb", "128"),
                ("write_cache", "write through"),
            ],
        );
    }
}
