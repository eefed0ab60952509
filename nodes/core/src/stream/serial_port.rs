//! The serial device behind the `serial` source and the `serial` sink.

use super::OnClose;
use super::removable::Removable;
use limen::node::{Building, Descriptors, Interest, Next, NodeError, PlanErrors, Watched};
use limen::{Folders, Time};
use nix::sys::termios::{
    BaudRate, ControlFlags, FlushArg, SetArg, cfmakeraw, cfsetspeed, tcflush, tcgetattr, tcsetattr,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The supported speeds in bits per second.
const SPEEDS: [(u32, BaudRate); 18] = [
    (1_200, BaudRate::B1200),
    (2_400, BaudRate::B2400),
    (4_800, BaudRate::B4800),
    (9_600, BaudRate::B9600),
    (19_200, BaudRate::B19200),
    (38_400, BaudRate::B38400),
    (57_600, BaudRate::B57600),
    (115_200, BaudRate::B115200),
    (230_400, BaudRate::B230400),
    (460_800, BaudRate::B460800),
    (500_000, BaudRate::B500000),
    (576_000, BaudRate::B576000),
    (921_600, BaudRate::B921600),
    (1_000_000, BaudRate::B1000000),
    (1_500_000, BaudRate::B1500000),
    (2_000_000, BaudRate::B2000000),
    (3_000_000, BaudRate::B3000000),
    (4_000_000, BaudRate::B4000000),
];

fn speed(baud: u32) -> Option<BaudRate> {
    SPEEDS.iter().find(|(n, _)| *n == baud).map(|(_, speed)| *speed)
}

/// A device that is opened when the graph starts, and reopened after it was unplugged.
#[derive(Debug)]
pub(crate) struct SerialPort {
    device: SerialDevice,
    file: Removable<Watched<File>>,
}

/// How a device is opened.
#[derive(Debug)]
struct SerialDevice {
    path: String,
    folders: Folders,
    baud: u32,
    /// What the worker waits for after the device was opened.
    interest: Interest,
    descriptors: Descriptors,
}

impl SerialPort {
    /// Opens the device of a config while a node is built.
    pub(crate) fn open(path: &str, baud: u32, interest: Interest, cx: &Building<'_>) -> Result<Self, NodeError> {
        let folders = cx.folders().clone();
        folders.input(path).map_err(|why| NodeError::input(path, why))?;
        let device = SerialDevice { path: path.into(), folders, baud, interest, descriptors: cx.descriptors() };
        let file = device.open().map_err(|error| NodeError::file(device.folders.graph.join(path), error))?;
        Ok(SerialPort { device, file: Removable::new(file, cx) })
    }

    /// The open device; `None` while it is gone.
    pub(crate) fn file(&self) -> Option<&Watched<File>> {
        self.file.get()
    }

    /// Closes the device because it is gone.
    pub(crate) fn close(&mut self, now: Time, why: impl Into<String>) {
        self.file.count_disconnect(why);
        self.file.close(now);
    }

    /// Records that the device works, so that it is retried soon the next time it is gone.
    pub(crate) fn works(&mut self) {
        self.file.works();
    }

    /// Reopens a device that is gone, if a retry is due. Returns whether it was reopened.
    pub(crate) fn reopen(&mut self, now: Time) -> bool {
        self.file.reopen(now, || self.device.open())
    }

    /// Reopens the device of a source that is gone. Returns what the source does meanwhile; `None`
    /// if it was reopened.
    pub(crate) fn come_back(&mut self, on_close: OnClose, now: Time) -> Option<Next> {
        self.file.come_back(on_close, now, || self.device.open())
    }

    /// When the next attempt to reopen is due.
    pub(crate) fn due(&self) -> Time {
        self.file.due()
    }
}

impl SerialDevice {
    /// Opens the device: raw bytes, 8 bits, no parity, one stop bit, no flow control, not as a
    /// controlling terminal.
    fn open(&self) -> io::Result<Watched<File>> {
        let file = self.folders.open_device(&self.path)?;
        let mut settings = tcgetattr(&file)?;
        cfmakeraw(&mut settings);
        settings.control_flags |= ControlFlags::CREAD | ControlFlags::CLOCAL;
        settings.control_flags.remove(ControlFlags::CSTOPB | ControlFlags::CRTSCTS);
        cfsetspeed(&mut settings, speed(self.baud).ok_or(io::ErrorKind::InvalidInput)?)?;
        tcsetattr(&file, SetArg::TCSANOW, &settings)?;
        // Bytes received before the device was opened are at best the end of a message.
        tcflush(&file, FlushArg::TCIFLUSH)?;
        self.descriptors.watch(file, self.interest)
    }
}

fn is_device(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.file_type().is_char_device() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a serial device"))
}

/// Checks device and speed while planning and returns the device's canonical path. A missing device
/// is not an error: it may be plugged in before the graph starts.
pub(crate) fn check(device: &str, baud: u32, folders: &Folders, errors: &mut PlanErrors) -> Option<PathBuf> {
    if speed(baud).is_none() {
        let known: Vec<String> = SPEEDS.iter().map(|(n, _)| n.to_string()).collect();
        errors
            .at("baud", format!("`baud` must be a supported speed, got {baud}"))
            .help(format!("write one of {}", known.join(", ")));
    }
    let path = match folders.input(device) {
        Ok(path) => path,
        Err(message) => {
            let other = "write the path of a serial device, such as `/dev/ttyUSB0`";
            let (message, help) = message.rsplit_once(": ").unwrap_or((message.as_str(), other));
            errors.at("path", message).help(help);
            return None;
        }
    };
    match is_device(&path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            errors
                .at("path", format!("`{device}` is not a serial device"))
                .help("write the path of a serial device, such as `/dev/ttyUSB0`");
        }
        _ => {}
    }
    Some(path.canonicalize().unwrap_or(path))
}
