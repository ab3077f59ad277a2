//! Which processors threads with drives are bound to: `--bind-cpu`.

use coquina_node::BindCpu as NodeBindCpu;

use crate::arguments::{BindCpu, processors_allowed};

/// The option that binds a node, before what it is told.
pub const OPTION: &str = "--bind-cpu=";
const NEVER: &str = "never";

/// What a node of its own is told.
pub fn of_node(bind_cpu: &BindCpu) -> NodeBindCpu {
    match bind_cpu {
        BindCpu::Auto => NodeBindCpu::Interrupts,
        BindCpu::Never => NodeBindCpu::Never,
        BindCpu::To(cpus) => NodeBindCpu::Dealt(cpus.clone()),
    }
}

/// What each of several nodes of this host is told, by how many reactors each has: those that are named, or all that there are, in turn,
/// and none twice. Who gets none stays free: its thread goes where there is room, and so do clients.
pub fn deal(bind_cpu: &BindCpu, reactors: &[usize]) -> Vec<String> {
    match bind_cpu {
        BindCpu::Never => dealt(&[], reactors),
        BindCpu::Auto => dealt(&processors_allowed(), reactors),
        BindCpu::To(cpus) => dealt(cpus, reactors),
    }
}

/// The option for a node as it was dealt, without the processors on which nothing may run any more: one may be switched off, or taken
/// from this process, while the node is down, and must not keep it from being started again.
pub fn still_allowed(option: &str) -> String {
    without_lost(option, &processors_allowed())
}

fn without_lost(option: &str, allowed: &[u32]) -> String {
    let Some(dealt) = option.strip_prefix(OPTION).filter(|dealt| *dealt != NEVER) else {
        return option.to_owned();
    };
    let is_allowed = |cpu: &&str| cpu.parse().is_ok_and(|cpu| allowed.contains(&cpu));
    let left: Vec<&str> = dealt.split(',').filter(is_allowed).collect();
    format!("{OPTION}{}", if left.is_empty() { NEVER.to_owned() } else { left.join(",") })
}

fn dealt(cpus: &[u32], reactors: &[usize]) -> Vec<String> {
    let mut left = cpus;
    let mut take = |count: &usize| {
        let (mine, others) = left.split_at((*count).min(left.len()));
        left = others;
        let mine: Vec<String> = mine.iter().map(u32::to_string).collect();
        format!("{OPTION}{}", if mine.is_empty() { NEVER.to_owned() } else { mine.join(",") })
    };
    reactors.iter().map(&mut take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reactor_has_a_processor_of_its_own_or_none() {
        let told =
            |cpus: &[u32], reactors: &[usize]| dealt(cpus, reactors).join(" ").replace("--bind-cpu=", "");
        assert_eq!(told(&[0, 1], &[1, 1, 1]), "0 1 never");
        assert_eq!(told(&[4, 6, 7], &[2, 2]), "4,6 7");
        assert_eq!(told(&[0, 1, 2, 3, 4, 5], &[1, 3]), "0 1,2,3");
        assert_eq!(told(&[], &[1, 1]), "never never");
    }

    /// A node that was dealt a processor which was switched off later could never be started again.
    #[test]
    fn a_processor_that_is_gone_is_not_asked_for() {
        assert_eq!(without_lost("--bind-cpu=1", &[0]), "--bind-cpu=never");
        assert_eq!(without_lost("--bind-cpu=0,1,2", &[0, 2]), "--bind-cpu=0,2");
        assert_eq!(without_lost("--bind-cpu=never", &[0]), "--bind-cpu=never");
        assert_eq!(without_lost("--drive=/d", &[0]), "--drive=/d");
    }
}
