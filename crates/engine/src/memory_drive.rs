//! A drive in memory, for tests.

use coquina_base::AlignedBuf;

use crate::api::{Device, IoError};

pub(crate) struct Memory(pub Vec<u8>);

impl Device for Memory {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&mut self, offset_bytes: u64, buffer: &mut AlignedBuf) -> Result<(), IoError> {
        let (start, length) = (offset_bytes as usize, buffer.len());
        buffer.copy_from_slice(&self.0[start..][..length]);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, buffer: &AlignedBuf) -> Result<(), IoError> {
        self.0[offset_bytes as usize..][..buffer.len()].copy_from_slice(buffer);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}
