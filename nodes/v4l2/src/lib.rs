//! Cameras of Linux, through Video4Linux2: their modes, and frames from buffers that the driver
//! fills.
//!
//! The interface: <https://docs.kernel.org/userspace-api/media/v4l/v4l2.html>. Only single-planar
//! capture into buffers that the driver allocates and this process maps (`MMAP`), the way that
//! every camera driver supports.
//!
//! ```no_run
//! use limen_v4l2::{Camera, FourCc};
//! let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/video0")?;
//! let mut camera = Camera::new(file.into())?;
//! let format = camera.try_format(640, 480, FourCc::YUYV)?;
//! camera.start(&format, None, 4)?;
//! let frame = camera.next_frame()?;
//! # std::io::Result::Ok(())
//! ```

mod kernel;

use kernel::{CAPTURE, KernelBuffer, KernelFormat, MEMORY_MMAP, PixFormat};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

/// The most formats, sizes and rates that are listed of a camera.
const MAX_LISTED: u32 = 64;
/// The most bytes of a frame.
const MAX_FRAME: usize = 1 << 30;

/// The code of a format of pixels: four letters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FourCc(pub u32);

impl FourCc {
    /// Two pixels in four bytes: Y, U, Y, V.
    pub const YUYV: FourCc = FourCc::new(*b"YUYV");
    /// A plane of Y, then one of U and V in turn, each for four pixels.
    pub const NV12: FourCc = FourCc::new(*b"NV12");
    /// A JPEG file for each frame.
    pub const MJPEG: FourCc = FourCc::new(*b"MJPG");
    /// One byte of brightness for each pixel.
    pub const GREY: FourCc = FourCc::new(*b"GREY");
    /// Red, green, blue.
    pub const RGB24: FourCc = FourCc::new(*b"RGB3");
    /// Blue, green, red.
    pub const BGR24: FourCc = FourCc::new(*b"BGR3");

    /// Makes a code of its letters.
    pub const fn new(letters: [u8; 4]) -> FourCc {
        FourCc(u32::from_le_bytes(letters))
    }
}

impl fmt::Display for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.to_le_bytes().iter().try_for_each(|letter| fmt::Write::write_char(f, printable(*letter)))
    }
}

impl fmt::Debug for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn printable(letter: u8) -> char {
    if letter.is_ascii_graphic() || letter == b' ' { char::from(letter) } else { '?' }
}

/// A mode in which a camera delivers frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFormat {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// The format of the pixels.
    pub pixels: FourCc,
    /// Bytes from a row to the next, of the first plane.
    pub stride: usize,
    /// Bytes of a frame at most.
    pub bytes: usize,
    /// How brightness and colour become red, green and blue.
    pub colour: YuvColour,
}

/// How the luma and chroma of a frame are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct YuvColour {
    /// By ITU-R BT.709 instead of BT.601.
    pub is_709: bool,
    /// Luma from 0 to 255 instead of 16 to 235.
    pub is_full_range: bool,
}

impl YuvColour {
    /// By the defaults of the interface, if the driver leaves something open.
    fn of(pix: &PixFormat) -> Self {
        const JPEG: u32 = 7;
        const REC709: u32 = 3;
        let is_709 = pix.ycbcr_encoding == 2 || (pix.ycbcr_encoding == 0 && pix.colorspace == REC709);
        let is_full_range = pix.quantization == 1 || (pix.quantization == 0 && pix.colorspace == JPEG);
        YuvColour { is_709, is_full_range }
    }
}

impl FrameFormat {
    fn of(pix: &PixFormat) -> io::Result<FrameFormat> {
        let format = FrameFormat {
            width: pix.width as usize,
            height: pix.height as usize,
            pixels: FourCc(pix.pixel_format),
            stride: pix.bytes_per_line as usize,
            bytes: pix.size_image as usize,
            colour: YuvColour::of(pix),
        };
        if format.bytes == 0 || format.bytes > MAX_FRAME || format.width == 0 || format.height == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the driver reports an invalid frame format: {format:?}"),
            ));
        }
        Ok(format)
    }
}

