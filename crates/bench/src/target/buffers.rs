//! Buffers of a lane: one for each slot to write from, and one to read into, each aligned for direct I/O.

use coquina_base::{AlignedBuf, BLOCK_BYTES};

use super::LaneOptions;

/// The buffers of all slots. They stay in place as long as this lives.
pub(super) struct Buffers {
    write: AlignedBuf,
    read: AlignedBuf,
    stride_bytes: usize,
    io_bytes_max: usize,
}

impl Buffers {
    /// As many and as large as the lane's options say.
    pub(super) fn new(options: &LaneOptions) -> Self {
        let stride_blocks = (options.io_bytes_max as usize).div_ceil(BLOCK_BYTES);
        let blocks = stride_blocks * options.depth as usize;
        Buffers {
            write: AlignedBuf::zeroed(if options.writes { blocks } else { 0 }),
            read: AlignedBuf::zeroed(if options.reads { blocks } else { 0 }),
            stride_bytes: stride_blocks * BLOCK_BYTES,
            io_bytes_max: options.io_bytes_max as usize,
        }
    }

    /// Largest operation, in bytes.
    pub(super) fn io_bytes_max(&self) -> usize {
        self.io_bytes_max
    }

    /// What a slot's next write is made from.
    pub(super) fn write_buffer(&mut self, slot: u32) -> &mut [u8] {
        let start = slot as usize * self.stride_bytes;
        &mut self.write[start..start + self.io_bytes_max]
    }

    /// What a slot's last read has brought.
    pub(super) fn read_buffer(&self, slot: u32) -> &[u8] {
        let start = slot as usize * self.stride_bytes;
        &self.read[start..start + self.io_bytes_max]
    }

    /// So many bytes of a slot's write, after `done_bytes` of it.
    pub(super) fn write_part(&self, slot: u32, done_bytes: usize, length_bytes: usize) -> &[u8] {
        let start = slot as usize * self.stride_bytes + done_bytes;
        &self.write[start..start + length_bytes]
    }

    /// Where so many bytes of a slot's read go, after `done_bytes` of it.
    pub(super) fn read_part(&mut self, slot: u32, done_bytes: usize, length_bytes: usize) -> &mut [u8] {
        let start = slot as usize * self.stride_bytes + done_bytes;
        &mut self.read[start..start + length_bytes]
    }

    /// Gives them up for good, since somebody may still read from or write into them.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.write));
        std::mem::forget(std::mem::take(&mut self.read));
    }
}
