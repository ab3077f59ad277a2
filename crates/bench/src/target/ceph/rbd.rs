//! RBD images, by librbd. All jobs share one open image.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::super::{Lane, LaneOptions, Operation, Readiness, Target};
use super::connection::Connection;
use super::lane::{CephLane, Memory, Subject, errno_of};
use super::library::{Callback, Handle, Rbd, rados, rbd};
use crate::error::TargetError;

/// An open image. Closed when the last lane is gone.
struct Image {
    library: &'static Rbd,
    image: Handle,
    /// Goes after it.
    connection: Connection,
}

// SAFETY: librbd may be called from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Image {}
// SAFETY: the same, by several at a time.
#[allow(unsafe_code)]
unsafe impl Sync for Image {}

impl Image {
    fn open(user: &str, pool: &str, image: &str) -> Result<Self, TargetError> {
        let library = rbd()?;
        let connection = Connection::open(rados()?, user, pool, format!("rbd:{pool}/{image}"))?;
        let image = connection.text(image)?;
        let mut opened = Image { library, image: std::ptr::null_mut(), connection };
        // SAFETY: the pool is open and the name ends in a zero byte; the handle is closed once, by `drop`.
        #[allow(unsafe_code)]
        let found = unsafe {
            (library.open)(opened.connection.pool, image.as_ptr(), &raw mut opened.image, std::ptr::null())
        };
        opened.connection.check(found, "there is no such image: see `rbd ls POOL`")?;
        Ok(opened)
    }

    fn size_bytes(&self) -> Result<u64, TargetError> {
        let mut size_bytes = 0;
        // SAFETY: the image is open and the place for the answer is valid.
        #[allow(unsafe_code)]
        let asked = unsafe { (self.library.get_size)(self.image, &raw mut size_bytes) };
        self.connection.check(asked, "its size cannot be asked for")?;
        Ok(size_bytes)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if !self.image.is_null() {
            // SAFETY: it is open, and not used after this.
            #[allow(unsafe_code)]
            unsafe {
                (self.library.close)(self.image);
            }
        }
    }
}

impl Subject for Image {
    fn start(&self, offset_bytes: u64, memory: Memory<'_>, called: Callback, token: *mut c_void) -> c_int {
        let library = self.library;
        let mut completion = std::ptr::null_mut();
        // SAFETY: the image is open; the caller keeps token and memory in place until the library has called back.
        #[allow(unsafe_code)]
        unsafe {
            let made = (library.aio_create_completion)(token, called, &raw mut completion);
            if made < 0 {
                return made;
            }
            let started = match memory {
                Memory::Read(into) => (library.aio_read)(
                    self.image,
                    offset_bytes,
                    into.len(),
                    into.as_mut_ptr().cast(),
                    completion,
                ),
                Memory::Write(from) => (library.aio_write)(
                    self.image,
                    offset_bytes,
                    from.len(),
                    from.as_ptr().cast(),
                    completion,
                ),
                Memory::Flush => (library.aio_flush)(self.image, completion),
            };
            if started < 0 {
                (library.aio_release)(completion);
            }
            started
        }
    }

    fn take_result(completion: Handle) -> isize {
        let Ok(library) = rbd() else { return -(libc::EIO as isize) };
        // SAFETY: the completion is done, and is released here only.
        #[allow(unsafe_code)]
        unsafe {
            let result = (library.aio_get_return_value)(completion);
            (library.aio_release)(completion);
            result
        }
    }

    fn errno(&self, result: isize, _operation: Operation, _length_bytes: usize) -> i32 {
        errno_of(result)
    }
}

/// An RBD image.
pub(crate) struct RbdTarget {
    image: Arc<Image>,
    size_bytes: u64,
}

impl RbdTarget {
    /// Connects and opens the image.
    pub(crate) fn open(user: &str, pool: &str, image: &str) -> Result<Self, TargetError> {
        let image = Image::open(user, pool, image)?;
        Ok(RbdTarget { size_bytes: image.size_bytes()?, image: Arc::new(image) })
    }
}

impl Target for RbdTarget {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn readiness(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<Readiness, TargetError> {
        Ok(Readiness::Ready)
    }

    fn open_lane(&self, options: &LaneOptions) -> Result<Box<dyn Lane>, TargetError> {
        Ok(Box::new(CephLane::new(Arc::clone(&self.image), options)))
    }
}
