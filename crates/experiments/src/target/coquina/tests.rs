use super::*;
use crate::target::tests::stand_in;

/// A program that answers like `coquina` with a server whose volumes are in the file `volumes`. `volume create` always fails: of
/// a volume "done" after it has made it, and of "gone" after the server has gone.
fn fake_coquina(folder: &Path) -> PathBuf {
    let program = folder.join("coquina");
    let script = format!(
        r#"#!/bin/sh
cd {folder} || exit 1
[ ! -e no-server ] || exit 1
case "$1 $2 $3" in
"status --interval 0") echo '{{"node":{{"version":"1","process":1}},"services":{{"http":"192.0.2.1:1","nbd":[]}},"drives":[]}}' ;;
"pool list "*) echo '{{"pools":[{{"name":"default","copies":1}}]}}' ;;
"volume list "*) printf '{{"volumes":['; paste -sd, volumes; echo ']}}' ;;
"volume create done") echo '{{"name":"done","state":"active","size_bytes":1,"copies":1}}' >>volumes; exit 1 ;;
"volume create gone") touch no-server; exit 1 ;;
*) exit 1 ;;
esac
"#,
        folder = folder.display()
    );
    let others = ["others", "others-1"]
        .map(|name| format!(r#"{{"name":"{name}","state":"active","size_bytes":1,"copies":1}}"#));
    std::fs::write(folder.join("volumes"), others.join("\n") + "\n").unwrap();
    // What this process has open for writing, also in a child that another test is just starting, cannot be run.
    std::fs::write(folder.join("script"), script).unwrap();
    let copied = std::process::Command::new("install").arg(folder.join("script")).arg(&program).status();
    assert!(copied.unwrap().success());
    program
}

#[test]
fn a_volume_whose_making_failed_is_told_if_it_may_be_there_and_was_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let context = Context {
        folder: folder.path().to_owned(),
        program: fake_coquina(folder.path()),
        server: vec!["--server".to_owned(), "192.0.2.1:1".to_owned()],
        store_bytes: 1 << 30,
        writes: true,
        volumes_max: 2,
        destroy: vec!["others".to_owned()],
        stopped: &|| false,
        say: &|_| {},
    };
    let layout = crate::target::tests::layout(2);
    let told = |name: &str| {
        let mut target = CoquinaTarget::running(&format!("coquina:{name}"), shared_running(name), false);
        target.begin(&context).unwrap();
        assert!(target.lay_out(&layout, &context).is_err(), "{name}");
        drop(target);
        let mine = format!("the volume {name}");
        leftovers::all().into_iter().filter(|note| note.starts_with(&mine)).collect::<Vec<_>>()
    };
    assert_eq!(told("refused"), [""; 0], "it was not made");
    assert_eq!(told("others"), [""; 0], "others-1 was there before");
    for (name, how) in [("done", "is there now"), ("gone", "may be there")] {
        let remove = format!("coquina volume remove {name} --yes --server 192.0.2.1:1");
        assert_eq!(
            told(name),
            [format!("the volume {name}, whose making failed, but which {how}: {remove}")]
        );
    }
}

/// A cluster that runs, asked through the folder of the process `7`, whose nodes listen at these addresses.
fn running(folder: &Path, name: &str, nodes: &[&str]) -> System {
    let members: Vec<String> = nodes
        .iter()
        .enumerate()
        .map(|(number, native)| format!(r#"{{"name":"n{number}","native":"{native}"}}"#))
        .collect();
    let status = format!(
        r#"{{"node":{{"version":"1","process":7,"name":"{name}"}},"services":{{"http":"127.0.0.1:10810","nbd":[]}},
        "drives":[{{"path":"/srv/a"}},{{"path":"/srv/b"}}],"nodes":[{}]}}"#,
        members.join(",")
    );
    System {
        server: vec!["--dir".to_owned(), folder.to_string_lossy().into_owned()],
        status: Some(serde_json::from_str(&status).unwrap()),
        ..System::default()
    }
}

