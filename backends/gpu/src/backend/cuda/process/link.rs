//! The program's side of the process: it is started, asked and listened to, and ends with its last
//! user.

use super::message::{Command, Failure, HEAD, Reply, append, lengths};
use crate::backend::cuda::resident::FINAL;
use crate::device::{DeviceFault, EventState};
use limen::backend::BackendError;
use limen_infer::internal::{is_serving, this_program};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command as Program, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The argument with which a program is started to use a device for another one.
pub(crate) const ARGUMENT: &str = "limen-device-process";

/// What is said instead of [`FINAL`].
const AGAIN: &str = "the next call restarts the device process if `on_error` allows a call";

/// How long the process may take for what is waited for: compiling a large model takes a minute.
pub(super) const LONG: Duration = Duration::from_secs(600);
/// How long it may take for what is done at once.
pub(super) const QUICK: Duration = Duration::from_secs(130);
/// The process gives a call up first, and says so, unless the driver holds it.
const LATER: Duration = Duration::from_secs(2);
/// How long it may take to read what is sent.
const LONGEST_SEND: Duration = Duration::from_secs(10);
/// How long it may take until it is known how it ended.
const SHORT: Duration = Duration::from_millis(200);
/// How long it may take to end.
const LONGEST_END: Duration = Duration::from_secs(2);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An event of the process, as far as it is known here.
#[derive(Debug)]
pub(super) struct RemoteEvent {
    begun: Instant,
    time_limit: Duration,
    pub(super) state: Mutex<(EventState, Option<Duration>)>,
}

/// The process of a device.
#[derive(Debug)]
pub(super) struct Link {
    socket: UnixStream,
    /// Memory that both processes read and write, by calls of the kernel: neither can make the
    /// other access what is not there.
    memory: File,
    places: Mutex<Places>,
    /// `None` once it was told to end.
    child: Mutex<Option<Child>>,
    /// What is to be sent before anything else.
    outgoing: Mutex<Vec<u8>>,
    incoming: Mutex<Incoming>,
    /// Whoever does not read waits here for what another thread reads.
    news: Mutex<()>,
    has_news: Condvar,
    known: Mutex<Known>,
    /// One at a time is waited for an answer.
    asking: Mutex<()>,
    /// Whether the process may be busy with that for long.
    compiles: AtomicBool,
    answer: Mutex<Option<(Reply, Vec<u8>)>>,
}

/// What is known of the process.
#[derive(Debug)]
struct Known {
    /// Events whose work has not ended.
    events: HashMap<u64, Arc<RemoteEvent>>,
    lost: Option<String>,
    /// When the last answer came: work is not told of meanwhile.
    answered: Instant,
}

/// The memory that both processes share, as far as it is in use.
#[derive(Debug, Default)]
struct Places {
    end: u64,
    /// What nothing uses any more: where, and how many bytes. A place that the process writes is
    /// never one that it reads: it may still be writing when this program has forgotten why.
    free: [Vec<(u64, u64)>; 2],
}

/// Who writes a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writer {
    Program,
    Process,
}

/// Processes that were told to end. They hold memory of the device until they have.
static ENDING: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// The number of the next object: not that of any object of an earlier process, either.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Waits a little for processes to end.
fn reap() {
    let begun = Instant::now();
    let mut ending = lock(&ENDING);
    while !ending.is_empty() && begun.elapsed() < LONGEST_END {
        ending.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        std::thread::yield_now();
    }
}

#[derive(Debug, Default)]
struct Incoming {
    bytes: Vec<u8>,
}

