//! `fetch`: downloads the files that a graph names by URL.

use super::run::{NotRun, Run};
use crate::fetch::{FetchSettings, FetchSummary, Lock, fetch};
use crate::report::exit_code::{FAILED, REFUSED};
use crate::terminal::log::{self, print_error, print_info};
use crate::text::escape::one_line;
use crate::text::number::count;
use clap::Args;
use clap::builder::BoolishValueParser;
use limen::Spec;
use limen::files::shown_url;
use limen::unit::{Bytes, Span, show_bytes};
use serde_json::json;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

pub(super) const EXAMPLES: &str = "\
Examples:
  limen-run fetch graph.yaml            fetch what is missing, write graph.lock
  limen-run fetch graph.yaml --locked   fetch exactly what graph.lock pins
  limen-run fetch graph.yaml --header-env models.example:Authorization=TOKEN
                                        with a header from the variable TOKEN

Credentials come from the environment and go only to their own host:
  hf://OWNER/NAME/FILE@REVISION         HF_TOKEN, HF_ENDPOINT
  s3://BUCKET/KEY                       AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
                                        AWS_SESSION_TOKEN, AWS_REGION,
                                        AWS_ENDPOINT_URL

Exits with 1 if a file could not be fetched, and with 2 if the graph or its
lock was refused. An interrupted download goes on with the next `fetch`.";

/// How `fetch` downloads files.
#[derive(Clone, Debug, Args)]
pub struct FetchArguments {
    /// Fetch only files that the lock has, and leave the lock as it is
    #[arg(long, env = "LIMEN_LOCKED", value_parser = BoolishValueParser::new(), conflicts_with = "update")]
    #[arg(hide_env = true, help_heading = "Download")]
    pub locked: bool,

    /// Fetch every file again, and replace its entry in the lock
    #[arg(long, env = "LIMEN_UPDATE", value_parser = BoolishValueParser::new())]
    #[arg(hide_env = true, help_heading = "Download")]
    pub update: bool,

    /// Send a header to one host, with the value of an environment variable; may be repeated
    #[arg(long, env = "LIMEN_HEADER_ENV", value_name = "HOST:NAME=VARIABLE", value_delimiter = ';')]
    #[arg(hide_env = true, help_heading = "Download")]
    pub header_env: Vec<String>,

    /// The largest size of a file
    #[arg(long, env = "LIMEN_MAX_BYTES", value_name = "SIZE", default_value = "4GiB")]
    #[arg(hide_env = true, help_heading = "Download")]
    pub max_bytes: Bytes,

    /// Remove the files from the cache that were not used for longest, until all files have this
    /// size; files of this graph stay
    #[arg(long, env = "LIMEN_MAX_CACHE", value_name = "SIZE", default_value = "64GiB")]
    #[arg(hide_env = true, help_heading = "Download")]
    pub max_cache: Bytes,

    /// Try again if a server is silent for this time
    #[arg(long, env = "LIMEN_IDLE_TIMEOUT", value_name = "TIME", default_value = "30s", value_parser = positive)]
    #[arg(hide_env = true, help_heading = "Download")]
    pub idle_timeout: Span,

    /// Give up a file after this time
    #[arg(long, env = "LIMEN_TIMEOUT", value_name = "TIME", default_value = "1h", value_parser = positive)]
    #[arg(hide_env = true, help_heading = "Download")]
    pub timeout: Span,
}

fn positive(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0.is_zero() { Err("the time must be above 0s, got 0s".into()) } else { Ok(span) }
}

impl Run<'_> {
    /// `fetch`: downloads the files of a graph.
    pub(crate) fn fetch(&mut self, asked: &FetchArguments) -> Result<u8, NotRun> {
        let arguments = self.arguments;
        let spec = Spec::from_file_with(self.path, &arguments.layers()).map_err(NotRun::Refused)?;
        let urls: Vec<String> = spec.remote_files().into_iter().map(|(url, _)| url).collect();
        let settings = FetchSettings {
            cache: arguments.cache.as_deref(),
            is_locked: asked.locked,
            is_update: asked.update,
            headers: &asked.header_env,
            max_bytes: asked.max_bytes.0,
            max_cache: asked.max_cache.0,
            idle: asked.idle_timeout.0,
            total: asked.timeout.0,
            pause: Duration::from_millis(500),
            trials: &arguments.options().trials,
            is_shown: !arguments.quiet && !log::is_json() && stderr().is_terminal(),
            variable: &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
        };
        let summary = fetch(self.path, urls, &settings).map_err(|why| NotRun::Because(why, REFUSED))?;
        let lock = Lock::path_for(self.path).display().to_string();
        if !arguments.quiet {
            for (url, entry) in summary.files.iter().filter(|(_, entry)| entry.is_new) {
                print_info(&format!("limen-run: fetched `{}` ({})", one_line(url), show_bytes(entry.size)));
            }
            summary.notes.iter().for_each(|note| print_info(&format!("limen-run: {}", one_line(note))));
        }
        for (url, why) in &summary.errors {
            print_error(&format!("limen-run: `{}`: {}", one_line(&shown_url(url)), one_line(why)));
        }
        let code = if summary.errors.is_empty() { 0 } else { FAILED };
        let text = if arguments.json { object(&summary, &lock) } else { line(&summary, &lock) };
        Ok(self.stdout.print(&text, code))
    }
}

fn line(summary: &FetchSummary, lock: &str) -> String {
    let (files, size) =
        (summary.files.len(), summary.files.values().fold(0u64, |sum, file| sum.saturating_add(file.size)));
    let new = summary.files.values().filter(|file| file.is_new).count();
    let lock = one_line(lock);
    match (files, summary.errors.is_empty()) {
        (0, true) => "the graph names no file by URL\n".into(),
        (0, false) => String::new(),
        _ => format!("{lock}: {} with {}, {new} of them fetched now\n", count(files, "file"), show_bytes(size)),
    }
}

fn object(summary: &FetchSummary, lock: &str) -> String {
    let files = summary
        .files
        .iter()
        .map(|(url, file)| json!({ "url": url, "sha256": file.sha256, "size": file.size, "fetched": file.is_new }));
    let object = json!({
        "lock": lock,
        "changed": summary.is_lock_changed,
        "files": files.collect::<Vec<_>>(),
        "errors": summary.errors.iter().map(|(url, why)| format!("`{}`: {why}", shown_url(url))).collect::<Vec<_>>(),
        "notes": summary.notes,
    });
    format!("{object:#}\n")
}
