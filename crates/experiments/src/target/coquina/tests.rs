use super::*;

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
