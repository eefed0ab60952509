//! Waiting for file descriptors: sockets, pipes, terminals, devices.
//!
//! A node that waits for a descriptor registers it with its worker ([`Descriptors::watch`]) and
//! reads or writes without blocking. When there is nothing to do, a source returns
//! [`Next::WhenReady`](crate::node::Next::WhenReady), a sink
//! [`Progress::WhenReady`](crate::node::Progress::WhenReady). The worker sleeps in one `epoll_wait`
//! for all descriptors of its nodes, for its bell, which is then an eventfd, and for the next
//! deadline, which a timerfd keeps to the nanosecond. A worker whose nodes never register a
//! descriptor has none of these and sleeps on its futex.
//!
//! Each descriptor is reported once (`EPOLLONESHOT`) and re-armed when its node waits again: a
//! ready descriptor of a source without room to send wakes the worker only once, and unread data
//! wakes it again after re-arming.

use crate::host::sync::Arc;
use crate::host::wait::Bell;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

/// The events a node waits for on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interest {
    /// Data to read, a connection to accept, or the end.
    Read,
    /// Room to write, or an established connection.
    Write,
    /// Either.
    Both,
    /// None at the moment.
    Nothing,
}

impl Interest {
    fn flags(self) -> EpollFlags {
        let flags = match self {
            Interest::Read => EpollFlags::EPOLLIN,
            Interest::Write => EpollFlags::EPOLLOUT,
            Interest::Both => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
            Interest::Nothing => EpollFlags::empty(),
        };
        flags | EpollFlags::EPOLLONESHOT
    }
}

/// The descriptors of one node, from [`Building::descriptors`](crate::node::Building::descriptors).
/// Clones share them.
///
/// ```
/// # use limen::{Message, Plan, Registry, Spec};
/// # use limen::message::Plain;
/// # use limen::node::{Connected, PlanErrors, Planning, Ports, Sink};
/// use limen::Time;
/// use limen::node::{Building, Emit, Interest, Next, Node, NodeError, Source, Watched};
/// use std::io::{ErrorKind, Read};
/// use std::os::unix::net::UnixStream;
/// # #[derive(Clone, Debug)] struct Byte(u8);
/// # impl Plain for Byte {}
///
/// struct Bytes(Watched<UnixStream>);
///
/// impl Node for Bytes {
///     # type Config = ();
///     # fn ports(_: &(), _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> { Ok(Ports::new().output_plain("out")) }
///     // ...
///     fn build(_: (), cx: &mut Building<'_>) -> Result<Self, NodeError> {
///         let socket = connect().map_err(NodeError::other)?;
///         socket.set_nonblocking(true).map_err(NodeError::other)?;
///         Ok(Bytes(cx.descriptors().watch(socket, Interest::Read).map_err(NodeError::other)?))
///     }
/// }
///
/// impl Source for Bytes {
///     type Out = Byte;
///     fn next(&mut self, out: &mut Emit<Byte>) -> Result<Next, NodeError> {
///         let mut byte = [0];
///         match (&*self.0).read(&mut byte) {
///             Ok(0) => Ok(Next::Done),
///             Ok(_) => {
///                 let header = out.header(out.clock());
///                 out.send(Message::new(header, Byte(byte[0])));
///                 Ok(Next::More)
///             }
///             // No data: call again when there is some, and not before.
///             Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Next::WhenReady(Time::NEVER)),
///             Err(error) => Err(NodeError::other(error)),
///         }
///     }
/// }
/// # struct End;
/// # impl Node for End {
/// #     type Config = ();
/// #     fn ports(_: &(), _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> { Ok(Ports::new().input_any("in")) }
/// #     fn build(_: (), _: &mut Building<'_>) -> Result<Self, NodeError> { Ok(End) }
/// # }
/// # impl Sink for End {
/// #     type In = Byte;
/// #     fn take(&mut self, _: Message<Byte>) -> Result<(), NodeError> { Ok(()) }
/// # }
/// # fn connect() -> std::io::Result<UnixStream> {
/// #     let (near, mut far) = UnixStream::pair()?;
/// #     std::thread::spawn(move || [b"a", b"b", b"c"].map(|byte| std::io::Write::write_all(&mut far, byte)));
/// #     Ok(near)
/// # }
/// # let registry = Registry::new().source::<Bytes>("bytes").sink::<End>("end");
/// # let spec = Spec::from_text("version: 1\nnodes: { a: { kind: bytes }, b: { kind: end, from: a } }", "g.yaml").unwrap();
/// # let report = Plan::new(spec, &registry).unwrap().wire().unwrap().start().unwrap().wait();
/// # assert_eq!(report.node("b").unwrap().done, 3);
/// ```
#[derive(Clone)]
pub struct Descriptors {
    poller: Rc<Poller>,
    node: Rc<Waiting>,
}

