//! The data of options: their layouts, checked to the last byte.

use crate::constant::{ALLOCATION_CONTEXT, info, option_reply};
use crate::name::STRING_BYTES_MAX;
use crate::wire::Reader;
use crate::{ExportName, ExportNameError};

/// Why an option's data is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionRefusal {
    pub reply_type: u32,
    pub message: &'static str,
}

impl OptionRefusal {
    pub const fn invalid(message: &'static str) -> Self {
        Self { reply_type: option_reply::ERR_INVALID, message }
    }
}

impl From<ExportNameError> for OptionRefusal {
    fn from(error: ExportNameError) -> Self {
        match error {
            ExportNameError::TooLong { .. } => Self {
                reply_type: option_reply::ERR_TOO_BIG,
                message: "the export name is longer than 4096 bytes",
            },
            ExportNameError::NotUtf8 => Self::invalid("the export name is not UTF-8"),
            ExportNameError::Zero => Self::invalid("the export name contains a zero byte"),
        }
    }
}

const CUT_SHORT: OptionRefusal = OptionRefusal::invalid("the option's data is shorter than its fields say");
const TRAILING: OptionRefusal = OptionRefusal::invalid("the option's data is longer than its fields say");

/// Data of INFO and GO.
#[derive(Debug, PartialEq, Eq)]
pub struct InfoData {
    pub name: ExportName,
    /// The client asked for the export's canonical name.
    pub wants_name: bool,
}

impl InfoData {
    pub fn parse(data: &[u8]) -> Result<Self, OptionRefusal> {
        let mut reader = Reader::new(data);
        // spec: the name's length must not exceed the data's length less 6.
        let name = reader.counted().ok_or(CUT_SHORT)?;
        let requests = reader.u16().ok_or(CUT_SHORT)?;
        let mut wants_name = false;
        for _ in 0..requests {
            // spec: information requests that are not understood must be ignored.
            wants_name |= reader.u16().ok_or(CUT_SHORT)? == info::NAME;
        }
        if !reader.rest().is_empty() {
            return Err(TRAILING);
        }
        Ok(Self { name: ExportName::from_bytes(name)?, wants_name })
    }
}

/// Which of the two options a list of queries came with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum QueryPurpose {
    List,
    Select,
}

/// Data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub struct ContextData {
    pub name: ExportName,
    /// The queries name `base:allocation`.
    pub allocation: bool,
}

impl ContextData {
    pub fn parse(data: &[u8], purpose: QueryPurpose) -> Result<Self, OptionRefusal> {
        let mut reader = Reader::new(data);
        let name = reader.counted().ok_or(CUT_SHORT)?;
        let queries = reader.u32().ok_or(CUT_SHORT)?;
        // spec: no queries list every context, but select none.
        let mut allocation = queries == 0 && purpose == QueryPurpose::List;
        for _ in 0..queries {
            // spec: a query that reaches beyond the option's data must get ERR_INVALID.
            let query = reader.counted().ok_or(CUT_SHORT)?;
            if query.len() > STRING_BYTES_MAX {
                let message = "a metadata query is longer than 4096 bytes";
                return Err(OptionRefusal { reply_type: option_reply::ERR_TOO_BIG, message });
            }
            allocation |= matches_allocation(query, purpose);
        }
        if !reader.rest().is_empty() {
            return Err(TRAILING);
        }
        Ok(Self { name: ExportName::from_bytes(name)?, allocation })
    }
}

/// spec: unknown namespaces and unknown names below `base:` are ignored; `base:` alone lists all but selects nothing.
fn matches_allocation(query: &[u8], purpose: QueryPurpose) -> bool {
    query == ALLOCATION_CONTEXT.as_bytes() || (query == b"base:" && purpose == QueryPurpose::List)
}
