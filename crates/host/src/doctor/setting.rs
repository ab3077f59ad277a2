//! Settings of the operating system that can be read, changed and put back.
//!
//! Invariants:
//! - what [`OsSetting::read`] gives, [`OsSetting::write`] takes, so whoever changes a setting can put it back;
//! - a value that the kernel does not offer is refused before anything is written;
//! - what the kernel changes along with a setting is saved and put back with it;
//! - a write is read back, and one that the kernel took differently is put back.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::place::whole_drive;
use super::root::HostRoot;

/// The keys, for people.
pub const SETTING_KEYS: &str = "scheduler:DRIVE, iosched/NAME:DRIVE, read_ahead_kb:DRIVE, nr_requests:DRIVE, swappiness, \
                                governor, energy_performance_preference, cpufreq/GOVERNOR/NAME, mtu:INTERFACE, thp";

/// Where the kernel has its own bound, it is the one to refuse what is too large: what it shows can always be put back.
const NUMBER_MAX: u64 = u32::MAX as u64;

/// With less the kernel takes IPv6 from an interface, and its addresses do not come back when it has more again.
const MTU_MIN: u64 = 1280;

/// The kernel takes no less, though a scheduler begins with twice what the drive takes at once, which may be one.
const REQUESTS_MIN: u64 = 4;

/// What sets the frequency of each core, and how much of that is left to the processor itself.
const GOVERNOR: &str = "scaling_governor";
const PREFERENCE: &str = "energy_performance_preference";

/// Why a setting cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// No setting has this key.
    #[error("no setting is called {key:?}; there are {SETTING_KEYS}")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// The drive or interface is not there.
    #[error("there is no {kind} {name:?} on this host; there is {there}")]
    NoSuchPart {
        /// `drive` or `interface`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Those that are there.
        there: String,
    },
    /// The kernel does not have it here.
    #[error(
        "{key} cannot be set on this host: {path} is not there; in a virtual machine or a container, set it on the host \
         below"
    )]
    NotOffered {
        /// The key.
        key: String,
        /// The missing file.
        path: String,
    },
    /// The value is none that the kernel offers.
    #[error("{key} cannot be {value:?}; give {offered}")]
    BadValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// No host takes it.
        is_malformed: bool,
        /// What may be given.
        offered: String,
    },
    /// Only root may.
    #[error("only root may change {key} ({path}); run it as root, for example with sudo")]
    NeedsRoot {
        /// The key.
        key: String,
        /// The file.
        path: String,
    },
    /// `/proc` or `/sys` is mounted read-only.
    #[error(
        "{path} is read-only here, as in a container without privileges; change {key} on the host itself"
    )]
    ReadOnly {
        /// The key.
        key: String,
        /// The file.
        path: String,
    },
    /// It cannot be read.
    #[error("cannot read {key} from {path}: {source}; look at the file by hand")]
    Read {
        /// The key.
        key: String,
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel said no.
    #[error(
        "the kernel refused {value:?} for {key} ({path}): {source}; it is as it was; try a value nearer to that"
    )]
    Refused {
        /// The key.
        key: String,
        /// The file.
        path: String,
        /// The value.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// The change failed, and putting back what was changed already failed, too.
    #[error("{key} is {is:?} now and could not be put back to {before:?}; as root: {command}")]
    NotPutBack {
        /// The key.
        key: String,
        /// The value before.
        before: String,
        /// The value now.
        is: String,
        /// What puts it back.
        command: String,
    },
    /// The kernel made something else of it.
    #[error(
        "{key} became {became:?} and not {value:?}; the value before was put back; give {became:?} if that will do"
    )]
    NotTaken {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What was read back.
        became: String,
    },
}

impl SettingError {
    /// Whether what was asked for is wrong on any host, rather than on this one.
    pub fn is_wrong_usage(&self) -> bool {
        matches!(self, SettingError::UnknownKey { .. } | SettingError::BadValue { is_malformed: true, .. })
    }
}

