//! Runs that end before all was measured.

use super::*;
use crate::generator::Format;

/// A target whose load is a script that prints what `coquina bench io` would.
struct Scripted {
    loads: Rc<Cell<u32>>,
}

pub(super) const SCRIPT: &str = r#"
began=$(date +%s%3N)
sleep 0.4
echo '{"measured_began_unix_ms": '$began', "measured_s": 0.4, "operations_by_500_ms": [], "errors": 0, "total": {"operations": 400,
"iops": 1000.0, "bytes_per_s": 4096000.0, "latency_ns_mean": 1000000.0, "latency_ns_max": 1000000, "latency_histogram": [[1000000, 400]]}}'
"#;

impl Target for Scripted {
    fn spec(&self) -> &str {
        "scripted"
    }
    fn begin(&mut self, _context: &Context<'_>) -> Result<(), TargetError> {
        Ok(())
    }
    fn facts(&self) -> TargetFacts {
        TargetFacts { label: "scripted".to_owned(), durable: Some(true), ..TargetFacts::default() }
    }
    fn space_bytes(&self, _copies: Option<u32>, _context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        Ok(None)
    }
    fn refuses(&self, _layout: &Layout) -> Option<String> {
        None
    }
    fn lay_out(&mut self, _layout: &Layout, _context: &Context<'_>) -> Result<bool, TargetError> {
        Ok(false)
    }
    fn commands(&self, load: &Load, _volumes: &[u32]) -> Vec<Command> {
        self.loads.set(self.loads.get() + 1);
        vec![Command {
            program: "bash".into(),
            arguments: ["-c", SCRIPT, "load"].map(str::to_owned).into(),
            environment: Vec::new(),
            files: Vec::new(),
            format: Format::Coquina,
            processors: None,
            runtime_s: load.amount.runtime_s(),
        }]
    }
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }
    fn places(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    fn end(&mut self) {}
}

#[test]
fn the_last_case_of_an_interrupted_scenario_has_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(EXPERIMENT, &["scripted"], folder.path());
    let planned = settings.plan();
    let loads: Rc<Cell<u32>> = Rc::default();
    // Within the second round of the second case.
    let stopped = || loads.get() >= 4;
    let hooks = Hooks { stopped: &stopped, say: &|_| {}, progress: &|_, _| {}, partial: &|_| {} };
    let target: Box<dyn Target> = Box::new(Scripted { loads: loads.clone() });
    let mut run = Run::new(&settings, &hooks, context_of(&settings), vec![target], &planned);
    let outcome = run.scenario(&planned[0]);
    assert!(outcome.as_ref().is_err_and(RunError::is_stop), "{outcome:?}");
    let report = run.close(outcome).unwrap();
    assert_eq!(report.interrupted.as_deref(), Some("stopped by its user"));
    let limits: Vec<Vec<&str>> = report
        .cases
        .iter()
        .map(|case| case.results[0].rounds.iter().map(|round| round.limit.text.as_str()).collect())
        .collect();
    assert_eq!(limits.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert!(limits.iter().flatten().all(|text| !text.is_empty()), "{limits:?}");
}
