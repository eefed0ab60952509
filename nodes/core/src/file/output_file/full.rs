//! What a sink does when the disk is full.

use limen::node::{Building, LossCounter, Metrics, NodeError, NodeErrorKind};
use limen::policy::OnError;
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// How long to wait after a full disk before the next write.
const RETRY: Duration = Duration::from_secs(1);

/// Action if the disk is full. For other errors, the node's `on_error` applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFull {
    /// Skip messages that do not fit on the disk. The report counts skipped messages as lost
    /// (`disk_full`). Writing resumes when the disk has space. While the disk is full and messages
    /// arrive, the node reports one failure event per second.
    #[default]
    Drop,
    /// End the run.
    Stop,
    /// Remove the node from the run. The rest of the graph continues.
    Detach,
}

/// A disk that may be full, and the messages that were accepted and not written.
#[derive(Debug, Default)]
pub struct FullDisk {
    policy: OnFull,
    /// While it is full: when to write again, and why nothing fits.
    again: Option<Instant>,
    why: &'static str,
    /// Messages lost because it was full, and for other reasons.
    lost: LossCounter,
    pub(super) unwritten: LossCounter,
    /// How many messages had come, written or not, when it was last found full.
    told: Option<u64>,
}

impl FullDisk {
    /// Creates the state of a disk that is not full. It counts losses as `disk_full` and
    /// `unwritten`.
    pub fn new(policy: OnFull, cx: &Building<'_>) -> Self {
        FullDisk { policy, lost: cx.lost("disk_full"), unwritten: cx.lost("unwritten"), ..FullDisk::default() }
    }

    /// Whether it was full just now, so that a write is not tried yet.
    pub(crate) fn waits(&self) -> bool {
        self.again.is_some_and(|again| Instant::now() < again)
    }

    /// Whether the last write failed because it is full, and the node goes on.
    pub fn is_full(&self) -> bool {
        self.again.is_some()
    }

    /// Notes that a write succeeded.
    pub fn is_over(&mut self) {
        if self.again.take().is_some() {
            self.lost.recovered();
        }
    }

    /// Counts messages as lost because the disk is full.
    pub fn lose(&mut self, messages: u64) {
        self.lost.lose(messages, || self.why.into());
    }

    /// Counts messages as lost by an error: because the disk is full, if it is, otherwise as
    /// unwritten.
    pub fn lose_by(&mut self, error: &io::Error, messages: u64) {
        if self.is_full() {
            self.lose(messages);
        } else {
            self.unwritten.lose(messages, || error.to_string());
        }
    }

    /// Returns the outcome of a write. While the disk stays full and no further message came,
    /// trying again is no further failure. `messages` is how many have come and are not lost.
    pub(super) fn tell_once(
        &mut self,
        was_full: bool,
        messages: u64,
        written: Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        let come = Some(messages + self.lost.get());
        let is_full = written.as_ref().is_err_and(|e| matches!(e.kind(), NodeErrorKind::DiskFull { .. }));
        let is_told = was_full && is_full && self.told == come;
        if is_full {
            self.told = come;
        }
        if is_told { Ok(()) } else { written }
    }

