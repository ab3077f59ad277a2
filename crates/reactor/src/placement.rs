//! Which processor a reactor stays on: that of its drive's interrupts, while it serves clients that are woken for each answer, or one that
//! was dealt to it, while much is asked of it.
//!
//! A message over the host's own network wakes its reader on the sender's processor. So a server is drawn to the processor of its
//! client, and the two take turns there while another one is idle; and where a drive interrupts one processor only, that one
//! has the interrupts and the kernel's share of each durable write to do as well. A reactor that stays with the interrupts leaves the client
//! alone.
//!
//! Reactors of several nodes on one host are drawn to one processor, too: the other one, where the drives' interrupts and the kernel's work
//! for them come and go, is never idle for long enough for the scheduler to take one over. So each has one dealt to it.
//!
//! Invariants:
//! - a thread that whoever runs the process has bound to some processors stays on those, and what they change later holds;
//! - where the scheduler lets it stand in line for long, it is free again soon, and stays so for a while;
//! - a reactor that has little to do is free.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::sched_stat::{InLine, SchedStat};

/// How often to look.
const LOOK_NS: u64 = 100_000_000;
/// What was before that does not count.
const RECENT_NS: u64 = 3 * LOOK_NS;
/// Clients' requests and the drive's I/Os between two looks, from which it is worth it: 500 and 250 per second.
const REQUESTS_MIN: u64 = 50;
const DRIVE_IOS_MIN: u64 = 25;
/// It stays for so long after that.
const STAY_NS: u64 = 1_000_000_000;
/// Who stands in line for so long each time, on average, or for half of the time, has company.
const IN_LINE_NS: u64 = 400_000;
/// The same where others were dealt the same processor, or share it while no other is free: for so long each time, or for three quarters
/// of the time.
const IN_LINE_DEALT_NS: u64 = 1_000_000;
/// And is free when that was seen so often in a row: once bound, the scheduler needs a moment to move others away.
const COMPANY_LOOKS: u32 = 3;
/// How long it is free after that.
const REST_NS: u64 = 10_000_000_000;
/// How often to ask where the interrupts are: somebody may move them.
const ASK_NS: u64 = 10_000_000_000;

/// What a reactor has done so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Work {
    /// Answers to clients that send each request, and read each answer, by itself.
    pub requests: u64,
    /// Reads and writes of its drives.
    pub drive_ios: u64,
}

/// Where a reactor may bind itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum BindTo {
    /// Nowhere.
    #[default]
    Nothing,
    /// To the processor of its drives' interrupts, while it serves clients that send each request by itself.
    Interrupts,
    /// To this one, while many requests are under way.
    Cpu(u32),
}

/// Where the calling thread stays. All times are of one clock, in nanoseconds.
#[derive(Debug)]
pub struct Placement {
    judge: Judge,
    binding: Binding,
    sched_stat: SchedStat,
}

impl Placement {
    /// For the calling thread, which must be the one that looks. With nothing to bind it to, nothing ever happens.
    pub fn new(bind_to: BindTo) -> Placement {
        let due_ns = if bind_to == BindTo::Nothing { u64::MAX } else { 0 };
        Placement {
            judge: Judge { bind_to, due_ns, ..Judge::default() },
            binding: Binding::default(),
            sched_stat: SchedStat::open(),
        }
    }

    /// When to look next.
    pub fn due_ns(&self) -> u64 {
        self.judge.due_ns
    }

    /// The processor on which the thread stays, if it is bound to one.
    pub fn cpu(&self) -> Option<u32> {
        self.binding.cpu()
    }

