//! When a changed option of Ceph takes effect, as `ceph config help` says.
//!
//! Ceph says "at runtime" of all numbers that are not marked otherwise, also of some that OSDs read once (`bluestore_cache_size`).
//! Only those with the flag `runtime` surely take effect at once; after a start, all do.
//!
//! What `ceph config set` says counts only where nothing above it says otherwise: the configuration file of who reads the option,
//! its environment, its command line, or a change that was made to it while it ran.

use serde::Deserialize;

use super::Effect;

/// How values are compared that cannot be tried in turns.
const BY_HAND: &str =
    "compare reports of `coquina bench run` from before and after with `coquina bench compare`";

/// What `ceph config help OPTION --format json` prints, as far as it matters here.
#[derive(Deserialize)]
struct Help {
    can_update_at_runtime: bool,
    #[serde(default)]
    flags: Vec<String>,
}

/// Who reads the options of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// OSDs, alone or with others.
    Osds,
    /// Clients: each load is a new one.
    Clients,
    /// Other daemons.
    Others,
}

/// An entry of what `ceph config dump --format json` prints.
#[derive(Deserialize)]
struct Entry {
    section: String,
    /// `host:NAME` or `class:NAME`, if it counts for some only. Before Ceph 15 it stood in the section.
    #[serde(default)]
    mask: String,
    name: String,
    value: String,
}

impl Entry {
    /// Whether it counts for some of those for whom the section counts, in place of that one's value.
    fn is_above(&self, section: &str) -> bool {
        let is_part =
            |of: &str| self.section.strip_prefix(of).is_some_and(|rest| rest.starts_with(['.', '/']));
        let is_masked = self.section == section && !self.mask.is_empty();
        match section {
            _ if is_masked => true,
            "global" => {
                ["osd", "client"].contains(&self.section.as_str())
                    || is_part("osd")
                    || self.is_above("client")
            }
            // Load is made by this one.
            "client" => self.section == "client.admin",
            _ => is_part(section),
        }
    }
}

fn entries(dump: &str) -> Result<Vec<Entry>, String> {
    serde_json::from_str(dump).map_err(|error| {
        format!("`ceph config dump` printed something unexpected, and nothing was changed: {error}")
    })
}

/// The value that an option has in a section, if any, from what `ceph config dump` printed.
pub fn value(dump: &str, section: &str, option: &str) -> Result<Option<String>, String> {
    let all = entries(dump)?.into_iter();
    let mut found =
        all.filter(|entry| entry.section == section && entry.mask.is_empty() && entry.name == option);
    Ok(found.next().map(|entry| entry.value))
}

/// Refuses an option that has values for some of those for whom a section counts: they would go on with theirs.
pub fn check_narrower(dump: &str, section: &str, option: &str) -> Result<(), String> {
    let found = entries(dump)?.into_iter().find(|entry| entry.name == option && entry.is_above(section));
    let Some(entry) = found else { return Ok(()) };
    let mask = if entry.mask.is_empty() { String::new() } else { format!("/{}", entry.mask) };
    let owner = format!("{}{mask}", entry.section);
    Err(format!(
        "{owner} has {option} = {} of its own, above the value of {section}, which would have no effect there; nothing was \
         changed. Take it off with `ceph config rm {owner} {option}`",
        entry.value
    ))
}

/// Whether the options of a section are those of who makes load.
pub fn is_of_load(section: &str) -> bool {
    ["global", "client", "client.admin"].contains(&section)
}

/// Why an option cannot be tried that the configuration file of who makes load sets to `value`.
pub fn set_in_file(file: &str, client: &str, option: &str, value: &str) -> String {
    format!(
        "{file} sets {option} = {} for {client}, above what `ceph config set` says, which would have no effect; nothing was changed. \
         Take the line out, or try the setting there by hand: {BY_HAND}",
        value.trim()
    )
}

/// What is known of an option of a daemon, an entry of what `ceph config show osd.0 --format json` prints.
#[derive(Deserialize)]
struct Shown {
    name: String,
    value: String,
    source: String,
}

/// Refuses an option that a daemon has from elsewhere than `ceph config set`, above it, from what `ceph config show` printed. If that
/// cannot be read, nothing is known, and nothing is refused.
pub fn check_source(shown: &str, daemon: &str, option: &str) -> Result<(), String> {
    let all: Vec<Shown> = serde_json::from_str(shown).unwrap_or_default();
    let Some(found) = all.into_iter().find(|one| one.name == option) else { return Ok(()) };
    let (source, remedy) = match found.source.as_str() {
        "file" => ("its configuration file", "take the line out on its host, and start it again"),
        "env" => ("its environment", "take it out there, and start it again"),
        "cmdline" => ("its command line", "take it out there, and start it again"),
        "override" | "final" => ("a change while it ran", "start it again"),
        _ => return Ok(()),
    };
    Err(format!(
        "{daemon} has {option} = {} from {source}, above what `ceph config set` says, which would have no effect; nothing was changed. \
         For it to count, {remedy}; or try the setting there by hand: {BY_HAND}",
        found.value
    ))
}