/// A frame, until it is dropped: then the driver may fill its buffer again.
pub struct Frame<'a> {
    bytes: &'a [u8],
    fd: BorrowedFd<'a>,
    index: u32,
    /// When it was taken, by `CLOCK_MONOTONIC` or by another clock; `None` if the driver does not
    /// say.
    pub time: Option<Duration>,
    /// Whether the clock is `CLOCK_MONOTONIC`.
    pub is_monotonic: bool,
    /// Its number, counted by the driver; numbers are missing where frames were lost.
    pub sequence: u32,
    /// Whether the driver says that its content is damaged.
    pub is_damaged: bool,
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("bytes", &self.bytes.len())
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl Deref for Frame<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        // If it fails, the device is gone, and the next call says so.
        let _ = queue(self.fd.as_raw_fd(), self.index);
    }
}

/// A size in which a camera delivers a format.
#[derive(Clone, Debug, PartialEq)]
pub struct Mode {
    /// The format of the pixels.
    pub pixels: FourCc,
    /// Width and height; the greatest, if any size between two is possible.
    pub size: (usize, usize),
    /// The least size, if any between is possible.
    pub least: Option<(usize, usize)>,
    /// Frames per second; the greatest rates first.
    pub rates: Vec<f64>,
}

/// A mapped buffer.
struct Mapping {
    start: NonNull<c_void>,
    length: NonZeroUsize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length by `Mapping::new`, and slices of it borrow the
        // camera that owns it.
        let _ = unsafe { munmap(self.start, self.length.get()) };
    }
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, buffer: &KernelBuffer) -> io::Result<Mapping> {
        let length = NonZeroUsize::new(buffer.length as usize).ok_or(io::ErrorKind::InvalidData)?;
        // The kernel gives 32 bits, and an offset that does not fit is refused by the mapping.
        let offset = buffer.offset as u32 as nix::libc::off_t;
        // SAFETY: a new mapping at a place that the kernel chooses; it overlaps nothing.
        let start = unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, fd, offset) }?;
        Ok(Mapping { start, length })
    }
}

/// An open camera that delivers frames of one format.
pub struct Camera {
    /// Dropped before the file.
    buffers: Vec<Mapping>,
    fd: OwnedFd,
    name: String,
}

impl fmt::Debug for Camera {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Camera").field("name", &self.name).field("buffers", &self.buffers.len()).finish_non_exhaustive()
    }
}

/// Text of the kernel, up to its first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes[..end].iter().map(|letter| printable(*letter)).collect()
}

/// A structure of the kernel that is all zeros.
macro_rules! zeroed {
    ($type:ty) => {
        // SAFETY: the structures of `kernel` consist of integers, for which zeros are a value.
        unsafe { std::mem::zeroed::<$type>() }
    };
}

/// Makes a call again that was interrupted.
fn retry(mut call: impl FnMut() -> nix::Result<nix::libc::c_int>) -> io::Result<()> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result.map(|_| ()).map_err(io::Error::from),
        }
    }
}

fn queue(fd: RawFd, index: u32) -> io::Result<()> {
    let mut buffer = KernelBuffer { index, kind: CAPTURE, memory: MEMORY_MMAP, ..zeroed!(KernelBuffer) };
    // SAFETY: the structure has the kernel's layout (asserted in `kernel`) and lives during the
    // call.
    retry(|| unsafe { kernel::queue_buffer(fd, &mut buffer) })
}

