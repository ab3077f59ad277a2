//! What fio has to be able to do, asked before anything is started or changed: the engines of targets, and options of its jobs
//! that are tried against each other.
//!
//! Invariants:
//! - an option that makes the work of columns unequal, or their figures unreadable, is refused: what an experiment compares is
//!   the same operations, as durable, as many at once, for as long.

use crate::definition::PlannedScenario;
use crate::generator::fio::{self, FioOptions};
use crate::generator::{ANSWER_TIME_MAX, Amount, GeneratorError, Load};
use crate::target::{Context, Target, TargetError};

use super::settings_tried::Assignment;

/// The key that chooses fio's engine.
pub const ENGINE_KEY: &str = "fio:ioengine";
/// Engines that do the same for files and devices.
const ENGINES_EQUAL: [&str; 2] = ["io_uring", "libaio"];
const FIO: &str = "fio";

/// Options that are the case's, and where else they are chosen. `*` stands for any end of a name.
const OF_THE_CASE: [(&[&str], &str); 10] = [
    (
        &[
            "rw",
            "readwrite",
            "rwmix*",
            "bs*",
            "blocksize*",
            "ba",
            "blockalign",
            "percentage_random",
            "random_*",
            "zone*",
        ],
        "which operations are compared is the experiment's; `coquina bench list NAME > mine.toml` and change `operation` or `block`",
    ),
    (
        &["iodepth", "numjobs", "rate", "rate_*", "ratemin", "nrfiles", "io_submit_mode"],
        "how much load there is is the case's; choose cases with --only, or change `depth`, `jobs` or `rate` in the experiment's file",
    ),
    (
        &[
            "direct",
            "buffered",
            "sync",
            "fsync",
            "fdatasync",
            "sync_file_range",
            "end_fsync",
            "fsync_on_close",
        ],
        "writes of all columns are equally durable, and past the page cache",
    ),
    (
        &[
            "size",
            "filesize",
            "io_size",
            "io_limit",
            "offset*",
            "fill_device",
            "loops",
            "number_ios",
            "norandommap",
            "create_*",
        ],
        "all columns use the same range of volumes of the same size; see --volume-size",
    ),
    (
        &["randseed", "randrepeat", "allrandrepeat"],
        "who overwrites in the same order in each round empties whole segments of a full store, which makes it look fast; each turn has a \
         seed of its own, and --seed repeats those of a run",
    ),
    (
        &["ioscheduler"],
        "fio would change the drive's scheduler and leave it so; try os:scheduler:DRIVE=VALUE, which is put back",
    ),
    (
        &["continue_on_error", "ignore_error", "error_dump", "max_latency"],
        "operations that fail or take long would not be seen",
    ),
    (
        &["latency_target", "latency_window", "latency_percentile", "latency_run"],
        "they change how many operations are in flight, which is the case's",
    ),
    (
        &[
            "runtime",
            "timeout",
            "steadystate*",
            "ss*",
            "exitall*",
            "ramp_time",
            "time_based",
            "startdelay",
            "start_delay",
        ],
        "all columns run equally long; see --runtime and --warmup",
    ),
    (
        &[
            "filename*",
            "directory",
            "opendir",
            "name",
            "description",
            "rbdname",
            "pool",
            "clientname",
            "clustername",
            "nr_files",
            "file_append",
            "wait_for_previous",
            "uri",
            "conf",
            "thread",
            "group_reporting",
            "new_group",
            "stonewall",
            "write_*",
            "log_*",
            "per_job_logs",
            "lat_percentiles",
            "clat_percentiles",
            "disable_*",
            "percentile_list",
            "unified_rw_reporting",
            "allow_mounted_write",
            "readonly",
            "unlink*",
            "cgroup*",
            "gtod_reduce",
            "experimental_verify",
            "include",
            "read_iolog*",
            "replay_*",
            "iomem*",
            "mem",
            "verify*",
            "do_verify",
            "exec_*",
        ],
        "it decides what is written to, or what of fio's figures can be read",
    ),
];

