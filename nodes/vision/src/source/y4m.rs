//! Frames of uncompressed video, from files and pipes.

use crate::tensor::yuv::YuvToRgb;
use limen::files::InputFile;
use limen::message::{DType, PortSpec};
use limen::node::{
    Building, Claim, Connected, Cost, Emit, Interest, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports,
    Source, Watched,
};
use limen::unit::Rate;
use limen::{Folders, Tensor, Time};
use limen_nodes_core::file::input_file;
use limen_nodes_core::pace::{RecordedPace, Timeline};
use limen_nodes_core::stream::ready::{self, Read};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::{self, Read as _, Seek, Stdin};
use std::ops::Range;

/// Reads uncompressed video, YUV4MPEG2 (`.y4m`), from a file or standard input. The output is
/// `image` `u8[h,w,3]` in RGB, or `u8[h,w]` if the video is grey.
///
/// Use this kind to replace a camera with recorded video. Convert other video formats first, or
/// through a pipe: `ffmpeg -i drive.mp4 -pix_fmt yuv420p -f yuv4mpegpipe - | limen-run graph.yaml`.
///
/// The node reads 8-bit, non-interlaced frames in 4:2:0, 4:2:2 and 4:4:4. Chroma is not
/// interpolated: all pixels that share a chroma sample have the same chroma. If a file ends within
/// a frame, the node sends all complete frames, then one call fails. The node does not read grey
/// video from standard input.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Y4mConfig {
    /// The file, relative to the graph's folder. Default: standard input.
    pub path: Option<String>,
    /// Width in pixels. Required without `path`.
    pub width: Option<usize>,
    /// Height in pixels. Required without `path`.
    pub height: Option<usize>,
    /// Colour matrix of the video. Default: `bt601`. Set `colours` for BT.709 video, because a Y4M
    /// file does not record the matrix.
    #[serde(default)]
    pub colours: Colours,
    /// Pace of the frames of a file: `original` (default), `max` or a factor such as `2.0`. `max`
    /// sends as fast as the graph accepts frames. With `max`, origins count from the start of the
    /// run and keep the spacing of the video. The node sends a frame from standard input when the
    /// frame arrives.
    #[serde(default)]
    pub pace: RecordedPace,
    /// Number of passes over the file. Default: 1.
    #[serde(default = "one")]
    pub repeat: u32,
}

fn one() -> u32 {
    1
}

/// Colour matrix of a video.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Colours {
    /// ITU-R BT.601: standard-definition television and most webcams.
    #[default]
    Bt601,
    /// ITU-R BT.709: high-definition video.
    Bt709,
}

/// The longest line, of the file's header and of a frame's.
const MAX_LINE: usize = 1 << 10;
/// The greatest width and height.
const MAX_SIDE: usize = 1 << 14;
const CONVERT: &str = "convert the video: `ffmpeg -i IN -pix_fmt yuv420p OUT.y4m`";

/// How many pixels a sample of chroma stands for, down and across; `None` without chroma.
type Sampling = Option<(usize, usize)>;

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Y4mHeader {
    width: usize,
    height: usize,
    sampling: Sampling,
    is_full_range: bool,
    /// Frames per second; `None` if it is not known.
    rate: Option<(u32, u32)>,
}

impl Y4mHeader {
    /// Reads the header's line.
    ///
    /// # Errors
    /// What is wrong with it.
    fn parse(line: &[u8]) -> Result<Y4mHeader, String> {
        let text =
            std::str::from_utf8(line).map_err(|_| "expected a header in UTF-8 text, found other bytes".to_string())?;
        let mut words = text.split_ascii_whitespace();
        if words.next() != Some("YUV4MPEG2") {
            return Err("expected `YUV4MPEG2` at the beginning of the video, found other text".into());
        }
        let (mut width, mut height, mut rate) = (None, None, None);
        let (mut sampling, mut is_full_range) = (Some((2, 2)), false);
        for word in words {
            let value = word.get(1..).unwrap_or_default();
            let side = || value.parse().ok().filter(|side| (1..=MAX_SIDE).contains(side));
            match word.as_bytes()[0] {
                b'W' => width = side(),
                b'H' => height = side(),
                b'F' => {
                    let (frames, seconds) = value.split_once(':').unwrap_or_default();
                    let both = frames.parse().ok().zip(seconds.parse().ok());
                    rate = both.filter(|(frames, seconds)| *frames > 0 && *seconds > 0);
                }
                b'I' if !matches!(value, "p" | "?") => {
                    return Err(format!("expected progressive frames (`Ip`), found interlaced frames (`I{value}`)"));
                }
                b'C' => {
                    sampling = match value {
                        "420" | "420jpeg" | "420mpeg2" | "420paldv" => Some((2, 2)),
                        "422" => Some((1, 2)),
                        "444" => Some((1, 1)),
                        "mono" => None,
                        _ => {
                            return Err(format!(
                                "expected the pixel format 420, 422, 444 or mono with 8 bits, found `{value}`"
                            ));
                        }
                    }
                }
                b'X' => is_full_range |= value == "COLORRANGE=FULL",
                _ => {}
            }
        }
        let (Some(width), Some(height)) = (width, height) else {
            let found: Vec<&str> = text.split_ascii_whitespace().filter(|word| word.starts_with(['W', 'H'])).collect();
            let found = if found.is_empty() { "none".to_string() } else { format!("`{}`", found.join(" ")) };
            return Err(format!("width and height in the header must be 1 to {MAX_SIDE} pixels, got {found}"));
        };
        Ok(Y4mHeader { width, height, sampling, is_full_range, rate })
    }

