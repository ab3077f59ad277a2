use std::rc::Rc;

use super::*;
use crate::generator::Amount;
use crate::report::Operation;

/// Programs that answer like `ceph` and `rbd` of a cluster with the images in the file `images`. `rbd create` always fails: of
/// an image "done" after it has made it, of "gone" after the cluster has gone, and of "meanwhile" since others have just made it.
fn fake_ceph(folder: &std::path::Path) {
    let script = format!(
        r#"cd {folder} || exit 1
case "$(basename "$0") $*" in
rbd\ create\ pool/done*) echo done >>images; exit 110 ;;
rbd\ create\ pool/gone*) touch no-cluster; exit 110 ;;
rbd\ create\ pool/meanwhile*) echo meanwhile >>images; exit 17 ;;
rbd\ create*) exit 22 ;;
rbd\ ls*) cat images ;;
rbd\ status*) echo '{{"watchers":[]}}' ;;
rbd\ info*) name=${{2#pool/}}; grep -qx "$name" images || exit 2; echo '{{"size":1}}' ;;
ceph*mon\ stat*) [ ! -e no-cluster ] ;;
*) exit 1 ;;
esac
"#,
        folder = folder.display()
    );
    std::fs::write(folder.join("images"), "others\nothers-1\n").unwrap();
    ceph::tests::install(folder, &script, &["ceph", "rbd"]);
}

#[test]
fn an_image_whose_making_failed_is_told_if_it_may_be_there_and_was_not_before() {
    let folder = tempfile::tempdir().unwrap();
    fake_ceph(folder.path());
    let layout = crate::target::tests::layout(2);
    let context = Context {
        folder: folder.path().to_owned(),
        program: PathBuf::new(),
        server: Vec::new(),
        store_bytes: 1 << 30,
        writes: true,
        volumes_max: 2,
        destroy: Vec::new(),
        stopped: &|| false,
        say: &|_| {},
    };
    let told = |image: &str| {
        let mut target = RbdTarget::running(&format!("rbd:pool/{image}"), &format!("pool/{image}")).unwrap();
        target.system.borrow_mut().programs = folder.path().to_owned();
        target.system.borrow_mut().conf = None;
        // The image of that name was found, so that the next one is the first to be made.
        target.found_bytes = (image == "others").then_some(64 << 20);
        assert!(target.lay_out(&layout, &context).is_err(), "{image}");
        drop(target);
        leftovers::all()
            .into_iter()
            .filter(|note| note.contains(&format!("pool/{image}")))
            .collect::<Vec<_>>()
    };
    assert_eq!(told("refused"), [""; 0], "it was not made");
    assert_eq!(told("others"), [""; 0], "others-1 was there before");
    assert_eq!(told("meanwhile"), [""; 0], "it is somebody else's");
    for (image, how) in [("done", "is there now"), ("gone", "may be there")] {
        let told = told(image);
        let wanted = format!("the image pool/{image}, whose making failed, but which {how}: ");
        assert!(told.len() == 1 && told[0].starts_with(&wanted), "{told:?}");
        assert!(told[0].ends_with(&format!("rbd rm pool/{image}")), "{told:?}");
    }
}

#[test]
fn a_stop_does_not_wait_for_a_cluster_that_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    ceph::tests::install(folder.path(), "exec sleep 60\n", &["ceph"]);
    let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
    target.system.borrow_mut().programs = folder.path().to_owned();
    crate::target::tests::check_stop(&mut target, folder.path(), std::path::Path::new(""));
}

#[test]
fn an_image_whose_making_a_stop_ended_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "case \"$*\" in\nls*) ;;\ncreate*) touch {0}/begun; exec sleep 60 ;;\n*stat*) exec sleep 60 ;;\n*) exit 1 ;;\nesac\n",
        folder.path().display()
    );
    ceph::tests::install(folder.path(), &script, &["ceph", "rbd"]);
    let begun = folder.path().join("begun");
    let stopped = || begun.exists();
    let context = Context { stopped: &stopped, ..crate::target::tests::context(folder.path()) };
    let mut target = RbdTarget::running("rbd:pool/halfway", "pool/halfway").unwrap();
    target.system.borrow_mut().programs = folder.path().to_owned();
    let begin = std::time::Instant::now();
    let error = target.lay_out(&crate::target::tests::layout(1), &context).unwrap_err();
    assert!(error.is_stop(), "{error}");
    assert!(begin.elapsed() < std::time::Duration::from_secs(10), "{:?}", begin.elapsed());
    // Nothing more is begun, and of that nothing is told.
    assert!(target.lay_out(&crate::target::tests::layout(1), &context).unwrap_err().is_stop());
    let told: Vec<String> =
        leftovers::all().into_iter().filter(|note| note.contains("pool/halfway")).collect();
    assert!(told.len() == 1 && told[0].contains("may be there"), "{told:?}");
}

