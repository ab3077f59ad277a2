//! Large tables in huge pages: look-ups at random in them need few entries of the processor's table of pages.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::SLAB_BYTES;

/// An allocator for a whole program: the system's, but what takes a huge page or more begins at one and lies in them as far as it
/// fills them, where the system has them. What is behind the last whole one is ordinary, so that no memory is lost.
pub struct HugePages;

fn is_large(layout: Layout) -> bool {
    layout.size() >= SLAB_BYTES
}

/// Has the system use huge pages. Where they are switched off it refuses: then it is ordinary pages.
fn advise(start: *mut u8, size: usize) {
    let before = start.align_offset(SLAB_BYTES);
    let whole_bytes = size.saturating_sub(before) / SLAB_BYTES * SLAB_BYTES;
    if !start.is_null() && whole_bytes > 0 {
        // SAFETY: the whole huge pages of memory that was just allocated with this size; the advice changes no byte of it.
        #[allow(unsafe_code)]
        unsafe {
            libc::madvise(start.add(before).cast(), whole_bytes, libc::MADV_HUGEPAGE)
        };
    }
}

// SAFETY: what is small goes on to the system's allocator, and comes back to it, with the layout it was asked for with. What is large
// comes from the C library, by its size alone, and goes back to it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_large(layout) {
            // SAFETY: as asked for.
            return unsafe { System.alloc(layout) };
        }
        let mut start = std::ptr::null_mut();
        // SAFETY: a power of two that is a multiple of a pointer's size.
        let result =
            unsafe { libc::posix_memalign(&mut start, layout.align().max(SLAB_BYTES), layout.size()) };
        if result != 0 {
            return std::ptr::null_mut();
        }
        advise(start.cast(), layout.size());
        start.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_large(layout) {
            // SAFETY: as asked for.
            return unsafe { System.alloc_zeroed(layout) };
        }
        if layout.align() > align_of::<libc::max_align_t>() {
            // SAFETY: as asked for.
            let start = unsafe { self.alloc(layout) };
            if !start.is_null() {
                // SAFETY: so long it is.
                unsafe { start.write_bytes(0, layout.size()) };
            }
            return start;
        }
        // What is not touched takes no memory: so this is not aligned.
        // SAFETY: any size may be asked for.
        let start: *mut u8 = unsafe { libc::calloc(1, layout.size()) }.cast();
        advise(start, layout.size());
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        match is_large(layout) {
            // SAFETY: it came from there.
            true => unsafe { libc::free(start.cast()) },
            // SAFETY: the layout that it was taken with.
            false => unsafe { System.dealloc(start, layout) },
        }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_large(layout) && size < SLAB_BYTES {
            // SAFETY: as asked for.
            return unsafe { System.realloc(start, layout, size) };
        }
        // SAFETY: the caller promises that a size can be had with this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: not empty, as the caller promises.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both are as long as the shorter of them, and apart.
            unsafe { std::ptr::copy_nonoverlapping(start, new, layout.size().min(size)) };
            // SAFETY: nobody has it any more.
            unsafe { self.dealloc(start, layout) };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn what_is_large_begins_at_a_huge_page_and_keeps_its_bytes_as_it_grows_and_shrinks() {
        let check = |start: *const u8, size: usize, kept: usize| {
            assert!(!start.is_null());
            assert!(size < SLAB_BYTES || start as usize % SLAB_BYTES == 0, "{size} bytes at {start:p}");
            // SAFETY: just allocated, and written up to there.
            let bytes = unsafe { std::slice::from_raw_parts(start, kept) };
            assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8), "{kept} of {size} bytes");
        };
        let sizes = [
            64,
            4096,
            SLAB_BYTES - 1,
            SLAB_BYTES,
            3 * SLAB_BYTES + 100,
            2 * SLAB_BYTES,
            1000,
            SLAB_BYTES + 1,
            10,
        ];
        let mut layout = Layout::from_size_align(sizes[0], 16).expect("a layout");
        // SAFETY: not empty.
        let mut start = unsafe { HugePages.alloc(layout) };
        let mut kept = 0;
        for size in sizes {
            // SAFETY: taken with this layout; not empty.
            start = unsafe { HugePages.realloc(start, layout, size) };
            layout = Layout::from_size_align(size, 16).expect("a layout");
            check(start, size, kept.min(size));
            // SAFETY: so long it is.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, size) };
            bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
            kept = size;
        }
        // SAFETY: taken with this layout.
        unsafe { HugePages.dealloc(start, layout) };
        for (size, align) in [(100, 8), (2 * SLAB_BYTES + 5, 8), (4 * SLAB_BYTES, 4096)] {
            let layout = Layout::from_size_align(size, align).expect("a layout");
            // SAFETY: not empty.
            let start = unsafe { HugePages.alloc_zeroed(layout) };
            assert_eq!(start as usize % align, 0);
            // SAFETY: zeroed, so all of it may be read.
            let bytes = unsafe { std::slice::from_raw_parts(start, size) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            // SAFETY: taken with this layout.
            unsafe { HugePages.dealloc(start, layout) };
        }
    }
}
