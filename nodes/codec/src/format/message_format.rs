//! The formats of messages, and the keys of a config that belong to one of them.

use super::Checksum;
use limen::node::PlanErrors;
use schemars::JsonSchema;
use serde::Deserialize;

/// Format of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "lowercase")]
pub enum MessageFormat {
    /// Numbers at fixed offsets.
    Struct,
    /// A JSON value. `encode` writes a JSON object.
    Json,
    /// A CBOR value (RFC 8949). `encode` writes a CBOR map.
    Cbor,
    /// A row of text.
    Csv,
    /// An NMEA 0183 sentence.
    Nmea,
}

impl MessageFormat {
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// Reports the keys that are given and belong to another format, and a checksum beside that of
    /// a sentence.
    pub(crate) fn check_keys(
        self,
        keys: &[(&str, bool, MessageFormat)],
        crc: Option<Checksum>,
        errors: &mut PlanErrors,
    ) {
        for (key, _, of) in keys.iter().filter(|(_, is_given, of)| *is_given && *of != self) {
            let message = format!("`{key}` is not a key of `format: {}`", self.name());
            errors.at(*key, message).help(format!("remove `{key}`, or write `format: {}`", of.name()));
        }
        if crc.is_some() && self == MessageFormat::Nmea {
            errors.at("crc", "an NMEA 0183 sentence already has a checksum").help("remove `crc`");
        }
    }

    /// Reports that `sentence` is missing. `does` is what the node does with sentences.
    pub(crate) fn needs_sentence(does: &str, errors: &mut PlanErrors) {
        let message = format!("`sentence` is missing: `format: nmea` {does} sentences of one type");
        errors.at("sentence", message).help("write `sentence: gga`, or `gll`, `hdt`, `rmc`, `vtg` or `zda`");
    }
}