#[test]
fn an_image_to_which_several_write_has_no_lock_that_they_hand_to_and_fro() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("case $1 in create) echo \"$*\" >>{}/made ;; esac\n", folder.path().display());
    ceph::tests::install(folder.path(), &script, &["ceph", "rbd"]);
    let context = crate::target::tests::context(folder.path());
    for is_shared in [false, true] {
        let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
        target.system.borrow_mut().programs = folder.path().to_owned();
        let layout = Layout { is_shared, ..crate::target::tests::layout(1) };
        target.lay_out(&layout, &context).unwrap();
        let made = std::fs::read_to_string(folder.path().join("made")).unwrap();
        assert_eq!(made.ends_with(" --image-shared\n"), is_shared, "{made}");
        let lock = target.facts().settings.get("exclusive lock").cloned();
        assert_eq!(lock.is_some_and(|text| text.starts_with("none: several")), is_shared);
    }
}

#[test]
fn an_image_that_was_there_is_neither_striped_nor_a_share_of_the_store() {
    let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
    let plain = crate::target::tests::layout(1);
    let aged = crate::definition::Aged { full_percent: 75, overwrites: 3, block: 1 << 16 };
    let aged = Layout { aged: Some(aged), ..plain.clone() };
    assert_eq!((target.refuses(&plain), target.refuses(&aged)), (None, None));
    target.found_bytes = Some(1 << 30);
    assert_eq!(target.refuses(&plain), None);
    assert!(target.refuses(&aged).unwrap().contains("name one that does not exist"));
}

#[test]
fn at_a_rate_images_get_load_by_librbd() {
    let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
    target.images = vec!["disk".to_owned(), "disk-1".to_owned()];
    target.system.borrow_mut().conf = Some("/c/ceph.conf".to_owned());
    let load = Load {
        operation: Operation::RandomWrite,
        block_bytes: 4096,
        depth: 8,
        jobs: 1,
        amount: Amount::Time { warmup_s: 0.0, runtime_s: 1.0 },
        size_bytes: 64 << 20,
        rate_iops: Some(101),
        seed: 1,
        processors: None,
    };
    let commands = target.commands(&load, &[0, 1]);
    let line = commands[1].arguments.join(" ");
    assert!(line.contains("--target rbd:admin@pool/disk-1 ") && line.ends_with("--rate 50"), "{line}");
    assert_eq!(commands[1].environment, [("CEPH_CONF".to_owned(), "/c/ceph.conf".to_owned())]);
    let closed = target.commands(&Load { rate_iops: None, ..load.clone() }, &[0, 1]);
    assert_eq!((closed.len(), closed[0].program.clone()), (1, PathBuf::from("fio")));
    for rate_iops in [Some(101), None] {
        let objects = Load { operation: Operation::ObjectWrite, rate_iops, ..load.clone() };
        let commands = target.commands(&objects, &[0]);
        let line = commands[0].arguments.join(" ");
        assert!(line.contains("--target rados:admin@pool/coquina-bench-"), "{line}");
        assert_eq!(
            (commands[0].program.clone(), line.contains("--rate")),
            (PathBuf::new(), rate_iops.is_some())
        );
        assert_eq!(commands[0].environment, [("CEPH_CONF".to_owned(), "/c/ceph.conf".to_owned())]);
    }
}

#[test]
fn names_that_rbd_would_look_for_elsewhere_are_refused() {
    for rest in ["pool/namespace/image", "pool/image@snapshot", "pool/namespace/image@snapshot", "a@b/image"]
    {
        let spec = format!("rbd:{rest}");
        let error = RbdTarget::running(&spec, rest).err().unwrap_or_else(|| panic!("{spec} was taken"));
        assert!(
            error.is_wrong_usage() && error.to_string().contains("write it as rbd:POOL/IMAGE"),
            "{error}"
        );
    }
}

/// A cluster whose `rbd` does this with the images that are removed, and a target that made those of these names.
fn with_images(folder: &std::path::Path, remove: &str, images: &[&str]) -> RbdTarget {
    let script = format!(
        r#"cd {folder} || exit 1
echo "$*" >>log
case "$(basename "$0") $*" in
{remove}
*) ;;
esac
"#,
        folder = folder.display()
    );
    ceph::tests::install(folder, &script, &["ceph", "rbd"]);
    let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
    target.system.borrow_mut().programs = folder.to_owned();
    for image in images {
        target.left.push(leftovers::note(target.left_text(image, "")));
        target.made.push((*image).to_owned());
    }
    target
}

