//! The drive as the engine sees it at start-up, with power cuts in the middle of it.

use coquina_base::AlignedBuf;
use coquina_engine::{Device, IoError, IoToken};

use super::faults::EIO;
use super::{InFlight, VirtualDrive, Work};

impl VirtualDrive {
    /// Counts an operation. Gives whether the power fails during it.
    fn operate(&mut self) -> Result<bool, IoError> {
        if !self.powered {
            return Err(EIO);
        }
        self.operations += 1;
        if let Some(left) = &mut self.cut_after {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.powered = false;
                self.cut_after = None;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Device for VirtualDrive {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&mut self, offset_bytes: u64, buffer: &mut AlignedBuf) -> Result<(), IoError> {
        self.check_range(offset_bytes, buffer.len() as u64);
        if self.operate()? {
            return Err(EIO);
        }
        self.trace.add(&[6, offset_bytes, buffer.len() as u64]);
        self.read_now(offset_bytes, buffer)
    }

    fn write(&mut self, offset_bytes: u64, buffer: &AlignedBuf) -> Result<(), IoError> {
        self.check_range(offset_bytes, buffer.len() as u64);
        self.trace.add(&[7, offset_bytes]);
        self.trace.add_bytes(buffer);
        if self.operate()? {
            let io = InFlight {
                shard: 0,
                io: IoToken(0),
                offset_bytes,
                work: Work::Write(buffer.clone()),
                done_ns: 0,
                number: self.next_number,
            };
            self.end_write(&io, true);
            return Err(EIO);
        }
        self.write_durably(offset_bytes, buffer)
    }

    fn sync(&mut self) -> Result<(), IoError> {
        if self.operate()? {
            return Err(EIO);
        }
        self.trace.add(&[8]);
        self.volatile.clear();
        Ok(())
    }
}
