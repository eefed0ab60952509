//! Files that nodes read.

use limen::Folders;
use limen::files::InputFile;
use limen::unit::show_bytes;
use std::io::ErrorKind;

/// A problem with a file found while planning: the message and the help.
pub type FileProblem = (String, String);

/// Opens a regular file that the graph may read.
pub fn open(path: &str, folders: &Folders) -> Result<InputFile, FileProblem> {
    folders.open(path).map_err(|error| (error.to_string(), error.help()))
}

/// Reads a regular file that the graph may read, of at most `most` bytes.
pub fn read_whole(path: &str, folders: &Folders, most: u64) -> Result<Vec<u8>, FileProblem> {
    let read = open(path, folders)?.read_whole(most);
    read.map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => {
            let most = show_bytes(most);
            (format!("`{path}` must be at most {most}, got more"), "write the path of a smaller file".into())
        }
        _ => (format!("`{path}` cannot be read: {error}"), "write the path of a file that can be read".into()),
    })
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

    #[test]
    fn a_file_is_read_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders { graph: folder.path().into(), ..Folders::default() };
        std::fs::write(folder.path().join("f"), "1234").unwrap();
        assert_eq!(read_whole("f", &folders, 4), Ok(b"1234".to_vec()));
        let (message, _) = read_whole("f", &folders, 3).unwrap_err();
        assert!(message.contains("`f` must be at most 3 B, got more"), "{message}");
    }
}
