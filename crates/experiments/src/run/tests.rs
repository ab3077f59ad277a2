use super::*;

fn settings(toml: &str, targets: &[&str], folder: &std::path::Path) -> Settings {
    let targets = targets.iter().map(|target| (*target).to_owned()).collect();
    Settings { targets, ..settings_of(Experiment::parse(toml, "test").unwrap(), folder) }
}

/// Settings for a quick run of an experiment, without targets.
pub(super) fn settings_of(experiment: Experiment, folder: &std::path::Path) -> Settings {
    let mode = ModeName::Quick;
    Settings {
        limits: experiment.modes.get(mode).clone(),
        experiment,
        mode,
        targets: Vec::new(),
        only: Vec::new(),
        hosts: Vec::new(),
        folder: folder.to_owned(),
        program: PathBuf::from("/nonexistent/coquina"),
        server: Vec::new(),
        store_bytes: 1 << 30,
        volume_bytes: None,
        rate_iops: None,
        destroy: Vec::new(),
        allow_unequal: false,
        seed: 7,
        command: "coquina bench run test".to_owned(),
        tried: Vec::new(),
    }
}

const EXPERIMENT: &str = r#"
format = 1
name = "small"
title = "A small one"
[modes]
quick = { rounds = 2, runtime_s = 1, warmup_s = 0, volume_bytes_max = "16MiB" }
default = { rounds = 2, runtime_s = 1, warmup_s = 0, volume_bytes_max = "16MiB" }
full = { rounds = 2, runtime_s = 1, warmup_s = 0, volume_bytes_max = "16MiB" }
[[scenario]]
name = "files"
volume_size = "1GiB"
[[scenario.sweep]]
operation = "random_write"
block = "4KiB"
depth = [1, 8]
"#;

fn run_quietly(settings: &Settings, stop_after: usize) -> (Result<Report, RunError>, usize) {
    let partials = std::cell::Cell::new(0);
    let outcome = run(
        settings,
        &Hooks {
            stopped: &|| partials.get() >= stop_after,
            say: &|_| {},
            progress: &|_, _| {},
            partial: &|report| {
                assert!(report.interrupted.is_some());
                partials.set(partials.get() + 1);
            },
        },
    );
    (outcome, partials.get())
}

#[test]
fn targets_are_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, _) = run_quietly(&settings(EXPERIMENT, &["plain-file", "plain-file"], folder.path()), 9);
    assert!(outcome.unwrap_err().to_string().contains("named twice"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_case_that_is_not_there_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        Settings { only: vec!["depth 9".into()], ..settings(EXPERIMENT, &["plain-file"], folder.path()) };
    let (outcome, _) = run_quietly(&settings, 9);
    assert!(outcome.unwrap_err().to_string().contains("depth 9"));
}

#[test]
fn too_large_volumes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        Settings { volume_bytes: Some(1 << 60), ..settings(EXPERIMENT, &["plain-file"], folder.path()) };
    let (outcome, _) = run_quietly(&settings, 9);
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("are needed"), "{error}");
}
