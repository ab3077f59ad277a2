//! RBD images of a Ceph cluster, by librbd. All jobs share one connection and one open image, as the threads of one client do.
//!
//! Ceph's usual files say where the cluster is; `CEPH_CONF` names another one.
//!
//! Invariants:
//! - buffers stay owned and in place until librbd has called back: a lane that is dropped with operations in flight waits
//!   for them, and gives its buffers up for good rather than free them too early;
//! - librbd's threads touch nothing of a lane but its list of what is done.

mod library;

use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::library::{Handle, Library, library};
use super::buffers::Buffers;
use super::{Completion, Lane, LaneOptions, Operation, Readiness, Target};
use crate::error::TargetError;

/// How long a lane that is dropped waits for what is in flight.
const DRAIN: Duration = Duration::from_secs(5);

/// An open image. Closed when the last lane is gone.
struct Image {
    library: &'static Library,
    name: String,
    cluster: Handle,
    pool: Handle,
    image: Handle,
}

// SAFETY: librados and librbd may be called from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Image {}
// SAFETY: the same, by several at a time.
#[allow(unsafe_code)]
unsafe impl Sync for Image {}

impl Image {
    fn open(user: &str, pool: &str, image: &str) -> Result<Self, TargetError> {
        let name = format!("rbd:{pool}/{image}");
        let text = |text: &str| {
            let reason = "a name with a zero byte in it".to_owned();
            CString::new(text).map_err(|_| TargetError::Refused { peer: name.clone(), reason })
        };
        let (user, pool, image) = (text(user)?, text(pool)?, text(image)?);
        let null = std::ptr::null_mut();
        let mut opened = Image { library: library()?, name, cluster: null, pool: null, image: null };
        let library = opened.library;
        // SAFETY: all names end in zero bytes; handles are written by the calls before, and closed once, by `drop`.
        #[allow(unsafe_code)]
        unsafe {
            let made = (library.rados_create)(&raw mut opened.cluster, user.as_ptr());
            opened.check(made, "a client cannot be made")?;
            let read = (library.rados_conf_read_file)(opened.cluster, std::ptr::null());
            opened.check(read, "there is no usable ceph.conf: name one with CEPH_CONF")?;
            let connected = (library.rados_connect)(opened.cluster);
            opened.check(connected, "cannot connect: look at the monitors, and at the key of the client")?;
            let found = (library.rados_ioctx_create)(opened.cluster, pool.as_ptr(), &raw mut opened.pool);
            opened.check(found, "there is no such pool: see `ceph osd pool ls`")?;
            let found =
                (library.rbd_open)(opened.pool, image.as_ptr(), &raw mut opened.image, std::ptr::null());
            opened.check(found, "there is no such image: see `rbd ls POOL`")?;
        }
        Ok(opened)
    }

    fn check(&self, result: c_int, what: &str) -> Result<(), TargetError> {
        if result >= 0 {
            return Ok(());
        }
        let error = std::io::Error::from_raw_os_error(-result);
        Err(TargetError::Refused { peer: self.name.clone(), reason: format!("{what} ({error})") })
    }

    fn size_bytes(&self) -> Result<u64, TargetError> {
        let mut size_bytes = 0;
        // SAFETY: the image is open and the place for the answer is valid.
        #[allow(unsafe_code)]
        let asked = unsafe { (self.library.rbd_get_size)(self.image, &raw mut size_bytes) };
        self.check(asked, "its size cannot be asked for")?;
        Ok(size_bytes)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: each handle is null or open, and not used after this.
        #[allow(unsafe_code)]
        unsafe {
            if !self.image.is_null() {
                (self.library.rbd_close)(self.image);
            }
            if !self.pool.is_null() {
                (self.library.rados_ioctx_destroy)(self.pool);
            }
            if !self.cluster.is_null() {
                (self.library.rados_shutdown)(self.cluster);
            }
        }
    }
}

/// An RBD image.
pub(super) struct RbdTarget {
    image: Arc<Image>,
    size_bytes: u64,
}

impl RbdTarget {
    /// Connects and opens the image.
    pub fn open(user: &str, pool: &str, image: &str) -> Result<Self, TargetError> {
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
        Ok(Box::new(RbdLane::new(Arc::clone(&self.image), options)))
    }
}

/// What is done, and who waits for it.
struct Finished {
    list: Mutex<Vec<Completion>>,
    arrived: Condvar,
}

/// What librbd hands back with a completion.
struct Token {
    finished: Arc<Finished>,
    library: &'static Library,
    slot: u32,
}

