use super::ClientError;
use crate::constant::{
    ALLOCATION_CONTEXT, BLOCK_BYTES_MIN, BLOCK_BYTES_PREFERRED, CLIENT_FLAG_FIXED_NEWSTYLE,
    CLIENT_FLAG_NO_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_BYTES, MAGIC_INITIAL, MAGIC_OPTION,
    MAGIC_OPTION_REPLY, OPTION_BYTES_MAX, OPTION_REPLY_HEADER_BYTES, PAYLOAD_BYTES_MAX, info, option,
    option_reply,
};
use crate::name::STRING_BYTES_MAX;
use crate::wire::{Reader, prefix, put_u16, put_u32, put_u64};
use crate::{ExportName, TransmissionFlags};

/// What a client wants of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The export to open; empty for the server's default.
    pub export: ExportName,
    /// Ask for structured replies; the server may not have them.
    pub structured_replies: bool,
    /// Ask for `base:allocation`; it takes structured replies.
    pub block_status: bool,
}

/// Which requests the server takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Smallest length and alignment.
    pub bytes_min: u32,
    /// Smallest length and alignment that is fast.
    pub bytes_preferred: u32,
    /// Longest payload.
    pub payload_bytes_max: u32,
}

impl BlockSizes {
    /// spec: what a client should keep to if the server names no constraints.
    const UNSAID: Self = Self {
        bytes_min: BLOCK_BYTES_MIN,
        bytes_preferred: BLOCK_BYTES_PREFERRED,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
    };

    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let (bytes_min, bytes_preferred) = (reader.u32()?, reader.u32()?);
        let sizes = Self { bytes_min, bytes_preferred, payload_bytes_max: reader.u32()? };
        // spec: the minimum is a power of two up to 65536, the preferred size one that is no smaller than it and 512.
        let is_valid = bytes_min.is_power_of_two()
            && bytes_min <= 1 << 16
            && bytes_preferred.is_power_of_two()
            && bytes_preferred >= bytes_min.max(512)
            && sizes.payload_bytes_max >= bytes_min;
        is_valid.then_some(sizes)
    }
}

/// What was agreed on: the connection is now in the transmission phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Size of the export, in bytes.
    pub size_bytes: u64,
    /// What the export can do.
    pub flags: TransmissionFlags,
    /// Which requests it takes.
    pub block_sizes: BlockSizes,
    /// Reads are answered in chunks.
    pub structured_replies: bool,
    /// The id of `base:allocation`, if block status may be asked.
    pub allocation_context_id: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Greeting,
    StructuredReply,
    Context,
    Go,
    Nothing,
}

/// A client's handshake: fixed newstyle, opening the export with GO.
///
/// Invariant: nothing is sent that the server's last reply does not allow, so the output can always be sent at once.
pub struct ClientHandshake {
    config: ClientConfig,
    waiting: Waiting,
    structured_replies: bool,
    allocation_context_id: Option<u32>,
    export: Option<(u64, TransmissionFlags)>,
    block_sizes: BlockSizes,
}

impl ClientHandshake {
    /// Begins a handshake; the server speaks first.
    pub fn new(config: ClientConfig) -> Self {
        Self {
            config,
            waiting: Waiting::Greeting,
            structured_replies: false,
            allocation_context_id: None,
            export: None,
            block_sizes: BlockSizes::UNSAID,
        }
    }

