//! Where the data is: the volume's table, and the parts that move when it changes.
//!
//! Invariants:
//! - an older table never replaces a newer one, nor an older size a newer one, whether a table or a notice tells of it;
//! - a part goes only to the link that the present table names, however long ago it was first sent;
//! - what a shrink has cut off, as far as known, goes nowhere again: a server that has heard of it refuses it as one does that has not
//!   heard that the volume grew.

use std::collections::{BTreeMap, BTreeSet};

use coquina_base::DriveId;
use coquina_cluster::{Striping, mix};
use coquina_protocol::{AttachedVolume, GROUP_UNKNOWN, Status};

use crate::core::{ClientCore, LinkAction};
use crate::error::ClientError;
use crate::link::{Link, LinkState};
use crate::request::{NO_LINK, Part, RequestKind};

/// Least time between two questions for the table.
const ASK_NS_MIN: u64 = 20_000_000;
/// A node that tells the same old table for so long, while parts are refused under it, may be cut off itself.
const STALE_NS_MAX: u64 = 500_000_000;
/// Questions further apart than this have nothing to do with each other.
const STALE_NS_APART: u64 = 1_000_000_000;
/// A node that was just told of a volume may not know it yet: one that is the only one is asked for so long before it is believed.
const UNKNOWN_NS_ALONE: u64 = 500_000_000;
/// Nodes that cannot be asked whether they know a volume that others do not know are waited for so long when it is opened.
const UNKNOWN_NS_OTHERS: u64 = 2_000_000_000;
/// Most connections of one volume.
pub(crate) const LINKS_MAX: usize = 1 << 14;

/// The questions for the table, and who answers them.
pub(crate) struct Asking {
    /// Nodes that can be asked: those of the configuration, then those that a node told of.
    pub(crate) addresses: Vec<String>,
    /// The one that link 0 is for.
    pub(crate) at: usize,
    /// Whether an answer is awaited on link 0, besides the first one.
    pub(crate) is_under_way: bool,
    /// When it was last asked.
    pub(crate) asked_ns: u64,
    /// When to ask again.
    pub(crate) due_ns: Option<u64>,
    /// Since when the answers have not been newer than what was known.
    pub(crate) stale_since_ns: Option<u64>,
    /// Nodes that did not know the volume, since one did.
    pub(crate) unknown: BTreeSet<String>,
    /// When the first of them said so.
    pub(crate) unknown_since_ns: Option<u64>,
}

impl Asking {
    pub(crate) fn new(addresses: Vec<String>) -> Asking {
        Asking {
            addresses,
            at: 0,
            is_under_way: false,
            asked_ns: 0,
            due_ns: None,
            stale_since_ns: None,
            unknown: BTreeSet::new(),
            unknown_since_ns: None,
        }
    }

    /// Whether another node should be asked, after an answer that was newer than what was known or was not.
    pub(crate) fn is_stale(&mut self, is_newer: bool, now_ns: u64) -> bool {
        if is_newer {
            self.stale_since_ns = None;
            return false;
        }
        let since_ns = *self.stale_since_ns.get_or_insert(now_ns);
        let is_stale = self.addresses.len() > 1 && now_ns.saturating_sub(since_ns) >= STALE_NS_MAX;
        if is_stale {
            self.stale_since_ns = None;
        }
        is_stale
    }

    /// A node does not know the volume. Whether all others have said so, too: one that cannot be asked has not.
    pub(crate) fn is_unknown_to_all(&mut self, address: &str) -> bool {
        self.unknown.insert(address.to_owned());
        self.addresses.iter().all(|address| self.unknown.contains(address))
    }

    /// A node does not know the volume, which was not open before. Whether to believe it: others may have heard of it already.
    pub(crate) fn is_unknown_at_first(&mut self, address: &str, now_ns: u64) -> bool {
        let waited_ns = now_ns.saturating_sub(*self.unknown_since_ns.get_or_insert(now_ns));
        match self.is_unknown_to_all(address) {
            true => self.unknown.len() > 1 || waited_ns >= UNKNOWN_NS_ALONE,
            false => waited_ns >= UNKNOWN_NS_OTHERS,
        }
    }

    /// A node knows the volume.
    pub(crate) fn is_known(&mut self) {
        self.unknown.clear();
        self.unknown_since_ns = None;
    }

