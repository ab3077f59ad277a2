//! Connections: made, greeted, lost, made again; and which one serves a chunk.

use coquina_protocol::{
    AttachedVolume, Header, Hello, HelloReply, Kind, OpenRequest, REQUEST_WINDOW, VERSION_MAX, VERSION_MIN,
    VolumeRef, encode_hello, encode_open, encode_plain, group_of_chunk,
};

use crate::core::{ClientCore, LinkAction};
use crate::error::ClientError;
use crate::link::{Link, LinkState};

/// Pause before the second attempt to connect; doubles up to the largest.
const BACKOFF_NS_MIN: u64 = 10_000_000;
const BACKOFF_NS_MAX: u64 = 1_000_000_000;
/// How long connecting and greeting may take.
const GREETING_NS_MAX: u64 = 5_000_000_000;
/// A connection that breaks sooner was none: the pauses and the time to give up go on from before.
const STEADY_NS: u64 = 1_000_000_000;
/// Most connections of one volume.
pub(crate) const LINKS_MAX: usize = 1 << 14;

impl ClientCore {
    /// The link that serves a chunk.
    pub(crate) fn route(&self, chunk: u32) -> u32 {
        match self.group_links.len() as u32 {
            0 => 0,
            groups => self.group_links[group_of_chunk(chunk, groups) as usize],
        }
    }

    /// Connects a link that is not yet.
    pub(crate) fn want(&mut self, link: u32, now_ns: u64) {
        let entry = &mut self.links[link as usize];
        if entry.state == LinkState::Idle && self.failed.is_none() {
            entry.broken_since_ns = now_ns;
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

    fn encode_open(&mut self, link: u32) {
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
                if let Some(part) = self.window.get(number)
                    && part.link == link
                    && !part.parked
                {
                    entry.unsent.push_back(number);
                }
            }
        }
        if link == 0 {
            self.refreshing = false;
            self.adopt(volume, now_ns)?;
        }
        Ok(())
    }

    /// Takes over a volume's table, and moves parts that are not on their way to where it says.
    fn adopt(&mut self, volume: &AttachedVolume, now_ns: u64) -> Result<(), String> {
        let mut shard_links = Vec::with_capacity(volume.shards.len());
        for shard in &volume.shards {
            let address = if shard.address.is_empty() { &self.links[0].address } else { &shard.address };
            let link = match self.links.iter().position(|link| link.serves(shard, address)) {
                Some(known) => known,
                None => {
                    let link = Link::new(address.clone(), Some((shard.drive, shard.shard)));
                    self.links.push(link);
                    self.links.len() - 1
                }
            };
            if link >= LINKS_MAX {
                return Err("the volume is spread over more shards than a client connects to".to_owned());
            }
            shard_links.push(link as u32);
        }
        self.group_links = volume.groups.iter().map(|shard| shard_links[*shard as usize]).collect();
        self.volume = Some(volume.clone());
        self.links.iter_mut().skip(1).for_each(|link| link.unsent.clear());
        for number in self.window.numbers() {
            let Some(part) = self.window.get(number) else { continue };
            if part.in_flight || part.parked {
                continue;
            }
            let chunk = part.chunk;
            let link = self.route(chunk);
            if let Some(part) = self.window.get(number) {
                part.link = link;
            }
            self.links[link as usize].unsent.push_back(number);
            self.want(link, now_ns);
        }
        for link in 1..self.links.len() as u32 {
            let entry = &mut self.links[link as usize];
            if !shard_links.contains(&link) && entry.in_flight == 0 && entry.state != LinkState::Idle {
                entry.reset();
                entry.state = LinkState::Idle;
                self.actions.push(LinkAction::Close { link });
            }
        }
        self.submit_early();
        Ok(())
    }

    /// Asks for the volume's table again.
    pub(crate) fn refresh(&mut self) {
        if !self.refreshing && self.volume.is_some() && self.links[0].state == LinkState::Ready {
            self.refreshing = true;
            self.encode_open(0);
        }
    }

