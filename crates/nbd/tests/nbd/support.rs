//! Messages of a client, built from the specification's numbers rather than from the crate's.

pub const FIXED_AND_NO_ZEROES: [u8; 4] = [0, 0, 0, 3];

pub const OPT_EXPORT_NAME: u32 = 1;
pub const OPT_ABORT: u32 = 2;
pub const OPT_LIST: u32 = 3;
pub const OPT_STARTTLS: u32 = 5;
pub const OPT_INFO: u32 = 6;
pub const OPT_GO: u32 = 7;
pub const OPT_STRUCTURED_REPLY: u32 = 8;
pub const OPT_LIST_META_CONTEXT: u32 = 9;
pub const OPT_SET_META_CONTEXT: u32 = 10;
pub const OPT_EXTENDED_HEADERS: u32 = 11;

pub const REP_ACK: u32 = 1;
pub const REP_SERVER: u32 = 2;
pub const REP_INFO: u32 = 3;
pub const REP_META_CONTEXT: u32 = 4;
pub const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
pub const REP_ERR_POLICY: u32 = (1 << 31) + 2;
pub const REP_ERR_INVALID: u32 = (1 << 31) + 3;
pub const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;
pub const REP_ERR_SHUTDOWN: u32 = (1 << 31) + 7;
pub const REP_ERR_TOO_BIG: u32 = (1 << 31) + 9;

pub const CMD_READ: u16 = 0;
pub const CMD_WRITE: u16 = 1;
pub const CMD_DISC: u16 = 2;
pub const CMD_FLUSH: u16 = 3;
pub const CMD_TRIM: u16 = 4;
pub const CMD_CACHE: u16 = 5;
pub const CMD_WRITE_ZEROES: u16 = 6;
pub const CMD_BLOCK_STATUS: u16 = 7;
pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST_ZERO: u16 = 16;

pub fn option_header(option: u32, length_bytes: u32) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(length_bytes.to_be_bytes());
    bytes
}

pub fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = option_header(option, data.len() as u32);
    bytes.extend(data);
    bytes
}

fn counted(text: &[u8]) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend(text);
    bytes
}

pub fn info_data(name: &str, requests: &[u16]) -> Vec<u8> {
    let mut bytes = counted(name.as_bytes());
    bytes.extend((requests.len() as u16).to_be_bytes());
    requests.iter().for_each(|request| bytes.extend(request.to_be_bytes()));
    bytes
}

pub fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = counted(name.as_bytes());
    bytes.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| bytes.extend(counted(query.as_bytes())));
    bytes
}

pub fn request(flags: u16, command: u16, cookie: u64, offset_bytes: u64, length_bytes: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset_bytes.to_be_bytes());
    bytes.extend(length_bytes.to_be_bytes());
    bytes
}

/// A client that opens `name`, with structured replies and block status if asked.
pub fn opening(name: &str, structured: bool) -> Vec<u8> {
    let mut bytes = FIXED_AND_NO_ZEROES.to_vec();
    if structured {
        bytes.extend(option(OPT_STRUCTURED_REPLY, &[]));
        bytes.extend(option(OPT_SET_META_CONTEXT, &context_data(name, &["base:allocation"])));
    }
    bytes.extend(option(OPT_GO, &info_data(name, &[3])));
    bytes
}

#[derive(Debug, PartialEq, Eq)]
pub struct OptionReply {
    pub option: u32,
    pub reply_type: u32,
    pub data: Vec<u8>,
}

impl OptionReply {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.data).unwrap()
    }
}

/// Reads replies to options until the bytes end.
pub fn option_replies(mut bytes: &[u8]) -> Vec<OptionReply> {
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let (option, reply_type, length_bytes) = (word(bytes, 8), word(bytes, 12), word(bytes, 16) as usize);
        let data = bytes[20..20 + length_bytes].to_vec();
        replies.push(OptionReply { option, reply_type, data });
        bytes = &bytes[20 + length_bytes..];
    }
    replies
}
