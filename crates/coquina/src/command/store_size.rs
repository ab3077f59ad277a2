//! How large the stores of a quick run are: what ages them must end in minutes on a slow disk, too.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coquina_base::format_size_bytes;
use coquina_bench::{Hooks, IoBenchConfig, Progress, TargetSpec, run_io};
use coquina_experiments::definition::{ModeName, VOLUME_BYTES_MIN};
use coquina_experiments::leftovers;
use coquina_experiments::run::Settings;
use coquina_experiments::target::is_made_for_the_run;

/// Size of the drives of stores that are made for a run.
const STORE_BYTES: u64 = 16 << 30;
const STORE_BYTES_QUICK: u64 = 2 << 30;
const STORE_BYTES_QUICK_SLOW: u64 = 1 << 30;
/// A disk that writes less than this, durable and as stores do, is slow. Of three copies and what cleaning moves a store of 2 GiB is aged
/// with 25 GiB of writes, and each of several stores is. A look of seconds may find a disk faster than it is for minutes: one that took
/// 190 MiB/s over ten seconds was seen above 350 in one, and the run took 12 minutes.
const FAST_BYTES_PER_S: f64 = 600.0 * 1024.0 * 1024.0;
const LOOK_BYTES: u64 = 512 << 20;
const LOOK_BLOCK_BYTES: u32 = 64 << 10;
const LOOK_DEPTH: u32 = 12;
const LOOK_TIME: Duration = Duration::from_secs(3);

/// The size of stores if nobody says it and no disk is looked at.
pub fn default_bytes(mode: ModeName) -> u64 {
    if mode == ModeName::Quick { STORE_BYTES_QUICK } else { STORE_BYTES }
}

/// Makes stores and volumes smaller if the disk is slow, and gives what to say of it; none if they stay as they are: only quick runs that
/// make and age stores depend on how long that takes.
///
/// The look ends within a second when `stopped` says so.
pub fn suit_disk(settings: &mut Settings, stopped: &dyn Fn() -> bool) -> Option<String> {
    let ages = settings.plan().iter().any(|scenario| scenario.layout.aged.is_some());
    let makes = settings.targets.iter().any(|target| is_made_for_the_run(target));
    if settings.mode != ModeName::Quick || !ages || !makes {
        return None;
    }
    make_smaller_if_slow(settings, durable_bytes_per_s(&settings.folder, stopped).ok()?)
}

fn make_smaller_if_slow(settings: &mut Settings, bytes_per_s: f64) -> Option<String> {
    let is_slow = bytes_per_s < FAST_BYTES_PER_S;
    is_slow.then(|| {
        settings.store_bytes = STORE_BYTES_QUICK_SLOW;
        // So that stores are as full as they would have been.
        let most = &mut settings.experiment.modes.quick.volume_bytes_max;
        *most = (*most / (STORE_BYTES_QUICK / STORE_BYTES_QUICK_SLOW)).max(VOLUME_BYTES_MIN);
        format!(
            "this disk takes {:.0} MiB/s of durable writes of 64 KiB: the drives of stores have {} instead of {}, and volumes half \
             their usual size, so that stores can be aged in time; --store-size and --volume-size say otherwise",
            bytes_per_s / (1 << 20) as f64,
            format_size_bytes(STORE_BYTES_QUICK_SLOW),
            format_size_bytes(STORE_BYTES_QUICK),
        )
    })
}

