pub(super) mod stand_in;

use std::path::Path;

use super::*;
use crate::generator::Amount;
use crate::report::Operation;

use stand_in::fake_coquina;

pub(super) fn context(folder: &Path) -> Context<'_> {
    Context {
        folder: folder.to_owned(),
        program: PathBuf::from("/nonexistent/coquina"),
        server: Vec::new(),
        store_bytes: 1 << 30,
        writes: true,
        volumes_max: 1,
        destroy: Vec::new(),
        stopped: &|| false,
        say: &|_| {},
    }
}

/// Volumes of 64 MiB, written full.
pub(super) fn layout(volumes: u32) -> Layout {
    Layout {
        volumes,
        volume_bytes: 64 << 20,
        copies: None,
        stripe: None,
        fill: true,
        warm_reads: false,
        aged: None,
        is_shared: false,
    }
}

#[test]
fn names_that_are_not_understood_are_refused() {
    for spec in [
        "",
        "floppy:a",
        "file:",
        "coquina",
        "rbd:pool",
        "rbd:/image",
        "device",
        "plain-files:0",
        "plain-files:x",
    ] {
        let error = Opener::new(Path::new("/nonexistent"))
            .open(spec)
            .err()
            .unwrap_or_else(|| panic!("{spec:?} was taken"));
        assert!(error.to_string().contains(spec), "{error}");
        assert!(error.is_wrong_usage(), "{error}");
    }
}

#[test]
fn an_nbd_uri_may_stand_by_itself_or_behind_nbd() {
    let load = crate::generator::Load {
        operation: crate::report::Operation::RandomRead,
        block_bytes: 4096,
        depth: 1,
        jobs: 1,
        amount: Amount::Fill,
        size_bytes: 1 << 20,
        rate_iops: None,
        seed: 1,
        processors: None,
    };
    for spec in [
        "nbd://host:1234/x",
        "nbd:nbd://host:1234/x",
        "nbd+unix:///x?socket=/s",
        "nbd:nbd+unix:///x?socket=/s",
    ] {
        let target = Opener::new(Path::new("/nonexistent")).open(spec).unwrap();
        let uri = spec.strip_prefix("nbd:").filter(|rest| rest.starts_with("nbd")).unwrap_or(spec);
        let commands = target.commands(&load, &[0]);
        assert!(commands[0].files[0].1.contains(&format!("uri={uri}\n")), "{:?}", commands[0].files);
    }
}

#[test]
fn a_file_that_holds_something_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    let name = path.to_string_lossy().into_owned();
    let spec = format!("file:{name}");
    let mut target = Opener::new(Path::new("/nonexistent")).open(&spec).unwrap();
    let error = target.begin(&context(folder.path())).unwrap_err().to_string();
    assert!(error.contains(&format!("--destroy-data {name}")), "{error}");
    for given in [name, spec.clone()] {
        let allowed = Context { destroy: vec![given], ..context(folder.path()) };
        Opener::new(Path::new("/nonexistent")).open(&spec).unwrap().begin(&allowed).unwrap();
    }
}

#[test]
fn files_that_were_made_are_removed_and_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let mut target =
        Opener::new(Path::new("/nonexistent")).open(&format!("file:{}", path.display())).unwrap();
    target.begin(&context(folder.path())).unwrap();
    assert!(target.lay_out(&layout(3), &context(folder.path())).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 64 << 20);
    target.lay_out(&layout(1), &context(folder.path())).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    target.end();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn open(spec: &str) -> Box<dyn Target> {
    Opener::new(Path::new("/nonexistent")).open(spec).unwrap()
}

