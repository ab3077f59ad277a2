//! Runs campaigns from the command line; every failure ends in a line that repeats it.

mod options;

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Instant;

use coquina_engine::Shard;
use coquina_simulator::campaign::{self, SeedFailure};
use coquina_simulator::cluster::{self, ClusterReport};
use coquina_simulator::counters::Counters;
use coquina_simulator::device_faults::{self, FaultReport};
use coquina_simulator::rot::{self, RotReport};
use options::{Command, Options};

thread_local! {
    /// The command that repeats what runs now.
    static REPRODUCTION: RefCell<String> = const { RefCell::new(String::new()) };
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    if options.command != Command::Mutations {
        report_panics();
    }
    let right = match options.command {
        Command::Cuts => run_cuts(&options),
        Command::Rot => run_rot(&options),
        Command::Bytes => run_bytes(&options),
        Command::Faults => run_faults(&options),
        Command::Cluster | Command::Sweeps => run_clusters(&options),
        Command::Mutations => run_mutations(&options),
    };
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A panic of the engine is a finding like any other: it names its seed.
fn report_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        default(panic);
        REPRODUCTION.with_borrow(|line| println!("FAILED: a panic\nreproduce: {line}"));
        std::process::exit(1);
    }));
}

fn set_reproduction(options: &Options, seed: u64) {
    let profile = if cfg!(debug_assertions) { "" } else { "--release " };
    let name = options.command.name();
    let counted = matches!(options.command, Command::Cuts | Command::Bytes);
    let cuts = if counted { format!(" --cuts {}", options.cuts) } else { String::new() };
    let line = format!("cargo run {profile}-p coquina-simulator -- {name} --seed {seed}{cuts}");
    REPRODUCTION.with_borrow_mut(|reproduction| *reproduction = line);
}

fn fail(failure: &SeedFailure) -> bool {
    println!("FAILED: {failure}");
    REPRODUCTION.with_borrow(|line| println!("reproduce: {line}"));
    false
}

fn run_cuts(options: &Options) -> bool {
    let start = Instant::now();
    let mut total = Counters::default();
    for seed in options.seed..options.seed + options.seeds {
        set_reproduction(options, seed);
        match campaign::run_seed::<Shard>(seed, options.cuts, |_| {}) {
            Ok(report) => {
                if options.seeds <= 20 || options.verbose {
                    println!("seed {seed}: {} cuts, trace {:016x}", report.counters.cuts(), report.trace);
                }
                total.add(&report.counters);
            }
            Err(failure) => return fail(&failure),
        }
    }
    println!("{} cuts, {} requests, nothing lost", total.cuts(), total.requests());
    for (name, count) in total.list() {
        println!("  {name:20} {count:>12}");
    }
    println!("{:.1} s", start.elapsed().as_secs_f64());
    let missing = total.missing();
    if options.seeds >= 100 && !missing.is_empty() {
        println!("FAILED: these never happened: {}", missing.join(", "));
        return false;
    }
    true
}

fn run_rot(options: &Options) -> bool {
    let mut total = RotReport::default();
    for seed in options.seed..options.seed + options.seeds {
        set_reproduction(options, seed);
        match rot::run_seed::<Shard>(seed, |_| {}) {
            Ok(report) => total.add(&report),
            Err(failure) => return fail(&failure),
        }
    }
    println!("{total:#?}");
    true
}

fn run_bytes(options: &Options) -> bool {
    let mut total = RotReport::default();
    for seed in options.seed..options.seed + options.seeds {
        set_reproduction(options, seed);
        match rot::run_every_byte::<Shard>(seed, options.cuts.max(150), |_| {}) {
            Ok(report) => total.add(&report),
            Err(failure) => return fail(&failure),
        }
    }
    println!("{total:#?}");
    true
}

fn run_faults(options: &Options) -> bool {
    let mut total = FaultReport::default();
    for seed in options.seed..options.seed + options.seeds {
        set_reproduction(options, seed);
        match device_faults::run_seed::<Shard>(seed, &device_faults::SCENARIOS, |_| {}) {
            Ok(report) => total.add(&report),
            Err(failure) => return fail(&failure),
        }
    }
    println!("{total:#?}");
    true
}

fn run_clusters(options: &Options) -> bool {
    let start = Instant::now();
    let mut total = ClusterReport::default();
    for seed in options.seed..options.seed + options.seeds {
        set_reproduction(options, seed);
        let run = if options.command == Command::Sweeps { cluster::run_swept } else { cluster::run_seed };
        match run(seed, options.verbose) {
            Ok(report) => {
                if options.seeds <= 20 {
                    println!("seed {seed}: {} requests, trace {:016x}", report.answered, report.trace);
                }
                total.add(&report);
            }
            Err(violation) => {
                println!("FAILED: seed {seed}: {violation}");
                REPRODUCTION.with_borrow(|line| println!("reproduce: {line}"));
                return false;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} seeds: {} requests ({} reads), {} messages, {} faults, {:.1} simulated hours; nothing wrong",
        options.seeds,
        total.answered,
        total.reads,
        total.messages,
        total.faults,
        total.simulated_ns as f64 / 3.6e12
    );
    for (rare, count) in &total.rare {
        println!("  {:26} {count:>12}", format!("{rare:?}"));
    }
    println!(
        "{seconds:.1} s: {:.0} checked requests and {:.0} faults per second",
        total.answered as f64 / seconds,
        total.faults as f64 / seconds
    );
    if options.command == Command::Sweeps {
        let ClusterReport { groups_forgotten, groups_returned, chunks_trimmed, .. } = total;
        println!(
            "{groups_forgotten} groups forgotten, {groups_returned} returned, {chunks_trimmed} chunks trimmed"
        );
        return true;
    }
    let missing = total.missing();
    if options.seeds >= 50 && !missing.is_empty() {
        println!("FAILED: these never happened: {missing:?}");
        return false;
    }
    true
}

#[cfg(not(feature = "mutations"))]
fn run_mutations(_options: &Options) -> bool {
    println!(
        "broken engines are built only with: cargo run -p coquina-simulator --features mutations -- mutations"
    );
    false
}

#[cfg(feature = "mutations")]
fn run_mutations(options: &Options) -> bool {
    use coquina_simulator::mutations;
    // Panics are findings here, not noise.
    std::panic::set_hook(Box::new(|_| {}));
    let mut all = true;
    println!("{} seeds from {} on for each", options.seeds.max(1000), options.seed);
    for mutation in mutations::PROTOCOL {
        match mutations::hunt_protocol(mutation, options.seed, options.seeds.max(1000)) {
            Some(caught) => {
                let text = caught.violation.to_string();
                let line = text.lines().next().unwrap_or_default();
                println!(
                    "{mutation:?}: caught after {} seeds ({} of them only hung), by cluster {}: {}",
                    caught.seed + 1 - options.seed,
                    caught.unclear,
                    caught.seed,
                    line.chars().take(200).collect::<String>()
                );
            }
            None => {
                println!("FAILED: {mutation:?} was not caught");
                all = false;
            }
        }
    }
    for mutation in mutations::ALL {
        match mutations::hunt(mutation, options.seed, options.seeds.max(400), options.cuts) {
            Some(caught) => println!("{mutation:?}: caught after {} cuts, {}", caught.cuts, caught.failure),
            None => {
                println!("FAILED: {mutation:?} was not caught");
                all = false;
            }
        }
    }
    all
}
