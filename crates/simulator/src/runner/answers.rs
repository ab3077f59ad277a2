//! Answers: checked against the model.

use coquina_base::{BLOCK_BYTES, crc32c_block};
use coquina_engine::{Failure, MapExtent, Outcome, ReadData, RequestToken};

use super::{Outstanding, Runner};
use crate::content::{BlockState, GARBAGE};
use crate::model::{Answer, Span, Ticket, WrongData, read_block, zeros_of};
use crate::subject::Subject;
use crate::violation::Violation;
use crate::workload::Kind;

impl<S: Subject> Runner<S> {
    pub(super) fn answer(
        &mut self,
        shard: usize,
        token: RequestToken,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        self.progress += 1;
        self.answered_step = self.steps;
        let used_blocks = self.used_blocks(shard);
        let Some(request) = self.outstanding.remove(&token.0) else {
            return Err(Violation::WrongAnswer(format!("request {} is not outstanding", token.0)));
        };
        if request.shard != shard {
            return Err(Violation::WrongAnswer(format!("request {} belongs to another shard", token.0)));
        }
        self.trace.add(&[103, token.0, self.now_ns, outcome_number(&outcome)]);
        match outcome {
            Outcome::Changed if request.kind.is_change() => self.changed(request)?,
            Outcome::Read(data) if request.kind == Kind::Read => self.read(request, data)?,
            Outcome::Map(extents) if request.kind == Kind::Map => self.mapped(request, &extents)?,
            Outcome::Failed(failure) => self.failed(request, failure, used_blocks)?,
            other => {
                return Err(Violation::WrongAnswer(format!("a {} got {other:?}", request.kind.name())));
            }
        }
        let used_blocks = self.used_blocks(shard);
        for other in self.outstanding.values_mut().filter(|other| other.shard == shard) {
            other.peak_used_blocks = other.peak_used_blocks.max(used_blocks);
        }
        Ok(())
    }

    fn changed(&mut self, request: Outstanding) -> Result<(), Violation> {
        let kind = request.kind;
        if kind == Kind::Delete {
            for (_, answered) in self.dead_layers.iter_mut().filter(|(layer, _)| *layer == request.layer) {
                *answered = true;
            }
        }
        self.signs.changes_after_poison += u64::from(self.signs.poisoned > 0);
        match kind {
            Kind::Trim | Kind::Delete if self.last.no_space.is_some() => self.last.trim_after_full = true,
            Kind::Write if self.last.trim_after_full => {
                self.counters.writes_after_full += 1;
                self.last.trim_after_full = false;
            }
            _ => {}
        }
        for ticket in request.tickets {
            let span = *ticket.span();
            self.model.finish(ticket, Answer::Changed, kind.stores())?;
            if kind == Kind::Reserve {
                self.model.reserve(&span);
            }
        }
        Ok(())
    }

    fn read(&mut self, request: Outstanding, data: ReadData) -> Result<(), Violation> {
        let mut bytes = std::mem::take(&mut self.payload);
        bytes.clear();
        data.append_to(&mut bytes);
        self.trace.add_bytes(&bytes);
        let shard = request.shard;
        let result = self.check_read(request, &bytes, &data.checksums);
        self.payload = bytes;
        self.shards[shard].recycle(data);
        result
    }

    fn check_read(&mut self, request: Outstanding, bytes: &[u8], checksums: &[u32]) -> Result<(), Violation> {
        for ticket in request.tickets {
            let span = *ticket.span();
            if bytes.len() != span.length_bytes as usize {
                return Err(Violation::WrongAnswer(format!(
                    "{span:?} was asked, {} bytes came",
                    bytes.len()
                )));
            }
            let whole = (span.offset_bytes as usize).is_multiple_of(BLOCK_BYTES)
                && bytes.len().is_multiple_of(BLOCK_BYTES);
            let right = if whole {
                let blocks = bytes.chunks_exact(BLOCK_BYTES);
                blocks.len() == checksums.len()
                    && blocks.zip(checksums).all(|(block, checksum)| crc32c_block(block) == *checksum)
            } else {
                checksums.is_empty()
            };
            if self.tolerance.stale {
                check_plausible(bytes, &span)?;
            } else if request.layer_gone {
                check_zeros(bytes, &span)?;
            }
            if self.tolerance.stale {
                self.model.abandon_read(ticket);
            } else {
                self.model.finish(ticket, Answer::Data(bytes), false)?;
            }
            if !right {
                return Err(Violation::WrongChecksums);
            }
        }
        Ok(())
    }