impl Link {
    /// Starts the process.
    ///
    /// # Errors
    /// If this program cannot be started so, or the process does not begin.
    pub(super) fn open() -> Result<Link, BackendError> {
        let unavailable = |why: String| BackendError::Unavailable(why);
        if !is_serving(ARGUMENT) {
            let why = "for `isolation: process`, call `limen_infer::trial::serve` first in `main`";
            return Err(unavailable(why.into()));
        }
        let program = this_program().ok_or_else(|| unavailable("the path of this program is unknown".into()))?;
        reap();
        let start = || -> std::io::Result<(UnixStream, File, Child)> {
            let (socket, other) = UnixStream::pair()?;
            socket.set_nonblocking(true)?;
            let memory = File::from(memfd_create("limen-device", MFdFlags::MFD_CLOEXEC)?);
            let child = Program::new(&program)
                .arg(ARGUMENT)
                .stdin(Stdio::from(OwnedFd::from(other)))
                .stdout(Stdio::from(OwnedFd::from(memory.try_clone()?)))
                // A key that interrupts this program must not end the process before the last
                // calls. It ends with the socket.
                .process_group(0)
                .spawn()?;
            Ok((socket, memory, child))
        };
        let (socket, memory, child) =
            start().map_err(|error| unavailable(format!("the device process cannot start: {error}")))?;
        Ok(Link {
            socket,
            memory,
            places: Mutex::default(),
            child: Mutex::new(Some(child)),
            outgoing: Mutex::default(),
            incoming: Mutex::default(),
            news: Mutex::default(),
            has_news: Condvar::new(),
            known: Mutex::new(Known { events: HashMap::new(), lost: None, answered: Instant::now() }),
            asking: Mutex::default(),
            compiles: AtomicBool::new(false),
            answer: Mutex::default(),
        })
    }

