//! What a load leaves to be done when it has ended: cleaning, compacting, writing back. It is work of that load, and counts for it.

use coquina_host::{Role, Utilisation};

use crate::report::CpuFigures;

use super::{idle::Idle, servers::Servers};

/// The machine from the end of a load until it was quiet, or was not waited for any longer.
#[derive(Clone, Debug)]
pub(super) struct Afterwards {
    /// What it did.
    pub seen: Utilisation,
    /// How long the load was, warm-up included, in seconds.
    pub loaded_s: f64,
    /// Whether it became quiet in that time.
    pub is_quiet: bool,
}

impl Afterwards {
    /// As if it had been done during the load.
    fn spread(&self, per_s: f64) -> f64 {
        let spread = per_s * self.seen.seconds / self.loaded_s;
        if spread.is_finite() { spread.max(0.0) } else { 0.0 }
    }

    /// Bytes written to drives, for each second of the load.
    pub(super) fn drive_bytes_per_s(&self) -> f64 {
        self.spread(self.seen.drives.iter().map(|drive| drive.write_bytes_per_s).sum())
    }

    /// Adds CPU time to what was used during a load of so many operations per second.
    pub(super) fn add_cpu(
        &self,
        cpu: &mut CpuFigures,
        iops: f64,
        idle: &Idle,
        others: &[u32],
        servers: Servers,
    ) {
        let seen = &self.seen;
        let share = |us_per_s: f64| self.spread(us_per_s) / iops;
        let of_servers = seen.role_cores(Role::Target) * 1e6;
        let of_kernel = (seen.role_cores(Role::Kernel) * 1e6 - idle.kernel_us_per_s).max(0.0);
        let is_other = |pid: &u32| others.contains(pid);
        let of_others = seen.processes.iter().filter(|process| is_other(&process.pid));
        let cores_of_others: f64 = of_others.map(|process| seen.process_cores(process)).sum();
        let of_machine = if servers == Servers::All && seen.sees_kernel_threads {
            of_servers + of_kernel
        } else {
            let ours = seen.role_cores(Role::Harness) + seen.role_cores(Role::Generator);
            (seen.busy_cores - cores_of_others - ours) * 1e6 - idle.us_per_s
        };
        // What goes on and cannot be told from the servers' work need not be theirs.
        let is_known = servers == Servers::All || self.is_quiet;
        let more = Some(share(of_machine)).filter(|more| more.is_finite() && is_known);
        let (Some(more), Some(machine)) = (more, cpu.machine_us_per_io) else { return };
        cpu.machine_us_per_io = Some(machine + more);
        cpu.afterwards_us_per_io = Some(more);
        if let Some(us_per_io) = &mut cpu.servers_us_per_io {
            *us_per_io += share(of_servers);
        }
        if let Some(us_per_io) = &mut cpu.kernel_threads_us_per_io {
            *us_per_io += share(of_kernel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn afterwards() -> Afterwards {
        let by_role = [(Role::Target, 0.5), (Role::Kernel, 0.25), (Role::Harness, 0.1)].into();
        let drive = coquina_host::sampler::DriveUse { write_bytes_per_s: 8e6, ..Default::default() };
        let seen = Utilisation {
            seconds: 0.4,
            cores_online: 2,
            busy_cores: 1.0,
            by_role,
            sees_kernel_threads: true,
            drives: vec![drive],
            ..Utilisation::default()
        };
        Afterwards { seen, loaded_s: 2.0, is_quiet: true }
    }

    #[test]
    fn what_is_done_later_counts_for_the_load() {
        let idle = Idle { us_per_s: 1e5, kernel_us_per_s: 5e4, ..Idle::default() };
        let added = |servers| {
            let mut cpu = CpuFigures {
                machine_us_per_io: Some(300.0),
                servers_us_per_io: Some(200.0),
                kernel_threads_us_per_io: None,
                ..CpuFigures::default()
            };
            afterwards().add_cpu(&mut cpu, 1000.0, &idle, &[], servers);
            let figures = [cpu.machine_us_per_io, cpu.servers_us_per_io, cpu.afterwards_us_per_io];
            assert_eq!(cpu.kernel_threads_us_per_io, None, "not seen");
            figures.map(|us| us.unwrap().round())
        };
        // 0.4 s of 0.7 cores, for 2,000 operations.
        assert_eq!(added(Servers::All), [440.0, 300.0, 140.0]);
        // The whole machine, but for what looks at it and what it always does: 0.8 cores.
        assert_eq!(added(Servers::Some), [460.0, 300.0, 160.0]);
        assert!((afterwards().drive_bytes_per_s() - 1.6e6).abs() < 1.0);
    }

    #[test]
    fn what_cannot_be_told_adds_nothing() {
        let mut cpu = CpuFigures { machine_us_per_io: Some(300.0), ..CpuFigures::default() };
        afterwards().add_cpu(&mut cpu, 0.0, &Idle::default(), &[], Servers::All);
        assert_eq!((cpu.machine_us_per_io, cpu.afterwards_us_per_io), (Some(300.0), None));
        let mut unseen = CpuFigures::default();
        afterwards().add_cpu(&mut unseen, 1000.0, &Idle::default(), &[], Servers::All);
        assert_eq!(unseen, CpuFigures::default());
        let mut busy = CpuFigures { machine_us_per_io: Some(300.0), ..CpuFigures::default() };
        let goes_on = Afterwards { is_quiet: false, ..afterwards() };
        goes_on.add_cpu(&mut busy, 1000.0, &Idle::default(), &[], Servers::Some);
        assert_eq!((busy.machine_us_per_io, busy.afterwards_us_per_io), (Some(300.0), None));
        let nothing = Afterwards { loaded_s: 0.0, ..afterwards() };
        assert!(nothing.drive_bytes_per_s().abs() < 1e-9);
    }
}
