//! Volumes by the native protocol.

use super::{Lane, LaneOptions, Readiness, Target};
use crate::error::TargetError;

/// A volume.
pub(super) struct VolumeTarget;

impl VolumeTarget {
    /// Opens the volume.
    pub fn open(_server: &str, _name: &str) -> Result<Self, TargetError> {
        Err(TargetError::Unsupported("volumes cannot be reached natively by this build: use nbd:URI"))
    }
}

impl Target for VolumeTarget {
    fn size_bytes(&self) -> u64 {
        0
    }

    fn readiness(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<Readiness, TargetError> {
        Ok(Readiness::Ready)
    }

    fn open_lane(&self, _options: &LaneOptions) -> Result<Box<dyn Lane>, TargetError> {
        Err(TargetError::Unsupported("volumes cannot be reached natively by this build: use nbd:URI"))
    }
}
