//! Files that sources read.

use limen::Folders;
use limen::files::InputFile;

/// A problem with a file found while planning: the message and the help.
pub(crate) type FileProblem = (String, &'static str);

/// Opens a regular file that the graph may read.
pub(crate) fn open(path: &str, folders: &Folders) -> Result<InputFile, FileProblem> {
    folders.open(path).map_err(|error| (error.to_string(), error.help()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_in_allowed_folders_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("zero")).unwrap();
        for (path, expected) in [
            ("../f", "--allow-path"),
            ("zero", "--allow-path"),
            ("none", "No such file"),
            ("fifo", "not a regular file"),
            (".", "not a regular file"),
        ] {
            let (message, help) = open(path, &folders).unwrap_err();
            assert!(message.contains(expected) && !help.is_empty(), "{path}: {message}");
        }
    }
}
