//! How values of an experiment's file are read, so that errors name what is allowed.

use std::fmt;
use std::marker::PhantomData;

use coquina_base::parse_size_bytes;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Each, PerMode, Size};

/// A size as a text.
pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = u64;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a size in quotes, such as \"4KiB\" or \"1GiB\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            parse_size_bytes(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_str(Text)
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        size(deserializer).map(Size)
    }
}

/// By hand: of an enum that is tried form by form, an error would not say which values there are.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for PerMode<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Forms(PhantomData))
    }
}

struct Forms<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Forms<T> {
    type Value = PerMode<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value, a list, or { default = [..], quick = [..], full = [..] }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        T::deserialize(text.into_deserializer()).map(PerMode::One)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        T::deserialize(number.into_deserializer()).map(PerMode::One)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        T::deserialize(number.into_deserializer()).map(PerMode::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(PerMode::Many)
    }

    fn visit_map<A: MapAccess<'de>>(self, modes: A) -> Result<Self::Value, A::Error> {
        Each::deserialize(MapAccessDeserializer::new(modes)).map(PerMode::Each)
    }
}