#[test]
fn names_that_fio_would_take_for_others_are_refused_before_anything_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let refused =
        |spec: &str, folder: &Path| check_names(&[open(spec)], folder).map_err(|error| error.to_string());
    for spec in ["file:a#2", "file:a,b;2", "device:/dev/a$b", "nbd://h/x;2", "rbd:p/i#2", "rbd:p#/i"] {
        let error = refused(spec, folder.path()).unwrap_err();
        assert!(error.starts_with(spec) && error.contains("would use something else"), "{error}");
    }
    for spec in ["file:a", "plain-files:3", "nbd://h/x", "rbd:p/i"] {
        refused(spec, folder.path()).unwrap();
        assert!(refused(spec, Path::new("/srv/a#b")).unwrap_err().starts_with("--folder"), "{spec}");
    }
    for spec in ["coquina:disk", "rados:p#"] {
        refused(spec, Path::new("/srv/a#b")).unwrap();
    }
}

#[test]
fn paths_are_those_of_the_current_folder() {
    let here = std::env::current_dir().unwrap();
    for spec in ["device:sdz,b", "file:sdz,b"] {
        assert_eq!(open(spec).named_paths(), [here.join("sdz"), here.join("b")], "{spec}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut target = open("nbd+unix:///x?socket=n.sock");
    let error = target.begin(&context(folder.path())).unwrap_err();
    assert!(error.is_wrong_usage() && error.to_string().contains("needs its whole path"), "{error}");
}

#[test]
fn what_has_to_be_added_can_be_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a file");
    std::fs::write(&path, "data").unwrap();
    let error =
        open(&format!("file:{}", path.display())).begin(&context(folder.path())).unwrap_err().to_string();
    assert!(error.ends_with(&format!("add --destroy-data '{}'", path.display())), "{error}");
}

#[test]
fn data_is_given_up_by_any_name_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("disk"), "data").unwrap();
    std::os::unix::fs::symlink(at("disk"), at("link")).unwrap();
    let may = |given: &str, path: &str| {
        let destroy = vec![at(given).to_string_lossy().into_owned()];
        Context { destroy, ..context(folder.path()) }.may_destroy_path("file:x", &at(path))
    };
    assert!(may("disk", "link") && may("link", "disk") && may("disk", "disk"));
    let bare = Context { destroy: vec!["Cargo.toml".to_owned()], ..context(folder.path()) };
    assert!(!bare.may_destroy_path("file:x", Path::new("./Cargo.toml")), "it may be the name of a volume");
    let here = Context { destroy: vec!["file:Cargo.toml".to_owned()], ..context(folder.path()) };
    assert!(here.may_destroy_path("file:x", &std::path::absolute("Cargo.toml").unwrap()));
    assert!(!may("other", "disk") && !may("other", "new") && may("new", "new"));
}

#[test]
fn a_file_that_was_empty_may_be_used_again_and_is_empty_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, "").unwrap();
    let context = context(folder.path());
    let mut target = open(&format!("file:{}", path.display()));
    target.begin(&context).unwrap();
    for _ in 0..2 {
        target.lay_out(&layout(1), &context).unwrap();
        std::fs::write(&path, "data of the run").unwrap();
    }
    target.end();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn volumes_are_made_anew_for_another_scenario_of_the_same_layout() {
    let folder = tempfile::tempdir().unwrap();
    let program = fake_coquina(folder.path(), "192.0.2.1:10809");
    let context = Context { program, ..context(folder.path()) };
    let mut target = open("coquina:again");
    target.begin(&context).unwrap();
    let mut is_new = || target.lay_out(&layout(1), &context).unwrap();
    assert_eq!((is_new(), is_new()), (true, false));
    target.forget_layout();
    assert!(target.lay_out(&layout(1), &context).unwrap());
}

#[test]
fn what_was_never_begun_has_left_nothing() {
    for spec in ["rados:never-begun", "rbd:never-begun/image"] {
        open(spec).end();
        assert!(!leftovers::all().iter().any(|note| note.contains("never-begun")), "{:?}", leftovers::all());
    }
}

