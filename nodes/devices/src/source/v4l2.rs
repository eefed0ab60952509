//! Frames of cameras.

use crate::stream::device_clock::{DeviceClock, Stamp, StampClock};
use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Claim, Connected, Cost, Descriptors, DiscardCounter, Emit, Interest, LossCounter, Metrics, Next, Node,
    NodeError, PlanErrors, Planning, Ports, Source, Watched,
};
use limen::unit::{Rate, Span, show_ns};
use limen::{Folders, Tensor, Time};
use limen_nodes_core::stream::OnClose;
use limen_nodes_core::stream::removable::Removable;
use limen_v4l2::{Camera, FourCc, Frame, FrameFormat, Mode};
use limen_vision::file::image_file::Encoded;
use limen_vision::tensor::yuv::YuvToRgb;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::File;
use std::io;
use std::time::Duration;

/// Receives frames from a Linux camera (V4L2): `image` `u8[h,w,3]` in RGB, or `u8[h,w]` with
/// `format: grey`.
///
/// The device is outside the graph's folder, so the command line must contain `--allow-path /dev`.
/// The camera must be connected when limen plans the graph. With `on_close: reconnect`, the node
/// reopens the camera when the camera reappears.
///
/// The origin of a frame is the driver's timestamp, converted to run time. The node uses a
/// `CLOCK_MONOTONIC` timestamp directly. To convert timestamps of other clocks, the node uses the
/// minimum observed delay. Without a timestamp, the origin is the time when the node reads the
/// frame.
///
/// `dropped` counts frames that the camera or the driver lost. The node detects lost frames by gaps
/// in the frame numbers. If the graph is too slow, the driver has no free buffers and drops frames.
/// `damaged` counts frames that the driver marks as damaged, and frames that the node cannot decode
/// completely. `stalls` counts how often `timeout` expired. The node converts YUV with the matrix
/// (BT.601 or BT.709) and the range that the driver reports.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct V4l2Config {
    /// Device file, such as `/dev/video0`.
    pub path: String,
    /// Width in pixels. Default: the camera's current setting.
    pub width: Option<usize>,
    /// Height in pixels. Default: the camera's current setting.
    pub height: Option<usize>,
    /// Pixel format of the camera. If `width` and `height` keep the current frame size, the default
    /// is the camera's current format. Otherwise, the default is the first supported format of
    /// `rgb`, `bgr`, `yuyv`, `nv12`, `mjpeg` and `grey`.
    pub format: Option<PixelFormat>,
    /// Frames per second, such as `30Hz`. The camera uses the nearest rate that it supports.
    /// Default: the camera's current setting.
    pub rate: Option<Rate>,
    /// Number of buffers that the driver fills in turn, 2 to 32. Default: 4.
    #[serde(default = "buffers")]
    pub buffers: u32,
    /// Whether to send only the newest available frame. `superseded` counts the frames that the
    /// node skips. Default: `false`, which sends all frames.
    #[serde(default)]
    pub latest: bool,
    /// Maximum time without a frame, at least `100ms`. If the timeout expires, the node closes the
    /// camera and applies `on_close`. Default: `2s`.
    #[serde(default = "timeout")]
    pub timeout: Span,
    /// Clock that determines the origin of messages. `device` converts the driver's timestamps to
    /// run time. `run` uses the time when the node reads the message. Default: `device`.
    #[serde(default)]
    pub clock: StampClock,
    /// What to do when the camera disappears. Default: `reconnect`.
    #[serde(default)]
    pub on_close: OnClose,
}

fn buffers() -> u32 {
    4
}

fn timeout() -> Span {
    Span(Duration::from_secs(2))
}

/// Pixel format of a camera.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PixelFormat {
    /// Red, green, blue, one byte each.
    Rgb,
    /// Blue, green, red, one byte each.
    Bgr,
    /// Luma for each pixel, chroma for every two pixels of a row.
    Yuyv,
    /// One luma plane, and one chroma plane with a sample for every four pixels.
    Nv12,
    /// One JPEG image per frame.
    Mjpeg,
    /// Brightness only.
    Grey,
}