/// The state shared between a worker and a node.
#[derive(Default)]
struct Waiting {
    /// Whether a descriptor of the node was reported ready since the node last waited.
    is_woken: Cell<bool>,
    /// The slots of these descriptors. Has capacity for all.
    fired: RefCell<Vec<usize>>,
}

impl Descriptors {
    pub(crate) fn new(poller: Rc<Poller>) -> Self {
        Descriptors { poller, node: Rc::default() }
    }

    /// Registers a descriptor until the returned value is dropped. It should be non-blocking: a
    /// node reads or writes as far as possible, and then waits. A regular file, which `epoll` does
    /// not support, counts as always ready.
    ///
    /// # Errors
    /// The system's error: the process has no descriptors left, or this one is already registered.
    pub fn watch<T: AsFd + 'static>(&self, what: T, interest: Interest) -> io::Result<Watched<T>> {
        let kernel = self.poller.kernel()?;
        let what = Rc::new(what);
        let mut slots = self.poller.slots.borrow_mut();
        let at = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        let is_pollable = match kernel.epoll.add(&*what, EpollEvent::new(interest.flags(), at as u64)) {
            Ok(()) => true,
            Err(Errno::EPERM) => false,
            Err(error) => return Err(error.into()),
        };
        let slot = DescriptorSlot {
            fd: what.clone(),
            interest: Cell::new(interest),
            is_pollable,
            is_ready: Cell::new(!is_pollable),
            node: self.node.clone(),
        };
        if at == slots.len() {
            slots.push(Some(slot));
        } else {
            slots[at] = Some(slot);
        }
        let mut fired = self.node.fired.borrow_mut();
        let room = slots.len().saturating_sub(fired.len());
        fired.reserve(room);
        if !is_pollable {
            fired.push(at);
            self.node.is_woken.set(true);
        }
        drop((slots, fired));
        Ok(Watched { what, at, descriptors: self.clone() })
    }

    /// Returns whether a descriptor was reported ready since the node last waited.
    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.node.is_woken.get()
    }

    /// The node waits: re-arms the descriptors that were reported.
    #[inline]
    pub(crate) fn wait_again(&self) {
        self.node.is_woken.set(false);
        let mut fired = self.node.fired.borrow_mut();
        if fired.is_empty() {
            return;
        }
        let slots = self.poller.slots.borrow();
        fired.retain(|at| {
            let Some(slot) = slots.get(*at).and_then(Option::as_ref) else { return false };
            let is_waited_for = slot.interest.get() == Interest::Nothing || self.poller.rearm(*at, slot);
            // For a descriptor that cannot be polled, only the next read tells.
            if !is_waited_for {
                self.node.is_woken.set(true);
            }
            slot.is_ready.set(!is_waited_for || slot.interest.get() == Interest::Nothing);
            slot.is_ready.get()
        });
    }
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptors").field("is_woken", &self.is_woken()).finish_non_exhaustive()
    }
}

/// An object with a descriptor that a node waits for. Dropping it unregisters the descriptor and
/// drops the object.
pub struct Watched<T: AsFd + 'static> {
    what: Rc<T>,
    at: usize,
    descriptors: Descriptors,
}