/// A setting that is there on a host.
#[derive(Clone, Debug)]
pub struct OsSetting {
    root: HostRoot,
    key: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// One of several words; the file shows the chosen one in brackets.
    Choice(String),
    /// One word, of which only the kernel can say whether it will do.
    Word(String),
    /// A whole number.
    Number { path: String, min: u64, max: u64, command: NumberCommand },
    /// A word for each core, in files of the same name.
    EachCore { file: &'static str, paths: Vec<String> },
}

#[derive(Clone, Debug)]
enum NumberCommand {
    Echo,
    Sysctl(&'static str),
    Mtu(String),
}

/// A setting of this host.
pub fn os_setting(key: &str) -> Result<OsSetting, SettingError> {
    os_setting_at(&HostRoot::here(), key)
}

/// A setting of a host.
pub fn os_setting_at(root: &HostRoot, key: &str) -> Result<OsSetting, SettingError> {
    let (name, part) = key.split_once(':').map_or((key, None), |(name, part)| (name, Some(part)));
    let unknown = || SettingError::UnknownKey { key: key.to_owned() };
    let drive_file = |file: &str| -> Result<String, SettingError> {
        Ok(format!("/sys/block/{}/queue/{file}", drive(root, part.ok_or_else(unknown)?)?))
    };
    let number = |path: String, min, max| Kind::Number { path, min, max, command: NumberCommand::Echo };
    let kind = match (name, part) {
        ("scheduler", Some(_)) => Kind::Choice(drive_file("scheduler")?),
        (tunable, Some(_)) if tunable.strip_prefix("iosched/").is_some_and(is_plain_name) => {
            Kind::Word(drive_file(tunable)?)
        }
        ("read_ahead_kb", Some(_)) => number(drive_file("read_ahead_kb")?, 0, NUMBER_MAX),
        ("nr_requests", Some(_)) => number(drive_file("nr_requests")?, REQUESTS_MIN, NUMBER_MAX),
        ("mtu", Some(part)) => {
            let interface = interface(root, part)?;
            let path = format!("/sys/class/net/{interface}/mtu");
            // One that has less keeps it: what it has could not be put back.
            let less = root.number(&path).filter(|is| *is < MTU_MIN);
            let (min, max) = less.map_or((MTU_MIN, NUMBER_MAX), |is| (is, is));
            Kind::Number { path, min, max, command: NumberCommand::Mtu(interface) }
        }
        ("swappiness", None) => {
            let path = "/proc/sys/vm/swappiness".to_owned();
            Kind::Number { path, min: 0, max: 200, command: NumberCommand::Sysctl("vm.swappiness") }
        }
        ("thp", None) => Kind::Choice("/sys/kernel/mm/transparent_hugepage/enabled".to_owned()),
        ("governor", None) => Kind::EachCore { file: GOVERNOR, paths: core_files(root, GOVERNOR) },
        (PREFERENCE, None) => Kind::EachCore { file: PREFERENCE, paths: core_files(root, PREFERENCE) },
        (tunable, None) if is_of_governor(tunable) => {
            Kind::Word(format!("/sys/devices/system/cpu/{tunable}"))
        }
        _ => return Err(unknown()),
    };
    let setting = OsSetting { root: root.clone(), key: key.to_owned(), kind };
    let path =
        setting.paths().next().map(str::to_owned).unwrap_or_else(|| core_file("cpu0", setting.core_file()));
    if !root.has(&path) {
        return Err(SettingError::NotOffered { key: key.to_owned(), path });
    }
    Ok(setting)
}

/// The whole drive that a name, a device path or a partition means.
fn drive(root: &HostRoot, part: &str) -> Result<String, SettingError> {
    let real = part.starts_with("/dev/").then(|| root.real(Path::new(part)));
    let name = real.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or(part);
    let found = is_plain_name(name).then(|| whole_drive(root, name)).flatten();
    found.ok_or_else(|| no_such_part(root, "drive", part, "/sys/block"))
}

fn interface(root: &HostRoot, part: &str) -> Result<String, SettingError> {
    let is_there = is_plain_name(part) && root.has(&format!("/sys/class/net/{part}"));
    if is_there { Ok(part.to_owned()) } else { Err(no_such_part(root, "interface", part, "/sys/class/net")) }
}

/// A name that stays in its folder and needs no quotes in a shell.
fn is_plain_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.:@!".contains(letter);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain)
}

fn no_such_part(root: &HostRoot, kind: &'static str, name: &str, folder: &str) -> SettingError {
    let mut there = root.names(folder).join(", ");
    if there.is_empty() {
        there = "none".to_owned();
    }
    SettingError::NoSuchPart { kind, name: name.to_owned(), there }
}

/// A core's file of this name.
fn core_file(core: &str, file: &str) -> String {
    format!("/sys/devices/system/cpu/{core}/cpufreq/{file}")
}

/// The files of this name that cores have.
fn core_files(root: &HostRoot, file: &str) -> Vec<String> {
    let cores = root.names("/sys/devices/system/cpu").into_iter().filter(|name| is_core(name));
    cores.map(|core| core_file(&core, file)).filter(|file| root.has(file)).collect()
}

/// Whether it is `cpufreq/GOVERNOR/NAME`, or the same of some of the cores only: `cpufreq/policy0/GOVERNOR/NAME`.
fn is_of_governor(key: &str) -> bool {
    match key.split('/').collect::<Vec<_>>().as_slice() {
        ["cpufreq", governor, name] => !is_policy(governor) && is_plain_name(governor) && is_plain_name(name),
        ["cpufreq", policy, governor, name] => {
            is_policy(policy) && is_plain_name(governor) && is_plain_name(name)
        }
        _ => false,
    }
}

fn is_policy(name: &str) -> bool {
    is_numbered(name, "policy")
}

fn is_core(name: &str) -> bool {
    is_numbered(name, "cpu")
}

fn is_numbered(name: &str, kind: &str) -> bool {
    let digits = name.strip_prefix(kind).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// The core of such a file.
fn core_of(path: &str) -> &str {
    path.split('/').find(|part| is_core(part)).unwrap_or_default()
}

/// The word in brackets, or all of it where there are none.
pub(super) fn chosen(text: &str) -> &str {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(word, _)| word).trim()
}

/// All words that a file offers.
pub(super) fn offered(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect()
}

impl OsSetting {
    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its value now. A governor that differs from core to core is `cpu0=NAME,cpu1=NAME`.
    pub fn read(&self) -> Result<String, SettingError> {
        if let Kind::EachCore { paths, .. } = &self.kind {
            let names = paths.iter().map(|path| self.file(path)).collect::<Result<Vec<_>, _>>()?;
            let first = names.first().cloned().unwrap_or_default();
            if names.iter().all(|name| *name == first) {
                return Ok(first);
            }
            let each = paths.iter().zip(&names).map(|(path, name)| format!("{}={name}", core_of(path)));
            return Ok(each.collect::<Vec<_>>().join(","));
        }
        let path = self.paths().next().unwrap_or_default();
        let text = self.file(path)?;
        Ok(chosen(&text).to_owned())
    }