    /// Takes whole messages from the front of the input and appends what has to be sent to the output.
    ///
    /// Returns how many bytes were used up and must be dropped, and what was agreed on once the handshake is over; bytes
    /// after those belong to the transmission phase. After an error the connection has to be dropped.
    pub fn receive(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(usize, Option<Negotiated>), ClientError> {
        let mut consumed_bytes = 0;
        loop {
            let rest = &input[consumed_bytes..];
            let taken = match self.waiting {
                Waiting::Nothing => 0,
                Waiting::Greeting => self.take_greeting(rest, output)?,
                _ => self.take_option_reply(rest, output)?,
            };
            consumed_bytes += taken;
            if self.waiting == Waiting::Nothing {
                return Ok((consumed_bytes, Some(self.negotiated()?)));
            }
            if taken == 0 {
                return Ok((consumed_bytes, None));
            }
        }
    }

    fn negotiated(&self) -> Result<Negotiated, ClientError> {
        // spec: INFO_EXPORT must come before GO's ACK.
        let (size_bytes, flags) = self.export.ok_or(ClientError::NoExportInfo)?;
        Ok(Negotiated {
            size_bytes,
            flags,
            block_sizes: self.block_sizes,
            structured_replies: self.structured_replies,
            allocation_context_id: self.allocation_context_id,
        })
    }

    fn take_greeting(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Result<usize, ClientError> {
        let mut reader = Reader::new(rest);
        let (Some(initial), Some(magic), Some(flags)) = (reader.u64(), reader.u64(), reader.u16()) else {
            return Ok(0);
        };
        if initial != MAGIC_INITIAL || magic != MAGIC_OPTION || flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(ClientError::NotFixedNewstyle);
        }
        // spec: NO_ZEROES must not be set unless the server offered it.
        let no_zeroes = if flags & FLAG_NO_ZEROES != 0 { CLIENT_FLAG_NO_ZEROES } else { 0 };
        put_u32(output, CLIENT_FLAG_FIXED_NEWSTYLE | no_zeroes);
        if self.config.structured_replies {
            self.waiting = Waiting::StructuredReply;
            put_option_header(option::STRUCTURED_REPLY, 0, output);
        } else {
            self.send_go(output);
        }
        Ok(GREETING_BYTES)
    }

    fn send_context(&mut self, output: &mut Vec<u8>) {
        let name = self.config.export.as_str().as_bytes();
        put_option_header(
            option::SET_META_CONTEXT,
            4 + name.len() + 4 + 4 + ALLOCATION_CONTEXT.len(),
            output,
        );
        put_counted(name, output);
        put_u32(output, 1);
        put_counted(ALLOCATION_CONTEXT.as_bytes(), output);
        self.waiting = Waiting::Context;
    }

    fn send_go(&mut self, output: &mut Vec<u8>) {
        let name = self.config.export.as_str().as_bytes();
        put_option_header(option::GO, 4 + name.len() + 2 + 2, output);
        put_counted(name, output);
        put_u16(output, 1);
        // spec: a client that can honour block size constraints asks for them.
        put_u16(output, info::BLOCK_SIZE);
        self.waiting = Waiting::Go;
    }

    fn take_option_reply(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Result<usize, ClientError> {
        let mut reader = Reader::new(rest);
        let (Some(magic), Some(option), Some(reply_type), Some(length_bytes)) =
            (reader.u64(), reader.u32(), reader.u32(), reader.u32())
        else {
            return Ok(0);
        };
        if magic != MAGIC_OPTION_REPLY || option != self.option() {
            return Err(ClientError::Invalid("option reply"));
        }
        if length_bytes > OPTION_BYTES_MAX {
            return Err(ClientError::Invalid("length of an option reply"));
        }
        let Some(data) = reader.take(length_bytes as usize) else { return Ok(0) };
        if reply_type & option_reply::ERROR_BIT != 0 {
            self.take_refusal(option, reply_type, data, output)?;
        } else if reply_type == option_reply::ACK {
            self.take_acknowledgement(output);
        } else {
            self.take_information(reply_type, data)?;
        }
        Ok(OPTION_REPLY_HEADER_BYTES + data.len())
    }

    fn option(&self) -> u32 {
        match self.waiting {
            Waiting::StructuredReply => option::STRUCTURED_REPLY,
            Waiting::Context => option::SET_META_CONTEXT,
            Waiting::Go | Waiting::Greeting | Waiting::Nothing => option::GO,
        }
    }

    fn take_refusal(
        &mut self,
        option: u32,
        reply_type: u32,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        // spec: a client must give up when the server shuts down, and do without an extension that is refused.
        if self.waiting == Waiting::Go || reply_type == option_reply::ERR_SHUTDOWN {
            let message = prefix(&String::from_utf8_lossy(data), STRING_BYTES_MAX).to_owned();
            return Err(ClientError::OptionRefused { option, reply_type, message });
        }
        // spec: contexts that were named before an error are disregarded.
        self.allocation_context_id = None;
        self.send_go(output);
        Ok(())
    }

    fn take_acknowledgement(&mut self, output: &mut Vec<u8>) {
        match self.waiting {
            Waiting::StructuredReply => {
                self.structured_replies = true;
                if self.config.block_status { self.send_context(output) } else { self.send_go(output) }
            }
            Waiting::Context => self.send_go(output),
            Waiting::Go | Waiting::Greeting | Waiting::Nothing => self.waiting = Waiting::Nothing,
        }
    }

    fn take_information(&mut self, reply_type: u32, data: &[u8]) -> Result<(), ClientError> {
        let mut reader = Reader::new(data);
        match (self.waiting, reply_type) {
            (Waiting::Context, option_reply::META_CONTEXT) => {
                let context_id = reader.u32().ok_or(ClientError::Invalid("metadata context"))?;
                if reader.rest() == ALLOCATION_CONTEXT.as_bytes() {
                    self.allocation_context_id = Some(context_id);
                }
                Ok(())
            }
            (Waiting::Go, option_reply::INFO) => {
                self.take_info(reader).ok_or(ClientError::Invalid("description of the export"))
            }
            _ => Err(ClientError::Invalid("option reply type")),
        }
    }

    fn take_info(&mut self, mut reader: Reader<'_>) -> Option<()> {
        match reader.u16()? {
            info::EXPORT => self.export = Some((reader.u64()?, TransmissionFlags(reader.u16()?))),
            info::BLOCK_SIZE => self.block_sizes = BlockSizes::parse(&mut reader)?,
            // spec: information that is not recognized must be ignored.
            _ => return Some(()),
        }
        reader.rest().is_empty().then_some(())
    }
}

fn put_option_header(option: u32, length_bytes: usize, output: &mut Vec<u8>) {
    put_u64(output, MAGIC_OPTION);
    put_u32(output, option);
    put_u32(output, length_bytes as u32);
}

fn put_counted(bytes: &[u8], output: &mut Vec<u8>) {
    put_u32(output, bytes.len() as u32);
    output.extend_from_slice(bytes);
}