impl PixelFormat {
    const ALL: [PixelFormat; 6] = [
        PixelFormat::Rgb,
        PixelFormat::Bgr,
        PixelFormat::Yuyv,
        PixelFormat::Nv12,
        PixelFormat::Mjpeg,
        PixelFormat::Grey,
    ];

    fn code(self) -> FourCc {
        match self {
            PixelFormat::Rgb => FourCc::RGB24,
            PixelFormat::Bgr => FourCc::BGR24,
            PixelFormat::Yuyv => FourCc::YUYV,
            PixelFormat::Nv12 => FourCc::NV12,
            PixelFormat::Mjpeg => FourCc::MJPEG,
            PixelFormat::Grey => FourCc::GREY,
        }
    }

    fn of(code: FourCc) -> Option<PixelFormat> {
        PixelFormat::ALL.into_iter().find(|format| format.code() == code)
    }

    fn spec(self, height: usize, width: usize) -> PortSpec {
        match self {
            PixelFormat::Grey => PortSpec::fixed(DType::U8, [height, width]),
            _ => PortSpec::image(height, width, 3),
        }
    }

    /// Converts a frame in one pass over its pixels. Returns whether it was whole.
    fn convert(self, frame: &[u8], format: &FrameFormat, into: &mut [u8]) -> bool {
        let (width, height, stride) = (format.width, format.height, format.stride);
        let yuv = || YuvToRgb::new(format.colour.is_709, format.colour.is_full_range);
        let row = match self {
            PixelFormat::Rgb | PixelFormat::Bgr => width * 3,
            PixelFormat::Yuyv => width.next_multiple_of(2) * 2,
            // A row of chroma has both parts of each pair.
            PixelFormat::Nv12 => width.next_multiple_of(2),
            PixelFormat::Grey => width,
            PixelFormat::Mjpeg => return decode(frame, (height, width), into),
        };
        let rows = if self == PixelFormat::Nv12 { height + height.div_ceil(2) } else { height };
        if stride < row || frame.len() < stride * (rows - 1) + row {
            return false;
        }
        match self {
            PixelFormat::Yuyv => yuv().yuyv(frame, stride, width, into),
            PixelFormat::Nv12 => yuv().nv12(frame, stride, (height, width), into),
            PixelFormat::Bgr => {
                for (into, from) in into.chunks_exact_mut(row).zip(frame.chunks(stride)) {
                    let pixels = into.as_chunks_mut::<3>().0.iter_mut().zip(from.as_chunks().0);
                    pixels.for_each(|(into, [b, g, r])| *into = [*r, *g, *b]);
                }
            }
            _ => {
                for (into, from) in into.chunks_exact_mut(row).zip(frame.chunks(stride)) {
                    into.copy_from_slice(&from[..row]);
                }
            }
        }
        true
    }
}

/// Decodes a JPEG image of a known size.
fn decode(frame: &[u8], (height, width): (usize, usize), into: &mut [u8]) -> bool {
    // The decoder fills up an image that was cut off. One that is whole ends with a marker; the
    // last one before is that of the data.
    let is_marker = |pair: &&[u8]| matches!(pair, [0xff, END | SCAN]);
    if frame.windows(2).rev().find(is_marker).is_none_or(|pair| pair[1] != END) {
        return false;
    }
    let Ok(image) = Encoded::new(frame) else { return false };
    let size = image.size();
    (size.height, size.width, size.channels) == (height, width, 3) && image.decode(into).is_ok()
}

/// Markers of JPEG: the end of an image, and the data of a scan.
const END: u8 = 0xd9;
const SCAN: u8 = 0xda;
/// The most modes that a message lists.
const MAX_LISTED: usize = 12;