    /// Bytes of a frame.
    fn bytes(&self) -> usize {
        let chroma = |(down, across): (usize, usize)| 2 * self.height.div_ceil(down) * self.width.div_ceil(across);
        self.width * self.height + self.sampling.map_or(0, chroma)
    }

    fn spec(&self) -> PortSpec {
        match self.sampling {
            None => PortSpec::fixed(DType::U8, [self.height, self.width]),
            Some(_) => PortSpec::image(self.height, self.width, 3),
        }
    }

    /// Its stamp in ns, if the rate is known.
    fn stamp(&self, frame: u64) -> Option<u64> {
        let (frames, seconds) = self.rate?;
        let ns = u128::from(frame) * u128::from(seconds) * 1_000_000_000 / u128::from(frames);
        Some(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    fn convert(&self, colours: Colours, frame: &[u8], into: &mut [u8]) {
        match self.sampling {
            None => into.copy_from_slice(frame),
            Some(sampling) => {
                let convert = YuvToRgb::new(colours == Colours::Bt709, self.is_full_range);
                convert.planar(frame, (self.height, self.width), sampling, into);
            }
        }
    }
}

/// What is found in the bytes read so far.
#[derive(Debug, PartialEq)]
enum Y4mPiece {
    /// More bytes are needed.
    Nothing,
    Header(Y4mHeader),
    Frame(Range<usize>),
}

/// Finds header and frames in bytes that come in pieces.
#[derive(Debug)]
struct Y4mParser {
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    /// The most bytes of a frame.
    most: usize,
    header: Option<Y4mHeader>,
}

impl Y4mParser {
    fn new(most: usize) -> Self {
        Y4mParser { buffer: vec![0; MAX_LINE], begin: 0, end: 0, most, header: None }
    }

    /// The free part of the buffer, which is never empty after [`take`](Self::take) has found
    /// nothing.
    fn space(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        &mut self.buffer[self.end..]
    }

    fn filled(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// Whether it is within the header or a frame.
    fn is_partial(&self) -> bool {
        self.begin < self.end
    }

    fn rewind(&mut self) {
        (self.begin, self.end, self.header) = (0, 0, None);
    }

    /// Takes the header, at first, or the next frame: the range of its bytes, valid until the next
    /// call.
    ///
    /// # Errors
    /// What is wrong with the bytes; nothing behind them can be read.
    fn take(&mut self) -> Result<Y4mPiece, String> {
        let bytes = &self.buffer[self.begin..self.end];
        let Some(line) = bytes.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
            let what = if self.header.is_some() { "a frame header" } else { "the header" };
            return if bytes.len() < MAX_LINE {
                Ok(Y4mPiece::Nothing)
            } else {
                Err(format!("{what} must be at most {MAX_LINE} bytes, got more"))
            };
        };
        let Some(header) = self.header else {
            let header = Y4mHeader::parse(&bytes[..line])?;
            if header.bytes() > self.most {
                let (most, bytes, Y4mHeader { width, height, .. }) = (self.most, header.bytes(), header);
                return Err(format!(
                    "frames must be at most {most} bytes as planned, got {bytes} bytes ({width} × {height} pixels)"
                ));
            }
            self.begin += line + 1;
            self.header = Some(header);
            self.buffer.resize(header.bytes() + MAX_LINE, 0);
            return Ok(Y4mPiece::Header(header));
        };
        if !bytes.starts_with(b"FRAME") {
            return Err("expected `FRAME` at the beginning of a frame, found other bytes".into());
        }
        let from = self.begin + line + 1;
        let to = from + header.bytes();
        if to > self.end {
            return Ok(Y4mPiece::Nothing);
        }
        self.begin = to;
        Ok(Y4mPiece::Frame(from..to))
    }
}

/// Where the bytes come from.
#[derive(Debug)]
enum Input {
    File(InputFile),
    Standard(Watched<Stdin>),
}

/// Runs `kind: y4m`; [`Y4mConfig`] says what it does.
#[derive(Debug)]
pub struct Y4m {
    name: String,
    input: Input,
    parser: Y4mParser,
    colours: Colours,
    planned: PortSpec,
    timeline: Timeline,
    passes: u32,
    /// A frame that is read and not sent, and when its last bytes were read.
    ahead: Option<(Range<usize>, Time)>,
    /// Frames of this pass.
    frame: u64,
    frames: u64,
    has_ended: bool,
}

/// Reads the header of a file, and how many frames follow if they have no headers of their own.
fn survey(path: &str, folders: &Folders) -> Result<(Y4mHeader, u64), (String, String)> {
    let mut file = input_file::open(path, folders)?;
    let mut line = Vec::new();
    let failed = |error: io::Error| (format!("`{path}`: {error}"), "write the path of a file that can be read".into());
    file.by_ref().take(MAX_LINE as u64).read_to_end(&mut line).map_err(failed)?;
    let wrong = |why: String| (format!("`{path}`: {why}"), CONVERT.to_string());
    let end = line
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or_else(|| wrong(format!("the header must be at most {MAX_LINE} bytes, got more")))?;
    let header = Y4mHeader::parse(&line[..end]).map_err(wrong)?;
    let frame = (header.bytes() + b"FRAME\n".len()) as u64;
    Ok((header, file.size().saturating_sub(end as u64 + 1) / frame))
}

impl Y4mConfig {
    /// Returns what is planned for: the header of the file, or what the config says of standard
    /// input.
    fn plan(&self, folders: &Folders, errors: &mut PlanErrors) -> Option<(Y4mHeader, Option<u64>)> {
        let Some(path) = &self.path else {
            if self.repeat != 1 {
                let message = format!("`repeat` must be 1 for standard input, got {}", self.repeat);
                errors.at("repeat", message).help("remove `repeat`");
            }
            let side = |side: Option<usize>| side.filter(|side| (1..=MAX_SIDE).contains(side));
            let (Some(width), Some(height)) = (side(self.width), side(self.height)) else {
                let [width, height] = [self.width, self.height]
                    .map(|side| side.map_or_else(|| "none".to_string(), |side| side.to_string()));
                errors
                    .node(format!(
                        "`width` and `height` must be 1 to {MAX_SIDE} for standard input, got {width} and {height}"
                    ))
                    .help("write `width` and `height`, or the `path` of a file");
                return None;
            };
            let header = Y4mHeader { width, height, sampling: Some((1, 1)), is_full_range: false, rate: None };
            return Some((header, None));
        };
        match survey(path, folders) {
            Err((message, help)) => {
                errors.at("path", message).help(help);
                None
            }
            Ok((header, frames)) => {
                let Y4mHeader { width, height, .. } = header;
                for (field, written, found) in [("width", self.width, width), ("height", self.height, height)] {
                    if let Some(written) = written.filter(|written| *written != found) {
                        let help = format!("remove `{field}`, or add a `resize` node downstream of this node");
                        errors.at(field, format!("`{field}` must be {found} for `{path}`, got {written}")).help(help);
                    }
                }
                if frames == 0 {
                    errors
                        .at("path", format!("expected a frame in `{path}`, found none"))
                        .help("write the path of a video");
                }
                if header.rate.is_none() && self.pace.factor().is_some() {
                    let help = "write `pace: max`";
                    errors.at("pace", format!("`{path}` does not declare a frame rate")).help(help);
                }
                Some((header, Some(frames)))
            }
        }
    }
}

impl Y4m {
    fn wrong(&self, why: String) -> NodeError {
        NodeError::input(format!("{}: frame {}", self.name, self.frame + 1), why)
    }

    /// Reads once; returns what that came to.
    fn read(&mut self) -> io::Result<Read> {
        let space = self.parser.space();
        let read = match &mut self.input {
            Input::File(file) => file.read(space),
            Input::Standard(input) => {
                // It may be shared with other processes, so it is not made nonblocking.
                if !ready::is_readable(&**input)? {
                    return Ok(Read::Nothing);
                }
                nix::unistd::read(&**input, space).map_err(io::Error::from)
            }
        };
        let read = ready::outcome(read)?;
        if let Read::Some(bytes) = read {
            self.parser.filled(bytes);
        }
        Ok(read)
    }

    /// Begins another pass. Returns whether there is one.
    fn rewind(&mut self) -> Result<bool, NodeError> {
        let Input::File(file) = &mut self.input else { return Ok(false) };
        if self.passes <= 1 || self.frame == 0 {
            return Ok(false);
        }
        file.rewind().map_err(|error| NodeError::file(file.path(), error))?;
        self.timeline.rewind(self.parser.header.and_then(|header| header.stamp(1)));
        self.parser.rewind();
        (self.passes, self.frame) = (self.passes - 1, 0);
        Ok(true)
    }

    /// Takes what is found; returns whether something was.
    fn take(&mut self, out: &Emit<Tensor>) -> Result<bool, NodeError> {
        match self.parser.take().map_err(|why| self.wrong(why))? {
            Y4mPiece::Nothing => return Ok(false),
            Y4mPiece::Header(header) => {
                if header.spec().shape != self.planned.shape {
                    let why =
                        format!("the video changed after planning: expected {}, found {}", self.planned, header.spec());
                    return Err(NodeError::input(&*self.name, why));
                }
            }
            Y4mPiece::Frame(frame) => self.ahead = Some((frame, out.clock())),
        }
        Ok(true)
    }
}

impl Node for Y4m {
    type Config = Y4mConfig;

    fn ports(config: &Y4mConfig, _: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.repeat == 0 {
            errors.at("repeat", "`repeat` must be at least 1, got 0").help("write 1 or more");
        }
        let mut ports = Ports::new().cost(Cost::Heavy);
        ports = match &config.path {
            Some(_) => config.pace.declare(ports),
            None => ports.claim(Claim::Device("standard input".into())).live(),
        };
        if let Some((header, frames)) = config.plan(cx.folders, &mut errors) {
            ports = ports.output("image", header.spec()).memory(header.bytes() + MAX_LINE);
            if let (Some((frames, seconds)), Some(factor)) = (header.rate, config.pace.factor()) {
                ports = ports.rate(Some(Rate(f64::from(frames) / f64::from(seconds) * factor)));
            }
            if let Some(frames) = frames {
                ports = ports.total(frames.saturating_mul(config.repeat.into()));
            }
        }
        errors.into_result(ports)
    }

    fn build(config: Y4mConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let (name, input) = match &config.path {
            Some(path) => (path.clone(), Input::File(cx.folders().open(path)?)),
            None => {
                let watched = cx.descriptors().watch(io::stdin(), Interest::Read);
                let watched = watched.map_err(|error| NodeError::file("standard input", error))?;
                ("standard input".to_string(), Input::Standard(watched))
            }
        };
        let planned = cx.outputs().first().and_then(|(_, spec)| spec.clone());
        let planned = planned.ok_or_else(|| NodeError::input(&*name, "the shape is unknown during planning"))?;
        Ok(Y4m {
            name,
            input,
            parser: Y4mParser::new(planned.max_bytes().unwrap_or(0)),
            colours: config.colours,
            planned,
            timeline: Timeline::new(config.pace, u64::MAX),
            passes: config.repeat,
            ahead: None,
            frame: 0,
            frames: 0,
            has_ended: false,
        })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("frames", self.frames as f64);
    }
}

impl Source for Y4m {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        while self.ahead.is_none() {
            if self.has_ended {
                return Ok(Next::Done);
            }
            // After an error nothing more can be read.
            self.has_ended = true;
            if !self.take(out)? {
                match self.read().map_err(|error| NodeError::file(self.name.clone(), error))? {
                    Read::Some(_) => {}
                    Read::Nothing => {
                        self.has_ended = false;
                        let is_file = matches!(self.input, Input::File(_));
                        return Ok(if is_file { Next::More } else { Next::WhenReady(Time::NEVER) });
                    }
                    Read::End if self.parser.header.is_none() => {
                        return Err(NodeError::input(&*self.name, "the input ends before the video begins"));
                    }
                    Read::End if self.parser.is_partial() => {
                        return Err(self.wrong("the input ends within the frame: the frame was not sent".into()));
                    }
                    Read::End => {
                        if !self.rewind()? {
                            return Ok(Next::Done);
                        }
                        out.begin_segment();
                    }
                }
            }
            self.has_ended = false;
        }
        let (Some((frame, read)), Some(header)) = (self.ahead.clone(), self.parser.header) else {
            return Ok(Next::More);
        };
        let origin = match (&self.input, header.stamp(self.frame)) {
            (Input::File(_), Some(stamp)) => match self.timeline.begin(stamp, out.now(), || out.clock()) {
                Ok(origin) => origin,
                Err(early) => return Ok(early),
            },
            (Input::File(_), None) => out.now(),
            (Input::Standard(_), _) => read,
        };
        self.ahead = None;
        self.frame += 1;
        self.frames += 1;
        if out.is_connected() {
            let message = out.header(origin);
            let mut image = out.loan(&message)?;
            header.convert(self.colours, &self.parser.buffer[frame], image.bytes_mut());
            out.send(image);
        }
        Ok(Next::More)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_or_refused() {
        let header = |width, height, sampling, is_full_range, rate| {
            Ok(Y4mHeader { width, height, sampling, is_full_range, rate })
        };
        for (line, expected) in [
            // As ffmpeg and mjpegtools write them.
            (
                "YUV4MPEG2 W352 H288 F30000:1001 Ip A128:117 C420jpeg XYSCSS=420JPEG XCOLORRANGE=LIMITED",
                header(352, 288, Some((2, 2)), false, Some((30_000, 1001))),
            ),
            ("YUV4MPEG2 W4 H2 F25:1", header(4, 2, Some((2, 2)), false, Some((25, 1)))),
            ("YUV4MPEG2 H2 W4 F0:0 I? Cmono", header(4, 2, None, false, None)),
            ("YUV4MPEG2 W5 H3 F1:0 C422 XCOLORRANGE=FULL", header(5, 3, Some((1, 2)), true, None)),
            ("YUV4MPEG2 W5 H3 C444 F50:2 Xsome", header(5, 3, Some((1, 1)), false, Some((50, 2)))),
            ("YUV4MPEG W4 H2", Err("expected `YUV4MPEG2`")),
            ("YUV4MPEG2 W4", Err("width and height")),
            ("YUV4MPEG2 W0 H2", Err("width and height")),
            ("YUV4MPEG2 W99999999999999999999 H2", Err("width and height")),
            ("YUV4MPEG2 W-4 H2", Err("width and height")),
            ("YUV4MPEG2 W4 H2 It", Err("interlaced")),
            ("YUV4MPEG2 W4 H2 C420p10", Err("`420p10`")),
            ("YUV4MPEG2 W4 H2 C411", Err("`411`")),
            ("", Err("expected `YUV4MPEG2`")),
        ] {
            let found = Y4mHeader::parse(line.as_bytes());
            match (&found, &expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{line}"),
                (Err(found), Err(part)) => assert!(found.contains(part), "{line}: {found}"),
                _ => panic!("{line}: {found:?}"),
            }
        }
        assert!(Y4mHeader::parse(b"YUV4MPEG2 W4 H\xff").is_err());
    }

    /// Bytes that come in pieces of any size give the same frames, and those of a damaged video an
    /// error or fewer frames.
    #[test]
    fn frames_are_found_in_pieces_of_any_size() {
        let frame: Vec<u8> = (0..12).collect();
        let video = [&b"YUV4MPEG2 W4 H2 F25:1\n"[..], b"FRAME\n", &frame, b"FRAME Ip\n", &frame].concat();
        for size in 1..=video.len() {
            let (mut parser, mut found) = (Y4mParser::new(24), Vec::new());
            for piece in video.chunks(size) {
                parser.space()[..piece.len()].copy_from_slice(piece);
                parser.filled(piece.len());
                loop {
                    match parser.take().unwrap() {
                        Y4mPiece::Nothing => break,
                        Y4mPiece::Header(header) => {
                            assert_eq!((header.bytes(), header.stamp(50)), (12, Some(2_000_000_000)))
                        }
                        Y4mPiece::Frame(range) => found.push(parser.buffer[range].to_vec()),
                    }
                }
            }
            assert_eq!((found.len(), parser.is_partial()), (2, false), "{size}");
            assert!(found.iter().all(|found| *found == frame));
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2_000 {
            let mut damaged = video.clone();
            damaged[random.usize(0..video.len())] = random.u8(..);
            damaged.truncate(random.usize(0..=video.len()));
            let (mut parser, mut at) = (Y4mParser::new(24), 0);
            loop {
                match parser.take() {
                    Ok(Y4mPiece::Nothing) => {
                        let space = parser.space();
                        assert!(!space.is_empty());
                        let bytes = space.len().min(damaged.len() - at);
                        space[..bytes].copy_from_slice(&damaged[at..][..bytes]);
                        parser.filled(bytes);
                        at += bytes;
                        if bytes == 0 {
                            break;
                        }
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
    }
}
