//! SIGHUP, which a terminal that is closed sends: `nohup` has it ignored, and what is started by that is to go on.

/// Whether this process ignores SIGHUP, as what `nohup` started does.
pub fn is_hangup_ignored() -> bool {
    // SAFETY: an action of zeros is a valid place to read into; only that place is written to.
    #[allow(unsafe_code)]
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Has this process ignore SIGHUP, whatever it did with it before.
pub fn ignore_hangup() {
    // SAFETY: no handler is set that could be called.
    #[allow(unsafe_code)]
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
    }
}
