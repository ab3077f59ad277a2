//! The command line of the simulator.

/// How it is used.
pub const USAGE: &str = "\
usage: coquina-simulator COMMAND [--seed N] [--seeds K] [--cuts M] [--verbose]

  cuts        power cuts and crashes at random steps of random requests; M cuts for each of K seeds
  rot         spoilt bytes, lost writes, truncated drives; one drive for each of K seeds
  bytes       at least 150, or M, single bytes of one drive spoilt one after another, for each of K seeds
  faults      failing and stalled reads and writes; one drive for each of K seeds
  cluster     whole clusters with faults of all kinds; one cluster for each of K seeds
  sweeps      clusters in which groups move all the time, and are forgotten where they were; one for each of K seeds
  mutations   deliberately broken engines and protocols that the campaign must catch, from seed 1000000 on
              (cargo run -p coquina-simulator --features mutations -- mutations)

The same seed gives the same run. Exit code 1: something was found, and a line repeats it.";

/// What to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// The power-cut campaign.
    Cuts,
    /// Bit rot.
    Rot,
    /// Rot of one byte after another.
    Bytes,
    /// Failing drives.
    Faults,
    /// Whole clusters.
    Cluster,
    /// Clusters whose groups move and are forgotten.
    Sweeps,
    /// Broken engines.
    Mutations,
}

impl Command {
    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Command::Cuts => "cuts",
            Command::Rot => "rot",
            Command::Bytes => "bytes",
            Command::Faults => "faults",
            Command::Cluster => "cluster",
            Command::Sweeps => "sweeps",
            Command::Mutations => "mutations",
        }
    }
}

/// The command line, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// What to run.
    pub command: Command,
    /// First seed.
    pub seed: u64,
    /// How many seeds.
    pub seeds: u64,
    /// Cuts of each seed.
    pub cuts: u64,
    /// One line for each seed.
    pub verbose: bool,
}

impl Options {
    /// Reads the arguments after the program's name. The error says what is wrong with them.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let commands = [
            Command::Cuts,
            Command::Rot,
            Command::Bytes,
            Command::Faults,
            Command::Cluster,
            Command::Sweeps,
            Command::Mutations,
        ];
        let name = arguments.next().ok_or("name a command")?;
        let command = commands.into_iter().find(|command| command.name() == name);
        let command = command.ok_or_else(|| format!("{name:?} is not a command"))?;
        // Seeds that nobody developed with.
        let seed = if command == Command::Mutations { 1_000_000 } else { 1 };
        let mut options = Options { command, seed, seeds: 1, cuts: 20, verbose: false };
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
                text.parse::<u64>().map_err(|_| format!("{argument} {text}: not a number"))
            };
            match argument.as_str() {
                "--seed" => options.seed = number()?,
                "--seeds" => options.seeds = number()?,
                "--cuts" => options.cuts = number()?,
                "--verbose" => options.verbose = true,
                other => return Err(format!("{other:?} is not an option")),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_and_mistakes_named() {
        let options = parse("cuts --seed 7 --cuts 30 --seeds 2").unwrap();
        assert_eq!((options.command, options.seed, options.cuts, options.seeds), (Command::Cuts, 7, 30, 2));
        assert_eq!(parse("cuts --seed"), Err("--seed needs a number".to_owned()));
        assert_eq!(parse("cuts --seed x"), Err("--seed x: not a number".to_owned()));
        assert_eq!(parse("flood"), Err("\"flood\" is not a command".to_owned()));
        assert!(parse("").is_err());
    }
}
