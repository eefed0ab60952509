//! The sockets of monitors, and the folder that they are in.

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt::PeerCredentials,
};
use nix::unistd::{Pid, geteuid};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a socket's name ends in.
const ENDING: &str = ".sock";
/// The most bytes of a graph's name in that of its socket: a path of a socket has at most 107
/// bytes.
const NAME: usize = 40;
/// The most sockets that are looked at.
const LISTED: usize = 1000;
/// The most graphs of one name in one process.
const SAME: usize = 64;

/// The sockets of this process, for an exit that drops nothing.
static OWN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn own() -> MutexGuard<'static, Vec<PathBuf>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the sockets of this process before it exits without dropping them.
pub(crate) fn remove_own() {
    own().drain(..).for_each(|path| _ = fs::remove_file(path));
}

/// A listening socket. Dropping it removes its name.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut own = own();
        if let Some(at) = own.iter().position(|path| *path == self.path) {
            own.swap_remove(at);
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Socket {
    /// Opens the socket for a graph of this process, and removes those of dead processes.
    pub(super) fn bind(graph: &str) -> io::Result<Self> {
        let folder = folder();
        DirBuilder::new().mode(0o700).create(&folder).or_else(|error| match error.kind() {
            ErrorKind::AlreadyExists => Ok(()),
            _ => Err(about(&folder, &error)),
        })?;
        check(&folder)?;
        names(&folder)?.iter().filter(|path| is_stale(path)).for_each(|path| _ = fs::remove_file(path));
        let (name, pid) = (file_name(graph), std::process::id());
        // The lock also keeps two threads from taking one name.
        let mut own = own();
        let mut paths = (1..=SAME).map(|nth| match nth {
            1 => folder.join(format!("{name}-{pid}{ENDING}")),
            _ => folder.join(format!("{name}-{pid}-{nth}{ENDING}")),
        });
        let path = paths
            .find(|path| !own.contains(path))
            .ok_or_else(|| io::Error::other(format!("this process already serves {SAME} graphs named `{name}`")))?;
        let listener = UnixListener::bind(&path).map_err(|error| about(&path, &error))?;
        own.push(path.clone());
        drop(own);
        // From here its drop removes it.
        let socket = Socket { listener, path };
        fs::set_permissions(&socket.path, Permissions::from_mode(0o600))
            .map_err(|error| about(&socket.path, &error))?;
        socket.listener.set_nonblocking(true)?;
        Ok(socket)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the next client, if one waits; its stream does not block. One of another user is
    /// turned away.
    pub(super) fn accept(&self) -> Option<UnixStream> {
        let (stream, _) = self.listener.accept().ok()?;
        (is_own_user(&stream) && stream.set_nonblocking(true).is_ok()).then_some(stream)
    }
}

/// Returns the folder of sockets: in the user's folder for such things, if there is one, else in
/// that of temporary files.
pub(super) fn folder() -> PathBuf {
    let user = geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    // Under `sudo` it may be that of another user.
    let is_own = |path: &PathBuf| fs::metadata(path).is_ok_and(|data| data.is_dir() && data.uid() == user.as_raw());
    match runtime.filter(is_own) {
        Some(runtime) => runtime.join("limen"),
        None => std::env::temp_dir().join(format!("limen-{user}")),
    }
}

/// Refuses a folder that somebody else could have made or could write to.
pub(super) fn check(folder: &Path) -> io::Result<()> {
    // Of a link, the link itself.
    let data = fs::symlink_metadata(folder).map_err(|error| about(folder, &error))?;
    let (user, mode) = (geteuid().as_raw(), data.mode() & 0o7777);
    let shown = folder.display();
    let why = if !data.is_dir() {
        format!("`{shown}` is not a folder: remove the file")
    } else if data.uid() != user {
        format!(
            "the folder `{shown}` belongs to user {}, not to user {user}: remove the folder, or set XDG_RUNTIME_DIR",
            data.uid()
        )
    } else if mode & 0o077 != 0 {
        format!("the folder `{shown}` is open to other users (mode {mode:o}): run `chmod 700 {shown}`")
    } else {
        return Ok(());
    };
    Err(io::Error::new(ErrorKind::PermissionDenied, why))
}

/// Returns the sockets in a folder, by name.
pub(super) fn names(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| about(folder, &error))?.take(LISTED).flatten();
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let mut paths: Vec<PathBuf> = sockets.map(|entry| entry.path()).collect();
    paths.retain(|path| path.to_str().is_some_and(|path| path.ends_with(ENDING)));
    paths.sort_unstable();
    Ok(paths)
}

/// Whether the process at the other end runs as this user, or as root.
pub(super) fn is_own_user(stream: &UnixStream) -> bool {
    let user = geteuid().as_raw();
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == user || peer.uid() == 0)
}

/// Whether nobody listens at a socket any more.
pub(super) fn is_refused(path: &Path) -> bool {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let Ok(client) = socket(AddressFamily::Unix, SockType::Stream, flags, None) else { return false };
    // One whose queue is full answers EAGAIN.
    UnixAddr::new(path).is_ok_and(|address| connect(client.as_raw_fd(), &address) == Err(Errno::ECONNREFUSED))
}

/// Whether a process has left a socket. Between two calls of the kernel a new socket refuses too,
/// so its process has to be gone; one of another container may only seem to be, but does not
/// refuse.
fn is_stale(path: &Path) -> bool {
    let is_gone = |pid: i32| {
        let is_own = u32::try_from(pid).is_ok_and(|pid| pid == std::process::id());
        if is_own { !own().iter().any(|own| own == path) } else { kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH) }
    };
    process(path).is_none_or(is_gone) && is_refused(path)
}

/// The process in a socket's name; `None` if the name has none.
fn process(path: &Path) -> Option<i32> {
    let name = path.file_name()?.to_str()?.strip_suffix(ENDING)?;
    let numbers = name.rsplit('-').take(2).map(|part| part.parse::<i32>().ok().filter(|number| *number > 0));
    let numbers: Vec<Option<i32>> = numbers.collect();
    // `NAME-PID`, or `NAME-PID-NTH`.
    match numbers[..] {
        [Some(nth), Some(pid)] if usize::try_from(nth).is_ok_and(|nth| nth <= SAME) => Some(pid),
        [pid, ..] => pid,
        [] => None,
    }
}

/// A graph's name as a part of a file's.
fn file_name(graph: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let name: String = graph.chars().take(NAME).map(|c| if is_plain(c) { c } else { '_' }).collect();
    if name.is_empty() { "graph".into() } else { name }
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_named_after_its_graph_and_its_process() {
        for (graph, expected) in [
            ("digits", "digits"),
            ("my robot/../\x1b[2J", "my_robot_.._[2J"),
            ("", "graph"),
            (&"x".repeat(99), &"x".repeat(40)),
        ] {
            assert_eq!(file_name(graph).replace('_', ""), expected.replace(['_', '['], ""), "{graph}");
        }
        for (name, expected) in [
            ("digits-412.sock", Some(412)),
            ("a-b-412.sock", Some(412)),
            ("a-412-2.sock", Some(412)),
            ("a-3-412.sock", Some(412)),
            ("a.sock", None),
            ("a--7.sock", Some(7)),
            ("a-0.sock", None),
        ] {
            assert_eq!(process(Path::new(name)), expected, "{name}");
        }
    }
}
