//! What a graph gives to an input of a model.

use super::InputKind;
use super::model::Model;
use super::side::{Length, Side};
use std::collections::BTreeMap;

/// Lengths for dims, other than those of an image, that the model leaves open.
const SAMPLES: usize = 512;
const TOKENS: usize = 16;
/// The largest item of an input in bytes.
const MAX_ITEM: usize = 64 << 20;
/// Items of the data that is written beside a graph: at most so many, and at least three.
pub(super) const ITEMS: usize = 32;
/// About how many bytes they have.
const BYTES: usize = 4 << 20;

/// What a graph gives to an input.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Given {
    Image(ImageSize),
    /// The shape of the samples of a message.
    Sound(Vec<usize>),
    Array(Vec<usize>),
}

/// The size of the images that a model takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ImageSize {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    /// Whether the channels come first.
    pub(super) is_planar: bool,
    /// Where the size is known from, if the model leaves it open.
    pub(super) about: Option<&'static str>,
}

/// A comment on a size that the model's metadata has.
pub(super) const SIZE_OF_METADATA: &str = "the size is `imgsz` of the model's metadata";

/// The lengths of dims that a model leaves open, by their names: those with one name have one
/// length.
#[derive(Debug, Default)]
pub(super) struct OpenLengths(BTreeMap<String, usize>);

impl OpenLengths {
    /// The batch of each input has one item; images have the height and width of `sides`.
    pub(super) fn of(model: &Model, [high, wide]: [usize; 2]) -> OpenLengths {
        let mut lengths = OpenLengths::default();
        for side in model.inputs.iter().filter(|side| !side.is_whole) {
            side.shape.first().into_iter().for_each(|batch| _ = lengths.of_dim(batch, 1));
        }
        for ([height, width, _], _) in
            model.inputs.iter().filter(|side| !side.says_no_image()).filter_map(Side::image_dims)
        {
            lengths.of_dim(height, high);
            lengths.of_dim(width, wide);
        }
        lengths
    }

    /// Returns the length of a dim, which is `open` if it is the first of its name.
    fn of_dim(&mut self, dim: &Length, open: usize) -> usize {
        match dim {
            Length::Fixed(length) => *length,
            Length::Open(name) => *self.0.entry(name.clone()).or_insert(open),
        }
    }
}

impl ImageSize {
    /// Returns the size for an input that can be an image, with `high` and `wide` where it leaves
    /// the size open.
    pub(super) fn of(side: &Side, [high, wide]: [usize; 2]) -> Option<ImageSize> {
        let ([height, width, channels], is_planar) = side.image_dims()?;
        let is_open = [height, width].iter().any(|length| matches!(length, Length::Open(_)));
        let about = is_open.then_some("the size is a guess: the model accepts other sizes");
        Some(ImageSize { height: height.or(high), width: width.or(wide), channels: channels.or(3), is_planar, about })
    }

    pub(super) fn shape(&self) -> Vec<usize> {
        let ImageSize { height, width, channels, is_planar, .. } = *self;
        if is_planar { vec![channels, height, width] } else { vec![height, width, channels] }
    }
}

impl InputKind {
    /// Whether messages from such a source can be an input.
    pub(super) fn fits(self, side: &Side) -> bool {
        match self {
            InputKind::Images | InputKind::Camera => side.image_dims().is_some(),
            InputKind::Wav => side.is_row(),
            InputKind::Npy => true,
        }
    }
}

impl Given {
    /// # Errors
    /// When an item of it would be too large.
    pub(super) fn of(
        side: &Side,
        sides: [usize; 2],
        is_sound: bool,
        asked: Option<InputKind>,
        open: &mut OpenLengths,
    ) -> Result<Given, String> {
        let mut lengths = |length: usize| side.item().iter().map(|dim| open.of_dim(dim, length)).collect();
        let frame = ImageSize::of(side, sides).filter(|_| asked.is_some() || !side.says_no_image());
        let given = match (frame, asked) {
            _ if is_sound => Given::Sound(lengths(SAMPLES)),
            // An array for images has the size in which the model is tried.
            (Some(frame), Some(InputKind::Npy | InputKind::Wav)) if !side.says_no_image() => {
                Given::Array(frame.shape())
            }
            (Some(frame), None | Some(InputKind::Images | InputKind::Camera)) => Given::Image(frame),
            _ => {
                let open = side.item().iter().filter(|dim| matches!(dim, Length::Open(_))).count();
                let is_long = side.dtype == "f32" && open == 1;
                Given::Array(lengths(if is_long { SAMPLES } else { TOKENS }))
            }
        };
        let shape = given.shape();
        match shape.iter().try_fold(4, |bytes: usize, length| bytes.checked_mul(*length)) {
            Some(..=MAX_ITEM) => Ok(given),
            _ => Err(format!("an item of the input `{}` must be at most 64 MiB, got the shape {shape:?}", side.port)),
        }
    }

    pub(super) fn shape(&self) -> Vec<usize> {
        match self {
            Given::Image(frame) => frame.shape(),
            Given::Sound(shape) | Given::Array(shape) => shape.clone(),
        }
    }
}

/// Returns how many items of a shape are written or recorded.
pub(super) fn items(item: &[usize]) -> usize {
    let bytes = item.iter().fold(4, |bytes: usize, length| bytes.saturating_mul(*length));
    (BYTES / bytes.max(1)).clamp(3, ITEMS)
}
