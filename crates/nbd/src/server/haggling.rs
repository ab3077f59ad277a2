//! The handshake's options: one at a time, each answered before the next one is taken.

use super::option::{ContextData, InfoData, OptionRefusal, QueryPurpose};
use super::session::{Event, LookUpPurpose, ServerConfig, Step};
use crate::constant::{
    ALLOCATION_CONTEXT, ALLOCATION_CONTEXT_ID, BLOCK_BYTES_MIN, BLOCK_BYTES_PREFERRED, EXPORT_PADDING_BYTES,
    MAGIC_OPTION, MAGIC_OPTION_REPLY, OPTION_BYTES_MAX, OPTION_DRAIN_BYTES_MAX, OPTION_HEADER_BYTES,
    OPTIONS_MAX, info, option, option_reply,
};
use crate::name::STRING_BYTES_MAX;
use crate::request::Limits;
use crate::wire::{Reader, put_u16, put_u32, put_u64};
use crate::{
    DisconnectReason, ExportInfo, ExportName, ExportNameError, ExportRefusal, TransmissionFlags, Violation,
};

/// What the session owes the client once the driver has answered.
enum Pending {
    ExportName { name: ExportName },
    Info { option: u32, name: ExportName, wants_name: bool },
    Context { option: u32, name: ExportName, allocation: bool },
    List,
}

/// The data of a refused option, which is skipped without being kept, and the reply that is due then.
struct Skip {
    remaining_bytes: usize,
    option: u32,
    refusal: OptionRefusal,
}

/// What the driver's answer to a look-up led to.
pub enum LookUpOutcome {
    Answered,
    Refused,
    Opened(Limits),
}

pub struct Haggling {
    fixed_newstyle: bool,
    no_zeroes: bool,
    config: ServerConfig,
    structured: bool,
    /// The export for which `base:allocation` was selected last.
    context: Option<ExportName>,
    options: u32,
    pending: Option<Pending>,
    skip: Option<Skip>,
}

impl Haggling {
    pub fn new(fixed_newstyle: bool, no_zeroes: bool, config: ServerConfig) -> Self {
        Self {
            fixed_newstyle,
            no_zeroes,
            config,
            structured: false,
            context: None,
            options: 0,
            pending: None,
            skip: None,
        }
    }

