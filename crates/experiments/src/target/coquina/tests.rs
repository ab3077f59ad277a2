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
    let layout = Layout {
        volumes: 2,
        volume_bytes: 64 << 20,
        copies: None,
        stripe: None,
        fill: true,
        warm_reads: false,
        aged: None,
    };
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
