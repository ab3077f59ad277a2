use super::*;

fn load() -> Load {
    Load {
        operation: Operation::RandomWrite,
        block_bytes: 4096,
        depth: 128,
        jobs: 2,
        amount: Amount::Time { warmup_s: 0.5, runtime_s: 2.0 },
        size_bytes: 1 << 30,
        rate_iops: None,
        seed: 7,
        processors: Some(vec![0, 2]),
    }
}

#[test]
fn names_that_fio_would_take_for_others_are_refused() {
    for name in ["/srv/disk", "/srv/a disk:1", "nbd://127.0.0.1:10809/x", "nbd+unix:///x?socket=/run/a%20b"] {
        assert_eq!(check_name(name), Ok(()), "{name}");
    }
    for name in [
        "/srv/vol#2",
        "/srv/vol;2",
        "/srv/${HOME}",
        "/srv/$a",
        "/srv/a\\b",
        "/srv/a\nb",
        "/srv/a ",
        " a",
        "a\tb",
        // As a name that is no text in UTF-8 would become.
        "/srv/a\u{fffd}",
    ] {
        assert!(check_name(name).unwrap_err().contains("would use something else"), "{name:?}");
    }
    assert_eq!(check_job("[global]\nfilename_format=a-$filenum\n[volume0]\nfilename=/srv/a\\:b\n"), Ok(()));
    assert!(check_job("[global]\n[volume0]\nfilename=/a\n[volume1]\nfilename=/b#c\n").is_err());
}

#[test]
fn a_seed_is_one_that_fio_can_read() {
    let seed_of = |seed: u64| {
        let made = command(&FioOptions::default(), &Load { seed, ..load() });
        let line = made.files[0].1.lines().find_map(|line| line.strip_prefix("randseed=")).map(str::to_owned);
        line.and_then(|seed| seed.parse::<i64>().ok())
    };
    assert_eq!(seed_of(7), Some(7));
    assert_eq!(seed_of(u64::MAX), Some((u64::MAX >> 2) as i64), "it has no more than 63 bits");
}

#[test]
fn a_job_file_says_what_is_asked() {
    let options = FioOptions {
        engine: "rbd".to_owned(),
        options: vec![("pool".to_owned(), "bench".to_owned())],
        volumes: vec![
            vec![("rbdname".to_owned(), "a".to_owned())],
            vec![("rbdname".to_owned(), "b".to_owned())],
        ],
        ..FioOptions::default()
    };
    let made = command(&options, &load());
    let job = &made.files[0].1;
    for line in [
        "ioengine=rbd",
        "rw=randwrite",
        "bs=4096",
        "iodepth=128",
        "numjobs=2",
        "runtime=2000ms",
        "ramp_time=500ms",
        "pool=bench",
        "[volume0]\nrbdname=a",
        "[volume1]\nrbdname=b",
        "cpus_allowed=0,2",
        "size=1073741824",
    ] {
        assert!(job.contains(line), "{line} is missing in\n{job}");
    }
    let mut changed = made.clone();
    add_options(&mut changed, &[("iodepth_batch".to_owned(), "4".to_owned())]);
    let job = &changed.files[0].1;
    assert!(job.find("iodepth_batch=4\n") < job.find("[volume0]"), "{job}");
    let fill = command(&options, &Load { amount: Amount::Fill, ..load() });
    assert!(fill.files[0].1.contains("rw=write\n") && !fill.files[0].1.contains("time_based"));
}

/// Sums of an option's values over all jobs.
fn values(job: &str, option: &str) -> Vec<u64> {
    job.lines().filter_map(|line| line.strip_prefix(option)?.strip_prefix('=')?.parse().ok()).collect()
}