    pub fn step(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Step {
        // spec: a client must not send an option before the last one got its final reply. If it does, it waits.
        if self.pending.is_some() {
            return Step::Wait;
        }
        if let Some(skip) = &mut self.skip {
            let taken = skip.remaining_bytes.min(rest.len());
            skip.remaining_bytes -= taken;
            if skip.remaining_bytes == 0 {
                refuse(skip.option, skip.refusal, output);
                self.skip = None;
            } else if taken == 0 {
                return Step::Need(1);
            }
            return Step::Consumed(taken);
        }
        self.take_option(rest, output)
    }

    fn take_option(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Step {
        let mut reader = Reader::new(rest);
        let (Some(magic), Some(option), Some(length_bytes)) = (reader.u64(), reader.u32(), reader.u32())
        else {
            return Step::Need(OPTION_HEADER_BYTES);
        };
        if let Err(violation) = self.check_header(magic, option, length_bytes) {
            return Step::Event(OPTION_HEADER_BYTES, Event::Violation(violation));
        }
        // spec: ABORT must be answered with ACK, and data that came with it ignored.
        if option == option::ABORT {
            reply(option, option_reply::ACK, &[], output);
            return Step::Event(OPTION_HEADER_BYTES, Event::Disconnect(DisconnectReason::Aborted));
        }
        if let Some(refusal) = refusal_unread(option, length_bytes) {
            self.skip = Some(Skip { remaining_bytes: length_bytes as usize, option, refusal });
            self.options += 1;
            return Step::Consumed(OPTION_HEADER_BYTES);
        }
        let message_bytes = OPTION_HEADER_BYTES + length_bytes as usize;
        let Some(data) = rest.get(OPTION_HEADER_BYTES..message_bytes) else {
            return Step::Need(message_bytes);
        };
        self.options += 1;
        match self.take_data(option, data, output) {
            Ok(Some(event)) => Step::Event(message_bytes, event),
            Ok(None) => Step::Consumed(message_bytes),
            Err(refusal) => {
                refuse(option, refusal, output);
                Step::Consumed(message_bytes)
            }
        }
    }

    fn check_header(&self, magic: u64, option: u32, length_bytes: u32) -> Result<(), Violation> {
        if magic != MAGIC_OPTION {
            return Err(Violation::OptionMagic { magic });
        }
        if self.options >= OPTIONS_MAX {
            return Err(Violation::TooManyOptions);
        }
        // spec: without fixed newstyle EXPORT_NAME is the only valid option.
        if !self.fixed_newstyle && option != option::EXPORT_NAME {
            return Err(Violation::OptionNotFixed { option });
        }
        // spec: EXPORT_NAME has no error reply; the server must terminate the session.
        if option == option::EXPORT_NAME && length_bytes as usize > STRING_BYTES_MAX {
            return Err(ExportNameError::TooLong { length_bytes: length_bytes as usize }.into());
        }
        if length_bytes > OPTION_DRAIN_BYTES_MAX {
            return Err(Violation::OptionTooLong { option, length_bytes });
        }
        Ok(())
    }

    fn take_data(
        &mut self,
        option: u32,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Option<Event>, OptionRefusal> {
        match option {
            option::EXPORT_NAME => Ok(Some(self.take_export_name(data))),
            option::INFO | option::GO => {
                let data = InfoData::parse(data)?;
                let purpose = if option == option::GO { LookUpPurpose::Open } else { LookUpPurpose::Inspect };
                let name = data.name.clone();
                self.pending = Some(Pending::Info { option, name: data.name, wants_name: data.wants_name });
                Ok(Some(Event::LookUpExport { name, purpose }))
            }
            option::LIST => {
                // spec: LIST with data gets ERR_INVALID.
                require_empty(data)?;
                self.pending = Some(Pending::List);
                Ok(Some(Event::ListExports))
            }
            option::STRUCTURED_REPLY => {
                // spec: STRUCTURED_REPLY with data gets ERR_INVALID.
                require_empty(data)?;
                self.structured = true;
                reply(option, option_reply::ACK, &[], output);
                Ok(None)
            }
            _ => self.take_context(option, data).map(Some),
        }
    }

    fn take_export_name(&mut self, data: &[u8]) -> Event {
        match ExportName::from_bytes(data) {
            Ok(name) => {
                self.pending = Some(Pending::ExportName { name: name.clone() });
                Event::LookUpExport { name, purpose: LookUpPurpose::Open }
            }
            Err(error) => Event::Violation(error.into()),
        }
    }

    fn take_context(&mut self, option: u32, data: &[u8]) -> Result<Event, OptionRefusal> {
        let mut purpose = QueryPurpose::List;
        if option == option::SET_META_CONTEXT {
            purpose = QueryPurpose::Select;
            // spec: SET_META_CONTEXT replaces what was selected before, even when it fails.
            self.context = None;
        }
        // spec: ERR_INVALID if structured replies were not negotiated first.
        if !self.structured {
            return Err(OptionRefusal::invalid("metadata contexts need structured replies negotiated first"));
        }
        let ContextData { name, allocation } = ContextData::parse(data, purpose)?;
        self.pending = Some(Pending::Context { option, name: name.clone(), allocation });
        Ok(Event::LookUpExport { name, purpose: LookUpPurpose::Inspect })
    }

    pub fn export_found(
        &mut self,
        answer: Result<ExportInfo, ExportRefusal>,
        output: &mut Vec<u8>,
    ) -> LookUpOutcome {
        let pending = self.pending.take();
        match (pending, answer) {
            (Some(Pending::ExportName { name }), Ok(export)) => {
                self.open_by_export_name(&name, export, output)
            }
            // spec: if the export is not allowed the server must terminate the session.
            (Some(Pending::ExportName { .. }), Err(_)) => LookUpOutcome::Refused,
            (Some(Pending::Info { option, name, wants_name }), Ok(export)) => {
                self.reply_info(option, &name, wants_name, &export, output);
                // spec: after GO's ACK both sides are in the transmission phase at once.
                if option == option::GO {
                    return LookUpOutcome::Opened(self.limits(&name, export));
                }
                LookUpOutcome::Answered
            }
            (Some(Pending::Context { option, name, allocation }), Ok(_)) => {
                self.reply_context(option, name, allocation, output);
                LookUpOutcome::Answered
            }
            (Some(Pending::Info { option, .. } | Pending::Context { option, .. }), Err(refusal)) => {
                let refusal = OptionRefusal { reply_type: refusal.reply_type(), message: refusal.message() };
                refuse(option, refusal, output);
                LookUpOutcome::Answered
            }
            (Some(Pending::List) | None, _) => panic!("no look-up is outstanding"),
        }
    }

    fn open_by_export_name(
        &self,
        name: &ExportName,
        export: ExportInfo,
        output: &mut Vec<u8>,
    ) -> LookUpOutcome {
        put_u64(output, export.size_bytes);
        put_u16(output, TransmissionFlags::of(&export, self.structured).0);
        // spec: the zeroes are left out exactly if the client negotiated NO_ZEROES.
        if !self.no_zeroes {
            output.extend_from_slice(&[0; EXPORT_PADDING_BYTES]);
        }
        LookUpOutcome::Opened(self.limits(name, export))
    }

    fn reply_info(
        &self,
        option: u32,
        name: &ExportName,
        wants_name: bool,
        export: &ExportInfo,
        output: &mut Vec<u8>,
    ) {
        // spec: INFO_EXPORT must come before the ACK; it has 12 bytes and never zeroes after it.
        reply_header(option, option_reply::INFO, 12, output);
        put_u16(output, info::EXPORT);
        put_u64(output, export.size_bytes);
        put_u16(output, TransmissionFlags::of(export, self.structured).0);
        // spec: constraints other than the defaults must be sent if asked for, and may be unasked.
        reply_header(option, option_reply::INFO, 14, output);
        put_u16(output, info::BLOCK_SIZE);
        put_u32(output, BLOCK_BYTES_MIN);
        put_u32(output, BLOCK_BYTES_PREFERRED);
        put_u32(output, self.config.payload_bytes_max());
        if wants_name {
            reply_header(option, option_reply::INFO, 2 + name.as_str().len(), output);
            put_u16(output, info::NAME);
            output.extend_from_slice(name.as_str().as_bytes());
        }
        reply(option, option_reply::ACK, &[], output);
    }

    fn reply_context(&mut self, option: u32, name: ExportName, allocation: bool, output: &mut Vec<u8>) {
        let selects = option == option::SET_META_CONTEXT;
        if allocation {
            reply_header(option, option_reply::META_CONTEXT, 4 + ALLOCATION_CONTEXT.len(), output);
            // spec: in a list the id is reserved and should be zero.
            put_u32(output, if selects { ALLOCATION_CONTEXT_ID } else { 0 });
            output.extend_from_slice(ALLOCATION_CONTEXT.as_bytes());
        }
        reply(option, option_reply::ACK, &[], output);
        if selects && allocation {
            self.context = Some(name);
        }
    }

    fn limits(&self, name: &ExportName, export: ExportInfo) -> Limits {
        Limits {
            export,
            structured: self.structured,
            // spec: a selection counts only for the export that is then opened by the same name.
            block_status: self.context.as_ref() == Some(name),
            payload_bytes_max: self.config.payload_bytes_max(),
        }
    }

    pub fn exports_listed<Name: AsRef<str>>(
        &mut self,
        names: impl IntoIterator<Item = Name>,
        output: &mut Vec<u8>,
    ) {
        let pending = self.pending.take();
        assert!(matches!(pending, Some(Pending::List)), "no list is outstanding");
        for name in names {
            let name = name.as_ref().as_bytes();
            assert!(name.len() <= STRING_BYTES_MAX, "an export name of {} bytes", name.len());
            reply_header(option::LIST, option_reply::SERVER, 4 + name.len(), output);
            put_u32(output, name.len() as u32);
            output.extend_from_slice(name);
        }
        reply(option::LIST, option_reply::ACK, &[], output);
    }
}

/// Refusals that do not depend on the option's data, which therefore need not be buffered.
fn refusal_unread(option: u32, length_bytes: u32) -> Option<OptionRefusal> {
    match option {
        option::EXPORT_NAME
        | option::LIST
        | option::INFO
        | option::GO
        | option::STRUCTURED_REPLY
        | option::LIST_META_CONTEXT
        | option::SET_META_CONTEXT => (length_bytes > OPTION_BYTES_MAX).then_some(OptionRefusal {
            reply_type: option_reply::ERR_TOO_BIG,
            message: "the option has more data than this server takes",
        }),
        // spec: an option that the server does not know is skipped by its length and gets ERR_UNSUP.
        _ => Some(OptionRefusal {
            reply_type: option_reply::ERR_UNSUP,
            message: "this server does not support the option",
        }),
    }
}

fn require_empty(data: &[u8]) -> Result<(), OptionRefusal> {
    if data.is_empty() { Ok(()) } else { Err(OptionRefusal::invalid("the option takes no data")) }
}

fn reply_header(option: u32, reply_type: u32, length_bytes: usize, output: &mut Vec<u8>) {
    put_u64(output, MAGIC_OPTION_REPLY);
    put_u32(output, option);
    put_u32(output, reply_type);
    put_u32(output, length_bytes as u32);
}

fn reply(option: u32, reply_type: u32, data: &[u8], output: &mut Vec<u8>) {
    reply_header(option, reply_type, data.len(), output);
    output.extend_from_slice(data);
}

/// spec: an error reply's data is a message to show to the user.
fn refuse(option: u32, refusal: OptionRefusal, output: &mut Vec<u8>) {
    reply(option, refusal.reply_type, refusal.message.as_bytes(), output);
}