    /// Binds the thread or frees it, by what it has done, whether many requests are under way, and how long it stood in line. `interrupted`
    /// says on which processor its drives' interrupts arrive, if that is one.
    pub fn look(
        &mut self,
        work: Work,
        is_crowded: bool,
        now_ns: u64,
        interrupted: impl FnOnce() -> Option<u32>,
    ) {
        let is_bound = self.binding.is_bound();
        match self.judge.look(work, is_crowded, self.sched_stat.read(), is_bound, now_ns) {
            Verdict::Stay => (),
            Verdict::Release => self.binding.release(),
            Verdict::Ask => {
                let cpu = match self.judge.bind_to {
                    BindTo::Nothing => None,
                    BindTo::Interrupts => interrupted(),
                    BindTo::Cpu(cpu) => Some(cpu),
                };
                match cpu {
                    Some(cpu) => self.binding.bind(cpu),
                    None => self.binding.release(),
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// As it is.
    Stay,
    /// Ask where to stay, as interrupts may move, and stay there.
    Ask,
    Release,
}

/// When to bind, and when to let go.
#[derive(Default, Debug)]
struct Judge {
    bind_to: BindTo,
    due_ns: u64,
    seen: Work,
    in_line: InLine,
    seen_ns: u64,
    busy_ns: u64,
    /// Looks in a row that found company.
    company: u32,
    /// Not to ask before.
    ask_ns: u64,
}

impl Judge {
    fn look(
        &mut self,
        work: Work,
        is_crowded: bool,
        in_line: InLine,
        is_bound: bool,
        now_ns: u64,
    ) -> Verdict {
        let seen = std::mem::replace(&mut self.seen, work);
        let stood = std::mem::replace(&mut self.in_line, in_line);
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.seen_ns, now_ns));
        self.due_ns = now_ns.saturating_add(LOOK_NS);
        let is_recent = passed_ns < RECENT_NS;
        let is_asked = match self.bind_to {
            BindTo::Cpu(_) => is_crowded,
            _ => work.requests.saturating_sub(seen.requests) >= REQUESTS_MIN,
        };
        let is_busy = is_asked && work.drive_ios.saturating_sub(seen.drive_ios) >= DRIVE_IOS_MIN;
        if is_recent && is_busy {
            self.busy_ns = now_ns;
        }
        let is_needed = self.busy_ns > 0 && now_ns.saturating_sub(self.busy_ns) <= STAY_NS;
        if !is_needed {
            if !is_bound {
                return Verdict::Stay;
            }
            self.ask_ns = 0;
            return Verdict::Release;
        }
        let waited_ns = in_line.waited_ns.saturating_sub(stood.waited_ns);
        let turns = in_line.turns.saturating_sub(stood.turns).max(1);
        let has_company = match self.bind_to {
            BindTo::Cpu(_) => waited_ns / turns >= IN_LINE_DEALT_NS || waited_ns > passed_ns / 4 * 3,
            _ => waited_ns / turns >= IN_LINE_NS || waited_ns > passed_ns / 2,
        };
        self.company = if is_bound && is_recent && has_company { self.company + 1 } else { 0 };
        if self.company >= COMPANY_LOOKS {
            self.company = 0;
            self.ask_ns = now_ns.saturating_add(REST_NS);
            return Verdict::Release;
        }
        if now_ns < self.ask_ns {
            return Verdict::Stay;
        }
        self.ask_ns = now_ns.saturating_add(ASK_NS);
        Verdict::Ask
    }
}

/// The processors on which the thread may run.
#[derive(Default, Debug)]
struct Binding {
    /// The one it is bound to, and those on which it may run otherwise.
    bound: Option<(u32, CpuSet)>,
}

impl Binding {
    fn cpu(&self) -> Option<u32> {
        self.bound.as_ref().map(|(cpu, _)| *cpu)
    }

    /// Whether the thread is bound still: whoever runs the process may have given it other processors since.
    fn is_bound(&mut self) -> bool {
        let Some(cpu) = self.cpu() else { return false };
        let is_bound = sched_getaffinity(None).is_ok_and(|now| now == only(cpu));
        if !is_bound {
            self.bound = None;
        }
        is_bound
    }

    /// Binds the thread to a processor, if it may run there.
    fn bind(&mut self, cpu: u32) {
        if self.cpu() == Some(cpu) {
            return;
        }
        self.release();
        if cpu as usize >= CpuSet::MAX_CPU {
            return;
        }
        let Ok(free) = sched_getaffinity(None) else { return };
        // One that has a single processor is bound already, and not by us.
        if free.is_set(cpu as usize) && free.count() > 1 && sched_setaffinity(None, &only(cpu)).is_ok() {
            self.bound = Some((cpu, free));
        }
    }

    fn release(&mut self) {
        if self.is_bound()
            && let Some((_, free)) = self.bound.take()
        {
            // Processors that went away meanwhile are left out by the kernel; if all did, the thread stays where it is.
            let _ = sched_setaffinity(None, &free);
        }
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.release();
    }
}

fn only(cpu: u32) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Work = Work { requests: REQUESTS_MIN, drive_ios: DRIVE_IOS_MIN };

    /// A judge that looks each time it is due, and what it looks at.
    #[derive(Default)]
    struct Seen {
        judge: Judge,
        work: Work,
        in_line: InLine,
        now_ns: u64,
        is_bound: bool,
        is_crowded: bool,
    }

    impl Seen {
        fn look(&mut self, more: Work, waited_ns: u64, turns: u64, after_ns: u64) -> Verdict {
            self.work.requests += more.requests;
            self.work.drive_ios += more.drive_ios;
            self.in_line.waited_ns += waited_ns;
            self.in_line.turns += turns;
            self.now_ns += after_ns;
            let verdict =
                self.judge.look(self.work, self.is_crowded, self.in_line, self.is_bound, self.now_ns);
            match verdict {
                Verdict::Stay => (),
                Verdict::Ask => self.is_bound = true,
                Verdict::Release => self.is_bound = false,
            }
            verdict
        }

        fn bound() -> Seen {
            Seen::bound_to(BindTo::Interrupts)
        }

        fn bound_to(bind_to: BindTo) -> Seen {
            let judge = Judge { bind_to, ..Judge::default() };
            let mut seen = Seen { judge, now_ns: 1_000 * LOOK_NS, is_crowded: true, ..Seen::default() };
            assert_eq!(seen.look(STEP, 0, 1, LOOK_NS), Verdict::Stay);
            assert_eq!(seen.look(STEP, 0, 1, LOOK_NS), Verdict::Ask);
            seen
        }
    }

    #[test]
    fn binds_under_load_and_is_free_a_while_after_it() {
        let mut seen = Seen::bound();
        for _ in 0..50 {
            assert_eq!(seen.look(STEP, 10_000_000, 1_000, LOOK_NS), Verdict::Stay);
        }
        for _ in 0..STAY_NS / LOOK_NS {
            assert_eq!(seen.look(Work::default(), 0, 1, LOOK_NS), Verdict::Stay);
        }
        assert_eq!(seen.look(Work::default(), 0, 1, LOOK_NS), Verdict::Release);
        assert_eq!(seen.look(Work::default(), 0, 1, LOOK_NS), Verdict::Stay);
        // The next load need not wait.
        assert_eq!(seen.look(STEP, 0, 1, LOOK_NS), Verdict::Ask);
    }

    #[test]
    fn little_work_or_none_of_the_drive_binds_nobody() {
        for more in [
            Work { requests: REQUESTS_MIN - 1, drive_ios: 1_000 },
            Work { requests: 100_000, drive_ios: DRIVE_IOS_MIN - 1 },
        ] {
            let mut seen = Seen { now_ns: 1_000 * LOOK_NS, is_crowded: true, ..Seen::default() };
            for _ in 0..100 {
                assert_eq!(seen.look(more, 0, 1, LOOK_NS), Verdict::Stay);
            }
        }
        // Much, but over a long time.
        let mut seen = Seen::default();
        for _ in 0..100 {
            assert_eq!(seen.look(STEP, 0, 1, RECENT_NS), Verdict::Stay);
        }
    }

    #[test]
    fn company_frees_it_for_a_while() {
        for (waited_ns, turns) in [(IN_LINE_NS * 3, 3), (LOOK_NS / 2 + 1, 1_000_000)] {
            let mut seen = Seen::bound();
            for _ in 1..COMPANY_LOOKS {
                assert_eq!(seen.look(STEP, waited_ns, turns, LOOK_NS), Verdict::Stay);
            }
            assert_eq!(seen.look(STEP, 0, turns, LOOK_NS), Verdict::Stay);
            for _ in 1..COMPANY_LOOKS {
                assert_eq!(seen.look(STEP, waited_ns, turns, LOOK_NS), Verdict::Stay);
            }
            assert_eq!(seen.look(STEP, waited_ns, turns, LOOK_NS), Verdict::Release);
            for _ in 1..REST_NS / LOOK_NS {
                assert_eq!(seen.look(STEP, waited_ns, turns, LOOK_NS), Verdict::Stay);
            }
            assert_eq!(seen.look(STEP, waited_ns, turns, LOOK_NS), Verdict::Ask);
        }
    }

    /// One that was dealt a processor stays there while many requests are under way, whoever asks, and shares it with others.
    #[test]
    fn dealt_out_it_stays_while_much_is_under_way() {
        let io = Work { requests: 0, drive_ios: DRIVE_IOS_MIN };
        let mut seen = Seen::bound_to(BindTo::Cpu(1));
        for _ in 0..50 {
            assert_eq!(seen.look(io, LOOK_NS / 2 + 1, 200, LOOK_NS), Verdict::Stay);
        }
        seen.is_crowded = false;
        for _ in 0..STAY_NS / LOOK_NS {
            assert_eq!(seen.look(STEP, 0, 1, LOOK_NS), Verdict::Stay);
        }
        assert_eq!(seen.look(STEP, 0, 1, LOOK_NS), Verdict::Release);
        for _ in 0..50 {
            assert_eq!(seen.look(STEP, 0, 1, LOOK_NS), Verdict::Stay);
        }
        seen.is_crowded = true;
        assert_eq!(
            seen.look(Work { requests: 100_000, drive_ios: DRIVE_IOS_MIN - 1 }, 0, 1, LOOK_NS),
            Verdict::Stay
        );
        assert_eq!(seen.look(io, 0, 1, LOOK_NS), Verdict::Ask);
        for (waited_ns, turns) in [(IN_LINE_DEALT_NS * 3, 3), (LOOK_NS / 4 * 3 + 1, 1_000_000)] {
            let mut seen = Seen::bound_to(BindTo::Cpu(1));
            for _ in 1..COMPANY_LOOKS {
                assert_eq!(seen.look(io, waited_ns, turns, LOOK_NS), Verdict::Stay);
            }
            assert_eq!(seen.look(io, waited_ns, turns, LOOK_NS), Verdict::Release);
        }
    }

    #[test]
    fn asks_again_where_the_interrupts_are() {
        let mut seen = Seen::bound();
        for _ in 1..ASK_NS / LOOK_NS {
            assert_eq!(seen.look(STEP, 0, 1, LOOK_NS), Verdict::Stay);
        }
        assert_eq!(seen.look(STEP, 0, 1, LOOK_NS), Verdict::Ask);
    }

    /// The thread has the processors that it had, whatever happened.
    #[test]
    fn binds_this_thread_and_frees_it() {
        let before = sched_getaffinity(None).unwrap();
        let cpus: Vec<u32> = (0..CpuSet::MAX_CPU as u32).filter(|cpu| before.is_set(*cpu as usize)).collect();
        let mut binding = Binding::default();
        binding.bind(u32::MAX);
        assert_eq!(binding.cpu(), None);
        let [first, .., last] = cpus[..] else {
            // With one processor there is nothing to choose.
            binding.bind(cpus[0]);
            assert_eq!((binding.cpu(), sched_getaffinity(None).unwrap()), (None, before));
            return;
        };
        binding.bind(first);
        assert_eq!((binding.cpu(), sched_getaffinity(None).unwrap()), (Some(first), only(first)));
        binding.bind(last);
        assert_eq!((binding.cpu(), sched_getaffinity(None).unwrap()), (Some(last), only(last)));
        binding.release();
        assert_eq!((binding.cpu(), sched_getaffinity(None).unwrap()), (None, before));
        // What somebody else has said since holds.
        binding.bind(last);
        sched_setaffinity(None, &only(first)).unwrap();
        assert!(!binding.is_bound());
        binding.release();
        assert_eq!((binding.cpu(), sched_getaffinity(None).unwrap()), (None, only(first)));
        binding.bind(last);
        assert_eq!(sched_getaffinity(None).unwrap(), only(first));
        sched_setaffinity(None, &before).unwrap();
        binding.bind(first);
        drop(binding);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn who_is_not_allowed_is_never_due() {
        let placement = Placement::new(BindTo::Nothing);
        assert_eq!((placement.due_ns(), placement.cpu()), (u64::MAX, None));
        assert_eq!(Placement::new(BindTo::Interrupts).due_ns(), 0);
    }

    /// The thread is bound to the processor that was dealt to it, if it may run there, whatever interrupts.
    #[test]
    fn binds_to_what_was_dealt() {
        let before = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU as u32).rfind(|cpu| before.is_set(*cpu as usize)).unwrap();
        for (dealt, bound) in [(last, (before.count() > 1).then_some(last)), (CpuSet::MAX_CPU as u32, None)] {
            let mut placement = Placement::new(BindTo::Cpu(dealt));
            let mut work = Work::default();
            for turn in 1..=3 {
                work.drive_ios += DRIVE_IOS_MIN;
                placement.look(work, true, turn * LOOK_NS, || panic!("asks for interrupts"));
            }
            assert_eq!(placement.cpu(), bound);
            drop(placement);
            assert_eq!(sched_getaffinity(None).unwrap(), before);
        }
    }
}
