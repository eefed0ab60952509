//! Network addresses in graph files.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Socket address to listen on or send to. `9000` is a loopback port of this machine, which other
/// machines cannot reach. `192.168.1.5:9000` is a port of the interface or machine with that
/// address.
///
/// limen rejects host names other than `localhost`, because a lookup can take seconds and its
/// result can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl Address {
    /// Returns whether other machines are involved: the address is not a loopback address.
    pub fn is_elsewhere(self) -> bool {
        !self.0.ip().to_canonical().is_loopback()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn parse(text: &str) -> Option<Address> {
    let text = text.trim();
    if let Ok(port) = text.parse::<u16>() {
        return of_port(port.into());
    }
    let address = match text.strip_prefix("localhost:") {
        Some(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?),
        None => text.parse().ok()?,
    };
    (address.port() > 0).then_some(Address(address))
}

fn of_port(port: u64) -> Option<Address> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    Some(Address(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)))
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PortOrText;
        impl de::Visitor<'_> for PortOrText {
            type Value = Address;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port of this machine, such as `9000`, or a numeric address with its port, such as `192.168.1.5:9000`")
            }
            fn visit_u64<E: de::Error>(self, port: u64) -> Result<Address, E> {
                of_port(port).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(port), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Address, E> {
                parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(PortOrText)
    }
}

impl JsonSchema for Address {
    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 65535 },
            { "type": "string", "pattern": r"^\s*(([0-9.]+|localhost|\[[0-9A-Fa-f:.%]+\]):)?[0-9]+\s*$" },
        ] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_a_loopback_address_and_host_names_are_refused() {
        for (text, expected) in [
            ("9000", Some(("127.0.0.1:9000", false))),
            (" localhost:9000 ", Some(("127.0.0.1:9000", false))),
            ("127.0.0.2:80", Some(("127.0.0.2:80", false))),
            ("0.0.0.0:9000", Some(("0.0.0.0:9000", true))),
            ("[::1]:9000", Some(("[::1]:9000", false))),
            ("[::ffff:127.0.0.1]:9000", Some(("[::ffff:127.0.0.1]:9000", false))),
            ("[::]:9000", Some(("[::]:9000", true))),
            ("192.168.1.5:9000", Some(("192.168.1.5:9000", true))),
            ("0", None),
            ("127.0.0.1:0", None),
            ("65536", None),
            ("robot.local:9000", None),
            ("127.0.0.1", None),
            ("", None),
        ] {
            let found = parse(text).map(|address| (address.to_string(), address.is_elsewhere()));
            assert_eq!(found, expected.map(|(text, elsewhere)| (text.to_string(), elsewhere)), "{text}");
        }
        assert!(serde_json::from_str::<Address>("9000").is_ok_and(|address| !address.is_elsewhere()));
        assert!(serde_json::from_str::<Address>("-1").is_err());
    }
}