/// The modes of a camera that the kind understands.
fn list(modes: &[Mode]) -> String {
    let known = modes.iter().filter_map(|mode| PixelFormat::of(mode.pixels).map(|format| (format, mode)));
    let mut listed: Vec<String> = known
        .map(|(format, Mode { size: (width, height), least, rates, .. })| {
            let least = least.map_or(String::new(), |(width, height)| format!("{width}x{height} to "));
            format!("{} {least}{width}x{height}{}", format!("{format:?}").to_lowercase(), list_rates(rates))
        })
        .collect();
    let others = listed.len().saturating_sub(MAX_LISTED);
    listed.truncate(MAX_LISTED);
    if others > 0 {
        listed.push(format!("{others} more"));
    }
    if listed.is_empty() { "no mode that limen reads".into() } else { listed.join(", ") }
}

/// The slowest and the fastest rate of a mode, ` at 5 to 30 Hz`, of which the fastest comes first.
fn list_rates(rates: &[f64]) -> String {
    let hertz = |rate: &f64| format!("{}", (rate * 100.0).round() / 100.0);
    match rates {
        [] => String::new(),
        [only] => format!(" at {} Hz", hertz(only)),
        [fastest, .., slowest] => format!(" at {} to {} Hz", hertz(slowest), hertz(fastest)),
    }
}

/// A camera of this machine.
#[derive(Debug)]
pub struct FoundCamera {
    /// Its device, such as `/dev/video0`.
    pub device: String,
    /// What the driver calls it, and its modes; or why it cannot be opened.
    pub modes: Result<String, io::Error>,
}

/// The greatest number of a device that is looked for.
const MAX_DEVICE: usize = 64;

/// Returns the cameras of this machine.
pub fn cameras() -> Vec<FoundCamera> {
    let folders = Folders { graph: "/dev".into(), ..Folders::default() };
    let mut found = Vec::new();
    for number in 0..MAX_DEVICE {
        let device = format!("/dev/video{number}");
        let opened = folders.open_device(&device).and_then(|file| Camera::new(file.into()));
        let modes = match opened {
            Ok(camera) => Ok(format!("{}: {}", camera.name(), list(&camera.modes()))),
            // Not there, or a device of another purpose.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => continue,
            Err(error) => Err(error),
        };
        found.push(FoundCamera { device, modes });
    }
    found
}

impl V4l2Config {
    fn open(&self, folders: &Folders) -> io::Result<(File, Camera)> {
        let file = folders.open_device(&self.path)?;
        let camera = Camera::new(file.try_clone()?.into())?;
        Ok((file, camera))
    }

    /// Opens the camera in the planned mode.
    fn start(&self, planned: &FrameFormat, folders: &Folders, descriptors: &Descriptors) -> io::Result<Running> {
        let (file, mut camera) = self.open(folders)?;
        let interval = self.rate.map(|rate| Duration::from_nanos(rate.period_ns() as u64));
        let (format, _) = camera.start(planned, interval, self.buffers)?;
        let file = descriptors.watch(file, Interest::Read)?;
        Ok(Running { camera, file, format })
    }

    /// Chooses the mode: what the graph says, and for the rest what the camera has.
    fn choose(&self, camera: &Camera) -> Result<(PixelFormat, FrameFormat), (&'static str, String, String)> {
        let modes = camera.modes();
        let help = || format!("write one of the camera's modes: {}", list(&modes));
        let failed = |error: io::Error| ("path", format!("`{}`: {error}", self.path), help());
        let now = camera.format().map_err(failed)?;
        let (width, height) = (self.width.unwrap_or(now.width), self.height.unwrap_or(now.height));
        let written = self.format.map(|format| vec![format]);
        let set = || PixelFormat::of(now.pixels).into_iter().chain(PixelFormat::ALL).collect();
        let formats: Vec<PixelFormat> = written.unwrap_or_else(|| {
            if (width, height) == (now.width, now.height) { set() } else { PixelFormat::ALL.to_vec() }
        });
        let mut nearest = None;
        for format in formats {
            let Ok(found) = camera.try_format(width, height, format.code()) else { continue };
            if (found.width, found.height, found.pixels) == (width, height, format.code()) {
                return Ok((format, found));
            }
            nearest.get_or_insert(found);
        }
        let (field, asked) = match self.format {
            Some(format) => ("format", format!("{} ", format!("{format:?}").to_lowercase())),
            None => ("path", String::new()),
        };
        let near = nearest
            .map_or(String::new(), |near| format!("; the nearest is {}x{} {}", near.width, near.height, near.pixels));
        Err((field, format!("the camera does not support {asked}{width}x{height}{near}"), help()))
    }
}