    /// Returns the error of a write; with the policy, if the disk is full.
    #[cold]
    pub fn judge(&mut self, error: NodeError) -> NodeError {
        let NodeErrorKind::File { path, source } = error.kind() else { return error };
        if !matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            return error;
        }
        let then = match self.policy {
            OnFull::Drop => OnError::Skip,
            OnFull::Stop => OnError::Stop,
            OnFull::Detach => OnError::Detach,
        };
        let is_quota = source.kind() == ErrorKind::QuotaExceeded;
        self.why = if is_quota { "the disk quota is used up" } else { "no space is left on the disk" };
        self.again = (then == OnError::Skip).then(|| Instant::now() + RETRY);
        let lost = match self.lost.get() {
            0 => String::new(),
            lost => format!("; messages lost so far: {lost}"),
        };
        let source = io::Error::new(source.kind(), format!("{source}{lost}"));
        NodeErrorKind::DiskFull { path: path.clone(), source, then }.into()
    }

    /// Reports messages that are still in a buffer when the node ends.
    pub(crate) fn metrics(&self, buffered: u64, to: &mut Metrics) {
        to.lost(if self.is_full() { "disk_full" } else { "unwritten" }, buffered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::output_file::OutputFile;
    use std::fs::{self, File};

    /// A file on Linux's disk that is always full.
    fn full(policy: OnFull) -> OutputFile {
        let mut file = OutputFile::of(File::options().write(true).open("/dev/full").unwrap(), "full.txt".into());
        file.full = FullDisk { policy, ..FullDisk::default() };
        file
    }

    #[test]
    fn the_policy_of_a_full_disk_is_not_that_of_other_errors() {
        for (policy, expected) in
            [(OnFull::Drop, OnError::Skip), (OnFull::Stop, OnError::Stop), (OnFull::Detach, OnError::Detach)]
        {
            let mut file = full(policy);
            file.write(b"one").unwrap();
            let error = file.flush().unwrap_err();
            assert!(error.to_string().starts_with("full.txt: No space left on device"), "{error}");
            assert!(matches!(error.kind(), NodeErrorKind::DiskFull { then, .. } if *then == expected), "{error:?}");
            for (kind, is_full) in [(ErrorKind::QuotaExceeded, true), (ErrorKind::FileTooLarge, false)] {
                let error = file.full.judge(NodeError::file("a", kind.into()));
                assert_eq!(matches!(error.kind(), NodeErrorKind::DiskFull { .. }), is_full, "{error:?}");
            }
        }
    }

    #[test]
    fn a_message_that_is_tried_again_fails_once() {
        let mut file = full(OnFull::Drop);
        let fails = |file: &mut OutputFile| {
            file.full.again = file.full.again.map(|_| Instant::now());
            file.flush().is_err()
        };
        file.write(b"one").unwrap();
        assert_eq!([(); 4].map(|()| fails(&mut file)), [true, false, false, false]);
        file.write(b"two").unwrap();
        assert_eq!([(); 3].map(|()| fails(&mut file)), [true, false, false]);
        assert!(file.full.is_full());
        // Another error is always one.
        file.file = File::open("/dev/null").unwrap();
        assert_eq!([(); 2].map(|()| fails(&mut file)), [true, true]);
    }

    #[test]
    fn what_does_not_fit_is_lost_until_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("full.txt");
        let mut file = full(OnFull::Drop);
        file.write(&[b'a'; 1 << 10]).unwrap();
        file.flush().unwrap_err();
        file.full.again = Some(Instant::now() + Duration::from_secs(3600));
        // Nothing is tried again; the buffer takes as much as before.
        file.flush().unwrap();
        let accepted = (0..100).filter(|_| file.write(&[b'b'; 1 << 10]).unwrap()).count();
        assert_eq!((accepted, file.full.lost.get(), file.ends.len()), (63, 37, 64));
        assert_eq!(file.full.lost.first().as_deref(), Some("no space is left on the disk"));
        file.full.again = Some(Instant::now());
        let error = file.write(b"c").unwrap_err().to_string();
        assert!(error.ends_with("; messages lost so far: 37"), "{error}");
        // There is room again.
        file.file = File::create(&path).unwrap();
        file.full.again = Some(Instant::now());
        assert!(file.write(b"d").unwrap());
        file.finish().unwrap();
        assert!(!file.full.is_full());
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{}{}d", "a".repeat(1 << 10), "b".repeat(63 << 10)));
    }

    #[test]
    fn a_file_that_is_cut_short_ends_with_a_whole_message() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        for (head, messages, torn) in [("head\n", 2, 3), ("head\n", 0, 3), ("", 2, 0), ("", 0, 2), ("head\n", 0, 0)] {
            let mut file = OutputFile::of(File::create(&path).unwrap(), path.clone());
            file.push(head.as_bytes());
            for _ in 0..messages {
                file.write(b"message\n").unwrap();
            }
            file.make_room().unwrap();
            file.flush().unwrap();
            // The disk took that much of the next one, and is full since.
            file.push(&b"message\n"[..torn]);
            file.flush().unwrap();
            file.begun = torn as u64;
            file.file.set_len(file.written).unwrap();
            file.cut_short();
            let expected = format!("{head}{}", "message\n".repeat(messages));
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
            assert_eq!((file.whole_bytes(), file.written), (expected.len() as u64, expected.len() as u64));
        }
    }
}