#[test]
fn a_numbered_file_that_holds_something_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let spec = format!("file:{}", at("disk").display());
    std::fs::write(at("disk-1"), "precious").unwrap();
    let of_three = || Context { volumes_max: 3, ..context(folder.path()) };
    let wanted = format!("--destroy-data {}", at("disk-1").display());
    let error = open(&spec).begin(&of_three()).unwrap_err().to_string();
    assert!(error.contains(&wanted), "{error}");
    // What was named was given up, and no more.
    for given in [spec.clone(), at("disk").to_string_lossy().into_owned()] {
        let context = Context { destroy: vec![given], ..of_three() };
        assert!(open(&spec).begin(&context).unwrap_err().to_string().contains(&wanted));
    }
    // It came when the run had begun.
    let mut target = open(&spec);
    target.begin(&context(folder.path())).unwrap();
    let error = target.lay_out(&layout(3), &of_three()).unwrap_err().to_string();
    assert!(error.contains(&wanted), "{error}");
    drop(target);
    assert_eq!(std::fs::read_to_string(at("disk-1")).unwrap(), "precious");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_numbered_file_that_was_given_up_stays_when_the_run_ends() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("disk-1"), "spoilt").unwrap();
    let destroy = vec![at("disk-1").to_string_lossy().into_owned()];
    let context = Context { volumes_max: 3, destroy, ..context(folder.path()) };
    let mut target = open(&format!("file:{}", at("disk").display()));
    target.begin(&context).unwrap();
    target.lay_out(&layout(3), &context).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    target.end();
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["disk-1"]);
}

#[test]
fn a_link_that_leads_nowhere_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), folder.path().join("disk")).unwrap();
    let mut target = open(&format!("file:{}", folder.path().join("disk").display()));
    target.begin(&context(folder.path())).unwrap();
    let error = target.lay_out(&layout(1), &context(folder.path())).unwrap_err().to_string();
    assert!(error.contains("cannot make"), "{error}");
    target.end();
    assert!(folder.path().join("disk").is_symlink() && !folder.path().join("elsewhere").exists());
}

#[test]
fn a_file_in_memory_is_not_called_durable() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let facts = open(&format!("file:{}", folder.path().join("disk").display())).facts();
    let is_memory = medium::lies_in_memory(folder.path());
    assert_eq!(facts.durable, Some(!is_memory));
    assert_eq!(facts.cache.contains("tmpfs"), is_memory, "{}", facts.cache);
}

#[test]
fn a_file_or_device_is_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(at("a"), "").unwrap();
    std::os::unix::fs::symlink(at("a"), at("link")).unwrap();
    let check = |specs: &[String]| {
        let mut opener = Opener::new(folder.path());
        let targets: Vec<Box<dyn Target>> = specs.iter().map(|spec| opener.open(spec).unwrap()).collect();
        check_repeated(&targets)
    };
    for specs in [
        vec![format!("file:{},{}", at("a"), at("a"))],
        vec![format!("file:{},{}", at("a"), at("link"))],
        vec![format!("file:{}", at("a")), format!("file:{},{}", at("b"), at("link"))],
        vec![format!("file:{}", at("a")), format!("device:{}", at("a"))],
        vec!["device:/dev/null,/dev/null".to_owned()],
    ] {
        let error = check(&specs).expect_err("taken");
        assert!(error.is_wrong_usage(), "{error}");
        assert!(error.to_string().contains("name each file or device once"), "{error}");
    }
    let both = ["plain-file", "plain-files:2", "plain-files:3"].map(str::to_owned);
    check(&[format!("file:{},{}", at("a"), at("b"))]).unwrap();
    check(&both).unwrap();
    // Files with numbers count as well.
    let mut target = open(&format!("file:{}", at("a")));
    target.begin(&Context { volumes_max: 2, ..context(folder.path()) }).unwrap();
    let targets = vec![target, open(&format!("file:{}-1", at("a")))];
    assert!(check_repeated(&targets).unwrap_err().to_string().contains("a-1 is named twice"));
}

#[test]
fn an_export_is_named_once() {
    let error = open("nbd:nbd://h/x,nbd://h/x").begin(&context(Path::new("/"))).unwrap_err();
    assert!(error.is_wrong_usage() && error.to_string().contains("named twice"), "{error}");
}

