//! The parts of librados and librbd that are used, found at run time, so that only those who have Ceph need them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::error::TargetError;

/// An object of the libraries that only they look into.
pub(super) type Handle = *mut c_void;
/// What they call when an operation is done, with the completion and what was handed in with it.
pub(super) type Callback = extern "C" fn(Handle, *mut c_void);

type MakeNamed = unsafe extern "C" fn(*mut Handle, *const c_char) -> c_int;
type OpenNamed = unsafe extern "C" fn(Handle, *const c_char, *mut Handle) -> c_int;
type Destroy = unsafe extern "C" fn(Handle);

/// Functions of librados, as its header declares them.
pub(super) struct Rados {
    pub(super) create: MakeNamed,
    pub(super) conf_read_file: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    pub(super) connect: unsafe extern "C" fn(Handle) -> c_int,
    pub(super) shutdown: Destroy,
    pub(super) ioctx_create: OpenNamed,
    pub(super) ioctx_destroy: Destroy,
    pub(super) aio_create_completion:
        unsafe extern "C" fn(*mut c_void, Option<Callback>, Option<Callback>, *mut Handle) -> c_int,
    pub(super) aio_read:
        unsafe extern "C" fn(Handle, *const c_char, Handle, *mut c_char, usize, u64) -> c_int,
    pub(super) aio_write_full:
        unsafe extern "C" fn(Handle, *const c_char, Handle, *const c_char, usize) -> c_int,
    pub(super) aio_remove: unsafe extern "C" fn(Handle, *const c_char, Handle) -> c_int,
    pub(super) aio_get_return_value: unsafe extern "C" fn(Handle) -> c_int,
    pub(super) aio_release: Destroy,
}

/// Functions of librbd, as its header declares them.
pub(super) struct Rbd {
    pub(super) open: unsafe extern "C" fn(Handle, *const c_char, *mut Handle, *const c_char) -> c_int,
    pub(super) close: unsafe extern "C" fn(Handle) -> c_int,
    pub(super) get_size: unsafe extern "C" fn(Handle, *mut u64) -> c_int,
    pub(super) aio_create_completion: unsafe extern "C" fn(*mut c_void, Callback, *mut Handle) -> c_int,
    pub(super) aio_read: unsafe extern "C" fn(Handle, u64, usize, *mut c_char, Handle) -> c_int,
    pub(super) aio_write: unsafe extern "C" fn(Handle, u64, usize, *const c_char, Handle) -> c_int,
    pub(super) aio_flush: unsafe extern "C" fn(Handle, Handle) -> c_int,
    pub(super) aio_get_return_value: unsafe extern "C" fn(Handle) -> isize,
    pub(super) aio_release: Destroy,
}

static RADOS: OnceLock<Option<Rados>> = OnceLock::new();
static RBD: OnceLock<Option<Rbd>> = OnceLock::new();

/// librados, loaded once and never unloaded.
pub(super) fn rados() -> Result<&'static Rados, TargetError> {
    RADOS.get_or_init(load_rados).as_ref().ok_or(TargetError::Unsupported(
        "RBD images and RADOS objects need librados.so.2: install the Debian package librados2, or librbd1, which brings it",
    ))
}

/// librbd, loaded once and never unloaded.
pub(super) fn rbd() -> Result<&'static Rbd, TargetError> {
    RBD.get_or_init(load_rbd)
        .as_ref()
        .ok_or(TargetError::Unsupported("RBD images need librbd.so.1: install the Debian package librbd1"))
}

fn load_rados() -> Option<Rados> {
    let library = open(c"librados.so.2")?;
    // SAFETY: each name is that of a function with the type of its field, unchanged since the first version of this library
    // version.
    #[allow(unsafe_code)]
    unsafe {
        Some(Rados {
            create: function(library, c"rados_create")?,
            conf_read_file: function(library, c"rados_conf_read_file")?,
            connect: function(library, c"rados_connect")?,
            shutdown: function(library, c"rados_shutdown")?,
            ioctx_create: function(library, c"rados_ioctx_create")?,
            ioctx_destroy: function(library, c"rados_ioctx_destroy")?,
            aio_create_completion: function(library, c"rados_aio_create_completion")?,
            aio_read: function(library, c"rados_aio_read")?,
            aio_write_full: function(library, c"rados_aio_write_full")?,
            aio_remove: function(library, c"rados_aio_remove")?,
            aio_get_return_value: function(library, c"rados_aio_get_return_value")?,
            aio_release: function(library, c"rados_aio_release")?,
        })
    }
}

fn load_rbd() -> Option<Rbd> {
    let library = open(c"librbd.so.1")?;
    // SAFETY: as above.
    #[allow(unsafe_code)]
    unsafe {
        Some(Rbd {
            open: function(library, c"rbd_open")?,
            close: function(library, c"rbd_close")?,
            get_size: function(library, c"rbd_get_size")?,
            aio_create_completion: function(library, c"rbd_aio_create_completion")?,
            aio_read: function(library, c"rbd_aio_read")?,
            aio_write: function(library, c"rbd_aio_write")?,
            aio_flush: function(library, c"rbd_aio_flush")?,
            aio_get_return_value: function(library, c"rbd_aio_get_return_value")?,
            aio_release: function(library, c"rbd_aio_release")?,
        })
    }
}

fn open(name: &CStr) -> Option<Handle> {
    // SAFETY: the name ends in a zero byte; these libraries may be loaded at any time.
    #[allow(unsafe_code)]
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    (!handle.is_null()).then_some(handle)
}

/// A function of a library.
///
/// # Safety
/// `F` must be the type of the function of that name.
#[allow(unsafe_code)]
unsafe fn function<F: Copy>(library: Handle, name: &CStr) -> Option<F> {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>(), "a function pointer is one word");
    // SAFETY: the library is loaded and the name ends in a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: it is not null and, by this function's contract, of this type.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
}
