//! The address of a file on another machine: which request fetches it, and which credentials belong
//! to it.

use super::signature::{AwsKey, encode_path};
use limen::files::remote_scheme;
use ureq::http::{HeaderName, HeaderValue, Uri};

/// Reads an environment variable; empty ones count as missing.
pub(super) type Variable<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// Where models of `hf://` come from by default.
const HUB: &str = "https://huggingface.co";

/// What a request for a file needs.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) uri: Uri,
    pub(super) login: Login,
    /// Whether the server says which commit it answers with.
    pub(super) has_commit: bool,
}

/// How the host of an address knows who asks. No other host gets it.
#[derive(Clone, Debug)]
pub(super) enum Login {
    /// It is not told.
    None,
    /// By a header, such as `Authorization`.
    Header(HeaderName, HeaderValue),
    /// By a signature in each request.
    Aws(AwsKey),
}

impl Address {
    /// The address of a URL as a graph writes it. The file of an `hf://` URL has the locked
    /// revision, if there is one.
    ///
    /// # Errors
    /// What is wrong with it; never with what may be secret in it.
    pub(super) fn of(url: &str, revision: Option<&str>, variable: Variable<'_>) -> Result<Self, String> {
        let (Some(scheme), false) = (remote_scheme(url), url.contains(['?', '#'])) else {
            return Err("expected a URL without a query or fragment: pass secrets with `--header-env`".into());
        };
        let rest = &url[scheme.len()..];
        if rest.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err("expected a URL whose path has no empty part, `.` or `..`".into());
        }
        match scheme {
            "hf://" => Address::on_hub(rest, revision, variable),
            "s3://" => Address::in_bucket(rest, variable),
            "http://" | "https://" => Ok(Address { uri: web(url)?, login: Login::None, has_commit: false }),
            _ => Err(format!("expected `http://`, `https://`, `hf://` or `s3://`, found `{scheme}`")),
        }
    }

    fn on_hub(rest: &str, locked: Option<&str>, variable: Variable<'_>) -> Result<Self, String> {
        let (file, written) = match rest.rsplit_once('@') {
            Some((file, revision)) => (file, Some(revision)),
            None => (rest, None),
        };
        let parts = file.splitn(3, '/').collect::<Vec<_>>();
        let &[owner, name, path] = &parts[..] else {
            return Err("expected `hf://OWNER/NAME/FILE` or `hf://OWNER/NAME/FILE@REVISION`".into());
        };
        let is_name = |text: &str, more: &[u8]| {
            let is_known = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b) || more.contains(&b);
            !text.is_empty() && text.bytes().all(is_known)
        };
        for (what, text) in [("owner", owner), ("name", name)] {
            if !is_name(text, b"") {
                return Err(format!("the repository's {what} must consist of letters, digits, `-`, `_` and `.`"));
            }
        }
        let revision = locked.or(written).unwrap_or("main");
        if !is_name(revision, b"/") {
            return Err("the revision must be a branch, a tag or a commit".into());
        }
        let hub = variable("HF_ENDPOINT").unwrap_or_else(|| HUB.into());
        let revision = revision.replace('/', "%2F");
        let path = encode_path(path);
        let uri = web(&format!("{}/{owner}/{name}/resolve/{revision}/{path}", hub.trim_end_matches('/')))?;
        let login = match variable("HF_TOKEN") {
            Some(token) => {
                Login::Header(HeaderName::from_static("authorization"), secret(&format!("Bearer {token}"), "HF_TOKEN")?)
            }
            None => Login::None,
        };
        Ok(Address { uri, login, has_commit: true })
    }

    fn in_bucket(rest: &str, variable: Variable<'_>) -> Result<Self, String> {
        let (bucket, key) = rest.split_once('/').ok_or("expected `s3://BUCKET/KEY`")?;
        let is_known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_known) {
            return Err("the bucket must be 3 to 63 lower-case letters, digits, `-` or `.`".into());
        }
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".into());
        if !region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(format!("AWS_REGION must be a region such as `eu-central-1`, got {region:?}"));
        }
        let key = encode_path(key);
        let uri = match variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL")) {
            Some(endpoint) => format!("{}/{bucket}/{key}", endpoint.trim_end_matches('/')),
            // A certificate for `*.s3.REGION.amazonaws.com` does not cover names with dots.
            None if bucket.contains('.') => format!("https://s3.{region}.amazonaws.com/{bucket}/{key}"),
            None => format!("https://{bucket}.s3.{region}.amazonaws.com/{key}"),
        };
        let login = match (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            (Some(id), Some(secret)) => Login::Aws(AwsKey { id, secret, token: variable("AWS_SESSION_TOKEN"), region }),
            (None, None) => Login::None,
            _ => {
                return Err(
                    "expected AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, found only one: set both or neither".into(),
                );
            }
        };
        Ok(Address { uri: web(&uri)?, login, has_commit: false })
    }
}

