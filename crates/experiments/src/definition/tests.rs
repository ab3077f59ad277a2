use super::*;

const SMALL: &str = r#"
format = 1
name = "small"
title = "A small one"
[modes]
quick = { rounds = 1, runtime_s = 1, warmup_s = 0, volume_bytes_max = "64MiB" }
default = { rounds = 3, runtime_s = 10, warmup_s = 1, volume_bytes_max = "1GiB" }
full = { rounds = 3, runtime_s = 300, warmup_s = 10, volume_bytes_max = "1TiB" }
[[scenario]]
name = "one volume"
volume_size = "1TiB"
[[scenario.sweep]]
operation = "random_write"
block = "4KiB"
depth = { quick = [1, 128], default = [1, 4, 128] }
"#;

fn complaint(text: &str) -> String {
    Experiment::parse(text, "small.toml").unwrap_err().to_string()
}

#[test]
fn modes_choose_points_and_sizes() {
    let experiment = Experiment::parse(SMALL, "small.toml").unwrap();
    let quick = expand(&experiment, ModeName::Quick);
    let ids: Vec<_> = quick[0].points.iter().map(|point| point.id.as_str()).collect();
    assert_eq!(ids, ["one volume / 4k random write / depth 1", "one volume / 4k random write / depth 128"]);
    assert_eq!(quick[0].layout.volume_bytes, 64 << 20);
    let full = expand(&experiment, ModeName::Full);
    assert_eq!(full[0].points.len(), 3);
    assert_eq!(full[0].layout.volume_bytes, 1 << 40);
    assert!(full[0].layout.fill);
}

#[test]
fn more_clients_of_the_ladder_are_more_load() {
    let quick = expand(&Experiment::load("ceph-2x-vs-3x").unwrap(), ModeName::Quick);
    let ladder = quick[0].points.iter().filter(|planned| planned.ladder == quick[0].points[0].ladder);
    let outstanding: Vec<u32> = ladder.map(|planned| planned.point.outstanding()).collect();
    assert_eq!(outstanding, [32, 64, 256]);
}

#[test]
fn stores_whose_reads_are_compared_begin_with_the_same_caches() {
    for name in built_in_names() {
        let experiment = Experiment::load(name).unwrap();
        let is_store = |spec: &String| spec.contains("coquina") || spec.contains("ceph");
        if !experiment.targets.iter().any(is_store) {
            continue;
        }
        for scenario in expand(&experiment, ModeName::Default) {
            let reads = scenario.points.iter().any(|planned| planned.point.operation.reads());
            assert!(!reads || scenario.layout.warm_reads, "{name}: {}", scenario.name);
        }
    }
}

#[test]
fn full_runs_have_room_for_the_published_volumes() {
    for name in built_in_names() {
        let experiment = Experiment::load(name).unwrap();
        let published = experiment.scenarios.iter().map(|scenario| scenario.volume_size).max().unwrap();
        assert!(experiment.modes.full.volume_bytes_max >= published, "{name}: {published}");
    }
}

#[test]
fn a_crowd_is_loaded_for_longer_before_it_counts() {
    let experiment = Experiment::load("curve-vs-ceph").unwrap();
    let quick = experiment.modes.get(ModeName::Quick);
    let plan = expand(&experiment, ModeName::Quick);
    let points: Vec<_> = plan.iter().flat_map(|scenario| &scenario.points).collect();
    for planned in &points {
        let is_crowd = planned.point.scenario == "many volumes";
        let wanted_s = if is_crowd { 1.2 } else { quick.warmup_s };
        assert_eq!(quick.warmup_s_of(&planned.point), wanted_s, "{}", planned.id);
        // Who asks for none has none.
        let none = Mode { warmup_s: 0.0, ..quick.clone() };
        assert_eq!(none.warmup_s_of(&planned.point), 0.0);
    }
    assert!(points.iter().any(|planned| planned.point.clients == 3));
}