/// Daemons that read the options of a section, by host, from what `ceph node ls --format json` printed. Those of a host have the same
/// configuration file.
pub fn daemons(nodes: &str, section: &str) -> Vec<Vec<String>> {
    let name = section.split('/').next().unwrap_or(section);
    let kind = match reader(section) {
        Reader::Clients => return Vec::new(),
        _ if name.contains('.') => return vec![vec![name.to_owned()]],
        Reader::Osds => "osd",
        Reader::Others => name,
    };
    let nodes: serde_json::Value = serde_json::from_str(nodes).unwrap_or_default();
    let hosts = nodes.get(kind).and_then(serde_json::Value::as_object).into_iter().flatten();
    let named = hosts.map(|(_, found)| {
        let found = found.as_array().into_iter().flatten();
        // OSDs have numbers, others have names.
        let names = found.map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned));
        names.map(|name| format!("{kind}.{name}")).collect::<Vec<String>>()
    });
    named.collect()
}

/// Splits `SECTION:OPTION`; the section is `osd` if none is named.
pub fn split(key: &str) -> (&str, &str) {
    key.split_once(':').unwrap_or(("osd", key))
}

/// Who reads the options of a section such as `osd`, `osd.1`, `osd/class:ssd`, `global` or `client.admin`.
pub fn reader(section: &str) -> Reader {
    match section.split(['.', '/']).next().unwrap_or(section) {
        "osd" | "global" => Reader::Osds,
        "client" => Reader::Clients,
        _ => Reader::Others,
    }
}

