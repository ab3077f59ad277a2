//! Settings on a made-up host.

use super::*;
use crate::doctor::test_host::TestHost;

fn host() -> TestHost {
    let host = TestHost::empty();
    host.hdd("sda", "8:0");
    host.file("proc/sys/vm/swappiness", "60\n");
    host.file("sys/class/net/eth0/mtu", "1500\n");
    host.file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    for core in 0..2 {
        let folder = format!("sys/devices/system/cpu/cpu{core}/cpufreq");
        host.file(&format!("{folder}/scaling_governor"), "powersave\n");
        host.file(&format!("{folder}/scaling_available_governors"), "performance powersave\n");
    }
    host.folder("sys/devices/system/cpu/cpuidle");
    host
}

#[test]
fn every_setting_is_read_written_and_put_back() {
    let host = host();
    let root = host.root();
    for (key, is, value, command) in [
        ("scheduler:sda", "none", "mq-deadline", "echo none > /sys/block/sda/queue/scheduler"),
        ("read_ahead_kb:sda", "128", "4096", "echo 128 > /sys/block/sda/queue/read_ahead_kb"),
        ("nr_requests:sda", "64", "128", "echo 64 > /sys/block/sda/queue/nr_requests"),
        ("swappiness", "60", "1", "sysctl vm.swappiness=60"),
        ("mtu:eth0", "1500", "9000", "ip link set dev eth0 mtu 1500"),
        (
            "governor",
            "powersave",
            "performance",
            "echo powersave | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        ),
    ] {
        let setting = os_setting_at(&root, key).unwrap();
        assert_eq!(setting.key(), key);
        let before = setting.read().unwrap();
        assert_eq!(before, is, "{key}");
        assert_eq!(setting.command(&before), command);
        setting.write(value).unwrap();
        assert_eq!(os_setting_at(&root, key).unwrap().read().unwrap(), value, "{key}");
    }
    let thp = os_setting_at(&root, "thp").unwrap();
    assert_eq!(thp.read().unwrap(), "madvise");
    thp.write("never").unwrap();
    assert_eq!(host.text("sys/kernel/mm/transparent_hugepage/enabled"), "never");
}

#[test]
fn values_that_the_kernel_does_not_offer_are_refused_and_nothing_is_written() {
    let host = host();
    let root = host.root();
    for (key, value, part) in [
        ("scheduler:sda", "deadline", "one of none, mq-deadline, kyber, bfq"),
        ("scheduler:sda", "", "one of"),
        ("scheduler:sda", "[none]", "one of"),
        ("read_ahead_kb:sda", "-1", "from 0 to 4294967295"),
        ("read_ahead_kb:sda", "4M", "a whole number"),
        ("nr_requests:sda", "1", "from 4 to 4294967295"),
        ("swappiness", "201", "from 0 to 200"),
        ("swappiness", "+1", "a whole number"),
        ("mtu:eth0", "1279", "from 1280 to 4294967295: below 1280 the kernel takes IPv6 from the interface"),
        ("thp", "sometimes", "one of always, madvise, never"),
        ("governor", "turbo", "one of performance, powersave"),
        ("governor", "cpu0=performance", "for all cores"),
    ] {
        let setting = os_setting_at(&root, key).unwrap();
        let before = setting.read().unwrap();
        let error = setting.write(value).unwrap_err();
        assert!(matches!(error, SettingError::BadValue { .. }), "{key} {value}: {error}");
        assert!(error.to_string().contains(part), "{error}");
        // What another host may offer is no mistake of who asks for it.
        let may_be_elsewhere = ["deadline", "sometimes", "turbo", "cpu0=performance"].contains(&value);
        assert_eq!(error.is_wrong_usage(), !may_be_elsewhere, "{key} {value}");
        assert_eq!(setting.check(value).unwrap_err().to_string(), error.to_string());
        assert_eq!(setting.read().unwrap(), before);
    }
}

#[test]
fn keys_and_parts_that_are_not_there_are_named() {
    let host = host();
    let root = host.root();
    for (key, part) in [
        ("colour", "no setting is called"),
        ("scheduler", "scheduler:DRIVE"),
        ("swappiness:sda", "no setting is called"),
        ("scheduler:sdz", "there is sda"),
        ("scheduler:", "no drive"),
        ("scheduler:../sda", "no drive"),
        ("mtu:eth9", "there is eth0"),
        ("mtu:..", "no interface"),
    ] {
        let error = os_setting_at(&root, key).unwrap_err();
        assert!(error.to_string().contains(part), "{key}: {error}");
        let is_on_no_host = ["colour", "scheduler", "swappiness:sda"].contains(&key);
        assert_eq!(error.is_wrong_usage(), is_on_no_host, "{key}: {error}");
    }
    let nothing = TestHost::empty();
    let error = os_setting_at(&nothing.root(), "governor").unwrap_err();
    assert!(matches!(error, SettingError::NotOffered { .. }), "{error}");
    let error = os_setting_at(&nothing.root(), "mtu:eth0").unwrap_err().to_string();
    assert!(error.contains("there is none"), "{error}");
}

#[test]
fn a_partition_and_a_device_path_mean_the_whole_drive() {
    let host = host();
    host.file("dev/sda1", "");
    host.link("dev/disk/by-id/some", "../../sda1");
    for key in ["scheduler:sda1", "scheduler:/dev/sda1", "scheduler:/dev/disk/by-id/some"] {
        let setting = os_setting_at(&host.root(), key).unwrap();
        assert_eq!(setting.command("bfq"), "echo bfq > /sys/block/sda/queue/scheduler", "{key}");
    }
}

#[test]
fn governors_that_differ_from_core_to_core_are_put_back_one_by_one() {
    let host = host();
    host.file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
    let setting = os_setting_at(&host.root(), "governor").unwrap();
    let before = setting.read().unwrap();
    assert_eq!(before, "cpu0=powersave,cpu1=performance");
    setting.write("performance").unwrap();
    assert_eq!(setting.read().unwrap(), "performance");
    assert_eq!(
        setting.command(&before),
        "echo powersave > /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor; \
         echo performance > /sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"
    );
    setting.write(&before).unwrap();
    assert_eq!(setting.read().unwrap(), before);
    setting.write("cpu0=performance,cpu1=performance").unwrap();
    assert_eq!(setting.read().unwrap(), "performance");
}

#[test]
fn what_this_host_offers_can_be_read_and_is_valid() {
    for key in ["swappiness", "thp", "governor"] {
        if let Ok(setting) = os_setting(key) {
            let value = setting.read().unwrap();
            assert!(setting.check(&value).is_ok(), "{key} {value}");
        }
    }
}

#[test]
fn what_the_kernel_resets_with_a_scheduler_is_put_back_with_it() {
    let host = host();
    let setting = os_setting_at(&host.root(), "scheduler:sda").unwrap();
    let saved = setting.save().unwrap();
    let expected = [("scheduler:sda", "none"), ("nr_requests:sda", "64")];
    assert_eq!(saved, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let undo = "echo none > /sys/block/sda/queue/scheduler; echo 64 > /sys/block/sda/queue/nr_requests";
    assert_eq!(setting.undo_command().unwrap(), undo);
    let swappiness = os_setting_at(&host.root(), "swappiness").unwrap();
    assert_eq!(swappiness.undo_command().unwrap(), "sysctl vm.swappiness=60");
}

/// With a drive that takes one request at a time, schedulers begin with two, which the kernel takes from nobody.
#[test]
fn so_few_requests_as_only_the_kernel_gives_are_left_as_they_are() {
    let host = host();
    host.file("sys/block/sda/queue/scheduler", "none [mq-deadline]\n");
    host.file("sys/block/sda/queue/nr_requests", "2\n");
    let root = host.root();
    let setting = os_setting_at(&root, "scheduler:sda").unwrap();
    let saved = setting.save().unwrap();
    assert_eq!(saved[1], ("nr_requests:sda".to_owned(), "2".to_owned()));
    assert_eq!(setting.undo_command().unwrap(), "echo mq-deadline > /sys/block/sda/queue/scheduler");
    // The scheduler is there again, and its two requests with it.
    for (key, value) in &saved {
        os_setting_at(&root, key).unwrap().write(value).unwrap();
    }
    assert_eq!(host.text("sys/block/sda/queue/nr_requests"), "2\n", "nothing is written");
    let requests = os_setting_at(&root, "nr_requests:sda").unwrap();
    assert!(requests.write("1").is_err() && requests.check("2").is_ok());
    let error = requests.check("64").unwrap_err();
    assert!(error.to_string().contains("give 2, as it is"), "{error}");
    assert!(!error.is_wrong_usage(), "another host takes it");
}

#[test]
fn what_the_kernel_resets_with_a_governor_is_put_back_with_it() {
    let host = host();
    let cores = "sys/devices/system/cpu";
    for core in 0..2 {
        let folder = format!("{cores}/cpu{core}/cpufreq");
        host.file(&format!("{folder}/energy_performance_preference"), "balance_power\n");
        host.file(
            &format!("{folder}/energy_performance_available_preferences"),
            "default performance balance_performance balance_power power\n",
        );
        host.file(&format!("{folder}/scaling_governor"), ["schedutil\n", "conservative\n"][core]);
        host.file(&format!("{folder}/scaling_available_governors"), "conservative schedutil performance\n");
    }
    host.file(&format!("{cores}/cpufreq/policy0/schedutil/rate_limit_us"), "500\n");
    host.file(&format!("{cores}/cpufreq/policy0/scaling_max_freq"), "1\n");
    host.file(&format!("{cores}/cpufreq/conservative/up_threshold"), "95\n");
    host.file(&format!("{cores}/cpufreq/conservative/down_threshold"), "30\n");
    host.file(&format!("{cores}/cpufreq/boost"), "1\n");
    let root = host.root();
    let setting = os_setting_at(&root, "governor").unwrap();
    let saved = setting.save().unwrap();
    let expected = [
        ("governor", "cpu0=schedutil,cpu1=conservative"),
        ("energy_performance_preference", "balance_power"),
        ("cpufreq/conservative/down_threshold", "30"),
        ("cpufreq/conservative/up_threshold", "95"),
        ("cpufreq/policy0/schedutil/rate_limit_us", "500"),
    ];
    assert_eq!(saved, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let undo = setting.undo_command().unwrap();
    for command in [
        "echo balance_power | tee /sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference",
        "echo 500 > /sys/devices/system/cpu/cpufreq/policy0/schedutil/rate_limit_us",
    ] {
        assert!(undo.contains(command), "{undo}");
    }
    setting.write("performance").unwrap();
    // As the kernel does it, then and when governors begin again.
    for core in 0..2 {
        host.file(&format!("{cores}/cpu{core}/cpufreq/energy_performance_preference"), "performance\n");
    }
    host.file(&format!("{cores}/cpufreq/policy0/schedutil/rate_limit_us"), "10000\n");
    host.file(&format!("{cores}/cpufreq/conservative/up_threshold"), "80\n");
    for (key, value) in &saved {
        os_setting_at(&root, key).unwrap().write(value).unwrap();
    }
    assert_eq!(setting.save().unwrap(), saved);
}

#[test]
fn a_preference_is_a_word_or_a_number_and_only_governors_are_tuned_along() {
    let host = host();
    let root = host.root();
    let error = os_setting_at(&root, "energy_performance_preference").unwrap_err();
    assert!(error.to_string().contains("cpu0/cpufreq/energy_performance_preference is not there"), "{error}");
    let expected = vec![("governor".to_owned(), "powersave".to_owned())];
    assert_eq!(os_setting_at(&root, "governor").unwrap().save().unwrap(), expected);
    let folder = "sys/devices/system/cpu/cpu0/cpufreq";
    host.file(&format!("{folder}/energy_performance_preference"), "128\n");
    host.file(&format!("{folder}/energy_performance_available_preferences"), "default power\n");
    let setting = os_setting_at(&root, "energy_performance_preference").unwrap();
    for value in ["power", "128", "0"] {
        setting.write(value).unwrap();
    }
    assert!(setting.write("256").unwrap_err().to_string().contains("one of default, power"));
    for key in ["cpufreq/policy0/scaling_max_freq", "cpufreq/boost", "cpufreq/../x", "cpufreq/a/b/c"] {
        let error = os_setting_at(&root, key).unwrap_err();
        assert!(matches!(error, SettingError::UnknownKey { .. }), "{key}: {error}");
    }
}

/// What the kernel shows of a drive's scheduler.
fn tunables(host: &TestHost, values: &[(&str, &str)]) {
    for (name, value) in values {
        host.file(&format!("sys/block/sda/queue/iosched/{name}"), &format!("{value}\n"));
    }
}

#[test]
fn what_was_tuned_of_a_scheduler_is_put_back_after_it() {
    let host = host();
    host.file("sys/block/sda/queue/scheduler", "none [mq-deadline] bfq\n");
    let tuned = [("read_expire", "100"), ("async_depth", "48"), ("prio_aging_expire", "10000")];
    tunables(&host, &tuned);
    // What is only shown, and what is no file, cannot be put back.
    tunables(&host, &[("shown", "1")]);
    let shown = host.root().path("/sys/block/sda/queue/iosched/shown");
    std::fs::set_permissions(shown, std::fs::Permissions::from_mode(0o444)).unwrap();
    host.folder("sys/block/sda/queue/iosched/folder");
    let setting = os_setting_at(&host.root(), "scheduler:sda").unwrap();
    let saved = setting.save().unwrap();
    let expected = [
        ("scheduler:sda", "mq-deadline"),
        ("nr_requests:sda", "64"),
        ("iosched/async_depth:sda", "48"),
        ("iosched/read_expire:sda", "100"),
        ("iosched/prio_aging_expire:sda", "10000"),
    ];
    assert_eq!(saved, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let undo = setting.undo_command().unwrap();
    let begin = "echo mq-deadline > /sys/block/sda/queue/scheduler; echo 64 > /sys/block/sda/queue/nr_requests; \
                 echo 48 > /sys/block/sda/queue/iosched/async_depth; ";
    assert!(undo.starts_with(begin), "{undo}");
    // As the kernel does it when the scheduler was another one in between.
    tunables(&host, &[("read_expire", "500"), ("async_depth", "256")]);
    for (key, value) in &saved[1..] {
        os_setting_at(&host.root(), key).unwrap().write(value).unwrap();
    }
    for (name, value) in tuned {
        assert_eq!(host.text(&format!("sys/block/sda/queue/iosched/{name}")).trim(), value);
    }
    // A number of requests changes what the scheduler makes of it.
    let requests = os_setting_at(&host.root(), "nr_requests:sda").unwrap();
    assert_eq!(requests.save().unwrap()[1..], saved[2..]);
}

#[test]
fn what_was_tuned_and_could_not_be_put_back_is_told() {
    let host = host();
    tunables(&host, &[("read_expire", "100")]);
    let setting = os_setting_at(&host.root(), "scheduler:sda").unwrap();
    let saved = setting.save().unwrap();
    assert!(setting.check_put_back(saved.clone(), "undo".to_owned()).is_ok());
    tunables(&host, &[("read_expire", "500")]);
    let error = setting.check_put_back(saved, "undo".to_owned()).unwrap_err().to_string();
    assert!(error.starts_with("iosched/read_expire:sda is \"500\" now"), "{error}");
    let tunable = os_setting_at(&host.root(), "iosched/read_expire:sda").unwrap();
    assert!(tunable.write("a b").unwrap_err().is_wrong_usage());
    host.remove("sys/block/sda/queue/iosched/read_expire");
    let error = os_setting_at(&host.root(), "iosched/read_expire:sda").unwrap_err();
    assert!(matches!(error, SettingError::NotOffered { .. }), "{error}");
    let error = os_setting_at(&host.root(), "iosched/../scheduler:sda").unwrap_err();
    assert!(matches!(error, SettingError::UnknownKey { .. }), "{error}");
}

#[test]
fn a_tunable_of_bfq_that_raises_another_is_put_back_before_it() {
    let host = host();
    tunables(&host, &[("slice_idle_us", "500"), ("slice_idle", "0"), ("strict_guarantees", "1")]);
    let setting = os_setting_at(&host.root(), "scheduler:sda").unwrap();
    let keys: Vec<String> = setting.save().unwrap().into_iter().skip(2).map(|(key, _)| key).collect();
    // The finer one of two that show the same comes last.
    assert_eq!(
        keys,
        ["iosched/strict_guarantees:sda", "iosched/slice_idle:sda", "iosched/slice_idle_us:sda"]
    );
}

#[test]
fn an_interface_without_ipv6_keeps_the_little_it_has() {
    let host = host();
    host.file("sys/class/net/eth0/mtu", "1000\n");
    let setting = os_setting_at(&host.root(), "mtu:eth0").unwrap();
    setting.write(&setting.read().unwrap()).unwrap();
    let error = setting.write("1500").unwrap_err();
    assert!(error.to_string().contains("give 1000, as it is: below 1280"), "{error}");
    // Another host takes it.
    assert!(!error.is_wrong_usage());
}

#[test]
fn the_large_frames_of_loopback_can_be_put_back() {
    let host = host();
    host.file("sys/class/net/lo/mtu", "65536\n");
    let setting = os_setting_at(&host.root(), "mtu:lo").unwrap();
    let before = setting.read().unwrap();
    setting.write("65000").unwrap();
    setting.write(&before).unwrap();
    assert_eq!(host.text("sys/class/net/lo/mtu"), "65536");
}
