//! What time brings: connections tried again, silence noticed, retries, giving up.

use coquina_protocol::{Header, Kind, Status, encode_plain};

use crate::core::{ClientCore, LinkAction, Parked, STUCK_NS};
use crate::error::ClientError;
use crate::link::{Link, LinkState};
use crate::request::NO_LINK;

/// How long connecting may take. The kernel asks again after 1 s, 3 s and 7 s only, so that on a network that was mended it
/// might be seconds before it does: a new connection asks at once.
const CONNECT_NS_MAX: u64 = 1_000_000_000;
/// How long a server may take to greet.
const GREETING_NS_MAX: u64 = 5_000_000_000;
/// The same for a node that opens volumes, if there are others to ask.
const GREETING_NS_OTHERS: u64 = 1_000_000_000;
/// How long a node may take to tell the table again.
const TABLE_NS_MAX: u64 = 500_000_000;
/// First pause of a part that a server could not take; doubles up to the largest.
const PARK_NS_MIN: u64 = 10_000_000;
const PARK_NS_MAX: u64 = 200_000_000;
/// Who looks at a link or a parked part so long after its time was stopped meanwhile: that time does not count.
const AWAY_NS_MIN: u64 = 1_000_000_000;

impl ClientCore {
    /// A link could not take a part: it goes where the data has moved meanwhile, or waits.
    pub(crate) fn refused(&mut self, number: u64, status: Status, text: &str, now_ns: u64) {
        let Some(part) = self.window.peek(number).copied() else { return };
        if part.in_flight {
            self.take_back(part.link, number);
        }
        if self.is_withdrawn(part.request) {
            return self.finish_part(number, Err(ClientError::Withdrawn));
        }
        let link = self.route(part.chunk);
        if link != part.link && link != NO_LINK {
            return self.dispatch(number, now_ns);
        }
        self.park(number, status, text, now_ns);
    }

    /// Lets a part that is in no place wait before it is tried again.
    pub(crate) fn park(&mut self, number: u64, status: Status, text: &str, now_ns: u64) {
        let Some(part) = self.window.get(number) else { return };
        let pause_ns = (PARK_NS_MIN << part.parks.min(10)).min(PARK_NS_MAX);
        part.parked = true;
        part.parks += 1;
        part.was_answered();
        part.refused_ns = part.refused_ns.min(now_ns);
        self.parked.push(Parked { until_ns: now_ns + pause_ns, number, status, text: text.to_owned() });
        if matches!(status, Status::NotServing | Status::NotHere | Status::StaleEpoch | Status::ShuttingDown)
        {
            self.refresh(now_ns);
        }
    }

    /// Puts parked parts whose time has come back on their ways; gives up those that were refused for too long. How long one waited for
    /// an answer before does not count: a process that was stopped with its shard hears late that another copy is primary now.
    pub(crate) fn unpark(&mut self, now_ns: u64) {
        let mut index = 0;
        let mut left = self.parked.len();
        while index < left {
            if self.parked[index].until_ns > now_ns {
                index += 1;
                continue;
            }
            // What is parked anew goes to the end, and is not looked at before the next time.
            left -= 1;
            self.parked.swap(index, left);
            let Parked { until_ns, number, status, text } = self.parked.swap_remove(left);
            let Some(part) = self.window.get(number) else { continue };
            part.parked = false;
            let late_ns = now_ns.saturating_sub(until_ns);
            if late_ns >= AWAY_NS_MIN {
                part.refused_ns = part.refused_ns.saturating_add(late_ns);
            }
            if now_ns.saturating_sub(part.refused_ns) >= self.config.give_up_ns {
                let text = if text.is_empty() { "given up".to_owned() } else { text };
                self.finish_part(number, Err(ClientError::Server { status, text }));
            } else if !self.end_cut_off(number) {
                self.dispatch(number, now_ns);
            }
        }
    }

    /// Lets time pass: reconnects, retries, gives up.
    pub fn tick(&mut self, now_ns: u64) {
        self.unpark(now_ns);
        // While an answer is awaited the question waits, too.
        let is_due = self.asking.due_ns.is_some_and(|due_ns| due_ns <= now_ns);
        if is_due && !self.asking.is_under_way {
            self.asking.due_ns = None;
            self.refresh(now_ns);
        }
        for link in 0..self.links.len() as u32 {
            self.tick_link(link, now_ns);
        }
        let control = &self.links[0];
        let patience_over = now_ns.saturating_sub(control.broken_since_ns) >= self.config.give_up_ns;
        if self.volume.is_none() && !self.directed && patience_over {
            let error = self.given_up(0);
            self.fail(error);
        }
    }