/// When an option takes effect, from what `ceph config help` printed, or why it cannot be tried. `is_local`: the cluster was
/// made for the run.
pub fn effect(key: &str, printed: &str, is_local: bool) -> Result<Effect, String> {
    let (section, option) = split(key);
    if option.starts_with("rbd_") && !is_of_load(section) {
        return Err(format!(
            "{option} is read by librbd in who makes load, and in {section} it has no effect; nothing was changed. Write it as \
             client:{option}"
        ));
    }
    let help: Help = serde_json::from_str(printed)
        .map_err(|error| format!("`ceph config help {option}` printed something unexpected: {error}"))?;
    if help.flags.iter().any(|flag| flag == "create" || flag == "cluster_create") {
        return Err(format!(
            "{option} counts only when an OSD or a cluster is made, so that it cannot be tried on one that is there"
        ));
    }
    let is_sure = help.flags.iter().any(|flag| flag == "runtime");
    match reader(section) {
        Reader::Clients => Ok(Effect::AtOnce),
        _ if help.can_update_at_runtime && is_sure => Ok(Effect::AtOnce),
        Reader::Osds if is_local => Ok(Effect::AtStart),
        _ if help.can_update_at_runtime => Ok(Effect::Unsure),
        Reader::Osds => Err(format!(
            "{option} is read by OSDs at their start only, and OSDs of a cluster that was not made for the run are never \
             started again; nothing was changed. Use --target ceph-local; or set it by hand (`ceph config set {section} {option} \
             VALUE`), start all OSDs again, and {BY_HAND}"
        )),
        Reader::Others => Err(format!(
            "{option} is read at the start only, and no daemons but OSDs are started again; name the section osd, client or \
             global, or set it by hand"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_some_osds_are_not_taken_for_those_of_all() {
        let dump = r#"[{"section":"osd","name":"a","value":"1","level":"advanced","mask":""},
            {"section":"osd","name":"b","value":"2","mask":"host:node1"},{"section":"osd.3","name":"c","value":"3","mask":""},
            {"section":"global","name":"d","value":"4","mask":""},{"section":"osd","name":"e","value":"5"}]"#;
        assert_eq!(value(dump, "osd", "a"), Ok(Some("1".to_owned())));
        assert_eq!(value(dump, "osd", "e"), Ok(Some("5".to_owned())));
        assert_eq!((value(dump, "osd", "d"), value(dump, "osd", "none")), (Ok(None), Ok(None)));
        assert_eq!(value(dump, "osd.3", "c"), Ok(Some("3".to_owned())));
        assert_eq!(value(dump, "osd", "b"), Ok(None), "not that of some");
        let refused = |section, option| check_narrower(dump, section, option).err().unwrap_or_default();
        let error = refused("osd", "b");
        assert!(
            error.contains("osd/host:node1 has b = 2") && error.contains("ceph config rm osd/host:node1 b"),
            "{error}"
        );
        assert!(refused("osd", "c").contains("osd.3 has c = 3"));
        assert!(
            refused("global", "a").contains("osd has a = 1") && refused("global", "c").contains("osd.3 has")
        );
        for (section, option) in
            [("osd", "a"), ("osd.3", "c"), ("osd.3", "b"), ("client", "a"), ("global", "d")]
        {
            assert_eq!(refused(section, option), "", "{section} {option}");
        }
        // On the host of the load it would count above what is set.
        let masked = r#"[{"section":"client","mask":"host:a","name":"f","value":"6"},{"section":"global","mask":"host:a","name":"g","value":"7"}]"#;
        for (section, option, owner) in [
            ("client", "f", "client/host:a"),
            ("global", "f", "client/host:a"),
            ("global", "g", "global/host:a"),
        ] {
            let error = check_narrower(masked, section, option).unwrap_err();
            assert!(error.contains(&format!("{owner} has {option} = ")), "{section}: {error}");
        }
        let ten = dump.replace("osd.3", "osd.10");
        assert_eq!(check_narrower(&ten, "osd.1", "c"), Ok(()));
        assert!(value("{}", "osd", "a").is_err(), "what is not known cannot be put back");
    }

    /// As Ceph 16.2 prints it, with the fields that tell when it takes effect.
    fn help(name: &str, can_update_at_runtime: bool, flags: &str) -> String {
        format!(
            r#"{{"name":"{name}","type":"str","level":"advanced","desc":"made up","long_desc":"","default":"a=1,b=2",
            "daemon_default":"","tags":[],"services":[],"see_also":[],"enum_values":[],"min":"","max":"",
            "can_update_at_runtime":{can_update_at_runtime},"flags":[{flags}]}}"#
        )
    }

    #[test]
    fn sections_are_told_apart() {
        assert_eq!(split("debug_ms"), ("osd", "debug_ms"));
        assert_eq!(split("client.admin:rbd_cache"), ("client.admin", "rbd_cache"));
        for (section, wanted) in [
            ("osd", Reader::Osds),
            ("osd.1", Reader::Osds),
            ("osd/class", Reader::Osds),
            ("global", Reader::Osds),
            ("client", Reader::Clients),
            ("client.admin", Reader::Clients),
            ("mon", Reader::Others),
            ("mgr.a", Reader::Others),
        ] {
            assert_eq!(reader(section), wanted, "{section}");
        }
    }

    #[test]
    fn what_takes_effect_at_once_needs_no_start() {
        let printed = help("debug_ms", true, r#""runtime""#);
        for is_local in [true, false] {
            assert_eq!(effect("osd:debug_ms", &printed, is_local), Ok(Effect::AtOnce));
            assert_eq!(effect("mon:debug_ms", &printed, is_local), Ok(Effect::AtOnce));
        }
        // Each load is a new client.
        let printed = help("rbd_cache_policy", false, "");
        assert_eq!(effect("client:rbd_cache_policy", &printed, false), Ok(Effect::AtOnce));
    }

    #[test]
    fn numbers_without_a_mark_may_be_read_once() {
        let printed = help("bluestore_cache_size", true, "");
        assert_eq!(effect("bluestore_cache_size", &printed, true), Ok(Effect::AtStart));
        assert_eq!(effect("bluestore_cache_size", &printed, false), Ok(Effect::Unsure));
        assert_eq!(effect("mon:mon_lease", &printed, true), Ok(Effect::Unsure));
        assert_eq!(effect("client:rbd_cache_size", &printed, true), Ok(Effect::AtOnce));
    }

    #[test]
    fn only_osds_that_were_made_for_the_run_are_started_again() {
        let printed = help("bluestore_rocksdb_options", false, "");
        for key in [
            "bluestore_rocksdb_options",
            "osd.0:bluestore_rocksdb_options",
            "global:bluestore_rocksdb_options",
        ] {
            assert_eq!(effect(key, &printed, true), Ok(Effect::AtStart));
            let refused = effect(key, &printed, false).unwrap_err();
            assert!(refused.contains("ceph-local") && refused.contains("nothing was changed"), "{refused}");
        }
        let refused = effect("mon:mon_rocksdb_options", &printed, true).unwrap_err();
        assert!(refused.contains("no daemons but OSDs"), "{refused}");
    }

    #[test]
    fn what_counts_when_a_store_is_made_cannot_be_tried() {
        for flag in [r#""create""#, r#""startup","cluster_create""#] {
            let refused = effect("osd:bluestore_min_alloc_size", &help("x", false, flag), true).unwrap_err();
            assert!(refused.contains("when an OSD or a cluster is made"), "{refused}");
        }
    }

    #[test]
    fn options_of_librbd_are_those_of_clients() {
        let printed = help("rbd_cache", false, "");
        for key in ["rbd_cache", "osd:rbd_cache", "client.other:rbd_cache"] {
            let refused = effect(key, &printed, true).unwrap_err();
            assert!(
                refused.contains("client:rbd_cache") && refused.contains("nothing was changed"),
                "{refused}"
            );
        }
        for key in ["client:rbd_cache", "client.admin:rbd_cache"] {
            assert_eq!(effect(key, &printed, false), Ok(Effect::AtOnce), "{key}");
        }
        assert_eq!(effect("global:rbd_cache", &printed, true), Ok(Effect::AtStart));
    }

    #[test]
    fn what_daemons_have_from_elsewhere_stands_above_the_cluster_s() {
        let shown = r#"[{"name":"bluestore_block_size","value":"8589934592","source":"file"},
            {"name":"daemonize","value":"false","source":"override"},
            {"name":"debug_ms","value":"1/1","source":"override","overrides":[{"source":"mon","value":"0/0"}]},
            {"name":"keyring","value":"$osd_data/keyring","source":"default"},
            {"name":"osd_memory_target","value":"939524096","source":"mon"},{"name":"osd_op_num_shards","value":"4","source":"cmdline"},
            {"name":"osd_op_queue","value":"wpq","source":"env"},{"name":"osd_data","value":"/osd","source":"final"}]"#;
        let refused = |option: &str| check_source(shown, "osd.1", option).err().unwrap_or_default();
        for (option, wanted) in [
            (
                "bluestore_block_size",
                "osd.1 has bluestore_block_size = 8589934592 from its configuration file, ",
            ),
            ("debug_ms", "osd.1 has debug_ms = 1/1 from a change while it ran, "),
            ("osd_op_num_shards", "osd.1 has osd_op_num_shards = 4 from its command line, "),
            ("osd_op_queue", "osd.1 has osd_op_queue = wpq from its environment, "),
            ("osd_data", "osd.1 has osd_data = /osd from a change while it ran, "),
        ] {
            let refused = refused(option);
            assert!(refused.starts_with(wanted) && refused.contains("nothing was changed"), "{refused}");
        }
        for option in ["osd_memory_target", "keyring", "bluestore_prefer_deferred_size_hdd"] {
            assert_eq!(refused(option), "", "{option}");
        }
        // A manager that knows nothing of the daemon yet prints nothing.
        for unknown in ["", "{}", "[]"] {
            assert_eq!(check_source(unknown, "osd.1", "debug_ms"), Ok(()));
        }
    }

    #[test]
    fn daemons_of_a_section_are_found_by_host() {
        let nodes = r#"{"mon":{"a":["a"]},"osd":{"a":[0,1,2],"b":[3]},"mds":{},"mgr":{"a":["x"],"b":["y"]}}"#;
        for section in ["osd", "osd/host:node.a", "global"] {
            assert_eq!(
                daemons(nodes, section),
                [vec!["osd.0", "osd.1", "osd.2"], vec!["osd.3"]],
                "{section}"
            );
        }
        assert_eq!(daemons(nodes, "mgr"), [["mgr.x"], ["mgr.y"]]);
        assert_eq!(daemons("", "osd.7"), [["osd.7"]]);
        for (nodes, section) in
            [(nodes, "mds"), (nodes, "client"), (nodes, "client.admin"), ("", "osd"), ("[]", "osd")]
        {
            assert!(daemons(nodes, section).is_empty(), "{section} of {nodes:?}");
        }
    }

    #[test]
    fn what_the_file_says_is_told_with_the_file() {
        let told = set_in_file("/etc/ceph/ceph.conf", "client.admin", "rbd_cache", "false\n");
        assert!(told.starts_with("/etc/ceph/ceph.conf sets rbd_cache = false for client.admin, "), "{told}");
        assert!(told.contains("Take the line out") && told.contains("nothing was changed"), "{told}");
    }

    #[test]
    fn what_is_no_help_is_told() {
        for printed in ["", "[]", r#"{"name":"x"}"#] {
            let refused = effect("osd:x", printed, true).unwrap_err();
            assert!(refused.contains("config help x"), "{refused}");
        }
    }
}