fn told(images: &[&str]) -> Vec<String> {
    let ends: Vec<String> = images.iter().map(|image| format!("rbd rm pool/{image}")).collect();
    leftovers::all().into_iter().filter(|note| ends.iter().any(|end| note.ends_with(end))).collect()
}

fn log(folder: &std::path::Path, word: &str) -> usize {
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    log.lines().filter(|line| line.contains(word)).count()
}

#[test]
fn an_image_that_a_killed_client_watches_is_removed_when_it_watches_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let busy = r"rbd\ rm\ pool/watched) mkdir tried 2>/dev/null && exit 16; exit 0 ;;";
    let mut target = with_images(folder.path(), busy, &["watched", "watched-1"]);
    target.remove_made(&|| false);
    assert_eq!(told(&["watched", "watched-1"]), [""; 0]);
    assert_eq!((log(folder.path(), "rm pool/watched"), log(folder.path(), "rm pool/watched-1")), (3, 1));
}

#[test]
fn an_image_that_somebody_watches_on_is_told_and_a_stop_leaves_it_for_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let busy = r"rbd\ rm\ pool/held) exit 16 ;;";
    let mut target = with_images(folder.path(), busy, &["held", "held-1"]);
    let begin = Instant::now();
    target.remove_made(&|| begin.elapsed() > Duration::from_millis(500));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!((target.made.len(), target.left.len(), told(&["held", "held-1"]).len()), (2, 2, 2));
    target.times.watch_max = Duration::from_millis(1);
    drop(target);
    let told = told(&["held", "held-1"]);
    assert!(told.len() == 1 && told[0].ends_with("rbd rm pool/held"), "{told:?}");
}

#[test]
fn after_a_removal_that_took_too_long_others_are_tried_while_osds_answer() {
    for (info, images, left) in [("echo", ["slow", "slow-1"], 1), ("exec sleep 60", ["dead", "dead-1"], 2)] {
        let folder = tempfile::tempdir().unwrap();
        let answers = format!("rbd\\ rm\\ pool/{}) exec sleep 60 ;;\nrbd\\ info*) {info} ;;", images[0]);
        let mut target = with_images(folder.path(), &answers, &images);
        let second = Duration::from_secs(1);
        (target.times.still_max, target.times.answer_max) = (second, second);
        target.remove_made(&|| false);
        assert_eq!(told(&images).len(), left, "{images:?}");
        assert_eq!(log(folder.path(), &format!("rm pool/{}", images[1])), 2 - left);
    }
}

#[test]
fn an_image_that_somebody_has_open_is_refused_whatever_was_given_up() {
    let folder = tempfile::tempdir().unwrap();
    // The second client goes after the third look.
    let script = format!(
        r#"cd {folder} || exit 1
watcher='{{"address":"192.0.2.1:0/7","client":4,"cookie":1}}'
case "$(basename "$0") $*" in
*--version) echo 'ceph version 16.2.15 (hash) pacific (stable)' ;;
ceph*mon\ dump*) echo '{{"mons":[]}}' ;;
ceph*osd\ pool\ ls) echo pool ;;
ceph*get\ pool\ size) echo 'size: 3' ;;
ceph*get\ pool\ min_size) echo 'min_size: 2' ;;
rbd\ ls*) echo disk ;;
rbd\ info*) echo '{{"size":67108864}}' ;;
rbd\ status\ pool/disk\ --format\ json)
    echo look >>looks
    case $(cat who)$(wc -l <looks) in nobody*|own3) watcher= ;; esac
    echo "{{\"watchers\":[$watcher]}}"
    ;;
*) exit 1 ;;
esac
"#,
        folder = folder.path().display()
    );
    ceph::tests::install(folder.path(), &script, &["ceph", "rbd"]);
    let who = |name: &str| {
        let _ = std::fs::remove_file(folder.path().join("looks"));
        std::fs::write(folder.path().join("who"), name).unwrap();
    };
    let context = crate::target::tests::context(folder.path());
    let context = Context { destroy: vec!["pool/disk".to_owned()], ..context };
    let layout = crate::target::tests::layout(1);
    let begun = || {
        let mut target = RbdTarget::running("rbd:pool/disk", "pool/disk").unwrap();
        target.system.borrow_mut().programs = folder.path().to_owned();
        target.begin(&context).map(|()| target)
    };
    let wanted = "rbd:pool/disk: the image pool/disk is in use: somebody has it open at 192.0.2.1:0/7, ";
    who("others");
    let error = begun().err().unwrap().to_string();
    assert!(error.starts_with(wanted), "{error}");
    who("nobody");
    let mut target = begun().unwrap();
    target.lay_out(&layout, &context).unwrap();
    // A client of the run that was killed goes after a while.
    who("own");
    target.lay_out(&layout, &context).unwrap();
    who("others");
    target.times.watch_max = Duration::from_millis(1);
    let error = target.lay_out(&layout, &context).unwrap_err().to_string();
    assert!(error.starts_with(wanted), "{error}");
}

