//! What is discarded reads as zeros.

use coquina_client::{ClientRequest, RequestKind};

use crate::cluster::{Cluster, open, request, run};

/// Blocks of which it had only a part kept their data.
#[test]
fn a_discard_that_begins_and_ends_within_blocks_leaves_nothing_of_its_range() {
    let cluster = Cluster::start(2, 2);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    for (offset_bytes, length_bytes) in [(512_u64, 1024_u64), (1024, 10 * 4096), (4096, 4096 + 512)] {
        let writes = (0..16).map(|block| request(RequestKind::Write, block, block, 0x55)).collect();
        assert!(run(&mut connection, writes).iter().all(|done| done.result.is_ok()));
        let (kind, buffer) = (RequestKind::Discard, Default::default());
        let discard = ClientRequest { token: 0, kind, offset_bytes, length_bytes, buffer };
        assert_eq!(run(&mut connection, vec![discard])[0].result, Ok(()));
        let reads = (0..16).map(|block| request(RequestKind::Read, block, block, 1)).collect();
        for done in run(&mut connection, reads) {
            for (byte, at) in done.buffer[..4096].iter().zip(done.token * 4096..) {
                let is_gone = (offset_bytes..offset_bytes + length_bytes).contains(&at);
                assert_eq!(*byte, if is_gone { 0 } else { 0x55 }, "byte {at}, {offset_bytes} {length_bytes}");
            }
        }
    }
}