/// Called by a thread of librbd when an operation is done.
extern "C" fn done(completion: Handle, token: *mut c_void) {
    // SAFETY: the token is one of a lane, which keeps it while operations are in flight.
    #[allow(unsafe_code)]
    let token = unsafe { &*token.cast::<Token>() };
    // SAFETY: the completion is done, and is released here only.
    #[allow(unsafe_code)]
    let result = unsafe {
        let result = (token.library.rbd_aio_get_return_value)(completion);
        (token.library.rbd_aio_release)(completion);
        result
    };
    let errno = if result < 0 { c_int::try_from(-result).unwrap_or(libc::EIO) } else { 0 };
    // The lane may be gone as soon as it has seen this.
    let finished = Arc::clone(&token.finished);
    let slot = token.slot;
    finished.list.lock().unwrap_or_else(PoisonError::into_inner).push(Completion { slot, errno });
    finished.arrived.notify_one();
}

/// One job's way to an image.
struct RbdLane {
    image: Arc<Image>,
    finished: Arc<Finished>,
    tokens: Box<[Token]>,
    buffers: Buffers,
    in_flight: usize,
}

impl RbdLane {
    fn new(image: Arc<Image>, options: &LaneOptions) -> Self {
        let list = Mutex::new(Vec::with_capacity(options.depth as usize));
        let finished = Arc::new(Finished { list, arrived: Condvar::new() });
        let token = |slot| Token { finished: Arc::clone(&finished), library: image.library, slot };
        RbdLane {
            tokens: (0..options.depth).map(token).collect(),
            finished,
            buffers: Buffers::new(options),
            in_flight: 0,
            image,
        }
    }

    /// Hands an operation to librbd; gives what it answered.
    fn start(&mut self, slot: u32, operation: Operation, offset_bytes: u64, length_bytes: usize) -> c_int {
        let library = self.image.library;
        let image = self.image.image;
        let token: *const Token = &raw const self.tokens[slot as usize];
        let mut completion = std::ptr::null_mut();
        // SAFETY: tokens and buffers live in `self`, are neither moved nor freed while the operation is in flight (see
        // `drop`), and are not touched by this thread until it completes; the slices check the range.
        #[allow(unsafe_code)]
        unsafe {
            let made =
                (library.rbd_aio_create_completion)(token.cast_mut().cast(), done, &raw mut completion);
            if made < 0 {
                return made;
            }
            let started = match operation {
                Operation::Read => {
                    let buffer = self.buffers.read_part(slot, 0, length_bytes);
                    (library.rbd_aio_read)(
                        image,
                        offset_bytes,
                        length_bytes,
                        buffer.as_mut_ptr().cast(),
                        completion,
                    )
                }
                Operation::Write => {
                    let buffer = self.buffers.write_part(slot, 0, length_bytes);
                    (library.rbd_aio_write)(
                        image,
                        offset_bytes,
                        length_bytes,
                        buffer.as_ptr().cast(),
                        completion,
                    )
                }
                Operation::Flush => (library.rbd_aio_flush)(image, completion),
            };
            if started < 0 {
                (library.rbd_aio_release)(completion);
            }
            started
        }
    }
}

impl Lane for RbdLane {
    fn write_buffer(&mut self, slot: u32) -> &mut [u8] {
        self.buffers.write_buffer(slot)
    }

    fn read_buffer(&self, slot: u32) -> &[u8] {
        self.buffers.read_buffer(slot)
    }

    fn submit(&mut self, slot: u32, operation: Operation, offset_bytes: u64, length_bytes: u32) {
        assert!(length_bytes as usize <= self.buffers.io_bytes_max(), "an operation fits its buffer");
        let started = self.start(slot, operation, offset_bytes, length_bytes as usize);
        self.in_flight += 1;
        if started < 0 {
            let failed = Completion { slot, errno: -started };
            self.finished.list.lock().unwrap_or_else(PoisonError::into_inner).push(failed);
        }
    }

    fn turn(&mut self, timeout: Duration, completions: &mut Vec<Completion>) -> Result<(), TargetError> {
        let list = self.finished.list.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.finished.arrived.wait_timeout_while(list, timeout, |list| list.is_empty());
        let mut list = waited.unwrap_or_else(PoisonError::into_inner).0;
        self.in_flight -= list.len();
        completions.append(&mut list);
        Ok(())
    }
}

impl Drop for RbdLane {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        let began = Instant::now();
        while self.in_flight > 0 && began.elapsed() < DRAIN {
            // It cannot fail.
            let _ = self.turn(Duration::from_millis(100), &mut completions);
        }
        if self.in_flight > 0 {
            // librbd may still write into or read from them, and close nothing that it works on.
            self.buffers.leak();
            std::mem::forget(std::mem::take(&mut self.tokens));
            std::mem::forget(Arc::clone(&self.image));
        }
    }
}
