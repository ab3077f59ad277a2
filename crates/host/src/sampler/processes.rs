//! CPU time of every process, to the nanosecond, and what each has to do with a benchmark.
//!
//! Invariants:
//! - a child of a watched process has its parent's role until it gets one of its own;
//! - roles belong to processes, not to samples: watching a process counts for windows before that, too;
//! - what a watched process's child used after the last sample that saw it is not lost: the parent's time of reaped
//!   children holds it, to 20 ms.

use std::collections::HashMap;

use crate::cpu::{ProcessClock, ticks_per_s};

use super::utilisation::Role;
use super::way::Way;

/// `PF_KTHREAD` in `include/linux/sched.h`: a thread of the kernel. That all of these descend from process 2 is so where they can be seen; in
/// a container that one is a process like any other.
const KERNEL_THREAD_FLAG: u64 = 0x0020_0000;

/// A process that was seen.
#[derive(Debug)]
pub(super) struct Known {
    pub pid: u32,
    pub name: String,
    /// What it has to do with the benchmark.
    pub role: Role,
    /// It or a process that it descends from was named.
    pub is_watched: bool,
    /// It was named itself.
    is_named: bool,
    parent: u32,
    clock: Option<ProcessClock>,
    /// CPU time at the last sample.
    total_ns: u64,
    /// Time of children that it waited for, at the last sample. Only of watched processes.
    reaped_ns: u64,
    /// A sample looked for it, and did not find it.
    is_gone: bool,
    /// Times that it was seen.
    sights: u32,
    /// It has waited for a child, or a child of it was seen.
    has_children: bool,
}

/// CPU time that a process used since the last sample: its place in the table, and nanoseconds.
pub(super) type Used = (u32, u64);

/// Every process that was seen, alive or not.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: Vec<Known>,
    /// Those that were alive at the last sample.
    alive: HashMap<u32, u32>,
    /// Roles of processes that were named, but were not seen yet.
    named: HashMap<u32, Role>,
    /// Whether the next look asks all that work for ended children, also those that never had one.
    expects_any: bool,
}

impl Processes {
    /// A process by its place.
    pub(super) fn get(&self, place: u32) -> &Known {
        &self.known[place as usize]
    }

    /// Whether any kernel thread was seen.
    pub(super) fn sees_kernel_threads(&self) -> bool {
        self.known.iter().any(|known| known.role == Role::Kernel)
    }

    /// Places of the watched processes that were alive at the last sample.
    pub(super) fn watched(&self) -> Vec<u32> {
        let is_watched = |place: &u32| self.get(*place).is_watched;
        let mut places: Vec<u32> = self.alive.values().copied().filter(is_watched).collect();
        places.sort_unstable();
        places
    }

    /// Those of them that serve or make the load, or measure it.
    pub(super) fn at_work(&self) -> Vec<u32> {
        let mut places = self.watched();
        places.retain(|place| self.get(*place).role != Role::Outside);
        places
    }

    /// Every place whose process is watched, alive or not.
    pub(super) fn all_watched(&self) -> impl Iterator<Item = u32> {
        (0..self.known.len() as u32).filter(|place| self.get(*place).is_watched)
    }

    /// Gives a role to a process and to those of its descendants that have none of their own.
    pub(super) fn watch(&mut self, pid: u32, role: Role) {
        self.named.insert(pid, role);
        if let Some(place) = self.alive.get(&pid) {
            let known = &mut self.known[*place as usize];
            (known.role, known.is_watched, known.is_named) = (role, true, true);
        }
        // Each round passes the role one generation down.
        let mut changed = true;
        while changed {
            changed = false;
            for place in 0..self.known.len() {
                let child = &self.known[place];
                let parent = self.alive.get(&child.parent).map(|parent| self.get(*parent));
                let Some(parent) = parent.filter(|parent| parent.is_watched) else { continue };
                let role = parent.role;
                if !child.is_named && !child.is_gone && (!child.is_watched || child.role != role) {
                    let child = &mut self.known[place];
                    (child.role, child.is_watched, changed) = (role, true, true);
                }
            }
        }
    }