impl<T: AsFd + 'static> Watched<T> {
    /// Returns whether the kernel has reported it ready, or an error, since the source last
    /// returned [`Next::WhenReady`](crate::node::Next::WhenReady), or since the last
    /// [`Sink::progress`](crate::node::Sink::progress). With many descriptors it tells which ones
    /// to try.
    pub fn is_ready(&self) -> bool {
        let slots = self.descriptors.poller.slots.borrow();
        slots.get(self.at).and_then(Option::as_ref).is_some_and(|slot| slot.is_ready.get())
    }

    /// Changes the events to wait for.
    pub fn set_interest(&self, interest: Interest) {
        let Descriptors { poller, node } = &self.descriptors;
        let slots = poller.slots.borrow();
        let Some(slot) = slots.get(self.at).and_then(Option::as_ref) else { return };
        if slot.interest.replace(interest) == interest || slot.is_ready.get() {
            // A reported descriptor is re-armed when the node waits.
            return;
        }
        if !poller.rearm(self.at, slot) {
            slot.is_ready.set(true);
            node.fired.borrow_mut().push(self.at);
            node.is_woken.set(true);
        }
    }
}

impl<T: AsFd + 'static> Deref for Watched<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.what
    }
}

impl<T: AsFd + fmt::Debug + 'static> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.what).finish()
    }
}

impl<T: AsFd + 'static> Drop for Watched<T> {
    fn drop(&mut self) {
        let Descriptors { poller, node } = &self.descriptors;
        let slot = poller.slots.borrow_mut().get_mut(self.at).and_then(Option::take);
        node.fired.borrow_mut().retain(|at| *at != self.at);
        if let (Some(slot), Some(kernel)) = (slot, poller.kernel.get())
            && slot.is_pollable
        {
            // A descriptor that was closed is already unregistered.
            let _ = kernel.epoll.delete(&*slot.fd);
        }
    }
}

/// A registered descriptor.
struct DescriptorSlot {
    fd: Rc<dyn AsFd>,
    interest: Cell<Interest>,
    is_pollable: bool,
    /// Reported, and not re-armed until its node waits again.
    is_ready: Cell<bool>,
    node: Rc<Waiting>,
}

/// Event data of the bell and the timer; other values are slots.
const BELL: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
/// The maximum number of events reported by one call; the next call reports the others.
const MAX_EVENTS: usize = 32;

/// The descriptors of all nodes of a worker, or of all workers that one thread turns.
pub(crate) struct Poller {
    bells: Vec<Arc<Bell>>,
    kernel: OnceCell<Rc<Kernel>>,
    slots: RefCell<Vec<Option<DescriptorSlot>>>,
    /// When it was last polled, ns.
    asked: Cell<u64>,
    /// How many ready events there were so far.
    wakes: Cell<u64>,
}

/// The kernel objects of a poller.
pub(crate) struct Kernel {
    epoll: Epoll,
    timer: TimerFd,
    /// The timer's expiration, ns; `u64::MAX` if it is not set.
    due: Cell<u64>,
}

impl AsFd for Kernel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl Kernel {
    /// Sets the timer, if it changes.
    pub(crate) fn set_timer(&self, due: u64) -> io::Result<()> {
        if self.due.get() == due {
            return Ok(());
        }
        if due == u64::MAX {
            self.timer.unset()?;
        } else {
            // Zero would disarm it.
            let due = TimeSpec::from_duration(Duration::from_nanos(due.max(1)));
            self.timer.set(Expiration::OneShot(due), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        }
        self.due.set(due);
        Ok(())
    }
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PollResult {
    descriptor: bool,
    timer: bool,
}

impl Poller {
    /// Creates a poller for one or several workers with these bells. Makes no system call yet.
    pub(crate) fn new(bells: Vec<Arc<Bell>>) -> Rc<Self> {
        Rc::new(Poller {
            bells,
            kernel: OnceCell::new(),
            slots: RefCell::default(),
            asked: Cell::new(0),
            wakes: Cell::new(0),
        })
    }

    /// Returns whether a descriptor was ever registered, so that the worker sleeps here.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.kernel.get().is_some()
    }

    /// Returns whether any descriptor is registered at the moment.
    pub(crate) fn has_descriptors(&self) -> bool {
        self.slots.borrow().iter().any(Option::is_some)
    }

    /// Returns how many ready events there were so far.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.get()
    }