#[test]
fn other_hosts_make_load_only_on_what_they_reach() {
    let there = ["192.0.2.7".to_owned()];
    for spec in [
        "file:/srv/disk",
        "plain-file",
        "plain-files:2",
        "device:/dev/sdb",
        "nbd://127.0.0.1:10809/x",
        "nbd+unix:///x?socket=/s",
        "coquina-local",
        "coquina-local-nbd",
        "coquina:disk",
        "ceph-local",
    ] {
        let error = check_reach(&[open(spec)], &there).expect_err(spec);
        assert!(error.is_wrong_usage() && error.to_string().contains("--client 192.0.2.7"), "{error}");
        check_reach(&[open(spec)], &["127.0.0.1".to_owned()]).unwrap();
        check_reach(&[open(spec)], &[]).unwrap();
    }
    for spec in ["nbd://192.0.2.1:10809/x", "rbd:pool/image", "coquina-nbd:disk"] {
        check_reach(&[open(spec)], &there).unwrap();
    }
    // fio makes no whole objects.
    let error = check_reach(&[open("rados:pool")], &there).unwrap_err().to_string();
    assert!(error.contains("whole objects are read and written by `coquina bench io`"), "{error}");
    for spec in ["rados:pool", "rbd:pool/image", "ceph-local"] {
        assert!(check_reach_of_objects(&[open(spec)], &there).is_err(), "{spec}");
        check_reach_of_objects(&[open(spec)], &["127.0.0.1".to_owned()]).unwrap();
    }
    check_reach_of_objects(&[open("coquina-nbd:disk")], &there).unwrap();
}

#[test]
fn two_ways_to_a_volume_share_what_the_run_made() {
    let folder = tempfile::tempdir().unwrap();
    let program = fake_coquina(folder.path(), "192.0.2.1:10809");
    let context = Context { program, ..context(folder.path()) };
    let mut opener = Opener::new(folder.path());
    let mut targets = ["coquina:w", "coquina-nbd:w", "coquina:other"].map(|spec| opener.open(spec).unwrap());
    targets.iter_mut().for_each(|target| target.begin(&context).unwrap());
    let is_new = targets.each_mut().map(|target| target.lay_out(&layout(2), &context).unwrap());
    assert_eq!(is_new, [true, false, true], "one fill for both ways");
    targets.iter_mut().for_each(|target| target.end());
    let log = stand_in::log(folder.path());
    let wanted = "pool create 1\ncreate w\ncreate w-1\npool create 1\ncreate other\ncreate other-1\n\
                  remove w\nremove w-1\npool remove\nremove other\nremove other-1\npool remove\n";
    assert_eq!(log, wanted);
}

#[test]
fn a_volume_that_cannot_be_removed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let program = fake_coquina(folder.path(), "192.0.2.1:10809");
    let context = Context { program, ..context(folder.path()) };
    for name in ["goes", "stays"] {
        let mut target = open(&format!("coquina:{name}"));
        target.begin(&context).unwrap();
        target.lay_out(&layout(1), &context).unwrap();
        target.end();
    }
    let told =
        |name: &str| leftovers::all().iter().any(|note| note.contains(&format!("volume remove {name} ")));
    assert!(told("stays") && !told("goes"), "{:?}", leftovers::all());
}

#[test]
fn copies_are_those_that_the_server_made() {
    let folder = tempfile::tempdir().unwrap();
    let program = fake_coquina(folder.path(), "192.0.2.1:10809");
    let context = Context { program, ..context(folder.path()) };
    for asked in [None, Some(3)] {
        let mut target = open("coquina:w");
        target.begin(&context).unwrap();
        target.lay_out(&Layout { copies: asked, ..layout(2) }, &context).unwrap();
        assert_eq!(target.facts().copies, Some(2), "asked for {asked:?}");
        target.end();
    }
}