#[test]
fn modes_that_are_left_out_are_as_the_default() {
    let lines = |text: &str| {
        text.lines().filter(|line| !line.starts_with("quick = {")).collect::<Vec<_>>().join("\n")
    };
    let experiment = Experiment::parse(&lines(SMALL), "small.toml").unwrap();
    assert_eq!(experiment.modes.quick, experiment.modes.default);
    assert_ne!(experiment.modes.full, experiment.modes.default);
    let without_default = SMALL.replace("default = { rounds", "quick = { rounds");
    assert!(Experiment::parse(&lines(&without_default), "small.toml").is_err());
}

#[test]
fn ladders_and_names_tell_points_apart() {
    let text = SMALL.replace(
        "depth = {",
        "clients = [1, 2]\ndrives = [1, 2]\nuntil_flat = true\ndepth = { default = [1] }\n[[scenario.sweep]]\noperation = \
         \"random_write\"\nblock = \"4KiB\"\nclients = 2\nvolumes_per_client = 1\ndepth = {",
    );
    let plan = expand(&Experiment::parse(&text, "small.toml").unwrap(), ModeName::Quick);
    let ladders: Vec<_> = plan[0].points[..4].iter().map(|planned| planned.ladder.unwrap()).collect();
    assert!(ladders[0] == ladders[1] && ladders[2] == ladders[3] && ladders[1] != ladders[2], "{ladders:?}");
    let last = &plan[0].points.last().unwrap().id;
    assert_eq!(last, "one volume / 4k random write / depth 128 / 2 clients / a volume each");
    assert_eq!(plan[0].points.len(), 6);
}

#[test]
fn what_is_wrong_is_named() {
    for (from, to, wanted) in [
        ("format = 1", "format = 2", "format 2 is not known"),
        ("name = \"small\"", "name = \"Small One\"", "must be of a-z"),
        ("title =", "titel =", "unknown field `titel`"),
        ("depth =", "deepness =", "unknown field `deepness`"),
        ("rounds = 1", "rounds = 0", "rounds = 0"),
        ("runtime_s = 1,", "runtime_s = -1,", "runtime_s"),
        ("warmup_s = 0,", "warmup_s = 0, settle_s = -1,", "settle_s = -1 must be 0 to 86400"),
        ("warmup_s = 0,", "warmup_s = 0, warmup_crowd_s = -1,", "warmup_crowd_s = -1 must be 0 to 86400"),
        ("warmup_s = 0,", "warmup_s = 0, time_s = -1,", "time_s = -1 must be 0 to 604800"),
        ("warmup_s = 0,", "warmup_s = \"long\",", "invalid type: string \"long\", expected a number"),
        ("rounds = 1", "rounds = -1", "expected a whole number from 0"),
        ("\"1TiB\"\n[[scenario.sweep]]", "\"1XB\"\n[[scenario.sweep]]", "is not a size"),
        ("\"4KiB\"", "\"5000\"", "multiple of 512"),
        ("quick = [1, 128]", "quick = [0]", "depth must be 1"),
        ("quick = [1, 128]", "quick = []", "mode quick has 0 points"),
        ("depth =", "jobs = []\ndepth =", "has an empty list in each mode"),
        ("depth =", "rate = [100, 9000000000000000000]\ndepth =", "each rate must be 1 to 1000000000"),
        ("\"1TiB\"\n[[scenario.sweep]]", "\"1\"\n[[scenario.sweep]]", "volume_size must be at least 16MiB"),
        (
            "\"1TiB\"\n[[scenario.sweep]]",
            "\"1TiB\"\naged = { full_percent = 75, overwrites = 1, block = \"5000\" }\n[[scenario.sweep]]",
            "a multiple of 512",
        ),
        (
            "depth =",
            "depth = 1\n[[scenario.sweep]]\noperation = \"object_read\"\nblock = \"64KiB\"\ndepth =",
            "need scenarios of their own",
        ),
        ("depth =", "volumes_per_client = 0\ndepth =", "volumes_per_client must be 1 to 1000"),
        (
            "random_write",
            "random_wirte",
            "unknown variant `random_wirte`, expected one of `random_read`, `random_write`, `sequential_read`",
        ),
        (
            "\"random_write\"",
            "[\"random_read\", \"raed\"]",
            "unknown variant `raed`, expected one of `random_read`",
        ),
        (
            "\"random_write\"",
            "{ default = [\"raed\"] }",
            "unknown variant `raed`, expected one of `random_read`",
        ),
        (
            "quick = [1, 128]",
            "quik = [1, 128]",
            "unknown field `quik`, expected one of `default`, `quick`, `full`",
        ),
        (
            "depth =",
            "placement = \"cores\"\ndepth =",
            "unknown variant `cores`, expected `whole-cores` or `siblings`",
        ),
        (
            "\"1TiB\"\n[[",
            "\"1TiB\"\nmodes = [\"fast\"]\n[[",
            "unknown variant `fast`, expected one of `quick`, `default`",
        ),
        ("\"4KiB\"", "4096", "expected a size in quotes, such as \"4KiB\""),
        ("depth =", "jobs = true\ndepth =", "expected a value, a list, or { default = [..]"),
        ("depth =", "jobs = -1\ndepth =", "invalid value: integer `-1`, expected a whole number from 0"),
    ] {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "{from} is not in the text");
        let said = complaint(&text);
        assert!(said.contains(wanted), "{from} -> {to}: {said}");
    }
    let list = |name: &str, values: u32| {
        let values: Vec<String> = (1..=values).map(|value| value.to_string()).collect();
        format!("{name} = [{}]\n", values.join(","))
    };
    let with = |more: &str| complaint(&SMALL.replace("depth = {", &format!("{more}drives = {{")));
    let few = with(&(list("depth", 101) + &list("jobs", 100)));
    assert!(
        few.contains("mode quick has 20200 combinations of its lists; there must be 1 to 10000"),
        "{few}"
    );
    // As points they would take all memory, and more.
    let many =
        with(&(list("depth", 4096) + &list("jobs", 255) + &list("clients", 1000) + &list("rate", 9000)));
    assert!(many.contains("combinations of its lists"), "{many}");
    assert!(complaint("this is not TOML").contains("small.toml is not an experiment"));
}