/// Each job began at its place and went on for all of the volume: beyond its end, where fio made a file anew that was written full.
#[test]
fn jobs_that_go_through_a_volume_have_a_part_of_it_each() {
    let options = FioOptions {
        engine: "io_uring".to_owned(),
        volumes: vec![Vec::new(), Vec::new()],
        ..FioOptions::default()
    };
    let found = |load: &Load| {
        let job = command(&options, load).files[0].1.clone();
        ["size", "offset_increment", "offset", "io_size"].map(|option| values(&job, option))
    };
    let in_order = Load { operation: Operation::SequentialRead, jobs: 3, ..load() };
    let part = (1 << 30) / 3 / 4096 * 4096;
    assert_eq!(found(&in_order), [vec![part], vec![part], vec![], vec![]]);
    let bytes = Load { amount: Amount::Bytes(6 << 20), ..in_order.clone() };
    assert_eq!(found(&bytes), [vec![part], vec![part], vec![], vec![1 << 20]], "of all jobs together");
    let whole = [vec![1 << 30], vec![], vec![], vec![]];
    for load in [
        Load { jobs: 1, ..in_order.clone() },
        Load { amount: Amount::Fill, ..in_order.clone() },
        Load { operation: Operation::RandomRead, ..in_order.clone() },
    ] {
        assert_eq!(found(&load), whole, "{load:?}");
    }
    let tiny = Load { size_bytes: 8192, ..in_order };
    assert_eq!(found(&tiny)[..2], [vec![8192], vec![]], "less than an operation for each");
}

#[test]
fn figures_come_from_its_json() {
    let printed = r#"fio: a warning
{"jobs": [{"jobname": "volume0", "error": 0,
 "read": {"total_ios": 0, "io_bytes": 0, "iops": 0.0, "runtime": 0, "lat_ns": {"min": 0, "max": 0, "mean": 0.0}},
 "write": {"total_ios": 1000, "io_bytes": 4096000, "iops": 500.0, "runtime": 2000,
  "lat_ns": {"min": 1, "max": 90000, "mean": 2000.0, "bins": {"1000": 900, "80000": 100}}}}]}
fio: another one"#;
    let outcome = read(printed, "999500, 400, 1, 0, 0\n1000001, 600, 1, 0, 0\n999501, 100, 1, 0, 0\n1000001, 100, 1, 0, 0\n1000501, 7, 1, 0, 0\n", None).unwrap();
    assert_eq!(outcome.total.operations, 1000);
    assert_eq!(outcome.total.bytes_per_s, 2_048_000.0);
    assert!((80000..81000).contains(&outcome.total.latency_ns_p99), "{}", outcome.total.latency_ns_p99);
    assert_eq!(outcome.series, [500.0, 700.0]);
    assert_eq!(outcome.began_unix_ms, Some(999_000));
    assert_eq!((outcome.read, outcome.errors), (None, 0));
    assert!(read("no JSON at all", "", None).is_err());
    assert!(read("{\"jobs\": []}", "", None).is_err());
}

#[test]
fn series_of_garbage_is_empty() {
    assert_eq!(read_series("a, b\n\n1\n", 2.0, 2000), (None, Vec::new()));
}

#[test]
fn what_did_nothing_for_a_while_is_a_zero_in_the_series() {
    let series = |lines: &[(u64, u32)], measured_s: f64| {
        let text: String =
            lines.iter().map(|(at_ms, iops)| format!("{at_ms}, {iops}, 0, 4096, 0\n")).collect();
        read_series(&text, measured_s, (measured_s * 1e3) as u64).1
    };
    let whole = [(500, 10), (1000, 11), (1500, 12), (2000, 13)];
    assert_eq!(series(&whole, 2.0), [10.0, 11.0, 12.0, 13.0]);
    assert_eq!(series(&whole, 2.4), [10.0, 11.0, 12.0, 13.0], "the rest was no whole interval");
    // All stall.
    assert_eq!(series(&[whole[0], whole[3]], 2.0), [10.0, 0.0, 0.0, 13.0]);
    assert_eq!(series(&whole[..2], 2.0), [10.0, 11.0, 0.0], "the last one may not have been written");
    // One of two jobs stalls, in the middle and in the beginning.
    let two = |left_out: usize| {
        let mut lines = [whole, whole].concat();
        lines.remove(left_out);
        series(&lines, 2.0)
    };
    assert_eq!(two(1), [20.0, 11.0, 24.0, 26.0]);
    assert_eq!(two(0), [10.0, 22.0, 24.0, 26.0]);
    assert_eq!(two(3), [20.0, 22.0, 24.0], "not whole for both");
    assert_eq!(series(&[(500, 1), (9_000_000_000, 1)], 2.0), [1.0, 0.0, 0.0], "the clock was set");
}

