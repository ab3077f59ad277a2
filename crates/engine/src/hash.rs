//! Hash maps with a fixed seed: runs must repeat, and keys are not chosen by strangers.

/// Builds the hasher of every map of this crate.
#[derive(Clone, Copy, Default)]
pub struct FixedState;

impl std::hash::BuildHasher for FixedState {
    type Hasher = <foldhash::fast::FixedState as std::hash::BuildHasher>::Hasher;
    fn build_hasher(&self) -> Self::Hasher {
        foldhash::fast::FixedState::with_seed(0x00c0_901a).build_hasher()
    }
}