#[test]
fn volumes_to_which_several_write_are_told() {
    let is_shared = |operation: &str, more: &str| {
        let text = SMALL.replace("random_write", operation).replace("depth =", &format!("{more}\ndepth ="));
        let planned = expand(&Experiment::parse(&text, "small.toml").unwrap(), ModeName::Quick);
        planned[0].layout.is_shared
    };
    assert!(is_shared("random_write", "jobs = [1, 2]") && is_shared("mixed70", "clients = 2"));
    assert!(!is_shared("random_write", "") && !is_shared("random_read", "jobs = 2"));
    assert!(!is_shared("object_write", "jobs = 2"));
}

#[test]
fn each_form_of_a_list_is_read() {
    let experiment = Experiment::parse(SMALL, "small.toml").unwrap();
    let sweep = &experiment.scenarios[0].sweeps[0];
    assert_eq!(sweep.operation, PerMode::One(Operation::RandomWrite));
    assert_eq!(sweep.block, PerMode::One(Size(4096)));
    assert_eq!(sweep.depth.get(ModeName::Default), [1, 4, 128]);
    let text = SMALL.replace("\"4KiB\"", "[\"4KiB\", \"1MiB\"]").replace("depth =", "jobs = 2\ndepth =");
    let experiment = Experiment::parse(&text, "small.toml").unwrap();
    let sweep = &experiment.scenarios[0].sweeps[0];
    assert_eq!(sweep.block, PerMode::Many(vec![Size(4096), Size(1 << 20)]));
    assert_eq!(sweep.jobs, PerMode::One(2));
}

#[test]
fn published_figures_are_numbers() {
    for word in ["nan", "inf", "-inf"] {
        let with = format!(
            "{SMALL}\n[published]\ncolumns = [\"workload\", \"system\", \"iops\"]\nrows = [[\"4k random write\", \"Ceph\", {word}]]\n"
        );
        let said = Experiment::parse(&with, "x").unwrap_err().to_string();
        assert!(said.contains("published row 1") && said.contains("iops"), "{said}");
    }
}

