//! Ctrl-C, SIGTERM and SIGHUP: the first asks for a clean stop, one of the next ends the process at once. What `nohup` started does not
//! hear of SIGHUP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::{CliError, EXIT_CODE_INTERRUPTED};

/// Set by the first signal. `on_first` runs once, on the thread that handles signals. The signal with number
/// `force_at` ends the process at once.
pub fn stop_flag(force_at: u32, on_first: impl Fn() + Send + 'static) -> Result<Arc<AtomicBool>, CliError> {
    stop_flag_with(force_at, move |number| {
        if number == 1 {
            on_first();
        }
    })
}

/// The same; `on_each` runs at each signal with its number, also at the one that ends the process, before it does.
pub fn stop_flag_with(
    force_at: u32,
    on_each: impl Fn(u32) + Send + 'static,
) -> Result<Arc<AtomicBool>, CliError> {
    let flag = Arc::new(AtomicBool::new(false));
    let (seen, count) = (flag.clone(), AtomicU32::new(0));
    let is_hangup_ignored = coquina_host::is_hangup_ignored();
    ctrlc::set_handler(move || {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        seen.store(true, Ordering::Relaxed);
        on_each(number);
        if number >= force_at {
            std::process::exit(i32::from(EXIT_CODE_INTERRUPTED));
        }
    })
    .map_err(|error| CliError::failed(format!("cannot handle signals: {error}")))?;
    if is_hangup_ignored {
        coquina_host::ignore_hangup();
    }
    Ok(flag)
}
