//! What waits in a socket, and whether its other side is gone, without a receive.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{FileId, Reactor};

/// What a socket has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming {
    /// Nothing for now.
    Nothing,
    /// Bytes to be received.
    Bytes,
    /// Perhaps bytes, and then no more: the other side has closed it, or its sending direction.
    End,
    /// Nothing goes either way any more.
    Gone,
}

impl Reactor {
    /// What a receive would find. It would tell of the end only behind all that was sent before.
    pub fn incoming(&self, file: FileId) -> Incoming {
        let Some(index) = self.find(file) else { return Incoming::Gone };
        let Some(descriptor) = &self.files[index as usize].descriptor else { return Incoming::Gone };
        let mut polled = [PollFd::new(descriptor, PollFlags::IN | PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&at_once)).is_err() {
            return Incoming::Nothing;
        }
        let told = polled[0].revents();
        if told.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Incoming::Gone;
        }
        if told.contains(PollFlags::RDHUP) {
            return Incoming::End;
        }
        if told.contains(PollFlags::IN) { Incoming::Bytes } else { Incoming::Nothing }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::ReactorConfig;

    #[test]
    fn tells_what_there_is_and_the_end_before_all_is_received() {
        let mut reactor = Reactor::new(ReactorConfig::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let file = reactor.attach(listener.accept().unwrap().0.into());
        let wait_for = |reactor: &Reactor, expected| {
            for _ in 0..5000 {
                if reactor.incoming(file) == expected {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            panic!("{expected:?} in vain");
        };
        wait_for(&reactor, Incoming::Nothing);
        theirs.write_all(b"bytes").unwrap();
        wait_for(&reactor, Incoming::Bytes);
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        wait_for(&reactor, Incoming::End);
        // What it will not take ends it.
        drop(theirs);
        let mut list = crate::SendList::new();
        list.bytes().extend_from_slice(b"answer");
        let completion = reactor.send(file, list, 1);
        if completion.is_none() {
            reactor.turn(crate::Wait::Forever, &mut Vec::new()).unwrap();
        }
        wait_for(&reactor, Incoming::Gone);
    }
}