/// An open camera.
#[derive(Debug)]
struct Running {
    camera: Camera,
    /// The same file, for waiting.
    #[expect(dead_code, reason = "the worker waits for it as long as it lives")]
    file: Watched<File>,
    format: FrameFormat,
}

#[derive(Debug, Default)]
struct CameraCounts {
    frames: u64,
    dropped: LossCounter,
    damaged: LossCounter,
    superseded: DiscardCounter,
    stalls: u64,
}

/// Runs `kind: v4l2`; [`V4l2Config`] says what it does.
#[derive(Debug)]
pub struct V4l2 {
    config: V4l2Config,
    folders: Folders,
    descriptors: Descriptors,
    pixels: PixelFormat,
    /// The mode that was planned.
    planned: FrameFormat,
    running: Removable<Running>,
    last: Option<u32>,
    /// When the last frame came, or the stream began.
    since: Time,
    counts: CameraCounts,
    stamps: DeviceClock,
}

/// Returns the newest frame that is ready and how many were passed over, or the oldest.
fn take(camera: &mut Camera, latest: bool) -> io::Result<Option<(Frame<'_>, u32)>> {
    if latest { camera.latest_frame() } else { camera.next_frame().map(|frame| frame.map(|frame| (frame, 0))) }
}

/// Copies what is needed of a frame: the next one takes its place.
fn send(
    frame: &Frame<'_>,
    format: &FrameFormat,
    pixels: PixelFormat,
    origin: Time,
    out: &mut Emit<Tensor>,
) -> Result<bool, NodeError> {
    if !out.is_connected() {
        return Ok(true);
    }
    let header = out.header(origin);
    let mut image = out.loan(&header)?;
    let is_whole = pixels.convert(frame, format, image.bytes_mut());
    if is_whole {
        out.send(image);
    }
    Ok(is_whole)
}

impl Node for V4l2 {
    type Config = V4l2Config;

    fn ports(config: &V4l2Config, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if !(2..=32).contains(&config.buffers) {
            errors
                .at("buffers", format!("`buffers` must be 2 to 32, got {}", config.buffers))
                .help("write a number such as 4");
        }
        if config.timeout.as_nanos() < 100_000_000 {
            errors
                .at("timeout", format!("`timeout` must be at least 100ms, got {}", show_ns(config.timeout.as_nanos())))
                .help("write 100ms or more");
        }
        let mut ports = config.on_close.declare(Ports::new().cost(Cost::Heavy).rate(config.rate));
        match cx.folders.input(&config.path) {
            Err(message) => {
                let other = "write the path of a camera that `limen-run doctor` lists";
                let (message, help) = message.rsplit_once(": ").unwrap_or((message.as_str(), other));
                errors.at("path", message).help(help);
            }
            Ok(path) => {
                let real = path.canonicalize().unwrap_or(path);
                ports = ports.claim(Claim::Device(real.display().to_string()));
                match config.open(cx.folders) {
                    Err(error) => {
                        errors
                            .at("path", format!("`{}`: {error}", config.path))
                            .help("write the path of a camera that `limen-run doctor` lists");
                    }
                    Ok((_, camera)) => match config.choose(&camera) {
                        Err((field, message, help)) => {
                            errors.at(field, message).help(help);
                        }
                        Ok((pixels, format)) => {
                            let FrameFormat { width, height, .. } = format;
                            ports = ports.output("image", pixels.spec(height, width));
                            let bytes = format.bytes.saturating_mul(config.buffers as usize);
                            ports = ports.memory(bytes).note(format!(
                                "{}: {width}x{height} {}",
                                camera.name(),
                                format.pixels
                            ));
                        }
                    },
                }
            }
        }
        errors.into_result(ports)
    }