    /// Forgets names of processes that are not there, lest a later process with that number gets the role.
    pub(super) fn forget_absent(&mut self) {
        self.named.retain(|pid, _| self.alive.contains_key(pid));
    }

    /// At the next look children may have ended that were never seen, of processes that had none so far. To ask each time takes longer than all
    /// the rest.
    pub(super) fn expect_any(&mut self) {
        self.expects_any = true;
    }

    /// Looks at all processes. Gives what each used since the last look.
    pub(super) fn sample(&mut self) -> Vec<Used> {
        let mut used = Vec::new();
        let is_first = self.known.is_empty();
        let (born, gone) = self.look(&mut used);
        for pid in &born {
            self.add(*pid, is_first, &mut used);
        }
        for pid in &born {
            let parent = self.alive.get(pid).map(|place| self.get(*place).parent);
            if let Some(parent) = parent.and_then(|parent| self.alive.get(&parent)) {
                self.known[*parent as usize].has_children = true;
            }
        }
        self.inherit_roles();
        self.count_reaped(&gone, &mut used);
        used
    }

    /// Times of known processes. Gives the numbers of new ones, and the places of those that ended.
    fn look(&mut self, used: &mut Vec<Used>) -> (Vec<u32>, Vec<u32>) {
        let mut born = Vec::new();
        let mut alive = HashMap::with_capacity(self.alive.len());
        let mut way = Way::new();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids {
            way.give();
            let known = self.alive.get(&pid).copied();
            let now = known.and_then(|place| self.get(place).clock?.now_ns());
            match (known, now) {
                // A number that is used again begins at nothing.
                (Some(place), Some(now_ns)) if now_ns >= self.get(place).total_ns => {
                    let known = &mut self.known[place as usize];
                    if now_ns > known.total_ns {
                        used.push((place, now_ns - known.total_ns));
                    }
                    known.total_ns = now_ns;
                    known.sights = known.sights.saturating_add(1);
                    // The first sight may be between fork and exec.
                    if known.sights == 2 {
                        known.name = crate::process_name(pid);
                    }
                    alive.insert(pid, place);
                }
                _ => born.push(pid),
            }
        }
        let gone: Vec<u32> =
            self.alive.iter().filter(|(pid, _)| !alive.contains_key(pid)).map(|(_, place)| *place).collect();
        for place in &gone {
            self.known[*place as usize].is_gone = true;
            self.named.remove(&self.known[*place as usize].pid);
        }
        self.alive = alive;
        (born, gone)
    }

    /// Adds a process. Unless this is the first look, all its time was used since the last one.
    fn add(&mut self, pid: u32, is_first: bool, used: &mut Vec<Used>) {
        let Some(facts) = read_facts(pid) else { return };
        let clock = ProcessClock::of(pid);
        let Some(total_ns) = clock.and_then(ProcessClock::now_ns) else { return };
        let place = self.known.len() as u32;
        let named = self.named.get(&pid).copied();
        self.known.push(Known {
            pid,
            role: named.unwrap_or(facts.own_role()),
            name: facts.name,
            is_watched: named.is_some(),
            is_named: named.is_some(),
            parent: facts.parent,
            clock,
            total_ns,
            reaped_ns: facts.reaped_ns,
            is_gone: false,
            sights: 1,
            has_children: facts.reaped_ns > 0,
        });
        self.alive.insert(pid, place);
        if !is_first && total_ns > 0 {
            used.push((place, total_ns));
        }
    }

    /// New processes have the roles of their parents, which may be new themselves.
    fn inherit_roles(&mut self) {
        let mut new: Vec<u32> =
            self.alive.values().copied().filter(|place| self.get(*place).sights == 1).collect();
        new.sort_unstable();
        let mut changed = true;
        while changed {
            changed = false;
            for place in &new {
                let child = self.get(*place);
                let parent = self.alive.get(&child.parent).map(|parent| self.get(*parent));
                let Some(parent) = parent.filter(|parent| parent.is_watched && !child.is_watched) else {
                    continue;
                };
                let role = parent.role;
                let child = &mut self.known[*place as usize];
                (child.role, child.is_watched, changed) = (role, true, true);
            }
        }
    }