/// No figure was no bound: a full pool was written to until it hung.
#[test]
fn a_pool_of_others_without_a_figure_has_no_room_unless_one_comes() {
    let folder = tempfile::tempdir().unwrap();
    let pool = |max_avail: u64| format!(r#"{{"name":"pool","stats":{{"max_avail":{max_avail}}}}}"#);
    // Asked for the third time, a manager that has just taken over may know.
    let space_bytes = |first: &str, third: &str, is_local: bool| {
        let _ = std::fs::remove_file(folder.path().join("looks"));
        let df = format!(
            r#"ceph*osd\ df*) exit 13 ;;
ceph*df*)
    echo look >>looks
    [ $(wc -l <looks) -lt 3 ] && pools='{first}' || pools='{third}'
    echo "{{\"pools\":[$pools]}}"
    ;;"#
        );
        let target = with_images(folder.path(), &df, &[]);
        target.system.borrow_mut().is_local = is_local;
        let report_time_max = Duration::from_millis(if first == third { 400 } else { 60_000 });
        target.system.borrow_mut().report_time_max = report_time_max;
        let context = crate::target::tests::context(folder.path());
        let space = target.space_bytes(None, &context).unwrap();
        let objects = crate::target::rados::RadosTarget::of("rados:pool", Rc::clone(&target.system));
        assert_eq!(objects.space_bytes(None, &context).unwrap(), space);
        let careful = target.careful_bytes(None, &context).unwrap();
        assert_eq!(objects.careful_bytes(None, &context).unwrap(), careful);
        (space, careful)
    };
    let full = (Some(0), Some(0));
    assert_eq!(space_bytes(&pool(0), &pool(0), false), full);
    assert_eq!(space_bytes("", "", false), full, "it is not in the list");
    for unknown in [pool(0), String::new()] {
        assert_eq!(space_bytes(&unknown, &pool(1000), false), (Some(1000), Some(200)));
    }
    assert_eq!(space_bytes(&pool(0), &pool(0), true), (None, None), "one of the run is empty");
    let stopped = || true;
    let context = Context { stopped: &stopped, ..crate::target::tests::context(folder.path()) };
    let target = with_images(folder.path(), "", &[]);
    assert!(target.space_bytes(None, &context).unwrap_err().is_stop());
}

#[test]
fn a_cluster_that_others_use_is_filled_until_its_fullest_osd_is_four_fifths_full() {
    let folder = tempfile::tempdir().unwrap();
    let osd = |full: f64, weight: u32| {
        format!(r#"{{"utilization":{full},"crush_weight":{weight},"reweight":1.0}}"#)
    };
    let careful_mib = |osds: Option<&[String]>, found_mib: Option<u64>| {
        let answer =
            osds.map_or("exit 13".to_owned(), |osds| format!("echo '{{\"nodes\":[{}]}}'", osds.join(",")));
        let df = format!(
            "ceph*osd\\ df\\ --format\\ json) {answer} ;;\nceph*df*) echo '{{\"pools\":[{{\"name\":\"pool\",\"stats\":{{\"max_avail\":{}}}}}]}}' ;;",
            3000_u64 << 20
        );
        let mut target = with_images(folder.path(), &df, &[]);
        target.found_bytes = found_mib.map(|mib| mib << 20);
        let context = crate::target::tests::context(folder.path());
        let in_mib =
            |target: &dyn Target| (target.careful_bytes(None, &context).unwrap().unwrap() + (1 << 19)) >> 20;
        let objects = crate::target::rados::RadosTarget::of("rados:pool", Rc::clone(&target.system));
        assert!(objects.is_store_shared() && (found_mib.is_some() || in_mib(&objects) == in_mib(&target)));
        in_mib(&target)
    };
    // Until 95 % there is room for 3000 MiB.
    assert_eq!(careful_mib(Some(&[osd(20.0, 1), osd(65.0, 1)]), None), 1500);
    assert_eq!(careful_mib(Some(&[osd(20.0, 1), osd(65.0, 1)]), Some(1000)), 1000, "an image of that size");
    assert_eq!(careful_mib(Some(&[osd(20.0, 1), osd(90.0, 0)]), None), 2400, "one that takes no data");
    assert_eq!(careful_mib(Some(&[osd(20.0, 1), osd(84.0, 1)]), None), 0);
    assert_eq!(careful_mib(Some(&[osd(96.0, 1)]), None), 0);
    for unknown in [None, Some(&[][..])] {
        assert_eq!(careful_mib(unknown, None), 600, "a fifth");
    }
}