/// Reads the URL of a request.
pub(super) fn web(url: &str) -> Result<Uri, String> {
    let uri: Uri =
        url.parse().map_err(|_| "expected a URL such as `https://host/file`, with special characters encoded")?;
    let host = uri.authority().filter(|authority| !authority.host().is_empty());
    if host.is_none_or(|authority| authority.as_str().contains('@')) {
        return Err("expected a URL with a host and without a user: pass secrets with `--header-env`".into());
    }
    match uri.scheme_str() {
        Some("http") => Ok(uri),
        Some("https") if cfg!(feature = "fetch") => Ok(uri),
        Some("https") => {
            Err("expected `http://`, found `https://`: this program was built without TLS: build limen-run with \
             `--features fetch`"
                .into())
        }
        _ => Err("expected `http://` or `https://`".into()),
    }
}

/// Makes a header that is never shown. `variable` is the environment variable with the credential.
pub(super) fn secret(value: &str, variable: &str) -> Result<HeaderValue, String> {
    let wrong = |_| format!("the value of `{variable}` has characters that an HTTP header must not contain");
    let mut value = HeaderValue::from_str(value).map_err(wrong)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns whether two addresses have the same scheme, host and port.
pub(super) fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let origin = |uri: &Uri| {
        let scheme = uri.scheme_str().unwrap_or_default().to_string();
        let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        (uri.host().unwrap_or_default().to_ascii_lowercase(), scheme, port)
    };
    origin(one) == origin(other)
}

