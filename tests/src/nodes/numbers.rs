//! The source of numbers.

use super::number;
use limen::message::{DType, Dim, PortSpec};
use limen::node::{
    Building, Connected, Emit, Interest, Next, Node, NodeError, PlanErrors, Planning, Ports, Source, Watched,
};
use limen::{Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// Counts upwards from 0.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct NumbersConfig {
    /// The number of numbers; endless if absent.
    pub(crate) count: Option<u64>,
    /// The period in ns; if absent, as fast as possible.
    pub(crate) period_ns: Option<u64>,
    /// The number at which the source fails.
    pub(crate) fail_at: Option<u64>,
    /// The origin of each number, in ns after the start of the run: the sensor's clock. The origin
    /// of numbers beyond the list is the time when they are sent.
    #[serde(default)]
    pub(crate) origins: Vec<i64>,
    /// Whether it declares that its numbers may begin later than now.
    #[serde(default)]
    pub(crate) ahead: bool,
    /// The deadline of each number, in ns after its origin.
    pub(crate) deadline_ns: Option<u64>,
    /// Whether each number waits for a byte from a socket; when there is none, a few are written to
    /// the other end.
    #[serde(default)]
    pub(crate) descriptor: bool,
    /// Whether it declares a size without a bound, so that the plan is refused.
    #[serde(default)]
    pub(crate) unbounded: bool,
}

/// See [`NumbersConfig`].
#[derive(Debug)]
pub(crate) struct Numbers {
    config: NumbersConfig,
    next: u64,
    begin: Time,
    /// Both ends.
    socket: Option<(Watched<UnixStream>, UnixStream)>,
}

/// Reads the byte that a number waits for; returns whether there was one.
fn read_byte((near, far): &mut (Watched<UnixStream>, UnixStream), next: u64) -> Result<bool, NodeError> {
    match (&**near).read(&mut [0]) {
        Ok(n) => Ok(n > 0),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            far.write_all(&[0; 3][..1 + next as usize % 3]).map_err(NodeError::other)?;
            Ok(false)
        }
        Err(error) => Err(NodeError::other(error)),
    }
}

impl Node for Numbers {
    type Config = NumbersConfig;
    fn ports(config: &NumbersConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let unbounded = PortSpec::new(DType::U64, [Dim::Unbounded("longest")]);
        let ports = Ports::new().output("out", if config.unbounded { unbounded } else { number() });
        Ok(if config.ahead { ports.ahead() } else { ports })
    }
    fn build(config: NumbersConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let pair = || {
            let (near, far) = UnixStream::pair()?;
            near.set_nonblocking(true)?;
            Ok((cx.descriptors().watch(near, Interest::Read)?, far))
        };
        let socket =
            config.descriptor.then(pair).transpose().map_err(|error: std::io::Error| NodeError::other(error))?;
        Ok(Numbers { config, next: 0, begin: cx.now(), socket })
    }
}

impl Source for Numbers {
    type Out = Tensor;
    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        if self.config.count == Some(self.next) {
            return Ok(Next::Done);
        }
        let mut origin = out.now();
        if let Some(period) = self.config.period_ns {
            let due = self.begin + self.next * period;
            if due > origin {
                return Ok(Next::At(due));
            }
            origin = due;
        }
        if let Some(socket) = &mut self.socket
            && !read_byte(socket, self.next)?
        {
            return Ok(Next::WhenReady(Time::NEVER));
        }
        let n = self.next;
        self.next += 1;
        if let Some(shift) = self.config.origins.get(n as usize) {
            // The minimum stands for `Time::ZERO`, the maximum for `Time::NEVER`.
            origin = match *shift {
                i64::MIN => Time::ZERO,
                i64::MAX => Time::NEVER,
                shift => Time(self.begin.0.saturating_add_signed(shift)),
            };
        }
        if self.config.fail_at == Some(n) {
            return Err(NodeError::input("numbers", format!("{n} is the number to fail at")));
        }
        let mut header = out.header(origin);
        if let Some(deadline) = self.config.deadline_ns {
            header.deadline = origin + deadline;
        }
        let mut tensor = out.loan(&header)?;
        tensor.as_mut_slice::<u64>()?[0] = n;
        out.send(tensor);
        Ok(Next::More)
    }
}
