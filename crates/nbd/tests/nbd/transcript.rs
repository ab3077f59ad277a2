//! A whole session, byte for byte, written from the specification.

use coquina_nbd::ServerConfig;

use crate::exercise::Driver;

struct Peer {
    driver: Driver,
    read_bytes: usize,
}

impl Peer {
    /// What the server sends after these bytes of the client.
    fn exchange(&mut self, client: &[&[u8]], server: &[&[u8]]) {
        self.driver.receive(&client.concat());
        let sent = &self.driver.trace.output[self.read_bytes..];
        assert_eq!(sent, server.concat(), "{sent:x?}");
        self.read_bytes = self.driver.trace.output.len();
    }
}

#[test]
fn a_whole_session_byte_for_byte() {
    let mut peer = Peer { driver: Driver::new(ServerConfig::default()), read_bytes: 0 };
    peer.exchange(&[], &[b"NBDMAGIC", b"IHAVEOPT", b"\x00\x03"]);
    peer.exchange(&[b"\x00\x00\x00\x03"], &[]);
    let magic = b"\x00\x03\xe8\x89\x04\x55\x65\xa9";
    // STARTTLS, unsupported.
    peer.exchange(
        &[b"IHAVEOPT", b"\x00\x00\x00\x05", b"\x00\x00\x00\x00"],
        &[
            magic,
            b"\x00\x00\x00\x05\x80\x00\x00\x01\x00\x00\x00\x27",
            b"this server does not support the option",
        ],
    );
    // STRUCTURED_REPLY, acknowledged.
    peer.exchange(
        &[b"IHAVEOPT", b"\x00\x00\x00\x08", b"\x00\x00\x00\x00"],
        &[magic, b"\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00"],
    );
    // SET_META_CONTEXT of one query.
    peer.exchange(
        &[
            b"IHAVEOPT",
            b"\x00\x00\x00\x0a",
            b"\x00\x00\x00\x1f",
            b"\x00\x00\x00\x04disk",
            b"\x00\x00\x00\x01",
            b"\x00\x00\x00\x0fbase:allocation",
        ],
        &[
            magic,
            b"\x00\x00\x00\x0a\x00\x00\x00\x04\x00\x00\x00\x13",
            b"\x00\x00\x00\x01base:allocation",
            magic,
            b"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x00\x00",
        ],
    );
    // GO, asking for the block sizes.
    peer.exchange(
        &[
            b"IHAVEOPT",
            b"\x00\x00\x00\x07",
            b"\x00\x00\x00\x0c",
            b"\x00\x00\x00\x04disk",
            b"\x00\x01\x00\x03",
        ],
        &[
            magic,
            b"\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0c",
            b"\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x0d\xed",
            magic,
            b"\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0e",
            b"\x00\x03\x00\x00\x02\x00\x00\x00\x10\x00\x02\x00\x00\x00",
            magic,
            b"\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00",
        ],
    );
    transmission(&mut peer);
}

fn transmission(peer: &mut Peer) {
    let header = b"\x25\x60\x95\x13";
    // WRITE with FUA of a sector at 1024; the answer is a simple reply.
    peer.exchange(
        &[header, b"\x00\x01\x00\x01", b"cookie01", b"\0\0\0\0\0\0\x04\0", b"\0\0\x02\0", &[1; 512]],
        &[b"\x67\x44\x66\x98", b"\0\0\0\0", b"cookie01"],
    );
    // READ of two sectors: a hole, then data, then the end.
    peer.exchange(
        &[header, b"\x00\x00\x00\x00", b"cookie02", b"\0\0\0\0\0\0\x04\0", b"\0\0\x04\0"],
        &[
            b"\x66\x8e\x33\xef\x00\x00\x00\x02cookie02\x00\x00\x00\x0c\0\0\0\0\0\0\x04\0\0\0\x02\0",
            b"\x66\x8e\x33\xef\x00\x00\x00\x01cookie02\x00\x00\x02\x08\0\0\0\0\0\0\x06\0",
            &[1; 512],
            b"\x66\x8e\x33\xef\x00\x01\x00\x00cookie02\0\0\0\0",
        ],
    );
    // READ with DF: one chunk of data, zeroes spelled out.
    peer.exchange(
        &[header, b"\x00\x04\x00\x00", b"cookie03", b"\0\0\0\0\0\0\x04\0", b"\0\0\x04\0"],
        &[
            b"\x66\x8e\x33\xef\x00\x01\x00\x01cookie03\x00\x00\x04\x08\0\0\0\0\0\0\x04\0",
            &[0; 512],
            &[1; 512],
        ],
    );
    // READ past the end: an error chunk with a message.
    peer.exchange(
        &[header, b"\x00\x00\x00\x00", b"cookie04", b"\0\0\0\0\0\x10\0\0", b"\0\0\x02\0"],
        &[
            b"\x66\x8e\x33\xef\x00\x01\x80\x01cookie04\x00\x00\x00\x20",
            b"\x00\x00\x00\x16\x00\x1a",
            b"past the end of the export",
        ],
    );
    // BLOCK_STATUS of two sectors, then of one extent.
    let status = b"\0\0\0\x01\0\0\x02\0\0\0\0\x03\0\0\x02\0\0\0\0\0";
    peer.exchange(
        &[header, b"\x00\x00\x00\x07", b"cookie05", b"\0\0\0\0\0\0\0\0", b"\0\0\x04\0"],
        &[b"\x66\x8e\x33\xef\x00\x01\x00\x05cookie05\x00\x00\x00\x14", status],
    );
    peer.exchange(
        &[header, b"\x00\x08\x00\x07", b"cookie06", b"\0\0\0\0\0\0\0\0", b"\0\0\x04\0"],
        &[b"\x66\x8e\x33\xef\x00\x01\x00\x05cookie06\x00\x00\x00\x0c", &status[..12]],
    );
    // FLUSH, then DISC, which has no reply.
    peer.exchange(
        &[header, b"\x00\x00\x00\x03", b"cookie07", &[0; 12]],
        &[b"\x67\x44\x66\x98", b"\0\0\0\0", b"cookie07"],
    );
    peer.exchange(&[header, b"\x00\x00\x00\x02", b"cookie08", &[0; 12]], &[]);
}
