//! Signatures of requests to S3: AWS Signature Version 4, for GET without a query.

use hmac::{Hmac, KeyInit, Mac};
use limen_infer::internal::sha256;
use sha2::Sha256;
use std::fmt;

/// The SHA-256 of no bytes: the body of a GET.
pub(super) const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A key of AWS and what its signatures are valid for.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct AwsKey {
    pub(super) id: String,
    pub(super) secret: String,
    /// The token of a temporary key.
    pub(super) token: Option<String>,
    pub(super) region: String,
}

/// Without what is secret.
impl fmt::Debug for AwsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsKey").field("region", &self.region).finish_non_exhaustive()
    }
}

impl AwsKey {
    /// Returns the value of `Authorization` for a GET of an encoded path, with these headers: their
    /// names are in lower case and sorted. `time` is as in `20130524T000000Z`.
    pub(super) fn authorization(&self, service: &str, path: &str, headers: &[(&str, &str)], time: &str) -> String {
        let date = time.get(..8).unwrap_or_default();
        let scope = format!("{date}/{}/{service}/aws4_request", self.region);
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let request = format!("GET\n{path}\n\n{lines}\n{names}\n{EMPTY}");
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(request.as_bytes()));
        let first = format!("AWS4{}", self.secret).into_bytes();
        let key = [date, &self.region, service, "aws4_request"].iter().fold(first, |key, part| mac(&key, part));
        let signature: String = mac(&key, &text).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}", self.id)
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC takes keys of every length.
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.chain_update(text).finalize().into_bytes().to_vec()
}

/// Returns a path with every byte encoded that may not stand in the path of a signed request.
pub(super) fn encode_path(path: &str) -> String {
    let mut encoded = String::new();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples that AWS publishes: of S3's manual (GET Object), and of its test suite for
    /// Signature Version 4.
    #[test]
    fn signatures_are_those_that_aws_publishes() {
        let host = ("host", "example.amazonaws.com");
        for (id, secret, time, service, path, headers, expected) in [
            (
                "AKIAIOSFODNN7EXAMPLE",
                "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                "20130524T000000Z",
                "s3",
                "/test.txt",
                vec![
                    ("host", "examplebucket.s3.amazonaws.com"),
                    ("range", "bytes=0-9"),
                    ("x-amz-content-sha256", EMPTY),
                    ("x-amz-date", "20130524T000000Z"),
                ],
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "AKIDEXAMPLE",
                "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                "20150830T123600Z",
                "service",
                "/",
                vec![host, ("x-amz-date", "20150830T123600Z")],
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "AKIDEXAMPLE",
                "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                "20150830T123600Z",
                "service",
                "/ሴ",
                vec![host, ("x-amz-date", "20150830T123600Z")],
                "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
            ),
            (
                "AKIDEXAMPLE",
                "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                "20150830T123600Z",
                "service",
                "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
                vec![host, ("x-amz-date", "20150830T123600Z")],
                "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
            ),
        ] {
            let key = AwsKey { id: id.into(), secret: secret.into(), token: None, region: "us-east-1".into() };
            let value = key.authorization(service, &encode_path(path), &headers, time);
            assert!(value.ends_with(&format!("Signature={expected}")), "{path}: {value}");
            let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
            assert!(value.contains(&format!("SignedHeaders={names},")), "{value}");
            assert_eq!(format!("{key:?}"), "AwsKey { region: \"us-east-1\", .. }");
        }
    }
}
