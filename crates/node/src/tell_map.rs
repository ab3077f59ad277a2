//! Telling the reactors of a node of a map.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use coquina_cluster::MapView;
use coquina_reactor::MailboxSender;

use crate::command::Command;
use crate::node::LOOK_AGAIN;

/// Has all reactors follow a map, and waits until they do; says whether they do, unless `is_over` says that it takes too long.
///
/// The thread of one may hang. Then the others are told of each map that is newer by then: of what they have handed to that one they hear
/// there that it has moved.
pub(crate) fn tell_all(
    cores: &[MailboxSender<Command>],
    map: &Arc<MapView>,
    newest: impl Fn() -> Arc<MapView>,
    is_over: impl Fn() -> bool,
) -> bool {
    let waiting: Vec<Receiver<()>> = cores.iter().map(|core| tell(core, map)).collect();
    let mut told = map.revision();
    let mut has_followed = vec![false; cores.len()];
    for index in 0..cores.len() {
        while !has_followed[index] {
            match waiting[index].recv_timeout(LOOK_AGAIN) {
                Ok(()) => has_followed[index] = true,
                Err(RecvTimeoutError::Timeout) if !is_over() => {
                    for (other, followed) in has_followed.iter_mut().enumerate() {
                        *followed |= waiting[other].try_recv().is_ok();
                    }
                    let newer = newest();
                    if newer.revision() > told {
                        told = newer.revision();
                        let others = cores.iter().zip(&has_followed).filter(|(_, followed)| **followed);
                        others.for_each(|(core, _)| drop(tell(core, &newer)));
                    }
                }
                // What lies in the mailbox of a reactor that has ended is answered by nobody.
                Err(_) => return false,
            }
        }
    }
    true
}

fn tell(core: &MailboxSender<Command>, map: &Arc<MapView>) -> Receiver<()> {
    let (done, followed) = channel();
    core.send(Command::Follow { map: map.clone(), done });
    followed
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::time::{Duration, Instant};

    use coquina_base::{ClusterId, Id128};
    use coquina_cluster::{ClusterRecord, Key, Record};
    use coquina_reactor::{Mailbox, Reactor, ReactorConfig, mailbox};

    use super::*;

    fn map(revision: u64) -> Arc<MapView> {
        let record = Record::Cluster(ClusterRecord::new(ClusterId(Id128([1; 16]))));
        Arc::new(MapView::load(vec![(Key::Cluster, 1, record)], revision).unwrap())
    }

    /// Revisions of the maps that a reactor is told of. It follows them.
    fn follow(mailbox: &Mailbox<Command>) -> Vec<u64> {
        let mut commands = Vec::new();
        mailbox.drain(&mut commands);
        let told = commands.drain(..).map(|command| match command {
            Command::Follow { map, done } => {
                let _ = done.send(());
                map.revision()
            }
            _ => panic!("it is told of maps only"),
        });
        told.collect()
    }

    /// They heard of no other map for 40 s.
    #[test]
    fn who_waits_for_a_reactor_that_hangs_tells_the_others_of_newer_maps() {
        let reactors = [(); 3].map(|()| Reactor::new(ReactorConfig::default()).unwrap());
        let (cores, mailboxes): (Vec<_>, Vec<_>) =
            reactors.iter().map(|reactor| mailbox::<Command>(reactor.waker())).unzip();
        let told = RefCell::new([Vec::new(), Vec::new()]);
        let (revision, hangs) = (Cell::new(5), Cell::new(true));
        let began = Instant::now();
        let is_over = || {
            let told = &mut *told.borrow_mut();
            told[0].extend(follow(&mailboxes[0]));
            told[1].extend(follow(&mailboxes[2]));
            // A newer one with each look, as long as it hangs.
            revision.set((revision.get() + 1).min(7));
            if told[0].contains(&7) && hangs.replace(false) {
                assert_eq!(follow(&mailboxes[1]), [5], "no more is kept for it than it has not heard");
            }
            began.elapsed() > Duration::from_secs(20)
        };
        assert!(tell_all(&cores, &map(5), || map(revision.get()), is_over));
        assert!(!hangs.get());
        for told in told.borrow().iter() {
            assert_eq!(*told, [5, 6, 7]);
        }
    }
}