    /// Keys and values of now: written in this order, they put back this setting and what the kernel resets with it.
    pub fn save(&self) -> Result<Vec<(String, String)>, SettingError> {
        let mut saved = vec![(self.key.clone(), self.read()?)];
        for key in self.keys_along() {
            let value = os_setting_at(&self.root, &key)?.read()?;
            saved.push((key, value));
        }
        Ok(saved)
    }

    /// Keys of what the kernel sets anew along with this setting, in the order in which they can be written.
    fn keys_along(&self) -> Vec<String> {
        if self.key == "governor" {
            return self.keys_along_governor();
        }
        let Some((name @ ("scheduler" | "nr_requests"), drive)) = self.key.split_once(':') else {
            return Vec::new();
        };
        let path = self.paths().next().unwrap_or_default();
        let queue = path.rsplit_once('/').map_or("", |(queue, _)| queue);
        // Another scheduler begins with its own number of requests, and of that number mq-deadline makes its `async_depth`.
        let has_requests = name == "scheduler" && self.root.has(&format!("{queue}/nr_requests"));
        let requests = has_requests.then(|| format!("nr_requests:{drive}"));
        let tunables = tunables(&self.root, &format!("{queue}/iosched")).into_iter();
        requests.into_iter().chain(tunables.map(|tunable| format!("iosched/{tunable}:{drive}"))).collect()
    }