#[test]
fn of_a_cluster_on_several_hosts_no_part_is_taken_for_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let seen = |name: &str, nodes: &[&str]| {
        let system = running(folder.path(), name, nodes);
        (system.processes(), system.places().len())
    };
    assert_eq!(seen("n0", &["10.0.0.1:10811"]), (vec![7], 2), "it is all there is");
    let hosts = ["10.0.0.1:10811", "10.0.0.2:10811", "10.0.0.3:10811"];
    assert_eq!(seen("n0", &hosts), (vec![], 0), "a third of the CPU time, and paths of other hosts");
    let ports = ["127.0.0.1:10811", "127.0.0.1:20811"];
    assert_eq!(seen("n0", &ports), (vec![], 2), "the other one is another process here");
    assert_eq!(seen("n0", &["10.0.0.1:10811", "10.0.0.1:20811"]), (vec![], 2));
    assert_eq!(seen("", &["10.0.0.2:10811"]), (vec![], 0), "a process without a node, and one elsewhere");
    // A supervisor's nodes have folders in its own.
    for (node, process) in [("node1", "11"), ("node2", "12")] {
        std::fs::create_dir(folder.path().join(node)).unwrap();
        std::fs::write(folder.path().join(node).join("lock"), format!("{process}\n")).unwrap();
    }
    assert_eq!(seen("", &["10.0.0.1:10811", "127.0.0.1:20811"]), (vec![7, 11, 12], 2));
    assert_eq!(seen("", &hosts), (vec![], 0));
}

#[test]
fn a_volume_that_was_there_is_no_share_of_the_store() {
    let plain = crate::target::tests::layout(1);
    let aged = crate::definition::Aged { full_percent: 75, overwrites: 3, block: 1 << 16 };
    let aged = Layout { aged: Some(aged), ..plain.clone() };
    let target = CoquinaTarget::running("coquina:disk", shared_running("disk"), false);
    assert_eq!((target.refuses(&plain), target.refuses(&aged)), (None, None));
    target.system.borrow_mut().found = Some(VolumeFacts { size_bytes: 1 << 30, copies: 3 });
    assert_eq!(target.refuses(&plain), None);
    assert!(target.refuses(&aged).unwrap().contains("name one that does not exist"));
}

#[test]
fn the_cache_of_nodes_is_what_their_command_lines_say() {
    let of = |line: &str| cache_memory_of(line.replace(' ', "\0").as_bytes());
    assert_eq!(of("coquina node --index-memory 5 --cache-memory 1048576 --reactors 2 "), Some(1 << 20));
    assert_eq!(of("coquina up --cache-memory=2G "), Some(2 << 30));
    assert_eq!(of("coquina up --cache-memory-of-others 5 --cache-memory 7 "), Some(7));
    assert_eq!(of("coquina up --cache-memory "), None);
    assert_eq!(of("coquina up "), None);
    // The shell stays, as it has more to do.
    let mut node = std::process::Command::new("sh")
        .args(["-c", "echo; read line; :", "node", "--cache-memory", "3G"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Its command line can be read when it has begun.
    std::io::Read::read_exact(node.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let told = cache_memory(&[node.id(), std::process::id()]);
    drop(node.stdin.take());
    node.wait().unwrap();
    assert_eq!(told.as_deref(), Some("up to 3 GiB in each node"));
    assert_eq!(cache_memory(&[]), None);
}

#[test]
fn a_stop_does_not_wait_for_a_server_that_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    crate::target::ceph::tests::install(folder.path(), "exec sleep 60\n", &["coquina"]);
    let mut target = CoquinaTarget::running("coquina:disk", shared_running("disk"), false);
    crate::target::tests::check_stop(&mut target, folder.path(), &folder.path().join("coquina"));
}

fn pool_notes(folder: &Path) -> Vec<String> {
    let server = format!("--dir {}", folder.display());
    leftovers::all()
        .into_iter()
        .filter(|note| note.starts_with("the pool ") && note.ends_with(&server))
        .collect()
}

/// A cluster without a pool, or with these, and the way to it.
fn of_pools(folder: &Path, pools: &str) -> (CoquinaTarget, PathBuf, Vec<String>) {
    let program = stand_in::fake_coquina(folder, "192.0.2.1:10809");
    std::fs::write(folder.join("pools"), pools).unwrap();
    let server = vec!["--dir".to_owned(), folder.to_string_lossy().into_owned()];
    (CoquinaTarget::running("coquina:w", shared_running("w"), false), program, server)
}

#[test]
fn a_pool_that_a_run_needs_is_made_for_it_and_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut target, program, server) = of_pools(folder.path(), "");
    let context = Context { program, server, ..crate::target::tests::context(folder.path()) };
    target.begin(&context).unwrap();
    let layout = crate::target::tests::layout(1);
    for copies in [Some(2), Some(3), Some(2), None] {
        target.lay_out(&Layout { copies, ..layout.clone() }, &context).unwrap();
        assert_eq!(target.facts().settings["pool"], "made for the run");
    }
    // Without a number it is as many as the server would take, whatever pools the run has made.
    let created = stand_in::created(folder.path());
    let pools: Vec<&str> = created
        .lines()
        .map(|line| line.split("--pool ").nth(1).unwrap().split(' ').next().unwrap())
        .collect();
    assert!(pools[0] == pools[2] && pools[0] != pools[1] && pools[3] != pools[1], "{pools:?}");
    assert!(pools.iter().all(|pool| pool.starts_with("coquina-bench-")), "the server makes none: {pools:?}");
    assert_eq!(pool_notes(folder.path()).len(), 3);
    let text = &pool_notes(folder.path())[0];
    assert!(text.contains(&format!("coquina pool remove {} ", pools[0])), "{text}");
    target.end();
    let log = stand_in::log(folder.path());
    assert!(log.ends_with("remove w\npool remove\npool remove\npool remove\n"), "{log}");
    assert_eq!(std::fs::read_to_string(folder.path().join("own-pools")).unwrap(), "");
    assert!(pool_notes(folder.path()).is_empty(), "{:?}", pool_notes(folder.path()));
}