#[test]
fn published_rows_are_read_by_column() {
    let with = format!(
        "{SMALL}\n[published]\ncolumns = [\"workload\", \"depth\", \"system\", \"iops\"]\nrows = [[\"4k random write\", 128, \"Ceph\", 72100]]\n"
    );
    let rows = Experiment::parse(&with, "x").unwrap().published.rows().unwrap();
    assert_eq!((rows[0].depth, rows[0].iops, rows[0].system.as_str()), (Some(128), Some(72100.0), "Ceph"));
    assert!(complaint(&with.replace("72100]", "72100, 5]")).contains("5 values; there are 4"));
    assert!(complaint(&with.replace("72100]", "\"many\"]")).contains("does not fit column"));
    let said = complaint(&with.replace("\"iops\"", "\"iop\""));
    assert!(said.contains("column \"iop\" is not known; there are scenario, workload, depth"), "{said}");
    assert!(complaint(&with.replace("\"iops\"", "\"depth\"")).contains("named twice"));
    assert!(complaint(&with.replace("72100]", "true]")).contains("a number or a text"));
}

#[test]
fn a_file_that_is_missing_names_what_there_is() {
    let said = Experiment::load("/nowhere/at-all.toml").unwrap_err().to_string();
    assert!(said.contains("/nowhere/at-all.toml") && said.contains("curve-vs-ceph"), "{said}");
    assert!(!said.contains("did you mean"), "{said}");
}

#[test]
fn what_is_misspelt_gets_what_is_meant() {
    let said = Experiment::load("curve-vs-cpeh").unwrap_err().to_string();
    assert!(said.contains("did you mean \"curve-vs-ceph\"?; built in are: "), "{said}");
    for (from, to, meant) in [
        ("title =", "titel =", "title"),
        ("warmup_s = 0,", "warmup = 0,", "warmup_s"),
        ("depth =", "dept =", "depth"),
        ("quick = [1, 128]", "quik = [1, 128]", "quick"),
        ("random_write", "random_wirte", "random_write"),
    ] {
        let said = complaint(&SMALL.replacen(from, to, 1));
        assert!(said.ends_with(&format!("; did you mean \"{meant}\"?")), "{said}");
    }
    let said = complaint(&SMALL.replacen("depth =", "deepness =", 1));
    assert!(!said.contains("did you mean"), "{said}");
}

#[test]
fn all_that_are_built_in_can_be_run() {
    for name in built_in_names() {
        let experiment = Experiment::load(name).unwrap();
        assert_eq!(experiment.name, name);
        for mode in [ModeName::Quick, ModeName::Default, ModeName::Full] {
            assert!(!expand(&experiment, mode).is_empty(), "{name}");
        }
    }
}

#[test]
fn whole_objects_are_as_many_on_all_targets_and_as_are_in_flight_at_least() {
    let experiment = Experiment::load("arm-vs-x86").unwrap();
    let mut planned = expand(&experiment, ModeName::Default);
    let sizes = |planned: &mut [PlannedScenario], wanted: u64| -> Vec<u64> {
        let size = |scenario: &mut PlannedScenario| {
            scenario.layout.volume_bytes = wanted;
            scenario.fit_objects();
            scenario.layout.volume_bytes
        };
        planned.iter_mut().map(size).collect()
    };
    assert_eq!(sizes(&mut planned, 1 << 40), [256 << 20, 16 << 30], "4096 of 64 KiB, and of 4 MiB");
    assert_eq!(sizes(&mut planned, 16 << 20), [32 << 20, 512 << 20], "512 of 64 KiB, 128 of 4 MiB");
    assert_eq!(object_set_bytes(1 << 40, 65536), 256 << 20);
    assert_eq!(object_set_bytes((1 << 20) + 5, 65536), 1 << 20);
    let mut blocks = expand(&Experiment::parse(SMALL, "small.toml").unwrap(), ModeName::Default);
    assert_eq!(sizes(&mut blocks, 1 << 40)[0], 1 << 40, "volumes are as large as they are");
}