    /// With the governor `performance` drivers that leave the frequency to the processor set what it is to prefer, and what was tuned of a
    /// governor is gone as soon as no core has it.
    fn keys_along_governor(&self) -> Vec<String> {
        const FOLDER: &str = "/sys/devices/system/cpu/cpufreq";
        let preference = os_setting_at(&self.root, PREFERENCE).ok().filter(|preference| {
            preference.paths().all(|path| can_be_put_back(&self.root, path)) && preference.read().is_ok()
        });
        let mut governors: Vec<String> = self.paths().filter_map(|path| self.file(path).ok()).collect();
        governors.sort();
        governors.dedup();
        let policies = self.root.names(FOLDER).into_iter().filter(|name| is_policy(name));
        let folders: Vec<String> = std::iter::once("cpufreq".to_owned())
            .chain(policies.map(|policy| format!("cpufreq/{policy}")))
            .flat_map(|above| governors.iter().map(move |governor| format!("{above}/{governor}")))
            .collect();
        let of_folder = |folder: &String| {
            let names = tunables(&self.root, &format!("/sys/devices/system/cpu/{folder}")).into_iter();
            names.map(|name| format!("{folder}/{name}")).filter(|key| is_of_governor(key)).collect::<Vec<_>>()
        };
        let preference = preference.map(|preference| preference.key).into_iter();
        preference.chain(folders.iter().flat_map(of_folder)).collect()
    }

    /// The commands of a shell that put back what is set now; need root.
    pub fn undo_command(&self) -> Result<String, SettingError> {
        self.commands(&self.save()?)
    }

    /// The commands that write what was saved.
    fn commands(&self, saved: &[(String, String)]) -> Result<String, SettingError> {
        // So few requests come with the scheduler, and kernels raise them or refuse them where they are written.
        let comes_alone = |key: &str, value: &str| key != self.key && has_too_few_requests(key, value);
        let commands = saved.iter().filter(|(key, value)| !comes_alone(key, value));
        let commands = commands.map(|(key, value)| Ok(os_setting_at(&self.root, key)?.command(value)));
        Ok(commands.collect::<Result<Vec<_>, SettingError>>()?.join("; "))
    }

    /// Sets it, and reads it back. On an error it is as it was before.
    pub fn write(&self, value: &str) -> Result<(), SettingError> {
        // As it is already, whether or not it could be set to that; a scheduler that is set again would lose what was tuned of it.
        if self.read().is_ok_and(|is| is == value) {
            return Ok(());
        }
        let writes = self.writes(value)?;
        let is_so =
            |(path, word): &(String, String)| self.file(path).ok().as_deref().map(chosen) == Some(word);
        if writes.iter().all(is_so) {
            return Ok(());
        }
        let saved = self.save()?;
        // Beforehand: with another scheduler, what was tuned of this one is not there.
        let undo = self.commands(&saved)?;
        // A core whose governor is `performance` refuses each other preference, and keeps its own.
        let mut different = writes.iter().filter(|write| !is_so(write));
        let mut result = different.try_for_each(|(path, word)| self.write_file(path, word, value));
        if result.is_ok() {
            let became = self.read()?;
            // A governor given for each core may turn out to be the same for all.
            if !writes.iter().all(is_so) {
                let (key, value) = (self.key.clone(), value.to_owned());
                result = Err(SettingError::NotTaken { key, value, became });
            }
        }
        if result.is_err() {
            self.put_back(&saved);
            self.check_put_back(saved, undo)?;
        }
        result
    }

    /// Puts back what was saved. Whether that worked is seen by what is read then.
    fn put_back(&self, saved: &[(String, String)]) {
        for (key, value) in saved {
            if *key != self.key {
                let _ = os_setting_at(&self.root, key).and_then(|setting| setting.write(value));
                continue;
            }
            for (path, word) in self.writes(value).unwrap_or_default() {
                let _ = self.write_file(&path, &word, value);
            }
        }
    }

