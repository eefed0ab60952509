//! Serial devices.

use limen::{Folders, NodeError, PlanErrors};
use nix::sys::termios::{
    BaudRate, ControlFlags, FlushArg, SetArg, cfmakeraw, cfsetspeed, tcflush, tcgetattr, tcsetattr,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The speeds that every system knows.
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

/// Where a device is, and how fast.
#[derive(Debug, Clone)]
pub(crate) struct Tty {
    device: String,
    folders: Folders,
    baud: u32,
}

fn speed(baud: u32) -> Option<BaudRate> {
    SPEEDS.iter().find(|(n, _)| *n == baud).map(|(_, speed)| *speed)
}

impl Tty {
    /// What a config says, for a node that is built.
    pub(crate) fn new(device: &str, baud: u32, folders: &Folders) -> Result<Self, NodeError> {
        folders.input(device).map_err(|why| NodeError::input(device, why))?;
        Ok(Tty { device: device.into(), folders: folders.clone(), baud })
    }

    /// Opens the device: raw bytes, 8 bits, no parity, one stop bit, no flow control, and nobody's controlling terminal.
    pub(crate) fn open(&self) -> io::Result<File> {
        let file = self.folders.open_device(&self.device)?;
        let mut settings = tcgetattr(&file)?;
        cfmakeraw(&mut settings);
        settings.control_flags |= ControlFlags::CREAD | ControlFlags::CLOCAL;
        settings.control_flags.remove(ControlFlags::CSTOPB | ControlFlags::CRTSCTS);
        cfsetspeed(&mut settings, speed(self.baud).ok_or(io::ErrorKind::InvalidInput)?)?;
        tcsetattr(&file, SetArg::TCSANOW, &settings)?;
        // What came before anybody listened is the end of a message at best.
        tcflush(&file, FlushArg::TCIFLUSH)?;
        Ok(file)
    }

    pub(crate) fn error(&self, error: io::Error) -> NodeError {
        NodeError::file(self.folders.graph.join(&self.device), error)
    }
}

fn is_device(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.file_type().is_char_device() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no serial device"))
}

/// Checks while planning, and gives the device's own path. A device that is not there may be plugged in before the graph
/// starts.
pub(crate) fn check(device: &str, baud: u32, folders: &Folders, errors: &mut PlanErrors) -> Option<PathBuf> {
    if speed(baud).is_none() {
        let known: Vec<String> = SPEEDS.iter().map(|(n, _)| n.to_string()).collect();
        errors
            .at("baud", format!("{baud} bits a second are no usual speed"))
            .help(format!("write one of {}", known.join(", ")));
    }
    let path = match folders.input(device) {
        Ok(path) => path,
        Err(message) => {
            errors.at("device", message).help("a graph may use devices only where the command line says so");
            return None;
        }
    };
    match is_device(&path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            errors
                .at("device", format!("`{device}` is no serial device"))
                .help("write the path of one, such as `/dev/ttyUSB0`");
        }
        _ => {}
    }
    Some(path.canonicalize().unwrap_or(path))
}