    fn tick_link(&mut self, link: u32, now_ns: u64) {
        let due_ns = self.link_due_ns(link);
        let is_due = due_ns.is_some_and(|due_ns| due_ns <= now_ns);
        let late_ns = due_ns.map_or(0, |due_ns| now_ns.saturating_sub(due_ns));
        if late_ns >= AWAY_NS_MIN && self.links[link as usize].state != LinkState::Ready {
            self.links[link as usize].broken_since_ns += late_ns;
        }
        match self.links[link as usize].state {
            LinkState::Idle => return,
            LinkState::Backoff { .. } if is_due => {
                let entry = &mut self.links[link as usize];
                entry.enter(LinkState::Connecting, now_ns);
                self.actions.push(LinkAction::Connect { link, address: entry.address.clone() });
            }
            LinkState::Connecting if is_due => self.broken(link, "no answer to connecting", now_ns),
            LinkState::Greeting if is_due => self.broken(link, "no answer to the greeting", now_ns),
            LinkState::Ready => {
                if is_due {
                    self.silent(link, now_ns);
                }
                return;
            }
            _ => {}
        }
        self.give_up_parts(link, now_ns);
    }

    /// A server has not been heard of for some time, though it has something to answer.
    fn silent(&mut self, link: u32, now_ns: u64) {
        if link == 0 && self.asking.is_under_way {
            return self.broken(0, "the server does not tell the table", now_ns);
        }
        let entry = &mut self.links[link as usize];
        if now_ns.saturating_sub(entry.last_received_ns) >= self.config.stall_ns {
            return self.broken(link, "the server is silent", now_ns);
        }
        entry.probes += 1;
        if entry.probes == 1 {
            encode_plain(entry.list.bytes(), &Header::new(Kind::Ping));
        } else {
            self.refresh(now_ns);
        }
    }

    /// When something must be done about a link.
    fn link_due_ns(&self, index: u32) -> Option<u64> {
        let link = &self.links[index as usize];
        let others = index == 0 && self.asking.addresses.len() > 1;
        let greeting_ns = if others { GREETING_NS_OTHERS } else { GREETING_NS_MAX };
        match link.state {
            LinkState::Idle => None,
            LinkState::Backoff { until_ns } => Some(until_ns),
            LinkState::Connecting => Some(link.state_since_ns + CONNECT_NS_MAX),
            LinkState::Greeting => Some(link.state_since_ns + greeting_ns),
            LinkState::Ready if link.is_local => None,
            LinkState::Ready if index == 0 && self.asking.is_under_way => {
                Some(self.asking.asked_ns.max(link.last_received_ns) + TABLE_NS_MAX)
            }
            LinkState::Ready if link.in_flight == 0 => None,
            LinkState::Ready => Some(self.silence_due_ns(link)),
        }
    }

    fn silence_due_ns(&self, link: &Link) -> u64 {
        let probe_ns = self.config.probe_ns.min(self.config.stall_ns / 2).max(1);
        let next_ns = probe_ns.saturating_mul(u64::from(link.probes) + 1);
        link.last_received_ns.saturating_add(next_ns.min(self.config.stall_ns))
    }

    /// Fails the parts that waited too long for a broken link.
    fn give_up_parts(&mut self, link: u32, now_ns: u64) {
        let since_ns = self.links[link as usize].broken_since_ns;
        if now_ns.saturating_sub(since_ns) < self.config.give_up_ns {
            return;
        }
        for number in self.window.numbers() {
            let Some(part) = self.window.get(number) else { continue };
            let waits_since_ns = part.started_ns.max(since_ns);
            let is_over = now_ns.saturating_sub(waits_since_ns) >= self.config.give_up_ns;
            if part.link == link && !part.parked && is_over {
                let error = self.given_up(link);
                self.links[link as usize].unsent.retain(|waiting| *waiting != number);
                self.finish_part(number, Err(error));
            }
        }
    }

    pub(crate) fn given_up(&self, link: u32) -> ClientError {
        let entry = &self.links[link as usize];
        let address = if link == 0 { self.asking.addresses.join(", ") } else { entry.address.clone() };
        let seconds = self.config.give_up_ns / 1_000_000_000;
        ClientError::GivenUp { address, seconds, last: entry.last_failure.clone() }
    }

    /// When `tick` must be called next, if nothing else happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        let parked = self.parked.iter().map(|parked| parked.until_ns).min();
        let asking = self.asking.due_ns.filter(|_| !self.asking.is_under_way);
        let may_lay_aside = !self.backlog.is_empty() && self.window.is_full() && self.window.has_room_aside();
        let oldest = self.window.oldest().filter(|_| may_lay_aside);
        let stuck = oldest.map(|part| part.started_ns.saturating_add(STUCK_NS));
        let links = (0..self.links.len() as u32).filter_map(|link| self.link_due_ns(link));
        links.chain(parked).chain(asking).chain(stuck).min()
    }
}