    /// Tells the first of what was saved that is something else now.
    fn check_put_back(&self, saved: Vec<(String, String)>, command: String) -> Result<(), SettingError> {
        for (key, before) in saved {
            let is = os_setting_at(&self.root, &key)?.read()?;
            if is != before {
                return Err(SettingError::NotPutBack { key, before, is, command });
            }
        }
        Ok(())
    }

    /// The command of a shell that sets it; needs root.
    pub fn command(&self, value: &str) -> String {
        match &self.kind {
            Kind::Number { command: NumberCommand::Sysctl(name), .. } => format!("sysctl {name}={value}"),
            Kind::Number { command: NumberCommand::Mtu(interface), .. } => {
                format!("ip link set dev {interface} mtu {value}")
            }
            Kind::Number { path, .. } | Kind::Choice(path) | Kind::Word(path) => {
                format!("echo {value} > {path}")
            }
            Kind::EachCore { file, .. } if !value.contains('=') => {
                format!("echo {value} | tee {}", core_file("cpu*", file))
            }
            Kind::EachCore { paths, .. } => {
                let words = each_core(value);
                let commands = paths.iter().filter_map(|path| {
                    let (_, word) = words.iter().find(|(core, _)| *core == core_of(path))?;
                    Some(format!("echo {word} > {path}"))
                });
                commands.collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// Refuses a value that it cannot have here, and any other where what it has could not be put back. Changes nothing.
    pub fn check(&self, value: &str) -> Result<(), SettingError> {
        let is = self.read()?;
        if is == value {
            return Ok(());
        }
        self.writes(value)?;
        if has_too_few_requests(&self.key, &is) {
            let offered = format!(
                "{is}, as it is: the kernel takes no less than {REQUESTS_MIN}, and could not put it back"
            );
            let (key, value) = (self.key.clone(), value.to_owned());
            return Err(SettingError::BadValue { key, value, is_malformed: false, offered });
        }
        Ok(())
    }

    /// Checks a value, and says what to write where.
    fn writes(&self, value: &str) -> Result<Vec<(String, String)>, SettingError> {
        // What is no word is offered by no kernel.
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        };
        let bad = |offered: String| SettingError::BadValue {
            key: self.key.clone(),
            value: value.to_owned(),
            is_malformed: match &self.kind {
                // One that stays as it is would take others elsewhere.
                Kind::Number { min, max, .. } => min < max,
                Kind::Word(_) => true,
                Kind::Choice(_) => !is_word(value),
                Kind::EachCore { .. } => value.split([',', '=']).any(|word| !is_word(word)),
            },
            offered,
        };
        match &self.kind {
            Kind::Choice(path) => {
                let words = offered(&self.file(path)?);
                let is_offered = words.iter().any(|word| word == value);
                let one_of = || bad(format!("one of {}", words.join(", ")));
                is_offered.then(|| vec![(path.clone(), value.to_owned())]).ok_or_else(one_of)
            }
            Kind::Word(path) if is_word(value) => Ok(vec![(path.clone(), value.to_owned())]),
            Kind::Word(_) => Err(bad("a number or another word".to_owned())),
            Kind::Number { path, min, max, command } => {
                let is_plain = !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_digit());
                let number =
                    value.parse::<u64>().ok().filter(|number| is_plain && (min..=max).contains(&number));
                let range = match min < max {
                    true => format!("a whole number from {min} to {max}"),
                    false => format!("{min}, as it is"),
                };
                let why = match command {
                    NumberCommand::Mtu(_) => format!(
                        ": below {MTU_MIN} the kernel takes IPv6 from the interface, and its addresses do not come back"
                    ),
                    NumberCommand::Echo | NumberCommand::Sysctl(_) => String::new(),
                };
                let number = number.ok_or_else(|| bad(range + &why))?;
                Ok(vec![(path.clone(), number.to_string())])
            }
            Kind::EachCore { file, paths } => {
                let words = each_core(value);
                let mut writes = Vec::new();
                for path in paths {
                    let list = match *file {
                        PREFERENCE => path.replace(PREFERENCE, "energy_performance_available_preferences"),
                        _ => path.replace(GOVERNOR, "scaling_available_governors"),
                    };
                    let mut governors = offered(&self.root.text(&list).unwrap_or_default());
                    // A kernel that lists none still has the one in use.
                    governors.extend(self.file(path));
                    governors.dedup();
                    let word = match words.as_slice() {
                        [] => Some(value),
                        words => words.iter().find(|(core, _)| *core == core_of(path)).map(|(_, word)| *word),
                    };
                    // A preference may be a number as well.
                    let is_number = |word: &str| *file == PREFERENCE && word.parse::<u8>().is_ok();
                    let word = word
                        .filter(|word| governors.iter().any(|governor| governor == word) || is_number(word));
                    let one_of = || {
                        bad(format!(
                            "one of {}, or cpu0=NAME,cpu1=NAME,... for all cores",
                            governors.join(", ")
                        ))
                    };
                    writes.push((path.clone(), word.ok_or_else(one_of)?.to_owned()));
                }
                Ok(writes)
            }
        }
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        let (one, many) = match &self.kind {
            Kind::Choice(path) | Kind::Word(path) | Kind::Number { path, .. } => (Some(path), [].as_slice()),
            Kind::EachCore { paths, .. } => (None, paths.as_slice()),
        };
        one.into_iter().chain(many).map(String::as_str)
    }

    /// The name of the file that each core would have.
    fn core_file(&self) -> &'static str {
        if let Kind::EachCore { file, .. } = &self.kind { file } else { GOVERNOR }
    }

