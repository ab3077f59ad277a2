//! Sequences of requests, in phases that each have a character of their own.

use coquina_base::{BLOCK_BYTES, CHUNK_BYTES, SECTOR_BYTES};

use crate::model::Span;
use crate::random::Random;

/// Kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Forgets data.
    Trim,
    /// Zeroes, and may leave a hole.
    Zero,
    /// Zeroes, and keeps the space.
    Reserve,
    /// Asks for extents.
    Map,
    /// Deletes a layer.
    Delete,
    /// Makes a layer shorter: trims everything from a place to its end.
    Shrink,
}

impl Kind {
    /// For messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Trim => "trim",
            Kind::Zero => "zeroing",
            Kind::Reserve => "zeroing that keeps space",
            Kind::Map => "map",
            Kind::Delete => "layer deletion",
            Kind::Shrink => "shrinking of a layer",
        }
    }

    /// Whether it changes data.
    pub fn is_change(self) -> bool {
        !matches!(self, Kind::Read | Kind::Map)
    }

    /// Whether it may need space.
    pub fn stores(self) -> bool {
        matches!(self, Kind::Write | Kind::Reserve)
    }
}

const KINDS: [Kind; 6] = [Kind::Read, Kind::Write, Kind::Trim, Kind::Zero, Kind::Reserve, Kind::Map];

/// Where requests go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    Uniform,
    /// Nine of ten requests go to a small part.
    Hot {
        first_bytes: u64,
        length_bytes: u64,
    },
    /// Front to back.
    Sequential {
        next_bytes: u64,
    },
}

/// How long requests are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sizes {
    Block,
    Sectors,
    Large,
    /// 64 to 512 KiB: several whole frames each.
    Huge,
    Mixed,
}

const SIZES: [Sizes; 6] =
    [Sizes::Block, Sizes::Sectors, Sizes::Large, Sizes::Huge, Sizes::Mixed, Sizes::Mixed];

/// A stretch of requests of one character.
#[derive(Clone, Debug)]
pub struct Phase {
    /// In the order of the kinds: read, write, trim, zero, reserve, map.
    weights: [u64; 6],
    spread: Spread,
    sizes: Sizes,
    /// Requests outstanding at the same time.
    pub depth: usize,
    /// Requests left.
    pub requests: u64,
    /// Whether it ends at the first few answers `NoSpace`.
    pub until_full: bool,
    /// One in so many requests deletes a layer; 0 for never.
    pub delete_one_in: u64,
    /// Whether deletions come while requests on the layer are outstanding.
    pub delete_while_busy: bool,
    /// Whether it goes on behind the answers `NoSpace`, with deletions.
    pub delete_when_full: bool,
    /// One in so many requests makes a layer shorter; 0 for never.
    pub shrink_one_in: u64,
}

impl Phase {
    /// The phase after this one, for layers of `space_bytes` together.
    pub fn random(random: &mut Random, space_bytes: u64) -> Phase {
        let depth = random.pick(&[1, 4, 16, 32, 64]);
        let requests = random.between(50, 1500);
        let sizes = random.pick(&SIZES);
        let hot = Spread::Hot {
            first_bytes: random.below(space_bytes) & !(BLOCK_BYTES as u64 - 1),
            length_bytes: random.pick(&[8, 64, 512]) * BLOCK_BYTES as u64,
        };
        let sequential = Spread::Sequential { next_bytes: random.below(space_bytes) & !4095 };
        let spread = random.pick(&[Spread::Uniform, Spread::Uniform, hot, sequential]);
        let weights = random.pick(&[
            [20, 60, 6, 3, 3, 2],
            [10, 80, 2, 1, 1, 1],
            [60, 30, 3, 2, 1, 4],
            [0, 100, 0, 0, 0, 0],
            [20, 30, 20, 15, 15, 5],
        ]);
        let delete_one_in = random.pick(&[0, 0, 100]);
        let shrink_one_in = random.pick(&[0, 0, 0, 60]);
        let delete_while_busy = random.chance(1, 2);
        let usual = Phase {
            weights,
            spread,
            sizes,
            depth,
            requests,
            until_full: false,
            delete_one_in,
            delete_while_busy,
            delete_when_full: false,
            shrink_one_in,
        };
        match random.below(8) {
            0 => Phase {
                weights: [1, 50, 0, 0, 1, 0],
                spread: sequential,
                sizes: random.pick(&[Sizes::Large, Sizes::Huge]),
                until_full: true,
                requests: 4000,
                delete_one_in: 0,
                delete_when_full: random.chance(1, 2),
                shrink_one_in: 0,
                ..usual
            },
            1 => Phase { weights: [5, 10, 60, 30, 0, 2], sizes: Sizes::Large, ..usual },
            _ => usual,
        }
    }

