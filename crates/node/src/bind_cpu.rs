//! Whether reactors bind themselves to processors.

use coquina_reactor::BindTo;

/// When reactors bind themselves to processors.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum BindCpu {
    /// Never.
    #[default]
    Never,
    /// To that of the drives' interrupts while it serves NBD clients, if there is one reactor only: several would have to agree on who
    /// stays where.
    Interrupts,
    /// The first one to the first of these, and so on, while many requests are under way. Others stay free.
    Dealt(Vec<u32>),
}

impl BindCpu {
    /// Where one of so many reactors may bind itself.
    pub(crate) fn of(&self, reactor: usize, reactors: usize) -> BindTo {
        match self {
            BindCpu::Interrupts if reactors == 1 => BindTo::Interrupts,
            BindCpu::Never | BindCpu::Interrupts => BindTo::Nothing,
            BindCpu::Dealt(cpus) => cpus.get(reactor).map_or(BindTo::Nothing, |cpu| BindTo::Cpu(*cpu)),
        }
    }
}
