//! Stores that others use as well.

use super::*;

/// A store that ran before, with so much room, of which so much may be taken unasked.
struct Careful {
    careful_bytes: Option<u64>,
}

impl Target for Careful {
    fn spec(&self) -> &str {
        "rbd:pool/disk"
    }
    fn begin(&mut self, _context: &Context<'_>) -> Result<(), TargetError> {
        Ok(())
    }
    fn facts(&self) -> TargetFacts {
        TargetFacts { label: "careful".to_owned(), durable: Some(true), ..TargetFacts::default() }
    }
    fn space_bytes(&self, _copies: Option<u32>, _context: &Context<'_>) -> Result<Option<u64>, TargetError> {
        Ok(Some(10 << 30))
    }
    fn is_store_shared(&self) -> bool {
        true
    }
    fn careful_bytes(
        &self,
        _copies: Option<u32>,
        _context: &Context<'_>,
    ) -> Result<Option<u64>, TargetError> {
        Ok(self.careful_bytes)
    }
    fn refuses(&self, _layout: &Layout) -> Option<String> {
        None
    }
    fn lay_out(&mut self, _layout: &Layout, _context: &Context<'_>) -> Result<bool, TargetError> {
        Ok(false)
    }
    fn commands(&self, _load: &Load, _volumes: &[u32]) -> Vec<Command> {
        Vec::new()
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
fn a_store_that_others_use_is_not_filled_further_than_it_may_be_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = EXPERIMENT.replace("16MiB", "1GiB");
    let laid_out = |careful_bytes: Option<u64>, change: &dyn Fn(&mut Settings)| {
        let mut settings = settings(&experiment, &["rbd:pool/disk"], folder.path());
        change(&mut settings);
        let planned = settings.plan();
        let hooks = Hooks { stopped: &|| false, say: &|_| {}, progress: &|_, _| {}, partial: &|_| {} };
        let store: Box<dyn Target> = Box::new(Careful { careful_bytes });
        let mut run = Run::new(&settings, &hooks, context_of(&settings), vec![store], &planned);
        let layout = run.lay_out(&planned[0], &mut [None]).map_err(|error| error.to_string());
        let notes: Vec<String> = run.report.findings.into_iter().map(|found| found.text).collect();
        (layout.map(|layout| layout.volume_bytes >> 20), notes)
    };
    assert_eq!(laid_out(Some(2 << 30), &|_| {}), (Ok(1024), Vec::new()), "there is room");
    assert_eq!(laid_out(None, &|_| {}), (Ok(1024), Vec::new()));
    let (size, notes) = laid_out(Some(100 << 20), &|_| {});
    let wanted = "volumes are of 96 MiB each in place of 1 GiB, for the room in rbd:pool/disk: others may use that store, of which no more \
                  is taken unasked than until it is 80 % full, or 20 % of what is free where that is not told; --fill-stores allows more";
    assert_eq!((size, notes), (Ok(96), vec![wanted.to_owned()]));
    assert_eq!(laid_out(Some(100 << 20), &|settings| settings.fill_stores = true), (Ok(1024), Vec::new()));
    let refused = |careful_bytes: u64, change: &dyn Fn(&mut Settings)| {
        let error = laid_out(Some(careful_bytes), change).0.unwrap_err();
        assert!(error.contains("until it is 80 % full") && error.contains("--fill-stores"), "{error}");
        error
    };
    let full = refused(0, &|_| {});
    assert!(full.starts_with("rbd:pool/disk: 16 MiB for 1 volume(s) are needed, 0 B (others"), "{full}");
    refused(100 << 20, &|settings| settings.volume_bytes = Some(1 << 30));
}
