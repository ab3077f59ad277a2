//! What reactors count, as they told it last. The thread of one may hang, and whoever asks must have an answer all the same: that
//! which it gave before.
//!
//! What processes ask each other waits for this, on threads of which there are only so many. So a reactor is waited for once, and not
//! again before it has answered that question; no more than that one is kept for it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use coquina_reactor::MailboxSender;

use crate::command::Command;
use crate::node::LOOK_AGAIN;
use crate::snapshot::CoreSnapshot;

/// How long reactors are waited for. Other processes wait for this one for about as long.
const PATIENCE: Duration = Duration::from_secs(1);

/// The last figures of all reactors.
pub(crate) struct Figures {
    reactors: Mutex<Vec<Told>>,
}

/// Of a reactor.
#[derive(Default)]
struct Told {
    last: Arc<CoreSnapshot>,
    /// When that was asked for.
    asked: Option<Instant>,
    /// A question that was not answered in time.
    open: Option<(Instant, Receiver<CoreSnapshot>)>,
}

impl Told {
    /// Whether a question is still not answered.
    fn hangs(&mut self) -> bool {
        let is_open = |(_, told): &(Instant, Receiver<CoreSnapshot>)| {
            matches!(told.try_recv(), Err(TryRecvError::Empty))
        };
        if !self.open.as_ref().is_some_and(is_open) {
            self.open = None;
        }
        self.open.is_some()
    }
}

/// What all reactors count.
pub(crate) struct Now {
    /// By the reactor's number; nothing of one that has never answered.
    pub cores: Vec<Arc<CoreSnapshot>>,
    /// Since when reactors owe an answer: the figures of these are older.
    pub silent_since: Option<Instant>,
}

impl Figures {
    /// Of a node with so many reactors.
    pub fn of(reactors: usize) -> Figures {
        Figures { reactors: Mutex::new((0..reactors).map(|_| Told::default()).collect()) }
    }

    /// Asks all reactors that do not owe an answer, and waits for these for about a second, unless `is_over`.
    pub fn ask(&self, cores: &[MailboxSender<Command>], is_over: impl Fn() -> bool) -> Now {
        let asked = Instant::now();
        let waiting: Vec<Option<Receiver<CoreSnapshot>>> = {
            let mut told = self.lock();
            cores.iter().zip(told.iter_mut()).map(|(core, told)| (!told.hangs()).then(|| ask(core))).collect()
        };
        let mut waited = Duration::ZERO;
        let mut wait = |receiver: &Receiver<CoreSnapshot>| {
            loop {
                let begun = Instant::now();
                match receiver.recv_timeout(LOOK_AGAIN.min(PATIENCE.saturating_sub(waited))) {
                    Ok(answer) => break Some(answer),
                    Err(RecvTimeoutError::Timeout) if waited < PATIENCE && !is_over() => {}
                    // What lies in the mailbox of a reactor that has ended is answered by nobody.
                    Err(_) => break None,
                }
                // The whole process may have been stopped, and whoever waits goes on first.
                waited += begun.elapsed().min(LOOK_AGAIN);
            }
        };
        let answers: Vec<Option<CoreSnapshot>> =
            waiting.iter().map(|receiver| receiver.as_ref().and_then(&mut wait)).collect();
        let mut now = Now { cores: Vec::new(), silent_since: None };
        for ((told, answer), receiver) in self.lock().iter_mut().zip(answers).zip(waiting) {
            match answer {
                // Who asked later may have been answered before.
                Some(answer) if told.asked.is_none_or(|before| before < asked) => {
                    (told.last, told.asked) = (Arc::new(answer), Some(asked));
                }
                Some(_) => {}
                None => {
                    told.open = told.open.take().or_else(|| Some((asked, receiver?)));
                    let since = told.open.as_ref().map_or(asked, |(since, _)| *since);
                    now.silent_since = now.silent_since.into_iter().chain([since]).min();
                }
            }
            now.cores.push(told.last.clone());
        }
        now
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Told>> {
        self.reactors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ask(core: &MailboxSender<Command>) -> Receiver<CoreSnapshot> {
    let (done, told) = channel();
    core.send(Command::Snapshot { done });
    told
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

    use coquina_reactor::{Mailbox, Reactor, ReactorConfig, mailbox};

    use super::*;

    /// Answers what a reactor is asked; gives how many questions there were.
    fn answer(mailbox: &Mailbox<Command>, count: &AtomicU64) -> usize {
        let mut commands = Vec::new();
        mailbox.drain(&mut commands);
        let questions = commands.len();
        for command in commands {
            let Command::Snapshot { done } = command else { panic!("it is asked for its figures only") };
            let dropped_connections = count.fetch_add(1, SeqCst) + 1;
            let _ = done.send(CoreSnapshot { dropped_connections, ..CoreSnapshot::default() });
        }
        questions
    }

    /// Each question waited for 40 s on a thread of its own, and what the other reactors had answered was thrown away.
    #[test]
    fn a_reactor_that_hangs_is_waited_for_once_and_the_figures_of_the_others_are_new() {
        let reactors = [(); 2].map(|()| Reactor::new(ReactorConfig::default()).unwrap());
        let (cores, mailboxes): (Vec<_>, Vec<_>) =
            reactors.iter().map(|reactor| mailbox::<Command>(reactor.waker())).unzip();
        let figures = Figures::of(2);
        let (hangs, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let (counts, kept) = ([(); 2].map(|()| AtomicU64::new(0)), AtomicU64::new(0));
        let until = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) && Instant::now() < until {
                    answer(&mailboxes[0], &counts[0]);
                    if !hangs.load(SeqCst) {
                        kept.fetch_max(answer(&mailboxes[1], &counts[1]) as u64, SeqCst);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let ask = || {
                let now = figures.ask(&cores, || false);
                let counts = now.cores.iter().map(|core| core.dropped_connections).collect::<Vec<_>>();
                (counts, now.silent_since.is_some())
            };
            assert_eq!(ask(), (vec![1, 1], false));
            hangs.store(true, SeqCst);
            let began = Instant::now();
            assert_eq!(ask(), (vec![2, 1], true));
            assert!(began.elapsed() >= PATIENCE / 2);
            let began = Instant::now();
            for more in 3..30 {
                assert_eq!(ask(), (vec![more, 1], true));
            }
            assert!(began.elapsed() < 20 * PATIENCE, "{:?}", began.elapsed());
            hangs.store(false, SeqCst);
            while ask().1 {
                assert!(Instant::now() < until);
            }
            is_over.store(true, SeqCst);
        });
        assert_eq!(kept.load(SeqCst), 1, "one question is kept for it");
        assert!(counts[1].load(SeqCst) >= 3);
    }
}
