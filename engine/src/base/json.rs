//! How reports and statistics appear in JSON, where that is not how their fields are named in Rust.

use serde::{Deserialize, Deserializer, Serializer};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Serializes values by their `name()`.
macro_rules! by_name {
    ($($type:ty),* $(,)?) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }
    )*};
}

/// Writes an object with keys that no field has, or that depend on several.
macro_rules! object {
    ($to:expr, $($key:ident: $value:expr),* $(,)?) => {{
        let mut object = serde::Serializer::serialize_map($to, None)?;
        $(serde::ser::SerializeMap::serialize_entry(&mut object, stringify!($key), &$value)?;)*
        serde::ser::SerializeMap::end(object)
    }};
}

pub(crate) use {by_name, object};

/// Seconds, rounded to microseconds.
pub(crate) mod seconds {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64((time.as_secs_f64() * 1e6).round() / 1e6)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        // Who answers may be anybody: what is no duration is none.
        Ok(Duration::try_from_secs_f64(f64::deserialize(from)?).unwrap_or_default())
    }
}

/// [`seconds`], or null.
pub(crate) mod optional_seconds {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => seconds::serialize(time, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<f64>::deserialize(from)?.map(|time| Duration::try_from_secs_f64(time).unwrap_or_default()))
    }
}

/// Seconds since 1970, or null before.
pub(crate) fn since_1970<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    match time.duration_since(UNIX_EPOCH) {
        Ok(time) => seconds::serialize(&time, to),
        Err(_) => to.serialize_none(),
    }
}

pub(crate) fn nanos<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(as_nanos(*time))
}

pub(crate) fn as_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