/// Says which engine of fio is missing, and what to install.
pub fn need_engines(
    targets: &[Box<dyn Target>],
    planned: &[PlannedScenario],
    context: &Context<'_>,
) -> Result<(), TargetError> {
    for target in targets {
        let mut engines: Vec<String> =
            planned.iter().filter_map(|scenario| engine_of(target.as_ref(), scenario)).collect();
        // For files and devices there is a choice, which they make when they begin.
        engines.retain(|engine| !ENGINES_EQUAL.contains(&engine.as_str()));
        engines.sort_unstable();
        engines.dedup();
        for engine in engines {
            fio::need(FIO, &engine, context.patience(ANSWER_TIME_MAX))
                .map_err(|source| TargetError::Program { spec: target.spec().to_owned(), source })?;
        }
    }
    Ok(())
}

/// The engine of fio that makes a target's load in a scenario, if fio does.
fn engine_of(target: &dyn Target, scenario: &PlannedScenario) -> Option<String> {
    if scenario.is_of_objects() { target.fio_engine_of_objects() } else { target.fio_engine() }
}

/// Refuses options of fio that have no effect, make columns unequal, or are not understood by it. The target need not have begun.
pub fn check(
    tried: &[Assignment],
    targets: &[Box<dyn Target>],
    planned: &[PlannedScenario],
    context: &Context<'_>,
) -> Result<(), TargetError> {
    let (Some(target), Some(first)) = (targets.first(), planned.first()) else { return Ok(()) };
    for assignment in tried.iter().filter(|assignment| assignment.is_of_fio()) {
        let spec = format!("--set {assignment}");
        let unusable = |message: String| TargetError::Wrong { spec: spec.clone(), message };
        let engine = engine_of(target.as_ref(), first).ok_or_else(|| {
            unusable(format!(
                "fio does not make the load of {}, so that its options change nothing; coquina-local-nbd and coquina-nbd:VOLUME \
                 are by fio",
                target.spec()
            ))
        })?;
        if let Some(why) = refusal(assignment.bare_key(), &assignment.value, &engine) {
            return Err(unusable(why));
        }
        let wrong = parse(&engine, assignment, planned, context)
            .map_err(|source| TargetError::Program { spec: spec.clone(), source })?;
        if let Some(said) = wrong {
            return Err(unusable(format!(
                "fio does not take it, and nothing was changed or started: {said}; `fio --cmdhelp` and `fio --enghelp={engine}` list \
                 its options"
            )));
        }
    }
    Ok(())
}

/// Why an option must not be tried, if so.
fn refusal(key: &str, value: &str, engine: &str) -> Option<String> {
    if key == "ioengine" {
        let is_equal = ENGINES_EQUAL.contains(&value) && ENGINES_EQUAL.contains(&engine);
        return (!is_equal).then(|| {
            format!(
                "engines that keep several operations in flight are {}; others would not do the same",
                ENGINES_EQUAL.join(" and ")
            )
        });
    }
    let is_one = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(begin) => key.starts_with(begin),
        None => key == *pattern,
    };
    let (_, why) = OF_THE_CASE.iter().find(|(keys, _)| keys.iter().any(is_one))?;
    Some(format!("{key} cannot be tried, it would make columns unequal: {why}"))
}