    /// A connection could not be made or is gone. Its unanswered parts are sent again on the next one.
    pub fn broken(&mut self, link: u32, reason: &str, now_ns: u64) {
        let entry = &mut self.links[link as usize];
        if matches!(entry.state, LinkState::Idle | LinkState::Backoff { .. }) {
            return;
        }
        if entry.state == LinkState::Ready && now_ns.saturating_sub(entry.state_since_ns) >= STEADY_NS {
            entry.broken_since_ns = now_ns;
            entry.attempts = 0;
        }
        entry.reset();
        reason.clone_into(&mut entry.last_failure);
        let pause_ns = match entry.attempts {
            0 => 0,
            attempts => (BACKOFF_NS_MIN << (attempts - 1).min(10)).min(BACKOFF_NS_MAX),
        };
        entry.attempts += 1;
        let moved = entry.attempts > 1 && link != 0;
        entry.enter(LinkState::Backoff { until_ns: now_ns + pause_ns }, now_ns);
        self.actions.push(LinkAction::Close { link });
        for number in self.window.numbers() {
            if let Some(part) = self.window.get(number)
                && part.link == link
            {
                part.in_flight = false;
            }
        }
        if link == 0 {
            self.refreshing = false;
        } else if moved {
            self.refresh();
        }
    }

    /// Lets time pass: reconnects, retries, gives up.
    pub fn tick(&mut self, now_ns: u64) {
        self.unpark(now_ns);
        for link in 0..self.links.len() as u32 {
            self.tick_link(link, now_ns);
        }
        let control = &self.links[0];
        let patience_over = now_ns.saturating_sub(control.broken_since_ns) >= self.config.give_up_ns;
        if self.volume.is_none() && patience_over {
            let error = self.given_up(0);
            self.fail(error);
        }
    }

    fn tick_link(&mut self, link: u32, now_ns: u64) {
        let stall_ns = self.config.stall_ns;
        let entry = &mut self.links[link as usize];
        match entry.state {
            LinkState::Idle => return,
            LinkState::Backoff { until_ns } if until_ns <= now_ns => {
                entry.enter(LinkState::Connecting, now_ns);
                self.actions.push(LinkAction::Connect { link, address: entry.address.clone() });
            }
            LinkState::Connecting | LinkState::Greeting
                if now_ns.saturating_sub(entry.state_since_ns) >= GREETING_NS_MAX =>
            {
                self.broken(link, "no answer to the greeting", now_ns);
            }
            LinkState::Ready => {
                let silent_ns = now_ns.saturating_sub(entry.last_received_ns);
                if entry.in_flight > 0 && silent_ns >= stall_ns {
                    self.broken(link, "the server is silent", now_ns);
                } else if entry.in_flight > 0 && silent_ns >= stall_ns / 2 && !entry.pinged {
                    entry.pinged = true;
                    encode_plain(entry.list.bytes(), &Header::new(Kind::Ping));
                }
                return;
            }
            _ => {}
        }
        self.give_up_parts(link, now_ns);
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
            if part.link == link && now_ns.saturating_sub(waits_since_ns) >= self.config.give_up_ns {
                let error = self.given_up(link);
                self.links[link as usize].unsent.retain(|waiting| *waiting != number);
                self.finish_part(number, Err(error));
            }
        }
    }

    fn given_up(&self, link: u32) -> ClientError {
        let entry = &self.links[link as usize];
        ClientError::GivenUp {
            address: entry.address.clone(),
            seconds: self.config.give_up_ns / 1_000_000_000,
            last: entry.last_failure.clone(),
        }
    }

    /// When `tick` must be called next, if nothing else happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        let parked = self.parked.iter().map(|(until_ns, _, _)| *until_ns).min();
        let links = self.links.iter().filter_map(|link| match link.state {
            LinkState::Idle => None,
            LinkState::Backoff { until_ns } => Some(until_ns),
            LinkState::Connecting | LinkState::Greeting => Some(link.state_since_ns + GREETING_NS_MAX),
            LinkState::Ready if link.in_flight == 0 => None,
            LinkState::Ready if link.pinged => Some(link.last_received_ns + self.config.stall_ns),
            LinkState::Ready => Some(link.last_received_ns + self.config.stall_ns / 2),
        });
        links.chain(parked).min()
    }
}
