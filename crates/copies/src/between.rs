//! What two shards say to each other that is not of one group: read grants, and whether a drive is full.
//!
//! The grants of all their groups go together, so that an idle cluster is quiet however many groups it has. What has come
//! up in a call is sent at its end. It may overtake changes that were to go before it: a grant says nothing of them.
//!
//! A copy cannot refuse the entries of a primary and go on. So each shard keeps some room for them, says when only that is
//! left, and primaries then take no changes of these groups that need room.

use std::collections::BTreeMap;

use coquina_replication::{CopyId, GroupEpoch, Input, Message};

use crate::api::Sink;
use crate::payload::Payload;
use crate::shard::{Context, ShardCopies};

/// The number under which messages go that are of no single group.
pub(crate) const NO_GROUP: u32 = 0;

/// Groups that ask, or grant, for the same time.
#[derive(Debug, Default)]
struct Batch {
    sent_ns: u64,
    groups: Vec<GroupEpoch>,
}

/// What goes to each copy at the end of the call.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    requests: BTreeMap<CopyId, Batch>,
    grants: BTreeMap<CopyId, Batch>,
    is_any: bool,
}

impl ShardCopies {
    /// Keeps a request for a grant, or a grant, until the end of the call.
    pub(crate) fn keep_grant(&mut self, to: CopyId, one: GroupEpoch, sent_ns: u64, is_request: bool) {
        let kept = if is_request { &mut self.grants.requests } else { &mut self.grants.grants };
        let batch = kept.entry(to).or_default();
        // Those of an older time are answered late or not at all, as if the message had been lost.
        if batch.sent_ns != sent_ns {
            batch.groups.clear();
            batch.sent_ns = sent_ns;
        }
        batch.groups.push(one);
        self.grants.is_any = true;
    }

    /// Sends what was kept.
    pub(crate) fn send_grants(&mut self, sink: &mut impl Sink) {
        if !std::mem::take(&mut self.grants.is_any) {
            return;
        }
        for (to, batch) in &mut self.grants.requests {
            batch.send(*to, |sent_ns, groups| Message::GrantRequests { sent_ns, groups }, sink);
        }
        for (to, batch) in &mut self.grants.grants {
            batch.send(*to, |sent_ns, groups| Message::Grants { sent_ns, groups }, sink);
        }
    }

    /// Takes a message that is not of one group; says whether it was such.
    pub(crate) fn receive_of_shard(&mut self, from: CopyId, message: &Message, sink: &mut impl Sink) -> bool {
        let (sent_ns, groups, is_request) = match message {
            Message::GrantRequests { sent_ns, groups } => (*sent_ns, groups, true),
            Message::Grants { sent_ns, groups } => (*sent_ns, groups, false),
            Message::Room { is_full } => {
                if *is_full {
                    self.full_copies.insert(from);
                } else {
                    self.full_copies.remove(&from);
                }
                return true;
            }
            _ => return false,
        };
        for one in groups {
            let Some(key) = self.key_of(one.group.0) else { continue };
            if !self.members[key].lanes.contains_key(&from) {
                continue;
            }
            let config_epoch = one.epoch;
            let message = match is_request {
                true => Message::GrantRequest { config_epoch, sent_ns },
                false => Message::Grant { config_epoch, sent_ns },
            };
            self.input(key, Input::Message(from, message), Context::None, sink);
        }
        true
    }

    /// Takes what another copy says of when it opened a group: what a copy hears of a group that it has not opened is lost, so
    /// both begin anew then. Says whether the message was such.
    pub(crate) fn receive_opened(
        &mut self,
        key: usize,
        from: CopyId,
        message: &Message,
        sink: &mut impl Sink,
    ) -> bool {
        match message {
            Message::Opened {} if !self.members[key].halted => {
                if self.members[key].lanes.contains_key(&from) {
                    self.drop_lane(key, from);
                    self.ask_anew(key, from);
                    self.end_comparison_with(key, from);
                    self.end_verification(|member, copies| member == key && copies.contains_key(&from));
                    self.input(key, Input::Disconnected(from), Context::None, sink);
                }
                let number = self.members[key].number;
                sink.send(from, number, &Message::OpenedToo {}, Payload::default());
            }
            Message::OpenedToo {} if !self.members[key].lanes.contains_key(&from) => {}
            Message::Opened {} | Message::OpenedToo {} => return true,
            _ => return false,
        }
        if !self.members[key].halted {
            self.connect_member(key, from, sink);
        }
        true
    }

    /// Tells the other copies when this shard has become full, or is not any more.
    pub(crate) fn look_at_room(&mut self, sink: &mut impl Sink) {
        let is_full = self.shard.is_full(self.is_full);
        if std::mem::replace(&mut self.is_full, is_full) != is_full {
            for copy in &self.connected {
                sink.send(*copy, NO_GROUP, &Message::Room { is_full }, Payload::default());
            }
        }
    }

    /// Tells a copy that has just connected.
    pub(crate) fn tell_full(&mut self, copy: CopyId, sink: &mut impl Sink) {
        if self.is_full {
            sink.send(copy, NO_GROUP, &Message::Room { is_full: true }, Payload::default());
        }
    }

    /// Whether another copy in sync of a group has no room for new blocks.
    pub(crate) fn is_full_elsewhere(&self, number: u32) -> bool {
        let Some(key) = self.key_of(number).filter(|_| !self.full_copies.is_empty()) else { return false };
        let config = self.members[key].group.config();
        config.in_sync.iter().any(|copy| self.full_copies.contains(copy))
    }
}

impl Batch {
    /// Sends it, if there is anything, and keeps its memory.
    fn send(&mut self, to: CopyId, make: impl Fn(u64, Vec<GroupEpoch>) -> Message, sink: &mut impl Sink) {
        if self.groups.is_empty() {
            return;
        }
        let message = make(self.sent_ns, std::mem::take(&mut self.groups));
        sink.send(to, NO_GROUP, &message, Payload::default());
        if let Message::GrantRequests { groups, .. } | Message::Grants { groups, .. } = message {
            self.groups = groups;
            self.groups.clear();
        }
    }
}
