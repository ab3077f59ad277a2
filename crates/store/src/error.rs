//! What can go wrong with a store, each with what to do about it.

use std::fmt::Write;

use crate::api::{Identity, KeyValue, LeaseId};

/// What became of one attempt at one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The endpoint, as it was configured.
    pub endpoint: String,
    /// What happened.
    pub reason: String,
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Conditions of a transaction did not hold; nothing was changed.
    #[error("{} changed by somebody else at the same time; read again and decide anew", conflicting(keys))]
    Conflict {
        /// The keys that the conditions looked at.
        keys: Vec<Vec<u8>>,
        /// Those of them that exist, as they are.
        current: Vec<KeyValue>,
    },
    /// No endpoint could be reached. Nothing was changed.
    #[error("cannot {doing}: no etcd endpoint answers ({}); start etcd, or correct --etcd", attempts(tried))]
    Unreachable {
        /// What was to be done, as a verb.
        doing: &'static str,
        /// What was tried.
        tried: Vec<Attempt>,
    },
    /// Endpoints were reached, but none answered in time. Nothing was changed.
    #[error(
        "cannot {doing}: no answer within {waited_ms} ms ({}); see whether etcd has a leader \
         (`etcdctl endpoint status`) and whether its disk and network keep up",
        attempts(tried)
    )]
    Slow {
        /// What was to be done, as a verb.
        doing: &'static str,
        /// How long it was waited for.
        waited_ms: u64,
        /// What was tried.
        tried: Vec<Attempt>,
    },
    /// A change was sent, and no answer came: it may have happened, or may still happen within moments.
    #[error(
        "it is not known whether the store did it ({doing}; {}: {}); read again to find out",
        attempt.endpoint, attempt.reason
    )]
    OutcomeUnknown {
        /// What was to be done, as a verb.
        doing: &'static str,
        /// What was tried last.
        attempt: Attempt,
    },
    /// User, password or token were refused, or do not give the right.
    #[error(
        "{endpoint} refuses access: {reason}; check the user, the password and the role's rights \
         (`etcdctl user get`)"
    )]
    AuthRefused {
        /// The endpoint.
        endpoint: String,
        /// What it said.
        reason: String,
    },
    /// The secure connection could not be made.
    #[error(
        "no secure connection to {endpoint}: {reason}; check that the CA file is the one that signed etcd's \
         certificate, that the certificate names this host, that neither has expired, and whether etcd wants \
         a client certificate"
    )]
    Tls {
        /// The endpoint.
        endpoint: String,
        /// What is wrong.
        reason: String,
    },
    /// The lease has expired or was revoked; its keys are gone.
    #[error("lease {lease} has ended and its keys are gone; take a new one and start over")]
    LeaseLost {
        /// The lease.
        lease: LeaseId,
    },
    /// The store is not the one seen before, or is in an older state: it was wiped or restored from a backup.
    #[error(
        "the store went back: it was seen as {:016x} at revision {}, and now is {:016x} at revision {}; it was \
         wiped, replaced or restored from an old backup. Nothing is changed in it. Bring the right data back",
        seen.store_id, seen.revision, now.store_id, now.revision
    )]
    WentBack {
        /// What was seen before.
        seen: Identity,
        /// What answers now.
        now: Identity,
    },
    /// The request can never be fulfilled: a mistake of the caller.
    #[error("not a valid request: {reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// The store has no space left.
    #[error(
        "{endpoint} takes no more changes: {reason}; compact and defragment etcd, then disarm its alarm \
         (`etcdctl alarm disarm`), or free space on its disk"
    )]
    Full {
        /// The endpoint.
        endpoint: String,
        /// What it said.
        reason: String,
    },
    /// The store refused for another reason, or answered nonsense.
    #[error("{endpoint} did not {doing}: {reason}; see etcd's log")]
    Refused {
        /// What was to be done, as a verb.
        doing: &'static str,
        /// The endpoint.
        endpoint: String,
        /// What it said.
        reason: String,
    },
    /// A file of the embedded store could not be read or written.
    #[error("cannot {doing} {path}: {reason}{}", advice_on_io(*kind))]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// The file or folder.
        path: String,
        /// What the operating system said.
        reason: String,
        /// The same, for programs.
        kind: std::io::ErrorKind,
    },
    /// Another process has the embedded store open.
    #[error("another process has the store in {path} open; connect to it, or stop it first")]
    InUse {
        /// The folder.
        path: String,
    },
    /// The file of the embedded store is damaged.
    #[error("the store's file {path} is damaged ({reason}); {}", advice_on_damage(previous.as_deref()))]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
        /// The copy from before the last time that it was rewritten, if there is one.
        previous: Option<String>,
    },
    /// The file of the embedded store was written by a newer version.
    #[error(
        "the store's file {path} has format {found}, and this version reads formats up to {newest}; use a \
         newer coquina"
    )]
    NewerFormat {
        /// The file.
        path: String,
        /// Its format.
        found: u32,
        /// The newest format that is read here.
        newest: u32,
    },
    /// A change could not be made durable: nothing more is done until the file could be written anew. Nothing was changed.
    #[error(
        "the store's file could not be written ({reason}); it is tried again every second, and changes are taken as soon as it \
         succeeds"
    )]
    Poisoned {
        /// What happened last.
        reason: String,
    },
    /// The store was closed.
    #[error("the store is being closed; try again once the server runs")]
    Closed,
}

impl StoreError {
    /// Whether the same request may succeed later without anybody doing anything.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            StoreError::Unreachable { .. }
                | StoreError::Slow { .. }
                | StoreError::OutcomeUnknown { .. }
                | StoreError::Closed
        )
    }

    pub(crate) fn io(
        doing: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> StoreError {
        let path = path.display().to_string();
        move |error| StoreError::Io { doing, path, reason: error.to_string(), kind: error.kind() }
    }
}

fn conflicting(keys: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for (index, key) in keys.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{separator}{}", String::from_utf8_lossy(key));
    }
    let verb = if keys.len() == 1 { "was" } else { "were" };
    format!("{text} {verb}")
}

fn attempts(tried: &[Attempt]) -> String {
    let texts: Vec<String> =
        tried.iter().map(|attempt| format!("{}: {}", attempt.endpoint, attempt.reason)).collect();
    texts.join("; ")
}

fn advice_on_io(kind: std::io::ErrorKind) -> &'static str {
    match kind {
        std::io::ErrorKind::PermissionDenied => {
            "; run as the user whose it is, or give another folder with --dir"
        }
        std::io::ErrorKind::ReadOnlyFilesystem => "; give a folder that can be written with --dir",
        std::io::ErrorKind::StorageFull => "; free some space on its file system",
        _ => "",
    }
}

fn advice_on_damage(previous: Option<&str>) -> String {
    match previous {
        Some(previous) => format!(
            "the newest copy in a backup is better; without one, the copy from before it was last rewritten, at the last start, is \
             {previous}: copy it over the damaged file to go back to it. Volumes, pools and drives that were made, changed or removed \
             since are lost or as they were then, and the next start refuses the older map and asks to delete cluster.json"
        ),
        None => "there is no earlier copy; restore it from a backup".to_owned(),
    }
}
