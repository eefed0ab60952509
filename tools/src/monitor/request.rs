//! The lines of the protocol.

use super::VERSION;
use super::stats::MonitorStats;
use crate::text::escape::{one_line, plain_json};
use serde::{Deserialize, Serialize};

/// The most characters of an error: those of the parser may repeat the line.
const SHOWN: usize = 400;

/// What a client asks for.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum MonitorRequest {
    Stats {},
    Set { node: String, name: String, value: f64 },
    Stop {},
}

impl MonitorRequest {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, and what was expected.
    pub(super) fn read(line: &[u8]) -> Result<MonitorRequest, String> {
        serde_json::from_slice(line).map_err(|error| {
            format!(
                "expected {{\"ask\":\"stats\"}}, {{\"ask\":\"stop\"}} or \
                 {{\"ask\":\"set\",\"node\":\"NODE\",\"name\":\"SETTING\",\"value\":NUMBER}}, found an invalid request: \
                 {error}"
            )
        })
    }
}

#[derive(Default, Serialize)]
struct Answer<'a> {
    version: u32,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<&'a MonitorStats>,
}

impl Answer<'_> {
    fn line(&self) -> String {
        // Only maps without text as keys fail, and there are none.
        plain_json(serde_json::to_string(self).unwrap_or_default()) + "\n"
    }
}

pub(super) fn accepted() -> String {
    Answer { version: VERSION, ok: true, ..Answer::default() }.line()
}

pub(super) fn accepted_with(stats: &MonitorStats) -> String {
    Answer { version: VERSION, ok: true, stats: Some(stats), ..Answer::default() }.line()
}

pub(super) fn refused(why: &str) -> String {
    let mut why = one_line(why);
    if let Some((end, _)) = why.char_indices().nth(SHOWN) {
        why.truncate(end);
        why.push('…');
    }
    Answer { version: VERSION, error: Some(why), ..Answer::default() }.line()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request_or_an_error_that_says_what_was_expected() {
        for (line, expected) in [
            (r#"{"ask":"stats"}"#, Some(MonitorRequest::Stats {})),
            (r#" {"ask":"stop"} "#, Some(MonitorRequest::Stop {})),
            (
                r#"{"value":20,"ask":"set","node":"a","name":"rate"}"#,
                Some(MonitorRequest::Set { node: "a".into(), name: "rate".into(), value: 20.0 }),
            ),
            ("", None),
            ("stats", None),
            ("[]", None),
            (r#"{"ask":"halt"}"#, None),
            (r#"{"ask":"stats","more":1}"#, None),
            (r#"{"ask":"set","node":"a","name":"rate"}"#, None),
            (r#"{"ask":"set","node":"a","name":"rate","value":"fast"}"#, None),
            (r#"{"ask":"stop"} {"ask":"stop"}"#, None),
        ] {
            match (MonitorRequest::read(line.as_bytes()), expected) {
                (Ok(read), Some(expected)) => assert_eq!(read, expected, "{line}"),
                (Err(why), None) => {
                    assert!(
                        why.contains(r#"expected {"ask":"stats"}, {"ask":"stop"} or {"ask":"set","#),
                        "{line}: {why}"
                    );
                }
                (read, _) => panic!("{line}: {read:?}"),
            }
        }
        assert!(MonitorRequest::read(&b"[".repeat(60_000)).is_err());
        assert!(MonitorRequest::read(&[0xff; 9]).is_err());
    }

    #[test]
    fn an_error_is_short_and_cannot_control_a_terminal() {
        let line = refused(&format!("{}\x1b[2J\u{202e}\n", "x".repeat(10_000)));
        assert!(line.len() < 600 && line.ends_with("\n") && !line.contains('\x1b'), "{line}");
        assert!(refused("a\x1b[2J\u{202e}").is_ascii());
    }
}
