//! The parts of librados and librbd that are used, found at run time, so that only those who have Ceph need them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::error::TargetError;

/// An object of the libraries that only they look into.
pub(super) type Handle = *mut c_void;
/// What librbd calls when an operation is done, with the completion and what was handed in with it.
pub(super) type Callback = extern "C" fn(Handle, *mut c_void);

type MakeNamed = unsafe extern "C" fn(*mut Handle, *const c_char) -> c_int;
type OpenNamed = unsafe extern "C" fn(Handle, *const c_char, *mut Handle) -> c_int;
type Destroy = unsafe extern "C" fn(Handle);

/// Functions, as the headers of Ceph declare them.
pub(super) struct Library {
    pub(super) rados_create: MakeNamed,
    pub(super) rados_conf_read_file: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    pub(super) rados_connect: unsafe extern "C" fn(Handle) -> c_int,
    pub(super) rados_shutdown: Destroy,
    pub(super) rados_ioctx_create: OpenNamed,
    pub(super) rados_ioctx_destroy: Destroy,
    pub(super) rbd_open: unsafe extern "C" fn(Handle, *const c_char, *mut Handle, *const c_char) -> c_int,
    pub(super) rbd_close: unsafe extern "C" fn(Handle) -> c_int,
    pub(super) rbd_get_size: unsafe extern "C" fn(Handle, *mut u64) -> c_int,
    pub(super) rbd_aio_create_completion: unsafe extern "C" fn(*mut c_void, Callback, *mut Handle) -> c_int,
    pub(super) rbd_aio_read: unsafe extern "C" fn(Handle, u64, usize, *mut c_char, Handle) -> c_int,
    pub(super) rbd_aio_write: unsafe extern "C" fn(Handle, u64, usize, *const c_char, Handle) -> c_int,
    pub(super) rbd_aio_flush: unsafe extern "C" fn(Handle, Handle) -> c_int,
    pub(super) rbd_aio_get_return_value: unsafe extern "C" fn(Handle) -> isize,
    pub(super) rbd_aio_release: Destroy,
}

static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();

/// The libraries, loaded once and never unloaded.
pub(super) fn library() -> Result<&'static Library, TargetError> {
    LIBRARY.get_or_init(load).as_ref().ok_or(TargetError::Unsupported(
        "RBD images need librbd.so.1 and librados.so.2: install the Debian package librbd1",
    ))
}

fn load() -> Option<Library> {
    let rados = open(c"librados.so.2")?;
    let rbd = open(c"librbd.so.1")?;
    // SAFETY: each name is that of a function with the type of its field, unchanged since the first version of these
    // library versions.
    #[allow(unsafe_code)]
    unsafe {
        Some(Library {
            rados_create: function(rados, c"rados_create")?,
            rados_conf_read_file: function(rados, c"rados_conf_read_file")?,
            rados_connect: function(rados, c"rados_connect")?,
            rados_shutdown: function(rados, c"rados_shutdown")?,
            rados_ioctx_create: function(rados, c"rados_ioctx_create")?,
            rados_ioctx_destroy: function(rados, c"rados_ioctx_destroy")?,
            rbd_open: function(rbd, c"rbd_open")?,
            rbd_close: function(rbd, c"rbd_close")?,
            rbd_get_size: function(rbd, c"rbd_get_size")?,
            rbd_aio_create_completion: function(rbd, c"rbd_aio_create_completion")?,
            rbd_aio_read: function(rbd, c"rbd_aio_read")?,
            rbd_aio_write: function(rbd, c"rbd_aio_write")?,
            rbd_aio_flush: function(rbd, c"rbd_aio_flush")?,
            rbd_aio_get_return_value: function(rbd, c"rbd_aio_get_return_value")?,
            rbd_aio_release: function(rbd, c"rbd_aio_release")?,
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