    fn file(&self, path: &str) -> Result<String, SettingError> {
        let text = std::fs::read_to_string(self.root.path(path));
        text.map(|text| text.trim().to_owned()).map_err(|source| SettingError::Read {
            key: self.key.clone(),
            path: path.to_owned(),
            source,
        })
    }

    fn write_file(&self, path: &str, word: &str, value: &str) -> Result<(), SettingError> {
        let file = std::fs::OpenOptions::new().write(true).truncate(true).open(self.root.path(path));
        // One write: the kernel takes each as a value of its own.
        let written = file.and_then(|mut file| file.write_all(word.as_bytes()));
        let (key, path) = (self.key.clone(), path.to_owned());
        written.map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => SettingError::NeedsRoot { key, path },
            io::ErrorKind::ReadOnlyFilesystem => SettingError::ReadOnly { key, path },
            _ => SettingError::Refused { key, path, value: value.to_owned(), source },
        })
    }
}

/// Whether it is a number of requests that the kernel gives a drive, and takes from nobody.
fn has_too_few_requests(key: &str, value: &str) -> bool {
    key.starts_with("nr_requests:") && value.parse::<u64>().is_ok_and(|requests| requests < REQUESTS_MIN)
}

/// Names of what can be tuned in a folder of a scheduler or governor, in the order in which they can be written.
fn tunables(root: &HostRoot, folder: &str) -> Vec<String> {
    let mut tunables = root.names(folder);
    tunables.retain(|tunable| can_be_put_back(root, &format!("{folder}/{tunable}")));
    // When the first is set, bfq raises `slice_idle`; the second has to be below `up_threshold`, which is 80 at first.
    tunables.sort_by_key(|tunable| !["strict_guarantees", "down_threshold"].contains(&tunable.as_str()));
    tunables
}

/// Whether it is a file that shows a value and takes one.
fn can_be_put_back(root: &HostRoot, path: &str) -> bool {
    let metadata = std::fs::metadata(root.path(path));
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o600 == 0o600)
}

/// `cpu0=a,cpu1=b` as pairs; nothing where it is a single word.
fn each_core(value: &str) -> Vec<(&str, &str)> {
    value.split(',').filter_map(|pair| pair.split_once('=')).collect()
}

#[cfg(test)]
mod tests;