    /// Takes over the nodes that a table tells of.
    fn learn(&mut self, configured: &[String], nodes: &[String]) {
        let present = self.addresses.get(self.at).cloned();
        self.addresses.clear();
        for address in configured.iter().chain(nodes).filter(|address| !address.is_empty()) {
            if !self.addresses.contains(address) {
                self.addresses.push(address.clone());
            }
        }
        self.at = self.addresses.iter().position(|address| Some(address) == present.as_ref()).unwrap_or(0);
    }
}

/// Whether a link is of an earlier table, is not connected and not in this one. No part is in flight there, and all others are put where
/// they belong when the table is adopted.
fn is_unused(link: &Link, wanted: &BTreeSet<((DriveId, u32), &str)>) -> bool {
    let is_wanted =
        !link.is_local && link.shard.is_some_and(|shard| wanted.contains(&(shard, link.address.as_str())));
    link.state == LinkState::Idle && !is_wanted
}

impl ClientCore {
    /// The link that serves a chunk, or [`NO_LINK`] if no primary of its group is known.
    pub(crate) fn route(&self, chunk: u32) -> u32 {
        self.group_links[self.group_index(chunk) as usize]
    }

    /// The group of a chunk, counted from the pool's first: the rule of `coquina_cluster::group_of`.
    pub(crate) fn group_index(&self, chunk: u32) -> u32 {
        self.group_shift.wrapping_add(chunk) & (self.group_links.len() as u32 - 1)
    }

    /// Puts a part that is in no place where it belongs.
    pub(crate) fn dispatch(&mut self, number: u64, now_ns: u64) {
        let Some(chunk) = self.window.peek(number).map(|part| part.chunk) else { return };
        let link = self.route(chunk);
        if let Some(part) = self.window.get(number) {
            part.link = link;
            let part = *part;
            // What is late for want of room alone is not tried again.
            self.sends_again |= part.sends > 0;
            self.begins_again |= self.may_be_stale(&part, now_ns);
        }
        if link == NO_LINK {
            return self.park(number, Status::NotServing, "no primary is known", now_ns);
        }
        self.links[link as usize].unsent.push_back(number);
        self.want(link, now_ns);
    }

    /// Tells a directed client the volume's table, made from the present map. An older one than before is ignored.
    /// Of `AttachedVolume`, the addresses of shards in this process are not used.
    pub fn set_volume(&mut self, volume: &AttachedVolume, now_ns: u64) {
        assert!(self.directed, "others ask for the table");
        if self.failed.is_some() {
            return;
        }
        if let Err(reason) = self.adopt(volume, now_ns) {
            self.fail(ClientError::Local(reason));
        }
    }

    /// Tells a directed client whether anybody has the volume open, which it takes for granted. If so, a node knows it by a
    /// connection, although nothing was asked for yet; if not, there is none once all requests are finished.
    pub fn set_open(&mut self, is_open: bool, now_ns: u64) {
        assert!(self.directed, "others have it open");
        if self.is_open != is_open {
            self.is_open = is_open;
            self.want_first(now_ns);
        }
    }

    /// Connects to the primary of the first chunk, or to any if that one is not known.
    fn want_first(&mut self, now_ns: u64) {
        if !self.directed || !self.is_open || self.group_links.is_empty() {
            return;
        }
        let mut links = std::iter::once(self.route(0)).chain(self.group_links.iter().copied());
        if let Some(link) = links.find(|link| *link != NO_LINK) {
            self.want(link, now_ns);
        }
    }

    /// Closes all connections, and gives memory back: nobody waits for anything, or has the volume open.
    pub(crate) fn rest(&mut self) {
        self.drop_links(&[]);
        self.links.iter_mut().for_each(Link::rest);
        self.window.rest();
        self.forget_requests();
    }

    /// Which shards are in this process from the next `set_volume` on.
    pub fn set_local(&mut self, shards: &[(coquina_base::DriveId, u32)]) {
        self.config.local.clear();
        self.config.local.extend_from_slice(shards);
    }

