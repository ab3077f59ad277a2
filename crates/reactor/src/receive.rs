//! The buffer that a connection receives into: unread bytes, then a free tail.
//!
//! Invariant: `start <= end <= bytes.len()`; the bytes in between are received and not consumed.

/// A growable receive buffer. Moves into the reactor with each receive and comes back with its completion.
#[derive(Default)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Most bytes of the next receive; 0 for as many as there is room for.
    next_bytes_max: usize,
}

impl ReceiveBuffer {
    /// An empty buffer with `capacity_bytes` of room.
    pub fn with_capacity_bytes(capacity_bytes: usize) -> Self {
        ReceiveBuffer { bytes: vec![0; capacity_bytes], ..ReceiveBuffer::default() }
    }

    /// What was received and not consumed yet.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Drops `length_bytes` from the front of the data. Panics if there are fewer.
    pub fn consume(&mut self, length_bytes: usize) {
        assert!(length_bytes <= self.end - self.start, "consumed what was received");
        self.start += length_bytes;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Makes room for `length_bytes` more behind the data, moving the data to the front or growing.
    pub fn reserve(&mut self, length_bytes: usize) {
        if self.bytes.len() - self.end >= length_bytes {
            return;
        }
        let held_bytes = self.end - self.start;
        if self.bytes.len() - held_bytes < length_bytes {
            // Zeros of the system take no memory before they are written over: what a peer only announces costs nothing.
            let mut grown = vec![0; held_bytes + length_bytes];
            grown[..held_bytes].copy_from_slice(self.data());
            self.bytes = grown;
        } else {
            self.bytes.copy_within(self.start..self.end, 0);
        }
        (self.start, self.end) = (0, held_bytes);
    }

    /// How much can be received without moving or growing.
    pub fn room_bytes(&self) -> usize {
        self.bytes.len() - self.end
    }

    /// Lets the next receive, and only that, take no more than `length_bytes`: where a large payload is expected that shall not
    /// come through this buffer, only its head is taken. 0 takes the limit away.
    pub fn limit_next(&mut self, length_bytes: usize) {
        self.next_bytes_max = length_bytes;
    }

    /// Gives memory back if there is no data and more than `capacity_bytes` of room.
    pub fn shrink_if_empty(&mut self, capacity_bytes: usize) {
        if self.start == self.end && self.bytes.len() > capacity_bytes {
            self.bytes = vec![0; capacity_bytes];
        }
    }

    /// Forgets the data, keeps the memory.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Size of the whole buffer.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// What the next receive may fill.
    pub(crate) fn tail(&mut self) -> &mut [u8] {
        let room = self.bytes.len() - self.end;
        let length = if self.next_bytes_max == 0 { room } else { room.min(self.next_bytes_max) };
        &mut self.bytes[self.end..self.end + length]
    }

    pub(crate) fn received(&mut self, length_bytes: usize) {
        assert!(length_bytes <= self.bytes.len() - self.end, "the kernel stayed within the tail");
        self.end += length_bytes;
        self.next_bytes_max = 0;
    }

    /// Appends bytes as if they had been received; for tests and in-memory transports.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.next_bytes_max = 0;
        self.tail()[..bytes.len()].copy_from_slice(bytes);
        self.received(bytes.len());
    }
}

impl std::fmt::Debug for ReceiveBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ReceiveBuffer({} of {} bytes)", self.end - self.start, self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::ReceiveBuffer;

    #[test]
    fn keeps_the_rest_when_it_makes_room() {
        let mut buffer = ReceiveBuffer::with_capacity_bytes(8);
        buffer.extend(b"abcdefgh");
        buffer.consume(5);
        buffer.reserve(4);
        assert_eq!(buffer.capacity_bytes(), 8);
        buffer.extend(b"ijklmnop");
        assert_eq!(buffer.data(), b"fghijklmnop");
        buffer.consume(11);
        buffer.shrink_if_empty(4);
        assert_eq!(buffer.capacity_bytes(), 4);
    }

    #[test]
    fn grows_behind_what_it_has() {
        let mut buffer = ReceiveBuffer::with_capacity_bytes(8);
        buffer.extend(b"abcdefgh");
        buffer.consume(3);
        buffer.reserve(7);
        assert_eq!((buffer.data(), buffer.capacity_bytes(), buffer.room_bytes()), (&b"defgh"[..], 12, 7));
        buffer.extend(b"ijklmno");
        assert_eq!(buffer.data(), b"defghijklmno");
    }

    /// Pages of this process in memory.
    fn resident_pages() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn room_that_nothing_comes_into_takes_no_memory() {
        let before = resident_pages();
        let buffers: Vec<_> = (0..100)
            .map(|_| {
                let mut buffer = ReceiveBuffer::with_capacity_bytes(16 << 10);
                buffer.extend(b"a header of a message of 32 MiB");
                buffer.reserve(32 << 20);
                buffer
            })
            .collect();
        assert!(buffers.iter().all(|buffer| buffer.room_bytes() >= 32 << 20));
        let taken = resident_pages().saturating_sub(before);
        assert!(taken < (100 << 20) / 4096, "{taken} pages for 3.2 GB that were announced");
    }

    #[test]
    fn a_limit_counts_for_one_receive() {
        let mut buffer = ReceiveBuffer::with_capacity_bytes(8);
        buffer.limit_next(3);
        assert_eq!(buffer.tail().len(), 3);
        buffer.tail()[..2].copy_from_slice(b"ab");
        buffer.received(2);
        assert_eq!(buffer.tail().len(), 6);
        buffer.limit_next(7);
        assert_eq!(buffer.tail().len(), 6);
        buffer.extend(b"cdef");
        assert_eq!(buffer.data(), b"abcdef");
    }
}
