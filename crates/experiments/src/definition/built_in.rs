//! The experiments that come with the program.

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub toml: &'static str,
}

const ALL: &[BuiltIn] = &[
    BuiltIn { name: "curve-vs-ceph", toml: include_str!("../../experiments/curve-vs-ceph.toml") },
    BuiltIn { name: "ceph-2x-vs-3x", toml: include_str!("../../experiments/ceph-2x-vs-3x.toml") },
    BuiltIn { name: "arm-vs-x86", toml: include_str!("../../experiments/arm-vs-x86.toml") },
    BuiltIn { name: "host-drives", toml: include_str!("../../experiments/host-drives.toml") },
    BuiltIn { name: "nvme-scaling", toml: include_str!("../../experiments/nvme-scaling.toml") },
    BuiltIn { name: "hdd-tuning", toml: include_str!("../../experiments/hdd-tuning.toml") },
];

/// The one of that name.
pub fn built_in(name: &str) -> Option<BuiltIn> {
    ALL.iter().copied().find(|found| found.name == name)
}

/// Their names, in the order of the documentation.
pub fn built_in_names() -> Vec<&'static str> {
    ALL.iter().map(|found| found.name).collect()
}
