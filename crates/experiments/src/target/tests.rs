use std::path::Path;

use super::*;
use crate::generator::Amount;

fn context(folder: &Path) -> Context<'_> {
    Context {
        folder: folder.to_owned(),
        program: PathBuf::from("/nonexistent/coquina"),
        server: Vec::new(),
        store_bytes: 1 << 30,
        writes: true,
        destroy: Vec::new(),
        stopped: &|| false,
        say: &|_| {},
    }
}

fn layout(volumes: u32) -> Layout {
    Layout {
        volumes,
        volume_bytes: 64 << 20,
        copies: None,
        stripe: None,
        fill: true,
        warm_reads: false,
        aged: None,
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
        ("device:/nonexistent/sdz".to_owned(), "/nonexistent/sdz"),
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

#[test]
fn objects_have_names_that_nobody_else_gives() {
    let load = Load {
        operation: Operation::ObjectWrite,
        block_bytes: 65536,
        depth: 4,
        jobs: 1,
        amount: Amount::Fill,
        size_bytes: 1 << 20,
        rate_iops: None,
        seed: 1,
        processors: None,
    };
    let target = Opener::new(Path::new("/nonexistent")).open("rados:pool").unwrap();
    let commands = target.commands(&load, &[0]);
    let job = &commands[0].files[0].1;
    let named = format!("filename_format=coquina-bench-{}-65536-$filenum\n", std::process::id());
    assert!(job.contains(&named) && job.contains("nrfiles=16\n"), "{job}");
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
    assert_eq!(objects.open_loop(), OpenLoop::Fio);
}

fn one_client() -> Point {
    Point {
        scenario: String::new(),
        operation: Operation::RandomWrite,
        block_bytes: 4096,
        depth: 1,
        jobs: 1,
        volumes: 2,
        clients: 1,
        drives: None,
        copies: None,
        placement: None,
        rate_iops: Some(100),
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