/// Returns the address to which an answer redirects.
///
/// # Errors
/// When it is not one, or would send an encrypted request on in the clear.
pub(super) fn redirected(from: &Uri, location: &str) -> Result<Uri, String> {
    let (scheme, host) = (from.scheme_str().unwrap_or_default(), from.authority().map_or("", |host| host.as_str()));
    let to = match location {
        _ if location.starts_with("http://") || location.starts_with("https://") => location.to_string(),
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{host}{location}"),
        _ => {
            let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{host}{folder}/{location}")
        }
    };
    let to = web(&to).map_err(|why| format!("was redirected: {why}"))?;
    if scheme == "https" && to.scheme_str() != Some("https") {
        return Err("was redirected from `https://` to `http://`".into());
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVIRONMENT: [(&str, &str); 5] = [
        ("HF_ENDPOINT", "http://hub.example:8080/"),
        ("HF_TOKEN", "hf_secret"),
        ("AWS_ENDPOINT_URL", "http://s3.example"),
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", "aws_secret"),
    ];

    fn of(url: &str, revision: Option<&str>) -> Result<Address, String> {
        Address::of(url, revision, &|name| {
            ENVIRONMENT.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn every_scheme_becomes_a_request() {
        for (url, revision, expected) in [
            ("http://h.example/a/m.onnx", None, "http://h.example/a/m.onnx"),
            ("hf://acme/voice/m.onnx", None, "http://hub.example:8080/acme/voice/resolve/main/m.onnx"),
            ("hf://acme/voice/a/m n.onnx@v1", None, "http://hub.example:8080/acme/voice/resolve/v1/a/m%20n.onnx"),
            ("hf://acme/voice/m@n@refs/pr/1", None, "http://hub.example:8080/acme/voice/resolve/refs%2Fpr%2F1/m%40n"),
            ("hf://acme/voice/m.onnx@v1", Some("0a1b"), "http://hub.example:8080/acme/voice/resolve/0a1b/m.onnx"),
            ("s3://bucket/a/ä b+c.npy", None, "http://s3.example/bucket/a/%C3%A4%20b%2Bc.npy"),
        ] {
            let address = of(url, revision).unwrap_or_else(|why| panic!("{url}: {why}"));
            assert_eq!(address.uri.to_string(), expected);
            let shown = format!("{address:?}");
            assert!(!shown.contains("secret"), "{shown}");
        }
        let default = |url| Address::of(url, None, &|_| None).map(|address| address.uri.to_string());
        for (url, expected) in [
            ("hf://acme/voice/m", "https://huggingface.co/acme/voice/resolve/main/m"),
            ("s3://bucket/m", "https://bucket.s3.us-east-1.amazonaws.com/m"),
            ("s3://b.ck.t/m", "https://s3.us-east-1.amazonaws.com/b.ck.t/m"),
        ] {
            match default(url) {
                Ok(found) => assert_eq!(found, expected),
                Err(why) => assert!(!cfg!(feature = "fetch") && why.contains("build limen-run with"), "{why}"),
            }
        }
    }

    #[test]
    fn a_hostile_url_is_refused_without_repeating_it() {
        for (url, expected) in [
            ("http://me:hidden@h.example/m", "without a user"),
            ("http://h.example/m?token=hidden", "without a query"),
            ("http://h.example/m#hidden", "without a query or fragment"),
            ("http://h.example/../m", "no empty part, `.` or `..`"),
            ("http:///m", "no empty part"),
            ("http://h.example/a b", "special characters encoded"),
            ("hf://acme/voice/../../other/resolve/main/m", "`..`"),
            ("hf://acme/voice", "expected `hf://OWNER/NAME/FILE`"),
            ("hf://ac%2Fme/voice/m", "the repository's owner must consist of"),
            ("hf://acme/vo:ice@x/m", "expected `hf://OWNER/NAME/FILE`"),
            ("hf://evil.example:80/voice/m", "the repository's owner must"),
            ("hf://acme/voice/m@", "the revision must be"),
            ("hf://acme/voice/m@a b", "the revision must be"),
            ("hf://acme/voice/m@%2e%2e", "the revision must be"),
            ("hf://acme/voice/m@main/..", "`..`"),
            ("s3://bu/m", "the bucket must be 3 to 63"),
            ("s3://me@evil.example/m", "the bucket must be"),
            ("s3://bucket", "expected `s3://BUCKET/KEY`"),
            ("gs://bucket/m", "found `gs://`"),
            ("ftp://h.example/m", "expected a URL"),
        ] {
            let why = of(url, None).map(|address| address.uri.to_string()).unwrap_err();
            assert!(why.contains(expected) && !why.contains("hidden"), "{url}: {why}");
        }
    }

    #[test]
    fn a_redirect_leads_to_another_address_but_not_out_of_encryption() {
        let from: Uri = "http://h.example:8080/a/b?c".parse().unwrap();
        for (location, expected, is_same) in [
            ("/x", "http://h.example:8080/x", true),
            ("x?y", "http://h.example:8080/a/x?y", true),
            ("http://H.EXAMPLE:8080/x", "http://H.EXAMPLE:8080/x", true),
            ("//other.example/x", "http://other.example/x", false),
            ("http://h.example/x", "http://h.example/x", false),
            ("http://h.example.evil:8080/x", "http://h.example.evil:8080/x", false),
        ] {
            let to = redirected(&from, location).unwrap();
            assert_eq!((to.to_string().as_str(), is_same_origin(&from, &to)), (expected, is_same));
        }
        for location in ["http://me@h.example/x", "http://", "file:///etc/passwd\n"] {
            assert!(redirected(&from, location).is_err(), "{location}");
        }
        assert!(redirected(&"https://h.example/a".parse().unwrap(), "http://h.example/a").is_err());
    }
}