    /// Takes over a volume's table, and moves parts to where it says.
    pub(crate) fn adopt(&mut self, volume: &AttachedVolume, now_ns: u64) -> Result<(), String> {
        if self.volume.as_ref().is_some_and(|known| known.map_version > volume.map_version) {
            return Ok(());
        }
        self.check_table(volume)?;
        let shard_links = self.shard_links(volume)?;
        self.group_links.clear();
        self.group_links.extend(volume.groups.iter().map(|shard| match *shard {
            GROUP_UNKNOWN => NO_LINK,
            shard => shard_links[shard as usize],
        }));
        self.group_shift = mix(volume.family) as u32;
        self.striping =
            Striping { stripe_unit_bytes: volume.stripe_unit_bytes, stripe_count: volume.stripe_count };
        if !self.directed {
            self.asking.learn(&self.config.addresses, &volume.nodes);
        }
        let told = self.volume.as_ref().filter(|_| self.size_version > volume.map_version);
        let size_bytes = told.map_or(volume.size_bytes, |known| known.size_bytes);
        self.size_version = self.size_version.max(volume.map_version);
        self.volume = Some(AttachedVolume { size_bytes, ..volume.clone() });
        self.move_parts(now_ns);
        self.drop_links(&shard_links);
        self.want_first(now_ns);
        self.renew_silent_links(now_ns);
        self.submit_early();
        Ok(())
    }

    fn check_table(&self, volume: &AttachedVolume) -> Result<(), String> {
        let striping =
            Striping { stripe_unit_bytes: volume.stripe_unit_bytes, stripe_count: volume.stripe_count };
        if self.volume.is_some() && striping != self.striping {
            return Err("the volume's striping has changed, which cannot be".to_owned());
        }
        striping.check(volume.size_bytes).map_err(|error| error.to_string())?;
        let shard_count = volume.shards.len() as u32;
        let is_shard = |shard: &u32| *shard < shard_count || *shard == GROUP_UNKNOWN;
        if !volume.groups.len().is_power_of_two() || !volume.groups.iter().all(is_shard) {
            return Err("the volume's table of placement groups makes no sense".to_owned());
        }
        Ok(())
    }

    /// The link of each of the table's shards, made if there is none.
    fn shard_links(&mut self, volume: &AttachedVolume) -> Result<Vec<u32>, String> {
        let local: BTreeSet<_> = self.config.local.iter().copied().collect();
        let mut known: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for (index, link) in self.links.iter().enumerate().skip(1) {
            if let Some(shard) = link.shard {
                known.entry((shard, link.is_local)).or_default().push(index as u32);
            }
        }
        let wanted: BTreeSet<_> =
            volume.shards.iter().map(|shard| ((shard.drive, shard.shard), shard.address.as_str())).collect();
        let mut shard_links: Vec<u32> = Vec::with_capacity(volume.shards.len());
        let mut unused = 1;
        for shard in &volume.shards {
            let name = (shard.drive, shard.shard);
            let is_local = local.contains(&name);
            let same_name = known.entry((name, is_local)).or_default();
            let link = same_name.iter().find(|link| self.links[**link as usize].serves(shard, is_local));
            if let Some(link) = link {
                shard_links.push(*link);
                continue;
            }
            let new = match is_local {
                true => Link::local(name),
                false => Link::new(shard.address.clone(), Some(name)),
            };
            // Those before it are in use, and stay so.
            while self.links.get(unused).is_some_and(|link| !is_unused(link, &wanted)) {
                unused += 1;
            }
            let link = unused;
            if link >= LINKS_MAX {
                return Err("the volume is spread over more shards than a client connects to".to_owned());
            }
            match self.links.get_mut(link) {
                Some(unused) => *unused = new,
                None => self.links.push(new),
            }
            same_name.push(link as u32);
            shard_links.push(link as u32);
        }
        Ok(shard_links)
    }

    /// Whether a part lies behind the end of the volume, which was further behind when it was asked for.
    fn is_cut_off(&self, part: &Part) -> bool {
        let is_beyond_end = self.config.discards_beyond_end
            && self.requests[part.request as usize]
                .as_ref()
                .is_some_and(|request| request.kind == RequestKind::Discard);
        let end = part.offset_bytes + part.length_bytes;
        let used_bytes = |size_bytes| self.striping.chunk_used_bytes(part.chunk, size_bytes);
        !is_beyond_end && self.volume.as_ref().is_some_and(|volume| used_bytes(volume.size_bytes) < end)
    }

    /// Ends a part that is on its way nowhere if it has been cut off; says whether it was.
    pub(crate) fn end_cut_off(&mut self, number: u64) -> bool {
        let Some(part) = self.window.peek(number).copied().filter(|part| self.is_cut_off(part)) else {
            return false;
        };
        let (Some(request), Some(volume)) = (&self.requests[part.request as usize], &self.volume) else {
            return false;
        };
        let error = ClientError::Range {
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes,
            size_bytes: volume.size_bytes,
        };
        self.finish_part(number, Err(error));
        true
    }