    /// Returns the kernel objects; creates them on first use.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn kernel(&self) -> io::Result<Rc<Kernel>> {
        if let Some(kernel) = self.kernel.get() {
            return Ok(kernel.clone());
        }
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        let event = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        // Edge-triggered: each write wakes once, and the eventfd is never read.
        epoll.add(&*event, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, BELL))?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        for bell in &self.bells {
            let event = event.clone();
            // Fails only after 2^64 unread wake-ups.
            bell.wake_by(Box::new(move || _ = event.write(1)));
        }
        let kernel = Rc::new(Kernel { epoll, timer, due: Cell::new(u64::MAX) });
        let _ = self.kernel.set(kernel.clone());
        Ok(kernel)
    }

    /// Re-arms a descriptor; returns false if it cannot be polled.
    fn rearm(&self, at: usize, slot: &DescriptorSlot) -> bool {
        let Some(kernel) = self.kernel.get().filter(|_| slot.is_pollable) else { return false };
        kernel.epoll.modify(&*slot.fd, &mut EpollEvent::new(slot.interest.get().flags(), at as u64)).is_ok()
    }

    /// Collects ready events, waiting up to `timeout`. A signal ends the wait.
    fn collect(&self, kernel: &Kernel, timeout: EpollTimeout) -> PollResult {
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        let n = kernel.epoll.wait(&mut events, timeout).unwrap_or(0);
        let mut found = PollResult::default();
        let slots = self.slots.borrow();
        for event in events.iter().take(n) {
            match event.data() {
                BELL => {}
                TIMER => found.timer = true,
                at => {
                    let Some(slot) = slots.get(at as usize).and_then(Option::as_ref) else { continue };
                    found.descriptor = true;
                    self.wakes.set(self.wakes.get() + 1);
                    slot.node.is_woken.set(true);
                    if !slot.is_ready.replace(true) {
                        slot.node.fired.borrow_mut().push(at as usize);
                    }
                }
            }
        }
        found
    }

    /// Polls without waiting, unless it did so within the last `every` ns. Returns whether a
    /// descriptor is ready.
    pub(crate) fn ask(&self, now: u64, every: u64) -> bool {
        let Some(kernel) = self.kernel.get() else { return false };
        if now.saturating_sub(self.asked.get()) < every {
            return false;
        }
        self.asked.set(now);
        self.collect(kernel, EpollTimeout::ZERO).descriptor
    }

    /// Polls without waiting. Returns whether a descriptor is ready.
    pub(crate) fn look(&self) -> bool {
        self.kernel.get().is_some_and(|kernel| self.collect(kernel, EpollTimeout::ZERO).descriptor)
    }

    /// Sleeps until a bell is rung, a descriptor is ready, or a time of `CLOCK_MONOTONIC` has come,
    /// ns. The caller has armed the bells; they are disarmed on return.
    pub(crate) fn sleep(&self, until: u64) {
        let Some(kernel) = self.kernel.get() else { return };
        // An earlier write to the eventfd may end a wait early, so the state decides.
        while self.bells.iter().all(|bell| bell.is_armed()) {
            // If the timer cannot be set, wait briefly; the sleeper then checks again.
            let timeout = if kernel.set_timer(until).is_ok() { EpollTimeout::NONE } else { EpollTimeout::from(1u8) };
            let found = self.collect(kernel, timeout);
            if found.descriptor || found.timer || timeout != EpollTimeout::NONE {
                break;
            }
        }
        self.bells.iter().for_each(|bell| bell.disarm());
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("is_used", &self.is_used()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn pair() -> (UnixStream, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (near, far)
    }

    fn poller() -> Rc<Poller> {
        Poller::new(vec![Arc::default()])
    }

    /// Promise (descriptors): A ready descriptor wakes its source once, and again only after the
    /// source waits again.
    #[test]
    fn a_ready_descriptor_wakes_its_node_once_until_it_waits_again() {
        let poller = poller();
        let (a, b) = (Descriptors::new(poller.clone()), Descriptors::new(poller.clone()));
        assert!(!poller.is_used() && !poller.look());
        let (near, mut far) = pair();
        let (other, _quiet) = pair();
        let near = a.watch(near, Interest::Read).unwrap();
        let other = b.watch(other, Interest::Read).unwrap();
        assert!(!poller.look() && !a.is_woken());
        far.write_all(b"xy").unwrap();
        assert!(poller.look() && a.is_woken() && near.is_ready());
        assert!(!b.is_woken() && !other.is_ready());
        // Reported once, however often it is polled.
        assert!(!poller.look() && a.is_woken());
        // Unread data is reported again.
        (&*near).read_exact(&mut [0]).unwrap();
        a.wait_again();
        assert!(!a.is_woken() && !near.is_ready());
        assert!(poller.look() && a.is_woken());
        (&*near).read_exact(&mut [0]).unwrap();
        a.wait_again();
        assert!(!poller.look());
        // The end of the stream counts as readable.
        drop(far);
        assert!(poller.look() && a.is_woken());
        drop((near, other));
        assert!(!poller.has_descriptors());
    }

    /// Promise (descriptors): A descriptor without interest causes no wake-up.
    #[test]
    fn interest_can_change_and_no_interest_causes_no_wake_up() {
        let poller = poller();
        let a = Descriptors::new(poller.clone());
        let (near, mut far) = pair();
        let near = a.watch(near, Interest::Write).unwrap();
        assert!(poller.look() && a.is_woken());
        near.set_interest(Interest::Nothing);
        a.wait_again();
        far.write_all(b"x").unwrap();
        assert!(!poller.look() && !a.is_woken());
        near.set_interest(Interest::Read);
        a.wait_again();
        assert!(poller.look() && a.is_woken());
        a.wait_again();
        near.set_interest(Interest::Both);
        assert!(poller.look() && a.is_woken());
    }

    #[test]
    fn slots_are_reused_and_a_second_registration_is_refused() {
        let poller = poller();
        let a = Descriptors::new(poller.clone());
        let mut far = Vec::new();
        for _ in 0..3 {
            let mut near = Vec::new();
            for _ in 0..100 {
                let (one, other) = pair();
                near.push(a.watch(one, Interest::Read).unwrap());
                far.push(other);
            }
            far.iter_mut().rev().take(100).for_each(|far| far.write_all(b"x").unwrap());
            // More than one call can report.
            while poller.look() {}
            assert!(near.iter().all(Watched::is_ready));
            drop(near);
        }
        assert_eq!(poller.slots.borrow().len(), 100);
        a.wait_again();
        assert!(!poller.look() && !a.is_woken());
        let near = Rc::new(pair().0);
        let held = a.watch(near.clone(), Interest::Read).unwrap();
        assert!(a.watch(near, Interest::Read).is_err());
        drop(held);
    }

    /// Promise (descriptors): A regular file is always ready.
    #[test]
    fn a_regular_file_is_always_ready() {
        let poller = poller();
        let a = Descriptors::new(poller.clone());
        let file = a.watch(File::open("/proc/self/exe").unwrap(), Interest::Read).unwrap();
        for _ in 0..3 {
            assert!(a.is_woken() && file.is_ready());
            a.wait_again();
        }
        drop(file);
        a.wait_again();
        assert!(!a.is_woken());
    }

    /// Promise (descriptors): A wait for descriptors ends with a bell, a ready descriptor or a
    /// timeout.
    #[test]
    fn a_sleeper_is_woken_by_a_bell_a_descriptor_or_a_time() {
        let bell: Arc<Bell> = Arc::default();
        let poller = Poller::new(vec![bell.clone()]);
        let a = Descriptors::new(poller.clone());
        let (near, mut far) = pair();
        let _near = a.watch(near, Interest::Read).unwrap();
        let now = || crate::host::clock::Clock::Monotonic.now().0;
        // Rung before it sleeps, and while it sleeps.
        bell.arm();
        bell.ring();
        poller.sleep(u64::MAX);
        bell.arm();
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            poller.sleep(u64::MAX);
        });
        // A timer: not before its time.
        bell.arm();
        let due = now() + 3_000_000;
        poller.sleep(due);
        assert!(now() >= due && !bell.is_armed() && !a.is_woken());
        bell.arm();
        far.write_all(b"x").unwrap();
        poller.sleep(u64::MAX);
        assert!(a.is_woken() && !bell.is_armed());
    }
}