impl Camera {
    /// Takes an open device. With `O_NONBLOCK`, [`Camera::next_frame`] does not wait; to wait for
    /// frames among other things, give it a duplicate of the descriptor and wait for the other
    /// until it is readable.
    ///
    /// # Errors
    /// The system's; `InvalidInput` if it is no camera that streams.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let raw = fd.as_raw_fd();
        let mut found = zeroed!(kernel::Capability);
        // SAFETY: the structure has the kernel's layout and lives during the call.
        retry(|| unsafe { kernel::query_capability(raw, &mut found) })?;
        let has_own = found.capabilities & kernel::CAP_DEVICE_CAPS != 0;
        let capabilities = if has_own { found.device_caps } else { found.capabilities };
        let needed = kernel::CAP_CAPTURE | kernel::CAP_STREAMING;
        if capabilities & needed != needed {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "expected a camera that streams frames, found another video device",
            ));
        }
        Ok(Camera { buffers: Vec::new(), fd, name: text(&found.card) })
    }

    /// Returns what the driver calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Returns the modes that it announces, at most 64 formats with 64 sizes each.
    pub fn modes(&self) -> Vec<Mode> {
        let fd = self.fd();
        let mut modes = Vec::new();
        for index in 0..MAX_LISTED {
            let mut format = kernel::FormatDescription { index, kind: CAPTURE, ..zeroed!(kernel::FormatDescription) };
            // SAFETY: the structure has the kernel's layout and lives during the call.
            if retry(|| unsafe { kernel::enumerate_formats(fd, &mut format) }).is_err() {
                break;
            }
            for index in 0..MAX_LISTED {
                let pixel_format = format.pixel_format;
                let mut size = kernel::FrameSize { index, pixel_format, ..zeroed!(kernel::FrameSize) };
                // SAFETY: as above.
                if retry(|| unsafe { kernel::enumerate_sizes(fd, &mut size) }).is_err() {
                    break;
                }
                let [a, b, _, c, d, _] = size.sizes.map(|n| n as usize);
                let is_discrete = size.kind == kernel::SIZE_DISCRETE;
                let (size, least) = if is_discrete { ((a, b), None) } else { ((b, d), Some((a, c))) };
                let rates = self.rates(pixel_format, size);
                modes.push(Mode { pixels: FourCc(pixel_format), size, least, rates });
                if !is_discrete {
                    break;
                }
            }
        }
        modes
    }

    fn rates(&self, pixel_format: u32, (width, height): (usize, usize)) -> Vec<f64> {
        let fd = self.fd();
        let (width, height) = (width as u32, height as u32);
        let mut rates = Vec::new();
        for index in 0..MAX_LISTED {
            let zeroed = zeroed!(kernel::FrameInterval);
            let mut found = kernel::FrameInterval { index, pixel_format, width, height, ..zeroed };
            // SAFETY: the structure has the kernel's layout and lives during the call.
            if retry(|| unsafe { kernel::enumerate_intervals(fd, &mut found) }).is_err() {
                break;
            }
            let kernel::Fraction { numerator, denominator } = found.intervals[0];
            if numerator > 0 {
                rates.push(f64::from(denominator) / f64::from(numerator));
            }
            if found.kind != kernel::SIZE_DISCRETE {
                break;
            }
        }
        rates.sort_by(|a, b| b.total_cmp(a));
        rates
    }

    fn kernel_format(width: usize, height: usize, pixels: FourCc) -> io::Result<KernelFormat> {
        let size = |n: usize| u32::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
        let mut format = KernelFormat { kind: CAPTURE, ..zeroed!(KernelFormat) };
        (format.pix.width, format.pix.height) = (size(width)?, size(height)?);
        (format.pix.pixel_format, format.pix.field) = (pixels.0, kernel::FIELD_NONE);
        Ok(format)
    }

    /// Returns the mode that the camera has now.
    ///
    /// # Errors
    /// The system's.
    pub fn format(&self) -> io::Result<FrameFormat> {
        let fd = self.fd();
        let mut format = KernelFormat { kind: CAPTURE, ..zeroed!(KernelFormat) };
        // SAFETY: the structure has the kernel's layout and lives during the call.
        retry(|| unsafe { kernel::get_format(fd, &mut format) })?;
        FrameFormat::of(&format.pix)
    }

    /// Returns the mode that is nearest to one, without setting it.
    ///
    /// # Errors
    /// The system's.
    pub fn try_format(&self, width: usize, height: usize, pixels: FourCc) -> io::Result<FrameFormat> {
        let fd = self.fd();
        let mut format = Self::kernel_format(width, height, pixels)?;
        // SAFETY: the structure has the kernel's layout and lives during the call.
        retry(|| unsafe { kernel::try_format(fd, &mut format) })?;
        FrameFormat::of(&format.pix)
    }

    /// Sets a mode and begins to deliver frames into so many buffers. `interval` is the time from a
    /// frame to the next; without it, or if the camera cannot choose, it stays what it is. Returns
    /// the mode and the number of buffers.
    ///
    /// # Errors
    /// The system's; `InvalidInput` if the driver sets another mode; `AlreadyExists` if it has been
    /// started.
    pub fn start(
        &mut self,
        format: &FrameFormat,
        interval: Option<Duration>,
        buffers: u32,
    ) -> io::Result<(FrameFormat, usize)> {
        if !self.buffers.is_empty() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let fd = self.fd();
        let mut set = Self::kernel_format(format.width, format.height, format.pixels)?;
        // SAFETY: the structure has the kernel's layout and lives during the call.
        retry(|| unsafe { kernel::set_format(fd, &mut set) })?;
        let now = FrameFormat::of(&set.pix)?;
        if (now.width, now.height, now.pixels) != (format.width, format.height, format.pixels) {
            let why = format!("the camera now delivers {} × {} {}", now.width, now.height, now.pixels);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if let Some(interval) = interval {
            let mut parameters = kernel::StreamParameters { kind: CAPTURE, ..zeroed!(kernel::StreamParameters) };
            parameters.time_per_frame = fraction(interval);
            // SAFETY: as above.
            // A camera that has one rate need not know the call.
            let _ = retry(|| unsafe { kernel::set_parameters(fd, &mut parameters) });
        }
        let zeroed = zeroed!(kernel::RequestBuffers);
        let mut request = kernel::RequestBuffers { count: buffers, kind: CAPTURE, memory: MEMORY_MMAP, ..zeroed };
        // SAFETY: as above.
        retry(|| unsafe { kernel::request_buffers(fd, &mut request) })?;
        let mut mapped = Vec::new();
        for index in 0..request.count {
            let mut buffer = KernelBuffer { index, kind: CAPTURE, memory: MEMORY_MMAP, ..zeroed!(KernelBuffer) };
            // SAFETY: as above.
            retry(|| unsafe { kernel::query_buffer(fd, &mut buffer) })?;
            mapped.push(Mapping::new(self.fd.as_fd(), &buffer)?);
            queue(fd, index)?;
        }
        self.buffers = mapped;
        let kind = CAPTURE as nix::libc::c_int;
        // SAFETY: the number lives during the call.
        retry(|| unsafe { kernel::stream_on(fd, &kind) })?;
        Ok((now, self.buffers.len()))
    }

    /// Takes the oldest frame that is ready from the driver.
    fn dequeue(&mut self) -> io::Result<Option<KernelBuffer>> {
        let fd = self.fd();
        let mut buffer = KernelBuffer { kind: CAPTURE, memory: MEMORY_MMAP, ..zeroed!(KernelBuffer) };
        // SAFETY: the structure has the kernel's layout and lives during the call.
        match retry(|| unsafe { kernel::dequeue_buffer(fd, &mut buffer) }) {
            Ok(()) => Ok(Some(buffer)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn frame(&mut self, buffer: &KernelBuffer) -> io::Result<Frame<'_>> {
        let mapping = self.buffers.get(buffer.index as usize).ok_or(io::ErrorKind::InvalidData)?;
        let used = (buffer.bytes_used as usize).min(mapping.length.get());
        // SAFETY: the mapping is readable for its whole length and lives as long as the camera,
        // which the frame borrows. The driver writes into a buffer only while it is queued; this
        // one is queued again when the frame is dropped, and the camera hands out no second frame
        // while one lives.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.start.as_ptr().cast::<u8>(), used) };
        let is_monotonic = buffer.flags & kernel::FLAG_TIMESTAMP_MASK == kernel::FLAG_TIMESTAMP_MONOTONIC;
        let seconds = u64::try_from(buffer.timestamp.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(buffer.timestamp.tv_usec).unwrap_or(0).saturating_mul(1000).min(999_999_999);
        Ok(Frame {
            bytes,
            fd: self.fd.as_fd(),
            index: buffer.index,
            time: Some(Duration::new(seconds, nanos)).filter(|time| !time.is_zero()),
            is_monotonic,
            sequence: buffer.sequence,
            is_damaged: buffer.flags & kernel::FLAG_ERROR != 0,
        })
    }

    /// Returns the oldest frame that is ready; `None` if none is. Waits for one if the file blocks.
    ///
    /// # Errors
    /// The system's: `ENODEV` if it was unplugged.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame<'_>>> {
        match self.dequeue()? {
            Some(buffer) => self.frame(&buffer).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the newest frame that is ready, and how many older ones were passed over; `None` if
    /// none is ready. The file must not block.
    ///
    /// # Errors
    /// As [`Camera::next_frame`].
    pub fn latest_frame(&mut self) -> io::Result<Option<(Frame<'_>, u32)>> {
        let Some(mut latest) = self.dequeue()? else { return Ok(None) };
        let mut passed = 0;
        // The driver cannot fill more buffers than there are while these are taken, but it fills
        // those that are given back.
        while passed < self.buffers.len() as u32
            && let Some(newer) = self.dequeue()?
        {
            queue(self.fd(), latest.index)?;
            (latest, passed) = (newer, passed + 1);
        }
        self.frame(&latest).map(|frame| Some((frame, passed)))
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        if !self.buffers.is_empty() {
            let (fd, kind) = (self.fd(), CAPTURE as nix::libc::c_int);
            // SAFETY: the number lives during the call. If it fails, closing the file ends the
            // stream.
            let _ = retry(|| unsafe { kernel::stream_off(fd, &kind) });
        }
    }
}

/// The time of a frame as a fraction, to the thousandth of a hertz: a driver that is asked for a
/// little less than the thirtieth of a second takes its next faster rate.
fn fraction(interval: Duration) -> kernel::Fraction {
    let millihertz = (1e12 / interval.as_nanos().max(1) as f64).round();
    // The cast saturates.
    kernel::Fraction { numerator: 1000, denominator: (millihertz as u32).max(1) }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests open their own files")]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_asked_for_as_it_is_written() {
        for (hertz, millihertz) in
            [(30.0, 30_000), (60.0, 60_000), (29.97, 29_970), (7.5, 7_500), (0.1, 100), (1e9, u32::MAX)]
        {
            let kernel::Fraction { numerator, denominator } = fraction(Duration::from_nanos((1e9 / hertz) as u64));
            assert_eq!((numerator, denominator), (1000, millihertz), "{hertz} Hz");
        }
    }

    #[test]
    fn codes_are_shown_by_their_letters() {
        assert_eq!(FourCc::YUYV.to_string(), "YUYV");
        assert_eq!(FourCc::YUYV.0, 0x5659_5559);
        assert_eq!(FourCc::new([b'Y', 0x1b, b'1', 0xff]).to_string(), "Y?1?");
        assert_eq!(text(b"vivid\0rest"), "vivid");
        assert_eq!(text(b"a\x1b[2J"), "a?[2J");
    }

    #[test]
    fn another_file_is_no_camera() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Camera::new(file.into()).is_err());
    }
}
