//! What the controller of a CAN bus reports beside frames. The layout: `linux/can/error.h`.

use super::can_frame::{ERROR, HEAD, identifier};
use limen::node::{LossCounter, Metrics};

/// Bits of an error's identifier: a state or an overflow of the controller, that it left the bus,
/// that it was started again.
const CONTROLLER: u32 = 0x4;
const BUS_OFF: u32 = 0x40;
const RESTARTED: u32 = 0x100;
/// The errors that say whether a frame can be sent.
pub(crate) const OF_STATE: u32 = CONTROLLER | BUS_OFF | RESTARTED;
/// Bits of a controller's report: a frame that it had no room for, and error-passive by received or
/// sent frames.
const RECEIVE_OVERFLOW: u8 = 0x01;
const PASSIVE: u8 = 0x30;

/// Counts of the errors of a bus.
#[derive(Debug, Clone, Default)]
pub(crate) struct BusErrors {
    reports: u64,
    passive: u64,
    off: u64,
    /// How many frames a report stands for is unknown: each counts as one.
    overflows: LossCounter,
    is_off: bool,
}

impl BusErrors {
    /// Counts frames that the controller had no room for.
    pub(crate) fn new(overflows: LossCounter) -> Self {
        BusErrors { overflows, ..BusErrors::default() }
    }

    /// Counts a frame if it reports an error. Returns whether it does.
    pub(crate) fn record(&mut self, frame: &[u8]) -> bool {
        let id = identifier(frame);
        if id & ERROR == 0 || frame.len() < HEAD {
            return false;
        }
        // The byte after the first says what the controller reports.
        let state = if id & CONTROLLER != 0 { frame.get(HEAD + 1).copied().unwrap_or(0) } else { 0 };
        self.reports += 1;
        self.passive += u64::from(state & PASSIVE != 0);
        let overflows = u64::from(state & RECEIVE_OVERFLOW != 0);
        self.overflows.lose(overflows, || "the receive buffer of the controller was full".into());
        self.off += u64::from(id & BUS_OFF != 0);
        // A controller that reports anything else has come back.
        self.is_off = id & BUS_OFF != 0;
        true
    }

    /// The interface is set up anew, with a controller on the bus. A received frame says nothing:
    /// it may be one of this machine's.
    pub(crate) fn is_back(&mut self) {
        self.is_off = false;
    }

    /// Whether the controller has left the bus.
    pub(crate) fn is_off(&self) -> bool {
        self.is_off
    }

    /// Reports that the controller left the bus, and whether it is still off it.
    pub(crate) fn report_off(&self, interface: &str, to: &mut Metrics) {
        to.set("bus_off", self.off as f64);
        if self.is_off {
            to.note(format!(
                "the controller of `{interface}` is off the bus after too many errors: check the wiring and \
                 the bit rate, then run `ip link set {interface} down` and `ip link set {interface} up`, or \
                 let the kernel restart the controller with \
                 `ip link set {interface} type can restart-ms 100`"
            ));
        }
    }

    /// Reports all counts.
    pub(crate) fn report(&self, interface: &str, to: &mut Metrics) {
        to.set("bus_errors", self.reports as f64);
        to.set("error_passive", self.passive as f64);
        self.report_off(interface, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(id: u32, data: [u8; 8]) -> Vec<u8> {
        [&(id | ERROR).to_ne_bytes()[..], &[8, 0, 0, 0], &data].concat()
    }

    /// The frames are those of the kernel's driver `slcan`.
    #[test]
    fn errors_are_counted_by_what_they_say() {
        let mut errors = BusErrors::default();
        let mut after = |frame: &[u8]| {
            let is_error = errors.record(frame);
            let BusErrors { reports, passive, off, overflows, is_off } = errors.clone();
            (is_error, [reports, passive, off, overflows.get()], is_off)
        };
        for (frame, counts, is_off) in [
            // A CRC error; one with an overflow; error-warning; error-passive; off the bus.
            (error(0x88, [0, 0, 1, 8, 0, 0, 0, 0]), [1, 0, 0, 0], false),
            (error(0x8c, [0, 1, 1, 8, 0, 0, 0, 0]), [2, 0, 0, 1], false),
            (error(0x204, [0, 8, 0, 0, 0, 0, 100, 0]), [3, 0, 0, 1], false),
            (error(0x204, [0, 0x20, 0, 0, 0, 0, 130, 0]), [4, 1, 0, 1], false),
            (error(0x40, [0; 8]), [5, 1, 1, 1], true),
            // The data of other errors means something else.
            (error(0x240, [0, 0x31, 0, 0, 0, 0, 255, 0]), [6, 1, 2, 1], true),
            (error(RESTARTED, [0; 8]), [7, 1, 2, 1], false),
        ] {
            assert_eq!(after(&frame), (true, counts, is_off), "{frame:?}");
        }
        for frame in [&b"\x23\x01\0\0\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"[..], &error(0x40, [0; 8])[..7], b""] {
            assert_eq!(after(frame), (false, [7, 1, 2, 1], false), "{frame:?}");
        }
    }
}