    /// Puts every part where the new table says: also those that are on their way to a shard that was primary
    /// before. It may be gone without a word, and the same number at the new primary takes effect once. That goes for one of this process,
    /// too: the thread that it is on may hang. When that goes on it may do what it was handed, but as a former primary it commits nothing
    /// and has no lease, and it cannot have become primary again without having looked at that before.
    fn move_parts(&mut self, now_ns: u64) {
        self.links.iter_mut().skip(1).for_each(|link| link.unsent.clear());
        for number in self.window.numbers() {
            let Some(part) = self.window.peek(number).copied() else { continue };
            if part.parked {
                continue;
            }
            if part.in_flight {
                let link = self.route(part.chunk);
                if link == part.link || link == NO_LINK {
                    continue;
                }
                let is_withdrawn = self.is_withdrawn(part.request);
                let old = &mut self.links[part.link as usize];
                if is_withdrawn {
                    // It goes nowhere else, and ends with its connection. Of a shard of this process there is none that breaks.
                    if old.is_local {
                        self.finish_part(number, Err(ClientError::Withdrawn));
                    }
                    continue;
                }
                old.uncount(part.length_bytes);
                // Of this process no answer is taken for one to another attempt.
                old.strays += u32::from(!old.is_local);
                if let Some(part) = self.window.get(number) {
                    part.in_flight = false;
                }
            }
            if !self.end_cut_off(number) {
                self.dispatch(number, now_ns);
            }
        }
        for index in 0..self.parked.len() {
            let number = self.parked[index].number;
            let Some(part) = self.window.peek(number).copied() else { continue };
            let moved = self.route(part.chunk);
            if (moved == part.link || moved == NO_LINK) && !self.is_cut_off(&part) {
                continue;
            }
            self.parked[index].until_ns = self.parked[index].until_ns.min(now_ns);
            if let Some(part) = self.window.get(number) {
                part.parks = 0;
            }
        }
        self.unpark(now_ns);
    }

    /// Closes the connections that no table needs any more. One on which parts are in flight stays until they have ended.
    fn drop_links(&mut self, shard_links: &[u32]) {
        let mut is_needed = vec![false; self.links.len()];
        shard_links.iter().for_each(|link| is_needed[*link as usize] = true);
        for link in 1..self.links.len() as u32 {
            let entry = &mut self.links[link as usize];
            let is_idle = entry.is_local || entry.state == LinkState::Idle;
            entry.is_left_over = !is_idle && !is_needed[link as usize];
            if entry.is_left_over && entry.in_flight == 0 {
                self.drop_link(link);
            }
        }
    }

    /// Closes a connection that was left over if its last part has ended.
    pub(crate) fn drop_left_over(&mut self, link: u32) {
        let entry = &self.links[link as usize];
        let is_done = entry.is_left_over && entry.in_flight == 0;
        if is_done && !self.window.parts().any(|part| part.link == link && !part.parked) {
            self.drop_link(link);
        }
    }

    fn drop_link(&mut self, link: u32) {
        self.reset_link(link as usize);
        let entry = &mut self.links[link as usize];
        entry.rest();
        entry.state = LinkState::Idle;
        entry.is_left_over = false;
        self.actions.push(LinkAction::Close { link });
    }

    /// Makes connections anew that were silent when parts were moved away from them: what waits there to be sent is of no use
    /// any more, and would go before all that follows.
    fn renew_silent_links(&mut self, now_ns: u64) {
        for link in 1..self.links.len() as u32 {
            let entry = &self.links[link as usize];
            if entry.state == LinkState::Ready && !entry.is_local && entry.probes > 0 && entry.strays > 0 {
                self.broken(link, "it was silent, and its requests have moved", now_ns);
            }
        }
    }

    /// Asks for the volume's table again, though not too often.
    pub(crate) fn refresh(&mut self, now_ns: u64) {
        if self.directed || self.volume.is_none() || self.asking.is_under_way {
            return;
        }
        // A link that is being made ends with the table anyway.
        if self.links[0].state != LinkState::Ready {
            return;
        }
        let earliest_ns = self.asking.asked_ns.saturating_add(ASK_NS_MIN);
        if now_ns < earliest_ns {
            self.asking.due_ns = Some(earliest_ns);
            return;
        }
        if now_ns.saturating_sub(self.asking.asked_ns) >= STALE_NS_APART {
            self.asking.stale_since_ns = None;
        }
        self.asking.due_ns = None;
        self.asking.asked_ns = now_ns;
        self.asking.is_under_way = true;
        self.encode_open(0);
    }
}