    fn build(config: V4l2Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let failed = |error: io::Error| NodeError::file(config.path.clone(), error);
        let (_, camera) = config.open(cx.folders()).map_err(failed)?;
        let chosen = config.choose(&camera).map_err(|(_, message, _)| NodeError::input(&*config.path, message));
        let (pixels, planned) = chosen?;
        let spec = cx.outputs().first().and_then(|(_, spec)| spec.clone());
        let found = pixels.spec(planned.height, planned.width);
        if let Some(spec) = spec.filter(|spec| spec.shape != found.shape) {
            let why = format!("expected {spec} as planned, found {found}: restart the graph");
            return Err(NodeError::input(&*config.path, why));
        }
        drop(camera);
        let (folders, descriptors) = (cx.folders().clone(), cx.descriptors());
        let started = config.start(&planned, &folders, &descriptors);
        let running = started.map_err(|error| NodeError::file(config.path.clone(), error))?;
        Ok(V4l2 {
            folders,
            descriptors,
            pixels,
            planned,
            running: Removable::new(running, cx),
            last: None,
            since: cx.now(),
            counts: CameraCounts {
                dropped: cx.lost("dropped"),
                damaged: cx.lost("damaged"),
                superseded: cx.discarded("superseded"),
                ..CameraCounts::default()
            },
            stamps: DeviceClock::new(config.clock),
            config,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        let CameraCounts { frames, stalls, .. } = self.counts;
        to.set("frames", frames as f64);
        to.set("stalls", stalls as f64);
        self.stamps.metrics(to);
    }
}

impl Source for V4l2 {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        let now = out.clock();
        let Some(running) = self.running.get_mut() else {
            let open = || self.config.start(&self.planned, &self.folders, &self.descriptors);
            if let Some(next) = self.running.come_back(self.config.on_close, now, open) {
                return Ok(next);
            }
            (self.last, self.since) = (None, now);
            self.stamps.restart();
            out.begin_segment();
            return Ok(Next::More);
        };
        let Running { camera, format, .. } = running;
        let taken = match take(camera, self.config.latest) {
            Ok(Some((frame, passed))) => {
                if let Some(last) = self.last {
                    // A number that is not ahead is of a driver that counts anew.
                    let missing = frame.sequence.wrapping_sub(last).wrapping_sub(1).wrapping_sub(passed);
                    if (1..1 << 16).contains(&missing) {
                        let why =
                            || format!("frames that the driver skipped before frame {}: {missing}", frame.sequence);
                        self.counts.dropped.lose(missing.into(), why);
                    }
                }
                (self.last, self.since) = (Some(frame.sequence), now);
                self.counts.superseded += u64::from(passed);
                let stamp = frame.time.map(|time| match u64::try_from(time.as_nanos()) {
                    Ok(nanos) if frame.is_monotonic => Stamp::Claimed(Time(nanos)),
                    _ => Stamp::Foreign(time),
                });
                let origin = self.stamps.origin(stamp, now);
                if frame.is_damaged {
                    self.counts.damaged.lose(1, || "the driver marked a frame as damaged".into());
                } else if send(&frame, format, self.pixels, origin, out)? {
                    self.counts.frames += 1;
                } else {
                    let why = || "a frame is truncated, or is not an image of the planned size".into();
                    self.counts.damaged.lose(1, why);
                }
                Ok(Some(()))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match taken {
            Ok(Some(())) => {
                self.running.works();
                return Ok(Next::More);
            }
            Ok(None) => {
                let until = self.since + self.config.timeout.as_nanos();
                if now < until {
                    return Ok(Next::WhenReady(until));
                }
                self.counts.stalls += 1;
                let timeout = show_ns(self.config.timeout.as_nanos());
                self.running.count_disconnect(format!("no frame arrived for {timeout}"));
            }
            Err(error) => self.running.count_disconnect(error.to_string()),
        }
        self.running.close(now);
        Ok(Next::More)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen_v4l2::YuvColour;

    fn jpeg(width: u16, height: u16, colour: jpeg_encoder::ColorType, channels: usize) -> Vec<u8> {
        let pixels: Vec<u8> =
            (0..usize::from(width) * usize::from(height) * channels).map(|at| (at * 7) as u8).collect();
        let mut bytes = Vec::new();
        jpeg_encoder::Encoder::new(&mut bytes, 90).encode(&pixels, width, height, colour).unwrap();
        bytes
    }

    #[test]
    fn a_frame_of_mjpeg_that_is_damaged_or_of_another_size_is_not_whole() {
        use jpeg_encoder::ColorType::{Luma, Rgb};
        let format = FrameFormat {
            width: 24,
            height: 16,
            stride: 0,
            bytes: 0,
            pixels: FourCc::MJPEG,
            colour: YuvColour::default(),
        };
        let whole = jpeg(24, 16, Rgb, 3);
        let is_whole = |frame: &[u8]| PixelFormat::Mjpeg.convert(frame, &format, &mut vec![0; 24 * 16 * 3]);
        assert!(is_whole(&whole));
        // A driver's buffer may be longer than what is in it.
        assert!(is_whole(&[&whole[..], &[0; 100]].concat()));
        for (what, frame) in [
            ("nothing", Vec::new()),
            ("the first half", whole[..whole.len() / 2].to_vec()),
            ("all but the end", whole[..whole.len() - 2].to_vec()),
            ("the head alone", whole[..20].to_vec()),
            ("another size", jpeg(24, 8, Rgb, 3)),
            ("a larger size", jpeg(48, 32, Rgb, 3)),
            ("grey", jpeg(24, 16, Luma, 1)),
            ("no JPEG", vec![0x55; whole.len()]),
        ] {
            assert!(!is_whole(&frame), "{what}");
        }
    }

    #[test]
    fn modes_are_listed_with_their_rates() {
        let mode = |size, least, rates: &[f64]| Mode { pixels: FourCc::YUYV, size, least, rates: rates.to_vec() };
        let modes = [
            mode((640, 480), None, &[60.0, 30.0, 7.5]),
            mode((320, 240), None, &[30000.0 / 1001.0]),
            mode((1920, 1080), Some((16, 16)), &[]),
        ];
        assert_eq!(list(&modes), "yuyv 640x480 at 7.5 to 60 Hz, yuyv 320x240 at 29.97 Hz, yuyv 16x16 to 1920x1080");
        assert_eq!(list(&[]), "no mode that limen reads");
    }

    #[test]
    fn rows_of_a_driver_may_be_longer_than_those_of_the_image() {
        let format = |pixels, stride| FrameFormat {
            width: 2,
            height: 2,
            stride,
            bytes: 0,
            pixels,
            colour: YuvColour::default(),
        };
        for (pixels, stride, expected) in [
            (PixelFormat::Rgb, 8, &[0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13][..]),
            (PixelFormat::Bgr, 8, &[2, 1, 0, 5, 4, 3, 10, 9, 8, 13, 12, 11]),
            (PixelFormat::Grey, 3, &[0, 1, 3, 4]),
        ] {
            let frame: Vec<u8> = (0..16).collect();
            let mut into = vec![0; expected.len()];
            assert!(pixels.convert(&frame, &format(pixels.code(), stride), &mut into));
            assert_eq!(into, expected, "{pixels:?}");
            let short = stride + expected.len() / 2 - 1;
            assert!(!pixels.convert(&frame[..short], &format(pixels.code(), stride), &mut into), "{pixels:?}");
        }
    }
}
