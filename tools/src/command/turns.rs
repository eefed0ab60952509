//! Runs of two sides in turns, for `limen-run hist compare`.

use super::hist::Refused;
use crate::report::exit_code::{FAILED, REFUSED};
use std::path::Path;
use std::process::{Command, Stdio};

/// Takes so many runs of each side, whose folder and command `sides` has. A command finds the
/// folder for its histograms in `LIMEN_HISTOGRAMS`.
///
/// # Errors
/// If a folder exists, or a command fails.
pub(super) fn take_in_turns(sides: [(&Path, &str); 2], runs: u32) -> Result<(), Refused> {
    if let Some((folder, _)) = sides.iter().find(|(folder, _)| folder.exists()) {
        let why = format!("{}: already exists: name a new folder", folder.display());
        return Err((REFUSED, why));
    }
    for turn in 0..runs {
        let mut sides = sides;
        if turn % 2 == 1 {
            // The side that goes first changes, so that a drift of the host meets both alike.
            sides.reverse();
        }
        for (folder, command) in sides {
            let to = folder.join(format!("{turn:03}"));
            let mut shell = Command::new("sh");
            shell.args(["-c", command]).env("LIMEN_HISTOGRAMS", to).stdin(Stdio::null()).stdout(Stdio::null());
            let status = shell.status().map_err(|error| (FAILED, format!("`sh` cannot be started: {error}")))?;
            if !status.success() {
                return Err((FAILED, format!("`{command}` failed in run {} of {runs}: {status}", turn + 1)));
            }
        }
    }
    Ok(())
}