#[test]
fn a_pool_that_was_there_is_used_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let pool = |name: &str, copies: u32| format!(r#"{{"name":"{name}","copies":{copies}}}"#);
    let of_a_run = pool("coquina-bench-7-1f-0", 2);
    for (pools, copies, wanted) in [
        (pool("fast", 2), None, Some("fast")),
        (pool("fast", 2), Some(2), Some("fast")),
        ([pool("fast", 2), pool("default", 2)].join(","), Some(2), Some("default")),
        // The server says which there are.
        ([pool("fast", 2), pool("slow", 2)].join(","), Some(2), None),
        ([pool("fast", 2), of_a_run].join(","), Some(2), Some("fast")),
    ] {
        let (mut target, program, server) = of_pools(folder.path(), &pools);
        let context = Context { program, server, ..crate::target::tests::context(folder.path()) };
        target.begin(&context).unwrap();
        target.lay_out(&Layout { copies, ..crate::target::tests::layout(1) }, &context).unwrap();
        let created = stand_in::created(folder.path());
        let used = created.lines().last().unwrap().split("--pool ").nth(1);
        assert_eq!(used.and_then(|rest| rest.split(' ').next()), wanted, "{created}");
        assert_eq!(target.facts().settings.get("pool").map(String::as_str), wanted);
        target.end();
        assert!(!stand_in::log(folder.path()).contains("pool"), "{}", stand_in::log(folder.path()));
    }
}

#[test]
fn a_pool_that_others_use_stays_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (mut target, program, server) = of_pools(folder.path(), "");
    let context = Context { program, server, ..crate::target::tests::context(folder.path()) };
    target.begin(&context).unwrap();
    target.lay_out(&crate::target::tests::layout(1), &context).unwrap();
    std::fs::write(folder.path().join("others"), "").unwrap();
    target.end();
    let told = pool_notes(folder.path());
    assert!(
        told.len() == 1 && told[0].contains(", once it holds no volumes: coquina pool remove "),
        "{told:?}"
    );
}

#[test]
fn a_pool_whose_making_was_refused_is_not_told() {
    let folder = tempfile::tempdir().unwrap();
    let (mut target, program, server) = of_pools(folder.path(), "");
    let context = Context { program, server, ..crate::target::tests::context(folder.path()) };
    target.begin(&context).unwrap();
    // For so many copies there are too few nodes.
    let layout = Layout { copies: Some(9), ..crate::target::tests::layout(1) };
    assert!(target.lay_out(&layout, &context).unwrap_err().to_string().contains("pool create"));
    target.end();
    assert_eq!(stand_in::log(folder.path()), "pool remove\n");
    assert!(pool_notes(folder.path()).is_empty(), "{:?}", pool_notes(folder.path()));
}

#[test]
fn a_cluster_that_others_use_is_filled_until_it_is_four_fifths_full() {
    let df = |told: &str| -> Df {
        let text = format!(
            r#"{{"free_bytes":500,"provisioned_bytes":0,"provisionable_bytes":9,"drives":[]{told}}}"#
        );
        serde_json::from_str(&text).unwrap()
    };
    let told = |used: u64| df(&format!(r#","capacity_bytes":1000,"used_bytes":{used}"#));
    assert_eq!(
        (told(0).careful_bytes(0), told(700).careful_bytes(0), told(850).careful_bytes(0)),
        (800, 100, 0)
    );
    // What the run itself has there goes before.
    assert_eq!((told(700).careful_bytes(300), told(100).careful_bytes(300)), (400, 800));
    assert_eq!((df("").careful_bytes(0), df("").careful_bytes(300)), (100, 400), "an older server");
}