#[test]
fn room_is_for_as_many_copies_as_a_volume_will_get() {
    let folder = tempfile::tempdir().unwrap();
    let program = fake_coquina(folder.path(), "192.0.2.1:10809");
    let context = Context { program, ..context(folder.path()) };
    let two = r#"{"name":"a","copies":2}"#;
    let several = r#"{"name":"a","copies":2},{"name":"b","copies":6}"#;
    let drives = |nodes: &[&str]| {
        nodes.iter().map(|node| format!(r#"{{"node":"{node}"}}"#)).collect::<Vec<_>>().join(",")
    };
    // The first volume makes the first pool: copies on all nodes, or on all drives of the only one, up to three.
    for (nodes, wanted) in
        [(&["a"][..], 6), (&["a", "a"], 3), (&["a", "a", "a", "b"], 3), (&["a", "b", "c", "d"], 2)]
    {
        std::fs::write(folder.path().join("drives"), drives(nodes)).unwrap();
        let mut target = open("coquina:w");
        target.begin(&context).unwrap();
        assert_eq!(target.space_bytes(None, &context).unwrap(), Some(wanted << 30), "{nodes:?}");
    }
    for (pools, asked, wanted) in [("", None, 2), (two, None, 3), (several, None, 1), (two, Some(6), 1)] {
        std::fs::write(folder.path().join("pools"), pools).unwrap();
        let mut target = open("coquina:w");
        target.begin(&context).unwrap();
        assert_eq!(target.space_bytes(asked, &context).unwrap(), Some(wanted << 30), "{pools:?} {asked:?}");
        target.end();
    }
}

#[test]
fn the_fullest_file_system_of_several_files_decides() {
    let (large, small) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let free = |folder: &Path| super::free_bytes(folder).unwrap();
    let smallest = free(large.path()).min(free(small.path()));
    let spec = format!("file:{}/a,{}/b", large.path().display(), small.path().display());
    let mut target = open(&spec);
    let context = context(large.path());
    target.begin(&context).unwrap();
    // What lies below is looked at before anything is laid out.
    assert_eq!(target.places(), [large.path().join("a"), small.path().join("b")]);
    let space = target.space_bytes(None, &context).unwrap().unwrap();
    assert!(space <= smallest + smallest / 10, "{space} of twice half of {smallest}");
    let volume_bytes = smallest + smallest / 10;
    let error = target.lay_out(&Layout { volume_bytes, ..layout(2) }, &context).unwrap_err();
    assert!(matches!(error, TargetError::NoSpace { .. }), "{error}");
    assert!(std::fs::read_dir(small.path()).unwrap().next().is_none(), "nothing was made");
}

#[test]
fn of_several_files_each_is_as_large_as_a_volume_however_few_volumes_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<String> =
        (0..4).map(|number| folder.path().join(number.to_string()).display().to_string()).collect();
    let several = open(&format!("file:{}", files.join(",")));
    let all = several.space_bytes(None, &context(folder.path())).unwrap().unwrap();
    let each = several.drive_bytes().unwrap();
    // Others use the disk meanwhile.
    assert!(each <= all / 4 + all / 40, "{each} of {all} for four");
    assert_eq!(open(&format!("file:{}", files[0])).drive_bytes(), None, "volumes are files beside it");
}

#[test]
fn holes_of_a_file_are_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let free = super::free_bytes(folder.path()).unwrap();
    let path = folder.path().join("sparse");
    // Larger than what is free, and nothing is in it. Not all file systems take files of any size.
    if std::fs::File::create(&path).unwrap().set_len(free.saturating_mul(2)).is_ok() {
        let file = open(&format!("file:{}", path.display()));
        let space = file.space_bytes(None, &context(folder.path())).unwrap().unwrap();
        assert!(space <= free, "{space} of {free}");
    }
}

