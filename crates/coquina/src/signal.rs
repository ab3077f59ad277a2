//! Ctrl-C and SIGTERM: the first asks for a clean stop, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::CliError;

/// Exit code of a process ended by Ctrl-C.
const EXIT_CODE_INTERRUPTED: i32 = 130;

/// Set by the first signal. `on_first` runs once, on the thread that handles signals.
pub fn stop_flag(on_first: impl Fn() + Send + 'static) -> Result<Arc<AtomicBool>, CliError> {
    let flag = Arc::new(AtomicBool::new(false));
    let (seen, count) = (flag.clone(), AtomicU32::new(0));
    ctrlc::set_handler(move || {
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            seen.store(true, Ordering::Relaxed);
            on_first();
        } else {
            std::process::exit(EXIT_CODE_INTERRUPTED);
        }
    })
    .map_err(|error| CliError::failed(format!("cannot handle signals: {error}")))?;
    Ok(flag)
}