    /// What ended children used after they were last seen, and children that were never seen.
    fn count_reaped(&mut self, gone: &[u32], used: &mut Vec<Used>) {
        let mut gone = gone.to_vec();
        let expects_any = std::mem::take(&mut self.expects_any);
        // What is not seen counts as done by others outside anyway.
        for place in self.at_work() {
            if !expects_any && !self.get(place).has_children {
                continue;
            }
            let (pid, before_ns, sights) = {
                let parent = self.get(place);
                (parent.pid, parent.reaped_ns, parent.sights)
            };
            if sights < 2 {
                continue;
            }
            let Some(facts) = self.facts_with_all_gone(pid, &mut gone) else { continue };
            let children: Vec<u32> =
                gone.iter().copied().filter(|child| self.get(*child).parent == pid).collect();
            let seen_ns: u64 = children.iter().map(|child| self.lifetime_ns(*child)).sum();
            let rest_ns = (facts.reaped_ns - before_ns.min(facts.reaped_ns)).saturating_sub(seen_ns);
            self.known[place as usize].reaped_ns = facts.reaped_ns;
            let heirs = if children.is_empty() { &[place][..] } else { &children };
            if rest_ns > 0 {
                used.extend(heirs.iter().map(|heir| (*heir, rest_ns / heirs.len() as u64)));
            }
        }
    }

    /// Facts of a process, read after each of its children that these facts count as reaped is among those that are gone.
    ///
    /// A child that was alive at the look, and counted, may have been reaped since: its whole time would count for its parent once more.
    fn facts_with_all_gone(&mut self, pid: u32, gone: &mut Vec<u32>) -> Option<Facts> {
        loop {
            let facts = read_facts(pid)?;
            let children = self.alive.iter().filter(|(_, place)| self.get(**place).parent == pid);
            let ended: Vec<u32> =
                children.filter(|(child, _)| !is_there(**child)).map(|(child, _)| *child).collect();
            if ended.is_empty() {
                return Some(facts);
            }
            for child in ended {
                gone.extend(self.forget(child));
            }
        }
    }

    /// A process has ended; gives its place.
    fn forget(&mut self, pid: u32) -> Option<u32> {
        let place = self.alive.remove(&pid)?;
        self.known[place as usize].is_gone = true;
        self.named.remove(&pid);
        Some(place)
    }

    fn lifetime_ns(&self, place: u32) -> u64 {
        self.get(place).total_ns + self.get(place).reaped_ns
    }
}

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    name: String,
    parent: u32,
    is_of_kernel: bool,
    /// Time of children that it waited for.
    reaped_ns: u64,
}

impl Facts {
    /// The role of a process that was given none.
    fn own_role(&self) -> Role {
        if self.is_of_kernel { Role::Kernel } else { Role::Outside }
    }
}

fn is_there(pid: u32) -> bool {
    std::fs::exists(format!("/proc/{pid}")).unwrap_or(true)
}

