use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use super::*;
use crate::definition::Layout;
use crate::generator::{Command, Load};
use crate::report::TargetFacts;

fn tried(texts: &[&str]) -> Vec<Assignment> {
    texts.iter().map(|text| Assignment::parse(text).unwrap()).collect()
}

#[test]
fn assignments_are_read() {
    let rocksdb = tried(&["osd:bluestore_rocksdb_options=compression=kNoCompression,max_background_jobs=4"]);
    assert_eq!(rocksdb[0].key, "osd:bluestore_rocksdb_options");
    assert_eq!(rocksdb[0].value, "compression=kNoCompression,max_background_jobs=4");
    let read = tried(&["osd:debug_ms=0", "os:scheduler:sdb=none", "fio:iodepth_batch=4", "a=b=c"]);
    assert_eq!(read[1].kind, Kind::System);
    assert_eq!(read[1].bare_key(), "scheduler:sdb");
    assert_eq!(read[2].bare_key(), "iodepth_batch");
    assert_eq!((read[3].key.as_str(), read[3].value.as_str()), ("a", "b=c"));
    for wrong in ["", "=", "=1", "key", "os:=1", ":x=1", "x:=1", "fio:a=1\n[b]"] {
        assert!(Assignment::parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn labels_of_long_lists_show_what_differs() {
    let list = |jobs: u32, more: &str| {
        format!(
            "rocksdb=compression=kNoCompression,max_background_compactions={jobs},write_buffer_size=268435456{more}"
        )
    };
    let several = tried(&["debug_ms=1", &list(2, ""), &list(1, ""), &list(2, ",max_write_buffer_number=8")]);
    assert_eq!(
        labels(&several),
        [
            "debug_ms=1",
            "rocksdb=max_background_compactions=2,...",
            "rocksdb=max_background_compactions=1,...",
            "rocksdb=max_background_compactions=2,max_write_buffer_number=8,...",
        ]
    );
    // One that is alone, and those with nothing in common, are shown whole.
    let alone = tried(&[&list(2, "")]);
    assert_eq!(labels(&alone), [list(2, "")]);
    let long = "x".repeat(VALUE_LENGTH_LONG);
    let different = tried(&[&format!("a={long}"), "a=b"]);
    assert_eq!(labels(&different), [format!("a={long}"), "a=b".to_owned()]);
}

#[test]
fn values_of_a_key_are_compared_with_its_first() {
    let several = tried(&["a=1", "a=2", "a=3"]);
    assert_eq!(columns(&several), [Some(0), Some(1), Some(2)]);
    assert_eq!(references(&several, &columns(&several)), [(1, 0), (2, 0)]);
    let one = tried(&["a=1", "b=1", "b=2"]);
    assert_eq!(columns(&one), [None, Some(0), Some(1), Some(2)]);
    assert_eq!(references(&one, &columns(&one)), [(1, 0), (3, 2)]);
}

/// A target that notes what is done with it. Keys with "start" take effect at a start, with "unsure" nobody
/// knows when, and those with "never" cannot be tried.
struct Noting {
    done: Rc<RefCell<Vec<String>>>,
    fails_to_start_with: Option<&'static str>,
}

impl Target for Noting {
    fn spec(&self) -> &str {
        "noting"
    }
    fn begin(&mut self, _context: &Context<'_>) -> Result<(), TargetError> {
        Ok(())
    }
    fn facts(&self) -> TargetFacts {
        TargetFacts::default()
    }
    fn space_bytes(&self, _copies: Option<u32>, _context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        Ok(None)
    }
    fn refuses(&self, _layout: &Layout) -> Option<String> {
        None
    }
    fn lay_out(&mut self, _layout: &Layout, _context: &Context<'_>) -> Result<bool, TargetError> {
        Ok(false)
    }
    fn commands(&self, _load: &Load, _volumes: &[u32]) -> Vec<Command> {
        Vec::new()
    }
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }
    fn places(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    fn effect(&self, key: &str, _context: &Context<'_>) -> Result<Effect, TargetError> {
        match key {
            _ if key.contains("never") => {
                Err(TargetError::Unusable { spec: "noting".to_owned(), message: format!("{key} is refused") })
            }
            _ if key.contains("start") => Ok(Effect::AtStart),
            _ if key.contains("unsure") => Ok(Effect::Unsure),
            _ => Ok(Effect::AtOnce),
        }
    }
    fn restart(&mut self, _context: &Context<'_>) -> Result<(), TargetError> {
        let fails = self.fails_to_start_with.is_some_and(|text| {
            self.done.borrow().iter().rfind(|line| line.contains('=')).is_some_and(|line| line == text)
        });
        self.done.borrow_mut().push("restart".to_owned());
        match fails {
            true => Err(TargetError::Unusable { spec: "noting".to_owned(), message: "it ended".to_owned() }),
            false => Ok(()),
        }
    }
    fn setting(&self, _key: &str, _context: &Context<'_>) -> Result<Option<String>, TargetError> {
        Ok(None)
    }
    fn set(&mut self, key: &str, value: Option<&str>) -> Result<(), TargetError> {
        self.done.borrow_mut().push(format!("{key}={}", value.unwrap_or("-")));
        match value {
            Some("lost answer") => {
                Err(TargetError::Unusable { spec: "noting".to_owned(), message: "no answer".to_owned() })
            }
            _ => Ok(()),
        }
    }
    fn end(&mut self) {}
}

/// What is done with a target by the trial of settings, by each of some turns, and by putting them back.
fn done(
    texts: &[&str],
    turns: &[Option<usize>],
    fails_to_start_with: Option<&'static str>,
) -> (Result<Vec<String>, TargetError>, Vec<String>) {
    done_with(texts, turns, fails_to_start_with, false)
}

/// The same, where volumes are laid out before the turns.
fn done_with(
    texts: &[&str],
    turns: &[Option<usize>],
    fails_to_start_with: Option<&'static str>,
    lays_out: bool,
) -> (Result<Vec<String>, TargetError>, Vec<String>) {
    let noted = Rc::new(RefCell::new(Vec::new()));
    let mut targets: Vec<Box<dyn Target>> =
        vec![Box::new(Noting { done: noted.clone(), fails_to_start_with })];
    let context = Context {
        folder: PathBuf::from("/nonexistent"),
        program: PathBuf::from("/nonexistent/coquina"),
        server: Vec::new(),
        store_bytes: 1 << 30,
        writes: true,
        volumes_max: 1,
        destroy: Vec::new(),
        stopped: &|| false,
        say: &|_| {},
    };
    let mut tuner = Tuner::new(&tried(texts));
    let outcome = tuner.begin(&mut targets, &context).and_then(|_| {
        if lays_out {
            tuner.set_as_found(&mut targets, &context)?;
        }
        noted.borrow_mut().push("|".to_owned());
        turns.iter().try_for_each(|turn| tuner.apply(*turn, &mut targets, &context))
    });
    noted.borrow_mut().push("|".to_owned());
    assert_eq!(tuner.restore(&mut targets), [""; 0]);
    let noted = noted.borrow().clone();
    (outcome.map(|()| tuner.notes()), noted)
}

#[test]
fn a_setting_that_is_named_in_two_ways_is_refused() {
    let (told, done) = done(&["osd:a=1", "a=2"], &[], None);
    assert!(told.unwrap_err().to_string().contains("osd:a is the same setting"));
    assert_eq!(done, ["|"]);
}

#[test]
fn a_change_that_failed_may_have_been_made_and_is_put_back() {
    let (told, first) = done(&["a=lost answer"], &[], None);
    assert!(told.unwrap_err().to_string().contains("no answer"));
    assert_eq!(first, ["a=lost answer", "|", "a=-"]);
    let (_, later) = done(&["a=1", "b=2", "a=lost answer"], &[], None);
    assert_eq!(later[later.len() - 3..], ["|", "b=-", "a=-"], "{later:?}");
}

#[test]
fn what_was_changed_last_is_put_back_first() {
    let (_, done) = done(&["a=1", "b=1"], &[], None);
    let from = done.iter().rposition(|line| line == "|").unwrap();
    assert_eq!(done[from..], ["|", "b=-", "a=-"]);
}

#[test]
fn what_takes_effect_at_once_is_set_only() {
    let (told, done) = done(&["a=1", "a=2"], &[Some(0), Some(0), Some(1)], None);
    assert_eq!(done, ["a=1", "a=2", "|", "a=1", "a=2", "|", "a=-"]);
    assert_eq!(told.unwrap(), [""; 0]);
}

#[test]
fn what_takes_effect_at_a_start_has_one_before_each_turn() {
    let (told, done) = done(&["start=1", "start=2"], &[Some(0), Some(0), Some(1)], None);
    let tried = ["start=1", "restart", "start=2", "restart", "|"];
    let turns = ["start=1", "restart", "restart", "start=2", "restart", "|", "start=-"];
    assert_eq!(done, [tried.as_slice(), turns.as_slice()].concat());
    let told = told.unwrap().join("\n");
    assert!(
        told.starts_with("start: not surely read while") && told.contains("(5 times, 0.0 s each"),
        "{told}"
    );
}

#[test]
fn volumes_are_laid_out_by_a_target_that_was_started_as_found() {
    let (_, done) = done_with(&["start=1", "a=1"], &[Some(1)], None, true);
    let tried = ["start=1", "a=1", "start=-", "restart", "start=-", "a=1"];
    assert_eq!(done.iter().filter(|line| *line == "restart").count(), 3, "{done:?}");
    let laid_out = done.iter().position(|line| line == "|").unwrap();
    assert_eq!(done[laid_out - 1], "restart", "the last start was with start=1: {done:?}");
    assert!(tried.iter().all(|line| done[..laid_out].contains(&(*line).to_owned())), "{done:?}");
    let (_, done) = done_with(&["a=1", "b=1"], &[], None, true);
    assert!(!done.contains(&"restart".to_owned()), "{done:?}");
}

#[test]
fn what_is_not_sure_is_told() {
    let (told, done) = done(&["unsure=1"], &[None, Some(0)], None);
    assert_eq!(done, ["unsure=1", "|", "unsure=-", "unsure=1", "|", "unsure=-"]);
    assert!(told.unwrap()[0].starts_with("unsure: may be read at a start only"));
}

#[test]
fn turns_of_other_settings_have_a_start_as_well() {
    let (_, done) = done(&["start=1", "a=1"], &[None, Some(1), Some(0)], None);
    let turns = ["a=-", "restart", "a=1", "restart", "a=-", "start=1", "restart"];
    let from = done.iter().position(|line| line == "|").unwrap() + 1;
    let mut found = done[from..from + turns.len()].to_vec();
    found.sort();
    let mut wanted = turns.map(str::to_owned).to_vec();
    wanted.sort();
    assert_eq!(found, wanted, "{done:?}");
    assert_eq!(done[from + turns.len() - 1], "restart", "everything is set before: {done:?}");
}

#[test]
fn a_setting_that_cannot_be_tried_is_refused_before_anything_is_changed() {
    let (told, done) = done(&["a=1", "never=1"], &[], None);
    assert!(told.unwrap_err().to_string().contains("never is refused"));
    assert_eq!(done, ["|"]);
}

#[test]
fn a_value_that_no_host_takes_is_wrong_usage_and_nothing_is_changed_before() {
    if doctor::os_setting("swappiness").is_err() {
        eprintln!("this host has no such setting");
        return;
    }
    let (told, done) = done(&["a=1", "os:swappiness=much"], &[], None);
    let error = told.unwrap_err();
    assert!(error.is_wrong_usage() && error.to_string().contains("a whole number"), "{error}");
    assert_eq!(done, ["|"]);
}

#[test]
fn a_value_with_which_nothing_starts_is_told_before_anything_is_measured_and_put_back() {
    let (told, done) = done(&["start=1", "start=bad"], &[Some(0)], Some("start=bad"));
    assert!(told.unwrap_err().to_string().contains("it ended"));
    assert_eq!(done, ["start=1", "restart", "start=bad", "restart", "|", "start=-"]);
}

#[test]
fn what_is_refused_until_another_setting_is_put_back_is_not_told_as_changed() {
    let saved = |key: &str| vec![(key.to_owned(), "found".to_owned())];
    let former =
        |key: &str| Former::System(key.to_owned(), saved(key), leftovers::note(format!("{key} of a test")));
    let restored = |refused: &'static str| {
        let done = RefCell::new(Vec::new());
        let mut tuner = Tuner::with(&[], |key: &str, _: &str| {
            let has_scheduler = done.borrow().iter().any(|done| done == "scheduler:sdb");
            let fails = key == refused || key.starts_with("nr_requests") && !has_scheduler;
            done.borrow_mut().push(key.to_owned());
            if fails { Err(SettingError::UnknownKey { key: key.to_owned() }) } else { Ok(()) }
        });
        tuner.former = ["scheduler:sdb", "nr_requests:sdb"].map(former).into();
        let failed = tuner.restore(&mut []);
        drop(tuner);
        let failed: Vec<String> =
            failed.iter().map(|text| text.split(' ').next().unwrap().to_owned()).collect();
        (failed, done.into_inner())
    };
    let order = ["nr_requests:sdb", "scheduler:sdb", "nr_requests:sdb"].map(str::to_owned).to_vec();
    assert_eq!(restored(""), (Vec::new(), order.clone()));
    assert_eq!(restored("nr_requests:sdb"), (vec!["nr_requests:sdb".to_owned()], order));
}

#[test]
fn each_turn_of_a_scheduler_begins_with_the_number_of_requests_that_was_found_with_it() {
    // As the kernel does it: another scheduler begins with a number of its own, and the same one changes nothing.
    let drive = RefCell::new(("none".to_owned(), 64));
    let write = |key: &str, value: &str| {
        let mut drive = drive.borrow_mut();
        match key {
            "scheduler:sdb" if drive.0 != value => *drive = (value.to_owned(), 256),
            "nr_requests:sdb" => drive.1 = value.parse().unwrap(),
            _ => {}
        }
        Ok(())
    };
    let mut tuner = Tuner::with(&tried(&["os:scheduler:sdb=none", "os:scheduler:sdb=mq-deadline"]), write);
    let saved =
        [("scheduler:sdb", "none"), ("nr_requests:sdb", "64")].map(|(key, value)| (key.into(), value.into()));
    let note = leftovers::note("the scheduler of a test");
    tuner.former = vec![Former::System("scheduler:sdb".to_owned(), saved.into(), note)];
    for turn in [Some(0), Some(1), None, Some(0), Some(1), Some(0), Some(0), Some(1), Some(1)] {
        tuner.assign(turn, &mut []).unwrap();
        let wanted = if turn == Some(1) { ("mq-deadline", 256) } else { ("none", 64) };
        assert_eq!((drive.borrow().0.as_str(), drive.borrow().1), wanted, "{turn:?}");
    }
    assert_eq!(tuner.restore(&mut []), [""; 0]);
    assert_eq!(*drive.borrow(), ("none".to_owned(), 64));
}