    /// Returns a number for an object.
    pub(super) fn number(&self) -> u64 {
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a place for so many bytes in the memory that both processes share.
    pub(super) fn place(&self, bytes: usize, writer: Writer) -> u64 {
        let bytes = room(bytes);
        let mut places = lock(&self.places);
        let free = &mut places.free[writer as usize];
        if let Some(at) = free.iter().position(|(_, free)| *free == bytes) {
            return free.swap_remove(at).0;
        }
        let at = places.end;
        places.end += bytes;
        at
    }

    /// Gives a place back, which neither process uses any more.
    pub(super) fn give_back(&self, at: u64, bytes: usize, writer: Writer) {
        lock(&self.places).free[writer as usize].push((at, room(bytes)));
    }

    /// Writes bytes to the memory that both processes share.
    pub(super) fn write(&self, bytes: &[u8], at: u64) -> Result<(), DeviceFault> {
        self.memory
            .write_all_at(bytes, at)
            .map_err(|error| DeviceFault::Call(format!("shared memory cannot be written: {error}")))
    }

    /// Reads bytes of it.
    pub(super) fn read(&self, into: &mut [u8], at: u64) -> Result<(), DeviceFault> {
        self.memory
            .read_exact_at(into, at)
            .map_err(|error| DeviceFault::Call(format!("shared memory cannot be read: {error}")))
    }

    /// Why the device is lost, if it is.
    pub(super) fn lost(&self) -> Option<String> {
        lock(&self.known).lost.clone()
    }

    /// Ends the process if it has not told in time that work has ended.
    pub(super) fn check_limits(&self) {
        // It tells nothing while it compiles.
        if self.compiles.load(Ordering::Relaxed) {
            return;
        }
        let known = lock(&self.known);
        let is_late = |event: &&Arc<RemoteEvent>| event.begun.max(known.answered).elapsed() > event.time_limit + LATER;
        let late = known.events.values().find(is_late).map(|event| event.time_limit);
        drop(known);
        if let Some(limit) = late {
            self.lose(&format!("the device process did not finish a call within {limit:?}"));
        }
    }

    fn fault(&self) -> DeviceFault {
        DeviceFault::Lost(self.lost().unwrap_or_else(|| "the device process is gone".into()))
    }

    /// Ends the process, which has failed: how it ended says more than that it did.
    pub(super) fn lose(&self, why: &str) {
        let begun = Instant::now();
        let mut child = lock(&self.child);
        let status = loop {
            match child.as_mut().map(Child::try_wait) {
                Some(Ok(Some(status))) => break Some(status),
                Some(Ok(None)) if begun.elapsed() < SHORT => std::thread::yield_now(),
                _ => break None,
            }
        };
        drop(child);
        let how = match status {
            Some(status) => match status.signal() {
                Some(signal) => format!("the device process was ended by signal {signal}"),
                None => format!("the device process ended with exit code {}", status.code().unwrap_or_default()),
            },
            None => why.to_string(),
        };
        self.give_up(format!("cuda: {how}"));
    }

    /// Ends the process: the work of all events is lost.
    fn give_up(&self, why: String) {
        let mut known = lock(&self.known);
        let why = known.lost.get_or_insert(why).clone();
        #[expect(clippy::iter_over_hash_type, reason = "every event gets the same state")]
        for (_, event) in known.events.drain() {
            *lock(&event.state) = (EventState::Failed(DeviceFault::Lost(why.clone())), None);
        }
        drop(known);
        self.end();
        self.tell_news();
    }

    /// Tells the process to end. Nothing waits for it here.
    fn end(&self) {
        let child = lock(&self.child).take();
        if let Some(mut child) = child {
            let _ = child.kill();
            if matches!(child.try_wait(), Ok(None)) {
                lock(&ENDING).push(child);
            }
        }
    }

    fn tell_news(&self) {
        drop(lock(&self.news));
        self.has_news.notify_all();
    }

    /// Puts a command in front of the next one that is sent.
    pub(super) fn put(&self, command: &Command) -> Result<(), DeviceFault> {
        append(&mut lock(&self.outgoing), command, 0).map_err(|error| DeviceFault::Call(error.to_string()))
    }

    /// Sends a command, with bytes behind it.
    pub(super) fn send(&self, command: &Command, bytes: &[&[u8]]) -> Result<(), DeviceFault> {
        if self.lost().is_some() {
            return Err(self.fault());
        }
        let mut outgoing = lock(&self.outgoing);
        let behind = bytes.iter().map(|bytes| bytes.len()).sum();
        append(&mut outgoing, command, behind).map_err(|error| DeviceFault::Call(error.to_string()))?;
        let sent = std::iter::once(&outgoing[..]).chain(bytes.iter().copied()).try_for_each(|part| self.send_all(part));
        outgoing.clear();
        drop(outgoing);
        sent.map_err(|error| {
            self.lose(&error.to_string());
            self.fault()
        })
    }

    fn send_all(&self, mut part: &[u8]) -> std::io::Result<()> {
        let mut begun = Instant::now();
        while !part.is_empty() {
            match (&self.socket).write(part) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => (part, begun) = (&part[n..], Instant::now()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if begun.elapsed() > LONGEST_SEND {
                        return Err(std::io::Error::other("the device process reads nothing"));
                    }
                    // It may be writing itself.
                    self.listen(None, || false);
                    self.wait_for(PollFlags::POLLOUT | PollFlags::POLLIN, Duration::from_millis(10));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait_for(&self, what: PollFlags, at_most: Duration) {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        // Whatever it says, the next call finds out.
        let _ = poll(&mut [PollFd::new(self.socket.as_fd(), what)], timeout);
    }

    /// Sends a command and waits for its answer, at most so long: then the process is lost.
    pub(super) fn ask(
        &self,
        command: &Command,
        bytes: &[&[u8]],
        longest: Duration,
    ) -> Result<(Reply, Vec<u8>), BackendError> {
        let _asking = lock(&self.asking);
        self.compiles.store(longest > QUICK, Ordering::Relaxed);
        let answered = self.answer_of(command, bytes, longest);
        self.compiles.store(false, Ordering::Relaxed);
        answered
    }

    fn answer_of(
        &self,
        command: &Command,
        bytes: &[&[u8]],
        longest: Duration,
    ) -> Result<(Reply, Vec<u8>), BackendError> {
        lock(&self.answer).take();
        self.send(command, bytes)?;
        let begun = Instant::now();
        loop {
            let answer = lock(&self.answer).take();
            if longest > QUICK {
                lock(&self.known).answered = Instant::now();
            }
            match answer {
                Some((Reply::Failed(failure), _)) => return Err(failure.into()),
                Some(answer) => return Ok(answer),
                None => {}
            }
            if self.lost().is_some() {
                return Err(self.fault().into());
            }
            self.check_limits();
            if begun.elapsed() > longest {
                self.lose("the device process does not answer");
            }
            self.listen(Some(Duration::from_millis(100)), || lock(&self.answer).is_some());
        }
    }

    /// Reads what the process has said. Waits at most so long for it, if a time is given and what
    /// the caller wants is not known already; another thread may be reading meanwhile.
    pub(super) fn listen(&self, at_most: Option<Duration>, is_known: impl Fn() -> bool) {
        let mut incoming = match (self.incoming.try_lock(), at_most) {
            (Ok(incoming), _) => incoming,
            (Err(TryLockError::Poisoned(poisoned)), _) => poisoned.into_inner(),
            (Err(TryLockError::WouldBlock), None) => return,
            (Err(TryLockError::WouldBlock), Some(at_most)) => {
                let news = lock(&self.news);
                // What is read from now on is told.
                if !is_known() && self.lost().is_none() {
                    drop(self.has_news.wait_timeout(news, at_most));
                }
                return;
            }
        };
        if self.lost().is_some() {
            return;
        }
        if let Some(at_most) = at_most.filter(|_| !is_known()) {
            self.wait_for(PollFlags::POLLIN, at_most);
        }
        let ended = self.read_all(&mut incoming);
        drop(incoming);
        match ended {
            None => self.tell_news(),
            Some(End::Told(why)) => self.give_up(why),
            Some(End::Found(why)) => self.lose(&why),
        }
    }

    /// Reads what there is; returns why the process has ended, if it has.
    fn read_all(&self, incoming: &mut Incoming) -> Option<End> {
        let mut part = [0; 64 << 10];
        loop {
            match (&self.socket).read(&mut part) {
                Ok(0) => return Some(End::Found("the device process is gone".into())),
                Ok(n) => incoming.bytes.extend_from_slice(&part[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Some(End::Found(error.to_string())),
            }
            match self.take(incoming) {
                Ok(None) => {}
                Ok(Some(why)) => return Some(End::Told(why)),
                Err(error) => return Some(End::Found(error.to_string())),
            }
        }
    }

    /// Takes whole messages out of what was read. Returns why the device is lost, if one says so.
    fn take(&self, incoming: &mut Incoming) -> std::io::Result<Option<String>> {
        let (mut at, mut lost) = (0, None);
        while let Some(head) = incoming.bytes[at..].first_chunk::<HEAD>() {
            let (text, behind) = lengths(head)?;
            let whole = HEAD + text + behind;
            let Some(message) = incoming.bytes[at..].get(..whole) else { break };
            let reply: Reply = serde_json::from_slice(&message[HEAD..][..text])?;
            match reply {
                Reply::Ended { event, failure, time_ns } => {
                    let failure = failure.map(|failure| match failure {
                        Failure::Lost(why) => Failure::Lost(why.replace(FINAL, AGAIN)),
                        other => other,
                    });
                    if let Some(Failure::Lost(why)) = &failure {
                        // The process ends next.
                        lost = Some(why.clone());
                    }
                    if let Some(event) = lock(&self.known).events.remove(&event) {
                        let state =
                            failure.map_or(EventState::Done, |failure: Failure| EventState::Failed(failure.into()));
                        *lock(&event.state) = (state, time_ns.map(Duration::from_nanos));
                    }
                }
                reply => {
                    if let Reply::Failed(Failure::Lost(why)) = &reply {
                        lost = Some(why.replace(FINAL, AGAIN));
                    }
                    *lock(&self.answer) = Some((reply, message[HEAD + text..].to_vec()));
                }
            }
            at += whole;
        }
        incoming.bytes.drain(..at);
        Ok(lost)
    }

    /// Returns an event with its number; the process will say when its work has ended.
    pub(super) fn event(&self, time_limit: Duration) -> (u64, Arc<RemoteEvent>) {
        let state = Mutex::new((EventState::Pending, None));
        let (number, event) = (self.number(), Arc::new(RemoteEvent { begun: Instant::now(), time_limit, state }));
        let mut known = lock(&self.known);
        match &known.lost {
            Some(why) => *lock(&event.state) = (EventState::Failed(DeviceFault::Lost(why.clone())), None),
            None => _ = known.events.insert(number, event.clone()),
        }
        drop(known);
        (number, event)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It ends when it reads the end.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let begun = Instant::now();
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        while matches!(child.as_mut().map(Child::try_wait), Some(Ok(None))) && begun.elapsed() < LONGEST_END {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.end();
    }
}

/// Why the process has ended.
enum End {
    /// It said so.
    Told(String),
    Found(String),
}

/// The bytes of a place: whole pages, so that copies begin at one.
fn room(bytes: usize) -> u64 {
    (bytes.max(1) as u64).next_multiple_of(4096)
}
