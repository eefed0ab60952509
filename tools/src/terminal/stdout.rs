//! The output for reports: stdout, or with `--json` a stdout that nothing else can write to.
//!
//! `--json` promises exactly one object. A `console` node prints on stdout too, and so may native
//! code of a backend: during the run their output goes to stderr.

use crate::report::exit_code::FAILED;
use crate::terminal::log::print_error;
use crate::text::escape::plain;
use limen::Plan;
use limen::text::is_terminal_control;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// The output for reports.
#[derive(Debug, Default)]
pub(crate) struct Stdout {
    /// The original stdout, if file descriptor 1 is a copy of stderr now.
    aside: Option<File>,
}

impl Stdout {
    /// Takes stdout for this value alone. If the system refuses, prints an error and shares it.
    pub(crate) fn alone() -> Self {
        let moved = io::stdout().as_fd().try_clone_to_owned().and_then(|aside| {
            nix::unistd::dup2_stdout(io::stderr())?;
            Ok(File::from(aside))
        });
        match moved {
            Ok(aside) => Stdout { aside: Some(aside) },
            Err(error) => {
                print_error(&format!("limen-run: stdout cannot be kept for --json alone: {error}"));
                Stdout::default()
            }
        }
    }

    /// Why nothing can be printed for a graph: stdout is a file that the graph reads or writes.
    pub(crate) fn conflict(&self, plan: &Plan) -> Option<String> {
        let own = match &self.aside {
            Some(file) => file.as_fd().try_clone_to_owned(),
            None => io::stdout().as_fd().try_clone_to_owned(),
        };
        let own = File::from(own.ok()?);
        if let Some(read) = plan.reads_open(&own) {
            return Some(format!("stdout is `{}`, which the graph reads; redirect stdout elsewhere", read.display()));
        }
        let id = |about: Metadata| about.is_file().then(|| (about.dev(), about.ino()));
        let stdout = own.metadata().ok().and_then(id)?;
        let mut writes = plan.writes();
        let (node, path) = writes.find(|(_, path)| path.metadata().ok().and_then(id) == Some(stdout))?;
        Some(format!("stdout is `{}`, which the node `{node}` writes; redirect stdout elsewhere", path.display()))
    }

    /// Prints a graph file. Unless stdout is a terminal, keeps bidirectional control characters as
    /// they are: the output is a YAML file whose names and values may contain them.
    pub(crate) fn print_file(&mut self, text: &str) -> u8 {
        if io::stdout().is_terminal() {
            return self.print(text, 0);
        }
        let is_bidi = |c: char| is_terminal_control(c) && !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}');
        let kept: String = text
            .split_inclusive(is_bidi)
            .flat_map(|part| match part.char_indices().next_back() {
                Some((at, last)) if is_bidi(last) => [plain(&part[..at]).to_string(), last.to_string()],
                _ => [plain(part).to_string(), String::new()],
            })
            .collect();
        self.write(&kept, 0)
    }

    /// Prints text, and returns `code`, or [`FAILED`] if it is higher and stdout cannot be written.
    pub(crate) fn print(&mut self, text: &str, code: u8) -> u8 {
        self.write(&plain(text), code)
    }

    fn write(&mut self, text: &str, code: u8) -> u8 {
        let written = match &mut self.aside {
            Some(file) => file.write_all(text.as_bytes()),
            None => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
            }
        };
        match written {
            Ok(()) => code,
            // `limen-run .. | head` has read enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => code,
            Err(error) => {
                print_error(&format!("limen-run: stdout cannot be written: {error}"));
                code.max(FAILED)
            }
        }
    }
}
