//! Who takes the CPU time of an operation: what makes the load, what serves it, and the kernel's threads.

use crate::report::{Case, CaseResult, CpuFigures};

use super::format::significant;
use super::headline::main_case;
use super::{Group, View};

/// Most processes that a line names.
const PROCESSES_MAX: usize = 6;

/// Means of the good rounds in which CPU time was seen, in microseconds per operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CpuParts {
    /// Of the generator.
    pub(crate) client_us: Option<f64>,
    /// Of the target's processes, where they can be seen.
    pub(crate) servers_us: Option<f64>,
    /// Of the kernel's threads and interrupts, with what they take when the machine is idle.
    pub(crate) kernel_threads_us: Option<f64>,
    /// What servers and the kernel's threads took of it when the load had ended, where that was looked at.
    pub(crate) afterwards_us: Option<f64>,
    /// Processes of one name: how many there are at once, and what they take together. Those that take most come first.
    processes: Vec<(String, usize, f64)>,
}

impl CpuParts {
    /// The parts with their names, as in heads.
    pub(crate) fn named(&self) -> [(&'static str, Option<f64>); 4] {
        [
            ("client", self.client_us),
            ("servers", self.servers_us),
            ("kernel threads", self.kernel_threads_us),
            ("of these after the load", self.afterwards_us),
        ]
    }

    /// `coquina (3) 12.3, fio 4.56`; empty where no process was seen.
    pub(crate) fn processes_text(&self) -> String {
        let text = |(name, count, us): &(String, usize, f64)| match count {
            ..=1 => format!("{name} {}", significant(*us, 3)),
            count => format!("{name} ({count}) {}", significant(*us, 3)),
        };
        let named: Vec<String> = self.processes.iter().take(PROCESSES_MAX).map(text).collect();
        named.join(", ")
    }
}

/// The parts of a result, where any of its rounds saw them.
pub(crate) fn cpu_parts(result: &CaseResult) -> Option<CpuParts> {
    let seen: Vec<&CpuFigures> = result.good_rounds().filter_map(|round| round.cpu.as_ref()).collect();
    let mean = |of: fn(&CpuFigures) -> Option<f64>| {
        let values: Vec<f64> = seen.iter().filter_map(|cpu| of(cpu)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        mean.is_finite().then_some(mean)
    };
    let mut processes: Vec<(String, usize, f64)> = Vec::new();
    for cpu in &seen {
        for process in cpu.processes.iter().filter(|process| process.us_per_io.is_finite()) {
            let at_once = cpu.processes.iter().filter(|other| other.name == process.name).count();
            let share_us = process.us_per_io / seen.len() as f64;
            match processes.iter_mut().find(|(name, ..)| *name == process.name) {
                Some((_, most, us)) => (*most, *us) = (at_once.max(*most), *us + share_us),
                None => processes.push((process.name.clone(), at_once, share_us)),
            }
        }
    }
    processes.sort_by(|one, other| other.2.total_cmp(&one.2));
    let parts = CpuParts {
        client_us: mean(|cpu| Some(cpu.client_us_per_io)),
        servers_us: mean(|cpu| cpu.servers_us_per_io),
        kernel_threads_us: mean(|cpu| cpu.kernel_threads_us_per_io),
        afterwards_us: mean(|cpu| cpu.afterwards_us_per_io),
        processes,
    };
    let is_known = parts.named().iter().any(|(_, us)| us.is_some_and(|us| us > 0.0));
    is_known.then_some(parts)
}

/// The parts at the main point of a group, in one line for terminals: `CPU at depth 128, us/IO: Coquina: client 5.1, servers 12.3, ...`.
pub(crate) fn line(view: &View<'_>, group: &Group<'_>) -> Option<String> {
    let case = main_case(view, group)?;
    let of = |target: usize| {
        let parts = cpu_parts(view.result(case, target)?)?;
        let named = parts.named().into_iter();
        let known = named.filter_map(|(name, us)| Some(format!("{name} {}", significant(us?, 3))));
        Some(format!("{}: {}", view.short[target], known.collect::<Vec<_>>().join(", ")))
    };
    let all: Vec<String> = (0..view.targets.len()).filter_map(of).collect();
    (!all.is_empty()).then(|| format!("CPU at {}, us/IO: {}", group.phrase(case), all.join("; ")))
}

/// The processes at a point, by target.
pub(crate) fn processes_line(view: &View<'_>, group: &Group<'_>, case: &Case) -> Option<String> {
    let of = |target: usize| {
        let text = cpu_parts(view.result(case, target)?)?.processes_text();
        (!text.is_empty()).then(|| format!("{}: {text}", view.short[target]))
    };
    let all: Vec<String> = (0..view.targets.len()).filter_map(of).collect();
    (!all.is_empty()).then(|| format!("Processes at {}, us/IO: {}", group.phrase(case), all.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ProcessFigures, Round};

    #[test]
    fn parts_are_means_of_good_rounds_and_processes_of_one_name_are_added_up() {
        let cpu = |client: f64, servers: Option<f64>| CpuFigures {
            client_us_per_io: client,
            servers_us_per_io: servers,
            afterwards_us_per_io: servers.map(|us| us / 4.0),
            processes: [("node", 2.0), ("node", 4.0), ("fio", client)]
                .map(|(name, us_per_io)| ProcessFigures { name: name.to_owned(), pid: 7, us_per_io })
                .into(),
            ..CpuFigures::default()
        };
        let round = |cpu: Option<CpuFigures>, errors| Round { cpu, errors, ..Round::default() };
        let rounds = vec![
            round(Some(cpu(1.0, Some(6.0))), 0),
            round(Some(cpu(3.0, Some(6.0))), 0),
            round(None, 0),
            round(Some(cpu(100.0, Some(600.0))), 1),
        ];
        let parts = cpu_parts(&CaseResult { rounds, ..CaseResult::default() }).unwrap();
        let named = parts.named().map(|(_, us)| us);
        assert_eq!(named, [Some(2.0), Some(6.0), None, Some(1.5)]);
        assert_eq!(parts.processes_text(), "node (2) 6.00, fio 2.00");
        let unseen = CaseResult { rounds: vec![round(None, 0)], ..CaseResult::default() };
        assert_eq!(cpu_parts(&unseen), None);
        let senseless = CaseResult { rounds: vec![round(Some(cpu(f64::NAN, None)), 0)], ..unseen };
        assert_eq!(cpu_parts(&senseless), None);
    }
}
