//! Connections: made, greeted, lost, made again.

use coquina_protocol::{
    AttachedVolume, Header, Hello, HelloReply, Kind, OpenRequest, REQUEST_WINDOW, VERSION_MAX, VERSION_MIN,
    VolumeRef, encode_hello, encode_open,
};

use crate::core::{ClientCore, LinkAction};
use crate::error::ClientError;
use crate::link::LinkState;

/// Pause before the second attempt to connect; doubles up to the largest.
const BACKOFF_NS_MIN: u64 = 10_000_000;
const BACKOFF_NS_MAX: u64 = 1_000_000_000;
/// A connection that breaks sooner was none: the pauses and the time to give up go on from before.
const STEADY_NS: u64 = 1_000_000_000;

impl ClientCore {
    /// Connects a link that is not yet.
    pub(crate) fn want(&mut self, link: u32, now_ns: u64) {
        let entry = &mut self.links[link as usize];
        if entry.state == LinkState::Idle && self.failed.is_none() {
            entry.broken_since_ns = now_ns;
            entry.attempts = 0;
            entry.enter(LinkState::Connecting, now_ns);
            self.actions.push(LinkAction::Connect { link, address: entry.address.clone() });
        }
    }

    /// A connection stands: introduces itself and opens the volume, in one send.
    pub fn connected(&mut self, link: u32, now_ns: u64) {
        let entry = &mut self.links[link as usize];
        if entry.state != LinkState::Connecting {
            return;
        }
        entry.enter(LinkState::Greeting, now_ns);
        entry.last_received_ns = now_ns;
        let hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            features: 0,
            cluster: self.config.cluster,
            session: self.config.session,
            shard: entry.shard,
            client: &self.config.client,
        };
        encode_hello(entry.list.bytes(), &Header::new(Kind::Hello), &hello);
        self.encode_open(link);
    }

    pub(crate) fn encode_open(&mut self, link: u32) {
        let open = OpenRequest {
            volume: match &self.volume {
                Some(volume) => VolumeRef::Id(volume.volume),
                None => VolumeRef::Name(&self.config.volume),
            },
            read_only: self.config.read_only,
            attach_generation: self.volume.as_ref().map_or(0, |volume| volume.attach_generation),
        };
        encode_open(self.links[link as usize].list.bytes(), &Header::new(Kind::Open), &open);
    }

    pub(crate) fn greeted(&mut self, link: u32, reply: &HelloReply) -> Result<(), String> {
        if !(VERSION_MIN..=VERSION_MAX).contains(&reply.version) {
            return Err(format!("the server chose protocol version {}", reply.version));
        }
        self.links[link as usize].requests_max = reply.requests_max.clamp(1, REQUEST_WINDOW as u32);
        Ok(())
    }

    pub(crate) fn opened(
        &mut self,
        link: u32,
        handle: u64,
        volume: &AttachedVolume,
        now_ns: u64,
    ) -> Result<(), String> {
        if self.volume.as_ref().is_some_and(|known| known.volume != volume.volume) {
            return Err("the server opened another volume than was asked for".to_owned());
        }
        let entry = &mut self.links[link as usize];
        let first = match entry.state {
            LinkState::Greeting if entry.requests_max > 0 => true,
            LinkState::Ready if link == 0 => false,
            _ => return Err("the server opened a volume unasked".to_owned()),
        };
        entry.handle = handle;
        if first {
            entry.enter(LinkState::Ready, now_ns);
            entry.unsent.clear();
            for number in self.window.numbers() {
                let Some(part) = self.window.peek(number).copied() else { continue };
                if part.link == link && !part.parked {
                    self.links[link as usize].unsent.push_back(number);
                    let may_be_stale = self.may_be_stale(&part, now_ns);
                    self.sends_again |= may_be_stale;
                    self.begins_again |= may_be_stale;
                }
            }
        }
        let known = self.volume.as_ref().map(|known| (known.map_version, known.attach_generation));
        let is_newer = known.is_none_or(|(version, _)| volume.map_version > version);
        if link == 0 {
            self.asking.is_under_way = false;
            self.asking.is_known();
            self.adopt(volume, now_ns)?;
            if !first && self.asking.is_stale(is_newer, now_ns) {
                return Err("the server's map does not move on".to_owned());
            }
        } else if is_newer && !self.directed && known.is_some_and(|(_, own)| own == volume.attach_generation)
        {
            self.adopt(volume, now_ns)?;
        }
        Ok(())
    }

    /// A connection could not be made or is gone. Its unanswered parts are sent again on the next one.
    pub fn broken(&mut self, link: u32, reason: &str, now_ns: u64) {
        let entry = &mut self.links[link as usize];
        if matches!(entry.state, LinkState::Idle | LinkState::Backoff { .. }) {
            return;
        }
        let was_ready = entry.state == LinkState::Ready;
        let has_answered = entry.has_answered;
        if was_ready && now_ns.saturating_sub(entry.state_since_ns) >= STEADY_NS {
            entry.broken_since_ns = now_ns;
            entry.attempts = 0;
        }
        // An attempt that took longer than the pause was one.
        let from_ns = if entry.state == LinkState::Connecting { entry.state_since_ns } else { now_ns };
        self.reset_link(link as usize);
        let entry = &mut self.links[link as usize];
        reason.clone_into(&mut entry.last_failure);
        // Link 0 has several nodes to try before it must pause.
        let nodes = if link == 0 { self.asking.addresses.len().max(1) as u32 } else { 1 };
        let pause_ns = match entry.attempts / nodes {
            0 => 0,
            rounds => (BACKOFF_NS_MIN << (rounds - 1).min(10)).min(BACKOFF_NS_MAX),
        };
        entry.attempts += 1;
        let moved = entry.attempts > 1 && link != 0;
        entry.enter(LinkState::Backoff { until_ns: now_ns.max(from_ns + pause_ns) }, now_ns);
        self.actions.push(LinkAction::Close { link });
        for number in self.window.numbers() {
            let Some(part) = self.window.get(number).filter(|part| part.link == link) else { continue };
            // What only waited to be sent while others were answered has lost nothing.
            let has_lost = was_ready && (part.in_flight || !part.parked && !has_answered);
            part.in_flight = false;
            let is_over = has_lost && part.lost_connection(now_ns, self.config.give_up_ns);
            let request = part.request;
            if self.is_withdrawn(request) {
                self.finish_part(number, Err(ClientError::Withdrawn));
            } else if is_over {
                let error = self.given_up(link);
                self.finish_part(number, Err(error));
            }
        }
        if link == 0 {
            self.asking.is_under_way = false;
            self.asking.due_ns = None;
            self.ask_next_node();
        } else if moved {
            self.refresh(now_ns);
        }
    }

    /// Link 0 goes to the next node from now on.
    fn ask_next_node(&mut self) {
        if self.asking.addresses.is_empty() {
            return;
        }
        self.asking.at = (self.asking.at + 1) % self.asking.addresses.len();
        self.asking.addresses[self.asking.at].clone_into(&mut self.links[0].address);
    }
}