/// What a disk takes of such writes; an error says why that cannot be found out.
fn durable_bytes_per_s(folder: &Path, stopped: &dyn Fn() -> bool) -> Result<f64, String> {
    let folder =
        tempfile::TempDir::with_prefix_in("coquina-bench-", folder).map_err(|error| error.to_string())?;
    let _note = leftovers::note(format!(
        "the folder {}: rm -r {}",
        folder.path().display(),
        leftovers::quoted(folder.path())
    ));
    let mut config = IoBenchConfig::new(TargetSpec::File { path: folder.path().join("file") });
    config.size_bytes = LOOK_BYTES;
    config.block_bytes = LOOK_BLOCK_BYTES;
    config.depth = LOOK_DEPTH;
    config.durable = true;
    config.fill = true;
    config.warmup = Duration::ZERO;
    config.baseline = Duration::ZERO;
    config.runtime = LOOK_TIME;
    let stop = AtomicBool::new(stopped());
    // Progress is told a few times a second, also while the file is filled.
    let progress = &mut |_: &Progress| stop.store(stopped(), Ordering::Relaxed);
    let hooks = Hooks { progress, stop: &stop, drive_write_bytes: None };
    let report = run_io(&config, hooks).map_err(|error| error.to_string())?.report;
    if stopped() {
        return Err("stopped".to_owned());
    }
    if report.errors > 0 || report.total.operations == 0 {
        return Err(format!("{} of {} writes failed", report.errors, report.total.operations));
    }
    Ok(report.total.bytes_per_s)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use coquina_experiments::definition::Experiment;

    use super::*;

    #[test]
    fn stores_are_smaller_on_a_slow_disk_and_that_is_said() {
        let experiment = Experiment::load("curve-vs-ceph").expect("built in");
        let mode = ModeName::Quick;
        let mut settings = Settings {
            limits: experiment.modes.get(mode).clone(),
            experiment,
            mode,
            targets: vec!["coquina-local".to_owned()],
            only: Vec::new(),
            hosts: Vec::new(),
            folder: "/nonexistent".into(),
            program: "coquina".into(),
            server: Vec::new(),
            store_bytes: default_bytes(mode),
            volume_bytes: None,
            rate_iops: None,
            destroy: Vec::new(),
            allow_unequal: false,
            fill_stores: false,
            seed: 1,
            command: String::new(),
            tried: Vec::new(),
        };
        let as_it_was = settings.clone();
        let volume_bytes = |settings: &Settings| settings.plan()[0].layout.volume_bytes;
        assert_eq!(suit_disk(&mut settings, &|| false), None, "no folder to look at");
        assert_eq!(make_smaller_if_slow(&mut settings, 2.0 * FAST_BYTES_PER_S), None);
        assert_eq!((settings.store_bytes, volume_bytes(&settings)), (STORE_BYTES_QUICK, 512 << 20));
        let told = make_smaller_if_slow(&mut settings, 267.0 * 1024.0 * 1024.0).expect("slow");
        assert_eq!((settings.store_bytes, volume_bytes(&settings)), (STORE_BYTES_QUICK_SLOW, 256 << 20));
        assert!(told.contains("267 MiB/s") && told.contains("1 GiB instead of 2 GiB"), "{told}");
        // What neither makes stores nor ages them does not look.
        let in_place = std::env::temp_dir();
        for (mode, only, target) in [
            (ModeName::Default, "", "coquina-local"),
            (ModeName::Quick, "one volume", "coquina-local"),
            (ModeName::Quick, "", "plain-file"),
        ] {
            let mut settings = Settings {
                mode,
                only: vec![only.to_owned()],
                targets: vec![target.to_owned()],
                folder: in_place.clone(),
                ..as_it_was.clone()
            };
            assert_eq!(suit_disk(&mut settings, &|| false), None, "{only} {target}");
            assert_eq!(settings.store_bytes, as_it_was.store_bytes);
        }
    }

    #[test]
    fn a_disk_is_looked_at_and_nothing_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let speed = durable_bytes_per_s(folder.path(), &|| false);
        assert!(matches!(speed, Ok(speed) if speed > 0.0), "{speed:?}");
        let began = Instant::now();
        // While it is filled, and then while it is measured.
        for after in [Duration::ZERO, Duration::from_millis(300)] {
            let stopped = durable_bytes_per_s(folder.path(), &|| began.elapsed() >= after);
            assert!(stopped.as_ref().is_err_and(|error| error.starts_with("stopped")), "{stopped:?}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
        assert!(durable_bytes_per_s(&folder.path().join("none"), &|| false).is_err());
    }
}
