//! A connection to a cluster, and one of its pools.

use std::ffi::{CString, c_int};

use super::library::{Handle, Rados};
use crate::error::TargetError;

/// A connected client with an open pool. Both are closed when this goes.
pub(super) struct Connection {
    pub(super) rados: &'static Rados,
    /// What it was opened for, as it was named.
    name: String,
    cluster: Handle,
    pub(super) pool: Handle,
}

// SAFETY: librados may be called from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Connection {}
// SAFETY: the same, by several at a time.
#[allow(unsafe_code)]
unsafe impl Sync for Connection {}

impl Connection {
    /// Connects as this user.
    pub(super) fn open(
        rados: &'static Rados,
        user: &str,
        pool: &str,
        name: String,
    ) -> Result<Self, TargetError> {
        let null = std::ptr::null_mut();
        let mut opened = Connection { rados, name, cluster: null, pool: null };
        let (user, pool) = (opened.text(user)?, opened.text(pool)?);
        // SAFETY: both names end in zero bytes; handles are written by the calls before, and closed once, by `drop`.
        #[allow(unsafe_code)]
        unsafe {
            let made = (rados.create)(&raw mut opened.cluster, user.as_ptr());
            opened.check(made, "a client cannot be made")?;
            let read = (rados.conf_read_file)(opened.cluster, std::ptr::null());
            opened.check(read, "there is no usable ceph.conf: name one with CEPH_CONF")?;
            let connected = (rados.connect)(opened.cluster);
            opened.check(connected, "cannot connect: look at the monitors, and at the key of the client")?;
            let found = (rados.ioctx_create)(opened.cluster, pool.as_ptr(), &raw mut opened.pool);
            opened.check(found, "there is no such pool: see `ceph osd pool ls`")?;
        }
        Ok(opened)
    }

    /// A name as the libraries take it.
    pub(super) fn text(&self, text: &str) -> Result<CString, TargetError> {
        let reason = "a name with a zero byte in it".to_owned();
        CString::new(text).map_err(|_| TargetError::Refused { peer: self.name.clone(), reason })
    }

    /// Says what was wanted if a call of the libraries failed.
    pub(super) fn check(&self, result: c_int, what: &str) -> Result<(), TargetError> {
        if result >= 0 {
            return Ok(());
        }
        let error = std::io::Error::from_raw_os_error(-result);
        Err(TargetError::Refused { peer: self.name.clone(), reason: format!("{what} ({error})") })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: each handle is null or open, and not used after this.
        #[allow(unsafe_code)]
        unsafe {
            if !self.pool.is_null() {
                (self.rados.ioctx_destroy)(self.pool);
            }
            if !self.cluster.is_null() {
                (self.rados.shutdown)(self.cluster);
            }
        }
    }
}
