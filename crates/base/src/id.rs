//! Identities. They are never reused; names are only metadata.

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// 128 random bits, shown as 32 hexadecimal digits.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct Id128(pub [u8; 16]);

impl Id128 {
    /// Whether no identity was given yet.
    pub fn is_nil(&self) -> bool {
        self.0 == [0; 16]
    }
}

/// The text was not 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseIdError;

impl std::fmt::Display for ParseIdError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an identity is 32 hexadecimal digits")
    }
}

impl std::error::Error for ParseIdError {}

impl std::fmt::Display for Id128 {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Id128 {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{self}")
    }
}

impl std::str::FromStr for Id128 {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        if text.len() != 32 || !text.is_ascii() {
            return Err(ParseIdError);
        }
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).map_err(|_| ParseIdError)?;
        }
        Ok(Id128(bytes))
    }
}

impl Serialize for Id128 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id128 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

macro_rules! identity {
    ($(#[$doc:meta] $name:ident),+ $(,)?) => {$(
        #[$doc]
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize, FromBytes,
            IntoBytes, Immutable, KnownLayout, Unaligned,
        )]
        #[repr(transparent)]
        #[serde(transparent)]
        pub struct $name(pub Id128);

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(formatter)
            }
        }

        impl std::str::FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                text.parse().map($name)
            }
        }
    )+};
}

identity! {
    /// A cluster: everything that shares one map.
    ClusterId,
    /// A node: one process that serves drives.
    NodeId,
    /// A drive: one file or block device.
    DriveId,
    /// A volume, whatever its name.
    VolumeId,
}

/// A layer: one generation of a volume's data, named in every entry of a log. Never reused in a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LayerId(pub u64);

/// A client's session: request numbers are unique within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub u64);