/// What fio finds wrong with the job of the first case and this option.
fn parse(
    engine: &str,
    assignment: &Assignment,
    planned: &[PlannedScenario],
    context: &Context<'_>,
) -> Result<Option<String>, GeneratorError> {
    let Some(point) =
        planned.iter().flat_map(|scenario| &scenario.points).map(|planned| &planned.point).next()
    else {
        return Ok(None);
    };
    let load = Load {
        operation: point.operation,
        block_bytes: point.block_bytes,
        depth: point.depth,
        jobs: point.jobs,
        amount: Amount::Time { warmup_s: 0.0, runtime_s: 1.0 },
        size_bytes: 1 << 30,
        rate_iops: point.rate_iops,
        seed: 0,
        processors: None,
    };
    let options =
        FioOptions { engine: engine.to_owned(), volumes: vec![Vec::new()], ..FioOptions::default() };
    let mut command = fio::command(&options, &load);
    fio::add_options(&mut command, &[(assignment.bare_key().to_owned(), assignment.value.clone())]);
    let job = command.files.first().map_or("", |(_, job)| job.as_str());
    fio::parse(FIO, job, &context.folder, context.patience(ANSWER_TIME_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Experiment, ModeName, built_in, expand};
    use crate::target::Opener;

    fn outcome(spec: &str, setting: &str) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let experiment = Experiment::parse(built_in("curve-vs-ceph").unwrap().toml, "test").unwrap();
        let planned = expand(&experiment, ModeName::Quick);
        let targets = vec![Opener::new(folder.path()).open(spec).unwrap()];
        let tried = [Assignment::parse(setting).unwrap()];
        let context =
            crate::run::tests::context_of(&crate::run::tests::settings_of(experiment, folder.path()));
        let checked = check(&tried, &targets, &planned, &context).map_err(|error| error.to_string());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        checked
    }

    #[test]
    fn options_that_make_columns_unequal_are_refused() {
        for setting in [
            "fio:iodepth=1",
            "fio:bs=8k",
            "fio:rw=read",
            "fio:direct=0",
            "fio:sync=0",
            "fio:rate_iops=9",
            "fio:runtime=1",
            "fio:filename=/dev/sda",
            "fio:write_lat_log=x",
            "fio:offset=4k",
            "fio:ioengine=null",
            "fio:bssplit=4k/50",
            "fio:ioscheduler=none",
            "fio:unlink=1",
            "fio:continue_on_error=all",
            "fio:latency_target=1ms",
            "fio:clustername=other",
            "fio:nr_files=2",
            "fio:randseed=7",
            "fio:allrandrepeat=1",
        ] {
            let error = outcome("plain-file", setting).unwrap_err();
            assert!(error.starts_with(&format!("--set {setting}: ")), "{error}");
            assert!(!error.contains("fio does not take it"), "{error}");
        }
        assert_eq!(outcome("plain-file", "os:scheduler:sda=none"), Ok(()), "others are not its concern");
    }

    #[test]
    fn whole_objects_of_ceph_need_no_engine() {
        let engines = |spec: &str, experiment: &str| {
            let experiment = Experiment::parse(built_in(experiment).unwrap().toml, "test").unwrap();
            let target = Opener::new(std::path::Path::new("/nonexistent")).open(spec).unwrap();
            let planned = expand(&experiment, ModeName::Quick);
            let engines = planned.iter().filter_map(|scenario| engine_of(target.as_ref(), scenario));
            engines.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        assert!(engines("ceph-local", "arm-vs-x86").is_empty());
        assert_eq!(engines("ceph-local", "curve-vs-ceph"), ["rbd"]);
        assert!(engines("rados:pool", "arm-vs-x86").is_empty());
        assert_eq!(engines("plain-file", "arm-vs-x86"), ["io_uring"]);
        assert_eq!(engines("coquina-local-nbd", "curve-vs-ceph"), ["nbd"]);
    }

    #[test]
    fn options_without_effect_are_refused() {
        let error = outcome("coquina-local", "fio:iodepth_batch=4").unwrap_err();
        assert!(error.contains("coquina-local-nbd"), "{error}");
    }

    #[test]
    fn fio_is_asked_whether_it_knows_an_option() {
        if std::process::Command::new(FIO).arg("--version").output().is_err() {
            eprintln!("fio is not installed");
            return;
        }
        for right in
            ["fio:iodepth_batch_submit=4", "fio:thinktime=200", "fio:ioengine=libaio", "fio:fixedbufs=1"]
        {
            assert_eq!(outcome("plain-file", right), Ok(()), "{right}");
        }
        let misspelt = outcome("plain-file", "fio:iodepht_batch=4").unwrap_err();
        assert!(
            misspelt.contains("Bad option <iodepht_batch=4>") && misspelt.contains("--cmdhelp"),
            "{misspelt}"
        );
        let value = outcome("plain-file", "fio:thinktime=often").unwrap_err();
        assert!(value.contains("thinktime"), "{value}");
        let of_another_engine = outcome("nbd://127.0.0.1:9/x", "fio:fixedbufs=1").unwrap_err();
        assert!(of_another_engine.contains("fio does not take it"), "{of_another_engine}");
        assert_eq!(outcome("nbd://127.0.0.1:9/x", "fio:thinktime=200"), Ok(()));
        let other_engine = outcome("nbd://127.0.0.1:9/x", "fio:ioengine=libaio").unwrap_err();
        assert!(other_engine.contains("several operations in flight"), "{other_engine}");
        assert_eq!(outcome("ceph-local", "fio:thinktime=200"), Ok(()));
    }
}