    /// The drive is full: ends the phase, or goes on with requests some of which delete layers.
    pub fn is_full(&mut self, random: &mut Random) {
        self.until_full = false;
        self.requests = if self.delete_when_full { random.between(20, 400) } else { 0 };
        self.delete_one_in = if self.delete_when_full { 10 } else { 0 };
    }

    /// The next request: its kind and place. `chunks` lists the layers, each with its id and chunks.
    pub fn next(&mut self, random: &mut Random, layers: &[(u64, u32)]) -> (Kind, Span) {
        let space_bytes: u64 = layers.iter().map(|(_, chunks)| u64::from(*chunks) * CHUNK_BYTES).sum();
        let kind = KINDS[random.weighted(&self.weights)];
        let length_bytes = self.length_bytes(random);
        let at_bytes = self.place(random, space_bytes, length_bytes);
        let mut kind = kind;
        if self.delete_one_in > 0 && random.chance(1, self.delete_one_in) {
            kind = Kind::Delete;
        } else if self.shrink_one_in > 0 && random.chance(1, self.shrink_one_in) {
            kind = Kind::Shrink;
        }
        (kind, span_at(layers, at_bytes, length_bytes))
    }

    fn length_bytes(&self, random: &mut Random) -> u64 {
        let block = BLOCK_BYTES as u64;
        let sector = SECTOR_BYTES as u64;
        let part = |random: &mut Random| random.between(1, 24) * sector;
        let large = |random: &mut Random| random.between(1, 64) * block;
        match self.sizes {
            Sizes::Block => block,
            Sizes::Sectors => part(random),
            Sizes::Large => large(random),
            Sizes::Huge => random.between(16, 128) * block,
            Sizes::Mixed => match random.below(6) {
                0 => part(random),
                1 => large(random),
                2 => random.between(1, 512) * sector,
                _ => random.between(1, 4) * block,
            },
        }
    }

    fn place(&mut self, random: &mut Random, space_bytes: u64, length_bytes: u64) -> u64 {
        let unit =
            if length_bytes.is_multiple_of(BLOCK_BYTES as u64) { BLOCK_BYTES } else { SECTOR_BYTES } as u64;
        let at = match &mut self.spread {
            Spread::Uniform => random.below(space_bytes),
            Spread::Hot { first_bytes, length_bytes } => {
                if random.chance(9, 10) {
                    (*first_bytes + random.below(*length_bytes)) % space_bytes
                } else {
                    random.below(space_bytes)
                }
            }
            Spread::Sequential { next_bytes } => {
                let at = *next_bytes % space_bytes;
                *next_bytes = (at + length_bytes) % space_bytes;
                at
            }
        };
        at / unit * unit
    }
}

/// The part of a request at a place in all layers together that lies within one chunk.
fn span_at(layers: &[(u64, u32)], at_bytes: u64, length_bytes: u64) -> Span {
    let mut rest = at_bytes;
    for (layer, chunks) in layers {
        let layer_bytes = u64::from(*chunks) * CHUNK_BYTES;
        if rest >= layer_bytes {
            rest -= layer_bytes;
            continue;
        }
        let offset_bytes = rest % CHUNK_BYTES;
        return Span {
            layer: *layer,
            chunk: (rest / CHUNK_BYTES) as u32,
            offset_bytes: offset_bytes as u32,
            length_bytes: length_bytes.min(CHUNK_BYTES - offset_bytes) as u32,
        };
    }
    panic!("place {at_bytes} lies behind the last layer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_lie_within_their_layers_and_are_of_sectors() {
        let layers = [(5, 2), (9, 1)];
        let mut random = Random::new(3);
        for _ in 0..200 {
            let mut phase = Phase::random(&mut random, 3 * CHUNK_BYTES);
            for _ in 0..50 {
                let (_, span) = phase.next(&mut random, &layers);
                let end = u64::from(span.offset_bytes) + u64::from(span.length_bytes);
                assert!(span.length_bytes > 0 && end <= CHUNK_BYTES);
                assert_eq!((span.offset_bytes % 512, span.length_bytes % 512), (0, 0));
                assert!((span.layer == 5 && span.chunk < 2) || (span.layer == 9 && span.chunk == 0));
            }
        }
    }
}