    fn mapped(&mut self, request: Outstanding, extents: &[MapExtent]) -> Result<(), Violation> {
        for ticket in request.tickets {
            let span = *ticket.span();
            let zeros = zeros_of(&span, extents)?;
            if self.tolerance.stale {
                self.model.abandon_read(ticket);
            } else {
                self.model.finish_map(ticket, &zeros)?;
            }
        }
        Ok(())
    }

    fn failed(&mut self, request: Outstanding, failure: Failure, used_blocks: u64) -> Result<(), Violation> {
        let kind = request.kind;
        let forgiven = match failure {
            Failure::NoSpace => request.blocks > 0,
            Failure::BadBlock => self.tolerance.bad_blocks,
            Failure::Device => self.tolerance.bad_blocks || (self.tolerance.read_only && kind.is_change()),
            Failure::ReadOnly => self.tolerance.read_only && kind.is_change(),
            // A layer that is being deleted takes no requests.
            Failure::Invalid => self.is_dead(request.layer),
            Failure::ChecksumOnArrival | Failure::NotPrimary | Failure::OutOfOrder => false,
        };
        if !forgiven {
            return Err(Violation::Failed { request: kind.name(), failure });
        }
        if failure == Failure::NoSpace {
            self.check_no_space(&request, used_blocks)?;
        } else if failure == Failure::BadBlock {
            self.signs.bad_blocks += 1;
            self.bad_spans.extend(request.tickets.iter().map(Ticket::span));
        } else if failure == Failure::Invalid {
            self.counters.requests_of_deleted_layers += u64::from(!request.layer_gone);
        } else if kind.is_change() {
            self.signs.changes_refused += 1;
        }
        // What is refused when it is sent again may have come into the log in part before.
        let is_again = request.retry.is_some_and(|retry| retry.is_again);
        let is_refused = matches!(failure, Failure::NoSpace | Failure::BadBlock | Failure::Invalid);
        for ticket in request.tickets {
            if !kind.is_change() {
                self.model.abandon_read(ticket);
            } else if is_refused && is_again {
                self.model.finish(ticket, Answer::Either, kind.stores())?;
            } else if is_refused {
                self.model.finish(ticket, Answer::Refused, false)?;
            } else {
                self.model.finish(ticket, Answer::Unknown, kind.stores())?;
            }
        }
        Ok(())
    }

    /// A drive may say that it is full only when it is.
    fn check_no_space(&mut self, request: &Outstanding, used_blocks: u64) -> Result<(), Violation> {
        self.counters.no_space += 1;
        self.no_space_answers += 1;
        self.last.no_space = Some(self.steps);
        self.last.trim_after_full = false;
        let stats = self.shards[request.shard].stats();
        let capacity_blocks = stats.capacity_bytes / BLOCK_BYTES as u64;
        let used_blocks = used_blocks.max(request.peak_used_blocks);
        // A deleted layer frees its space in the background, and bad blocks may keep theirs.
        let exact = !self.is_deleting() && !self.tolerance.bad_blocks;
        let known = capacity_blocks > 0;
        if known && (request.promised || (exact && used_blocks < capacity_blocks)) {
            return Err(Violation::NoSpaceTooEarly { used_blocks, capacity_blocks });
        }
        Ok(())
    }
}

/// Data that a fault may have brought back was at least written to its place once.
fn check_plausible(bytes: &[u8], span: &Span) -> Result<(), WrongData> {
    for block in span.blocks() {
        let seen = read_block(bytes, span, block);
        if seen.contains(&GARBAGE) {
            let (layer, chunk) = (span.layer, span.chunk);
            return Err(WrongData { layer, chunk, block, seen: Some(seen), allowed: Vec::new() });
        }
    }
    Ok(())
}

/// What a deleted layer shows once its deletion was answered, whatever was under way on it then.
fn check_zeros(bytes: &[u8], span: &Span) -> Result<(), WrongData> {
    for block in span.blocks() {
        let seen = read_block(bytes, span, block);
        if seen != BlockState::default() {
            let (layer, chunk) = (span.layer, span.chunk);
            let allowed = vec![BlockState::default()];
            return Err(WrongData { layer, chunk, block, seen: Some(seen), allowed });
        }
    }
    Ok(())
}

fn outcome_number(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Changed => 1,
        Outcome::Read(_) => 2,
        Outcome::Map(extents) => 3 + extents.len() as u64 * 16,
        Outcome::Failed(failure) => 4 + 16 * (*failure as u64),
    }
}