#[test]
fn who_did_nothing_at_first_is_not_said_to_have_begun_late() {
    // Two of 2 s, both from 10,000 ms on: fio prints its figures soon after 12,000 ms, and often has no line of the last interval.
    let printed = |at_ms: u64| {
        format!(
            r#"{{"timestamp_ms": {at_ms}, "jobs": [{{"jobname": "volume0", "error": 0,
 "read": {{"total_ios": 100, "io_bytes": 409600, "iops": 50.0, "runtime": 2001, "lat_ns": {{"mean": 2000.0}}}},
 "write": {{"total_ios": 0, "io_bytes": 0, "iops": 0.0, "runtime": 0, "lat_ns": {{}}}}}}]}}"#
        )
    };
    let of = |at_ms: u64, ends_ms: &[u64]| {
        let log: String = ends_ms.iter().map(|at_ms| format!("{at_ms}, 50, 0, 0, 0\n")).collect();
        read(&printed(at_ms), &log, Some(2.0)).unwrap()
    };
    let began = |at_ms, ends_ms: &[u64]| of(at_ms, ends_ms).began_unix_ms;
    let whole = [10_500, 11_001, 11_500, 12_000];
    assert_eq!(began(12_070, &whole), Some(10_000));
    assert_eq!(began(12_015, &whole[..3]), Some(10_000));
    assert_eq!(began(12_070, &whole[1..]), None, "it was printed 0.4 s before the end of that");
    assert_eq!(began(12_070, &whole[1..3]), None);
    // Of the load of other hosts fio does not say when it printed.
    assert_eq!(began(0, &whole[..3]), Some(10_000));
    assert_eq!(began(0, &whole[1..3]), None, "two of four intervals");
    assert_eq!(began(0, &whole[2..]), None);
    assert_eq!(began(0, &[10_500, 9_000_000]), None, "the clock was set");
    let skew_s = |second: &[u64]| Outcome::merge(vec![of(12_070, &whole), of(12_070, second)]).skew_s;
    assert_eq!((skew_s(&whole), skew_s(&whole[1..])), (Some(0.0), None));
}

/// What fio 3.33 printed for one and for two hosts, each `fio --server`, without what is not read.
const ONE_CLIENT: &str = include_str!("one_client.json");
const TWO_CLIENTS: &str = include_str!("two_clients.json");

#[test]
fn hosts_are_counted_once() {
    let two = read(TWO_CLIENTS, "", None).unwrap();
    assert_eq!(two.total.operations, 13 + 12, "and not those of all clients once more");
    assert!((two.total.iops - 24.975).abs() < 0.001, "{}", two.total.iops);
    assert_eq!(two.told_bytes_per_s, 53194.0 + 49102.0);
    assert_eq!(two.total.latency_histogram.iter().map(|(_, count)| count).sum::<u64>(), 25);
    assert_eq!(two.measured_s, 1.001);
    // Two jobs of one host are one group.
    let one = read(ONE_CLIENT, "", None).unwrap();
    assert_eq!(one.total.operations, 24);
    assert_eq!(one.total.latency_ns_mean, 388_743.625);
}

#[test]
fn the_busiest_host_is_told() {
    assert_eq!(read(TWO_CLIENTS, "", None).unwrap().busiest_host, None, "it says nothing of processors here");
    let with = |text: &str| read(&TWO_CLIENTS.replacen("\"error\": 0,", text, 1), "", None).unwrap();
    let one = with("\"error\": 0, \"usr_cpu\": 60.5, \"sys_cpu\": 36.5,");
    let busiest = one.busiest_host.clone().unwrap();
    assert_eq!((busiest.host.as_str(), busiest.thread_cores), ("127.0.0.1", 0.97));
    let other = with("\"error\": 0, \"usr_cpu\": 10, \"sys_cpu\": 20,");
    assert_eq!(super::Outcome::merge(vec![other, one]).busiest_host, Some(busiest));
}