fn read_facts(pid: u32) -> Option<Facts> {
    parse_facts(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name is in brackets and may hold brackets and spaces itself.
fn parse_facts(text: &str) -> Option<Facts> {
    let (before, after) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let mut fields = after.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let flags: u64 = fields.nth(4)?.parse().ok()?;
    let user_ticks: u64 = fields.nth(6)?.parse().ok()?;
    let system_ticks: u64 = fields.next()?.parse().ok()?;
    let reaped_ns = (user_ticks + system_ticks) * (1_000_000_000 / ticks_per_s());
    Some(Facts { name, parent, is_of_kernel: flags & KERNEL_THREAD_FLAG != 0, reaped_ns })
}

/// CPU time of each thread of a process: its number and nanoseconds.
pub(super) fn threads(pid: u32, way: &mut Way) -> Vec<(u32, u64)> {
    let folder = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut thread = |name: std::ffi::OsString| {
        way.give();
        let name = name.to_str()?;
        let text = std::fs::read_to_string(format!("{folder}/{name}/schedstat")).ok()?;
        Some((name.parse().ok()?, text.split_ascii_whitespace().next()?.parse().ok()?))
    };
    entries.filter_map(|entry| thread(entry.file_name())).collect()
}

/// Cores on which a thread may run, by number.
pub(super) fn allowed_cores(thread: u32) -> Vec<u32> {
    // SAFETY: an all-zero set is a valid, empty one.
    #[allow(unsafe_code)]
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let Ok(thread) = libc::pid_t::try_from(thread) else { return Vec::new() };
    // SAFETY: `set` is a valid place of the size that is given.
    #[allow(unsafe_code)]
    let failed = unsafe { libc::sched_getaffinity(thread, size_of::<libc::cpu_set_t>(), &mut set) };
    if failed != 0 {
        return Vec::new();
    }
    // SAFETY: the numbers are below the size of the set.
    #[allow(unsafe_code)]
    let is_allowed = |core: &u32| unsafe { libc::CPU_ISSET(*core as usize, &set) };
    (0..libc::CPU_SETSIZE as u32).filter(is_allowed).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn names_may_hold_brackets() {
        let text = "12 (a) b (c)) S 7 1 1 0 -1 4194304 100 200 0 0 11 22 33 44 20 0 1 0 5000 1 2";
        let facts = parse_facts(text).unwrap();
        assert_eq!((facts.name.as_str(), facts.parent), ("a) b (c)", 7));
        assert_eq!(facts.reaped_ns, 77 * (1_000_000_000 / ticks_per_s()));
        assert!(!facts.is_of_kernel);
        assert_eq!(parse_facts("12 (short) S 1"), None);
        assert_eq!(parse_facts(""), None);
    }

    /// In a container process 2 is a process like any other, with a parent that cannot be seen.
    #[test]
    fn the_kernel_s_threads_are_known_by_their_flag_and_not_by_their_number() {
        let role = |number: &str, parent: u32, flags: u64| {
            let text = format!("{number} S {parent} 0 0 0 -1 {flags} 0 0 0 0 0 1 0 0 20 0 1 0 5 0 0");
            parse_facts(&text).unwrap().own_role()
        };
        for (number, parent) in [("2 (sh)", 0), ("2 (sleep)", 1), ("9 (fio (2) x)", 2)] {
            assert_eq!(role(number, parent, 0x0040_0100), Role::Outside, "{number}");
        }
        for (number, parent) in [("2 (kthreadd)", 0), ("15 (kworker/0:1H (x))", 2)] {
            assert_eq!(role(number, parent, 0x0420_8060), Role::Kernel, "{number}");
        }
    }

    #[test]
    fn a_child_that_is_reaped_while_a_sample_is_taken_counts_once() {
        // The child says when it has used its time, and ends at the first line that it gets.
        let busy = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo done; read x";
        let mut parent = Command::new("sh")
            .args(["-c", &format!("sh -c '{busy}; :'; echo reaped; read x; :")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "done");
        let mut processes = Processes::default();
        processes.sample();
        let has_children = |pid: u32, processes: &Processes| {
            processes.known.iter().find(|known| known.pid == pid).unwrap().has_children
        };
        assert!(has_children(parent.id(), &processes), "one is there");
        processes.watch(parent.id(), Role::Target);
        processes.sample();
        let child = processes.known.iter().find(|known| known.parent == parent.id()).unwrap();
        let (child_pid, child_ns) = (child.pid, child.total_ns);
        let mut used = Vec::new();
        let (_, gone) = processes.look(&mut used);
        parent.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "reaped");
        processes.count_reaped(&gone, &mut used);
        used.extend(processes.sample());
        let mine = |pid: u32| pid == parent.id() || pid == child_pid;
        let used_ns: u64 =
            used.iter().filter(|(place, _)| mine(processes.get(*place).pid)).map(|(_, ns)| ns).sum();
        // All of the child's time was seen before, but for what it took to end; the kernel counts what is reaped to 20 ms.
        assert!(used_ns < child_ns / 2, "{used_ns} of {child_ns}");
        drop(parent.stdin.take());
        parent.wait().unwrap();
    }

    #[test]
    fn own_threads_and_cores_are_seen() {
        assert!(!threads(std::process::id(), &mut Way::new()).is_empty());
        assert!(!allowed_cores(std::process::id()).is_empty());
        assert!(allowed_cores(u32::MAX).is_empty());
    }
}
