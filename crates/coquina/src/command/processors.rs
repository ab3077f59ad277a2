//! Which processors threads with drives are bound to: `--bind-cpu`.

use coquina_node::BindCpu as NodeBindCpu;

use crate::arguments::{BindCpu, processors_allowed};

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

fn dealt(cpus: &[u32], reactors: &[usize]) -> Vec<String> {
    let mut left = cpus;
    let mut take = |count: &usize| {
        let (mine, others) = left.split_at((*count).min(left.len()));
        left = others;
        let mine: Vec<String> = mine.iter().map(u32::to_string).collect();
        if mine.is_empty() { "--bind-cpu=never".to_owned() } else { format!("--bind-cpu={}", mine.join(",")) }
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
}