#[test]
fn each_job_has_a_log_of_its_own() {
    let made = command(&FioOptions::default(), &load());
    assert!(made.files[0].1.contains("per_job_logs=1\n"), "{}", made.files[0].1);
}

/// What fio prints of a job that only writes, with these figures.
fn printed_writes(figures: &str) -> String {
    let idle = r#""total_ios": 0, "io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "runtime": 0, "lat_ns": {"min": 0, "max": 0, "mean": 0.0}"#;
    format!(
        r#"{{"jobs": [{{"jobname": "volume0", "error": 0, "read": {{{idle}}}, "write": {{{figures}}}}}]}}"#
    )
}

#[test]
fn what_it_says_of_its_bandwidth_is_kept() {
    // 100 operations of 4 KiB were counted in 2 s, and 28 more ended when it was over.
    let printed = printed_writes(
        r#""total_ios": 100, "io_bytes": 524288, "bw_bytes": 262144, "iops": 50.0, "runtime": 2000,
           "lat_ns": {"min": 1, "max": 9000, "mean": 2000.0, "bins": {"1000": 128}}"#,
    );
    let outcome = read(&printed, "", None).unwrap();
    assert_eq!(outcome.total.bytes_per_s, 50.0 * 4096.0);
    assert_eq!(outcome.told_bytes_per_s, 262_144.0);
}

#[test]
fn time_in_which_the_last_operations_end_is_not_measured() {
    // A queue of 64 that is served one after the other, 640 per second: at the end of 1.2 s fio begins no more, and is done 0.1 s later.
    let printed = printed_writes(
        r#""total_ios": 768, "io_bytes": 3407872, "bw_bytes": 2621440, "iops": 590.769231, "runtime": 1300,
           "lat_ns": {"min": 1, "max": 100000000, "mean": 100000000.0, "bins": {"100000000": 832}}"#,
    );
    let outcome = read(&printed, "", Some(1.2)).unwrap();
    assert_eq!((outcome.total.iops, outcome.measured_s), (640.0, 1.2));
    assert_eq!(outcome.total.bytes_per_s, 640.0 * 4096.0);
    // All that it moved, those in flight at the end included, in the time that was measured.
    assert!((outcome.told_bytes_per_s - 832.0 * 4096.0 / 1.2).abs() < 1.0, "{}", outcome.told_bytes_per_s);
    // Who ended before its time, or was not to work for a time, is believed.
    for runtime_s in [None, Some(2.0)] {
        let outcome = read(&printed, "", runtime_s).unwrap();
        assert_eq!((outcome.total.iops, outcome.measured_s), (590.769_231, 1.3));
        assert_eq!(outcome.told_bytes_per_s, 2_621_440.0);
    }
}

#[test]
fn when_it_began_is_known_of_one_whose_last_operations_end_late() {
    let printed = printed_writes(
        r#""total_ios": 200, "io_bytes": 1343488, "iops": 60.606, "runtime": 3300,
           "lat_ns": {"min": 1, "max": 1300000000, "mean": 1280000000.0, "bins": {"1280000000": 328}}"#,
    );
    let lines = (1..=6).map(|line| format!("{}, 100, 1, 0, 0\n", 1_000_000 + line * 500));
    let outcome = read(&printed, &lines.collect::<String>(), Some(2.0)).unwrap();
    assert_eq!((outcome.measured_s, outcome.began_unix_ms), (2.0, Some(1_000_000)));
}

#[test]
fn a_run_that_goes_on_for_too_long_counts_as_long() {
    let printed = printed_writes(
        r#""total_ios": 11400, "io_bytes": 46825472, "bw_bytes": 27544395, "iops": 6705.882, "runtime": 1700,
           "lat_ns": {"min": 1, "max": 60000000, "mean": 4740000.0, "bins": {"4740000": 11432}}"#,
    );
    let outcome = read(&printed, "", Some(1.2)).unwrap();
    assert!((outcome.measured_s - 1.64).abs() < 1e-9, "{}", outcome.measured_s);
    assert!(
        (outcome.total.iops * outcome.total.latency_ns_mean / 1e9 - 32.0).abs() < 1.5,
        "{}",
        outcome.total.iops
    );
}
