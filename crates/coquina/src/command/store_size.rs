//! How large the stores are that are made for a run.

use coquina_experiments::definition::ModeName;
use coquina_experiments::run::Settings;

/// Size of their drives.
const STORE_BYTES: u64 = 16 << 30;
const STORE_BYTES_QUICK: u64 = 2 << 30;
/// Of those that are aged in minutes: of three copies and what cleaning moves 1 GiB takes 12 GiB of writes, each of several stores as much.
/// Servers get memory while they age, too, which takes its time in a virtual machine.
const STORE_BYTES_QUICK_AGED: u64 = 1 << 30;

/// The size of stores if nobody says it.
pub fn default_bytes(settings: &Settings) -> u64 {
    let ages = || settings.plan().iter().any(|scenario| scenario.layout.aged.is_some());
    match settings.mode {
        ModeName::Quick if ages() => STORE_BYTES_QUICK_AGED,
        ModeName::Quick => STORE_BYTES_QUICK,
        ModeName::Default | ModeName::Full => STORE_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use coquina_experiments::definition::Experiment;

    use super::*;

    fn settings(mode: ModeName, only: &str) -> Settings {
        let experiment = Experiment::load("curve-vs-ceph").expect("built in");
        Settings {
            limits: experiment.modes.get(mode).clone(),
            experiment,
            mode,
            targets: vec!["coquina-local".to_owned()],
            only: vec![only.to_owned()],
            hosts: Vec::new(),
            folder: "/nonexistent".into(),
            program: "coquina".into(),
            server: Vec::new(),
            store_bytes: 0,
            volume_bytes: None,
            rate_iops: None,
            destroy: Vec::new(),
            allow_unequal: false,
            fill_stores: false,
            seed: 1,
            command: String::new(),
            tried: Vec::new(),
        }
    }

    #[test]
    fn stores_are_smaller_where_they_are_aged_in_minutes() {
        let bytes = |mode, only| default_bytes(&settings(mode, only));
        assert_eq!(bytes(ModeName::Quick, ""), 1 << 30);
        assert_eq!(bytes(ModeName::Quick, "one volume"), 2 << 30, "that case ages none");
        assert_eq!(bytes(ModeName::Default, ""), 16 << 30);
        assert_eq!(bytes(ModeName::Full, ""), 16 << 30);
    }
}