#[test]
fn options_are_tried_on_a_cluster_of_the_run_only_and_not_those_that_it_sets() {
    for (spec, key, wanted) in [
        ("coquina-local", "coquina:index-memory", None),
        ("coquina-local-nbd", "coquina:flush-every", None),
        ("coquina-local", "coquina:nodes", Some("no option of `coquina up` that can be tried")),
        ("coquina-local", "coquina:a b", Some("no option of `coquina up` that can be tried")),
        ("coquina-local", "debug_ms", Some("write coquina:OPTION=VALUE")),
        ("coquina:disk", "coquina:index-memory", Some("use coquina-local")),
    ] {
        match (open(spec).effect(key, &context(Path::new("/tmp"))), wanted) {
            (Ok(effect), None) => assert_eq!(effect, Effect::AtStart, "{spec} {key}"),
            (Err(error), Some(wanted)) => assert!(error.to_string().contains(wanted), "{error}"),
            (effect, _) => panic!("{spec} {key}: {effect:?}"),
        }
    }
}

/// Begins a target that hangs, and checks that a stop of the run ends that soon.
pub(super) fn check_stop(target: &mut dyn Target, folder: &Path, program: &Path) {
    let begin = std::time::Instant::now();
    let stopped = || begin.elapsed() > Duration::from_millis(200);
    let context = Context { stopped: &stopped, program: program.to_owned(), ..context(folder) };
    let error = target.begin(&context).unwrap_err();
    assert!(error.is_stop() && begin.elapsed() < Duration::from_secs(5), "{error} {:?}", begin.elapsed());
}

#[test]
fn exports_of_a_server_are_reached_by_the_address_that_it_tells() {
    for (nbd, is_reached) in [("192.0.2.1:10809", true), ("127.0.0.1:10809", false), ("unix:/run/nbd", false)]
    {
        let folder = tempfile::tempdir().unwrap();
        let program = fake_coquina(folder.path(), nbd);
        let mut target = open("coquina-nbd:w");
        target.begin(&Context { program, ..context(folder.path()) }).unwrap();
        assert_eq!(check_reach(&[target], &["192.0.2.7".to_owned()]).is_ok(), is_reached, "{nbd}");
    }
}

#[test]
fn a_client_gets_the_volumes_that_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let mut target = Opener::new(Path::new("/nonexistent"))
        .open(&format!("file:{}/disk", folder.path().display()))
        .unwrap();
    target.begin(&context(folder.path())).unwrap();
    target.lay_out(&layout(4), &context(folder.path())).unwrap();
    let load = Load {
        operation: Operation::RandomRead,
        block_bytes: 4096,
        depth: 1,
        jobs: 1,
        amount: Amount::Fill,
        size_bytes: 64 << 20,
        rate_iops: None,
        seed: 1,
        processors: None,
    };
    let commands = target.commands(&load, &[1, 3]);
    let job = &commands[0].files[0].1;
    assert!(job.contains("disk-1\n") && job.contains("disk-3\n") && !job.contains("disk-2\n"), "{job}");
}

#[test]
fn what_is_no_device_or_no_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for (spec, wanted) in [
        ("device:/nonexistent/sdz".to_owned(), "there is no device /nonexistent/sdz; lsblk"),
        (format!("device:{}", folder.path().display()), "not a block device"),
        (format!("file:{}", folder.path().display()), "not a regular file"),
        ("file:/nonexistent/folder/x".to_owned(), "does not exist"),
    ] {
        let error = Opener::new(Path::new("/nonexistent"))
            .open(&spec)
            .unwrap()
            .begin(&context(folder.path()))
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{spec}: {error}");
    }
}

#[test]
fn a_disk_without_room_is_told_how_much_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let error = need_room("file:x", folder.path(), 1 << 60).unwrap_err().to_string();
    assert!(error.contains("1 EiB") && error.contains("--folder"), "{error}");
}

fn at_a_rate(operation: Operation) -> Load {
    Load {
        operation,
        block_bytes: 4096,
        depth: 8,
        jobs: 2,
        amount: Amount::Time { warmup_s: 0.0, runtime_s: 1.0 },
        size_bytes: 64 << 20,
        rate_iops: Some(101),
        seed: 1,
        processors: None,
    }
}

#[test]
fn at_a_rate_load_is_made_by_the_generator_that_counts_from_when_operations_were_due() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(folder.path());
    let mut files = Opener::new(Path::new("/nonexistent"))
        .open(&format!("file:{}/disk", folder.path().display()))
        .unwrap();
    files.begin(&context).unwrap();
    files.lay_out(&layout(2), &context).unwrap();
    let commands = files.commands(&at_a_rate(Operation::RandomWrite), &[0, 1]);
    let lines: Vec<String> = commands.iter().map(|command| command.arguments.join(" ")).collect();
    assert!(commands.iter().all(|command| command.program == context.program), "{commands:?}");
    for (line, rate) in lines.iter().zip([51, 50]) {
        assert!(line.contains("--target file:") && line.contains("--durable"), "{line}");
        assert!(line.contains("--jobs 2") && line.ends_with(&format!("--rate {rate}")), "{line}");
    }
    assert!(lines[1].contains("disk-1 "), "{lines:?}");
    let closed = Load { rate_iops: None, ..at_a_rate(Operation::RandomWrite) };
    assert_eq!(files.commands(&closed, &[0, 1])[0].program, PathBuf::from("fio"));

    let exports = Opener::new(Path::new("/nonexistent")).open("nbd://a/x,nbd+unix:///y?socket=/s").unwrap();
    let commands = exports.commands(&at_a_rate(Operation::Mixed70), &[0, 1]);
    let lines: Vec<String> = commands.iter().map(|command| command.arguments.join(" ")).collect();
    assert!(lines[0].contains("--target nbd:nbd://a/x ") && lines[0].contains("--rw mix:70"), "{lines:?}");
    assert!(lines[1].contains("--target nbd:nbd+unix:///y?socket=/s "), "{lines:?}");

    let drives = Opener::new(Path::new("/nonexistent")).open("device:/dev/a").unwrap();
    let commands = drives.commands(&at_a_rate(Operation::RandomRead), &[0]);
    let line = commands[0].arguments.join(" ");
    assert!(line.contains("--target device:/dev/a --durable"), "{line}");
    let volume = Opener::new(Path::new("/nonexistent")).open("coquina:disk").unwrap();
    let pinned = Point { placement: Some("whole cores".to_owned()), ..one_client() };
    assert_eq!(volume.refuses_point(&pinned), None, "it is pinned as the others are");
    assert!(volume.refuses_point(&Point { rate_iops: None, ..pinned }).is_some());
    let objects = Opener::new(Path::new("/nonexistent")).open("rados:pool").unwrap();
    assert_eq!(objects.open_loop(), OpenLoop::Native);
}

fn one_client() -> Point {
    Point {
        scenario: String::new(),
        operation: Operation::RandomWrite,
        block_bytes: 4096,
        depth: 1,
        jobs: 1,
        volumes: 2,

        volumes_per_client: None,
        clients: 1,
        drives: None,
        copies: None,
        placement: None,
        rate_iops: Some(100),
    }
}

#[test]
fn drives_of_this_host_tell_nothing_of_a_target_that_is_elsewhere() {
    let open = |spec: &str| Opener::new(Path::new("/nonexistent")).open(spec).unwrap();
    for spec in ["nbd://192.0.2.1/x", "rbd:pool/image", "rados:pool", "coquina:disk", "coquina-nbd:disk"] {
        assert!(!open(spec).is_on_this_host(), "{spec}");
    }
    for spec in ["nbd://127.0.0.1/x", "nbd+unix:///x?socket=/s", "device:/dev/a", "ceph-local"] {
        assert!(open(spec).is_on_this_host(), "{spec}");
    }
}

#[test]
fn clients_that_write_at_a_rate_have_devices_of_their_own() {
    let drives = Opener::new(Path::new("/nonexistent")).open("device:/dev/a,/dev/b").unwrap();
    let point = Point { clients: 3, ..one_client() };
    assert!(drives.refuses_point(&point).unwrap().contains("3 clients"));
    assert_eq!(drives.refuses_point(&Point { clients: 2, ..point.clone() }), None);
    assert_eq!(drives.refuses_point(&Point { rate_iops: None, ..point }), None);
}
