//! Model inputs from pixels.

use half::f16;
use limen::message::{DType, Element, Layout, PortSpec};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use limen_nodes_core::tensor::shape;
use schemars::JsonSchema;
use serde::Deserialize;

/// Converts pixels `u8[h,w,c]` to floats in a range, `f32[c,h,w]` by default.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ToTensorConfig {
    /// Element type of the output. Default: `f32`.
    #[serde(default)]
    pub dtype: Float,
    /// Order of the output's dims. Default: `chw`. `nchw` equals `chw` and `nhwc` equals `hwc`,
    /// because messages have no batch dim.
    #[serde(default)]
    pub layout: DimOrder,
    /// Output values for pixel levels 0 and 255. The node maps the levels between 0 and 255
    /// linearly. Default: [0, 1].
    #[serde(default = "unit")]
    pub range: [f32; 2],
}

fn unit() -> [f32; 2] {
    [0.0, 1.0]
}

/// Float type of a model input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Float {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits.
    F16,
}

/// Order of the dims of an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DimOrder {
    /// Channels, height, width.
    #[default]
    Chw,
    /// Height, width, channels.
    Hwc,
    /// Same as `chw`.
    Nchw,
    /// Same as `hwc`.
    Nhwc,
}

impl ToTensorConfig {
    /// Returns the number of every pixel level.
    pub fn numbers(&self) -> [f32; 256] {
        levels(self.range).map(|level| level as f32)
    }
}

impl DimOrder {
    fn layout(self) -> Layout {
        match self {
            DimOrder::Chw | DimOrder::Nchw => Layout::Chw,
            DimOrder::Hwc | DimOrder::Nhwc => Layout::Hwc,
        }
    }
}

/// The node. It converts pixels through a table of all 256 levels.
#[derive(Debug)]
pub struct ToTensor {
    table: ValueTable,
    layout: Layout,
}

#[derive(Debug)]
enum ValueTable {
    F32(Box<[f32; 256]>),
    F16(Box<[f16; 256]>),
}

/// Returns the value of every level in double precision, to be rounded once.
fn levels([low, high]: [f32; 2]) -> [f64; 256] {
    let (low, high) = (f64::from(low), f64::from(high));
    std::array::from_fn(|level| level as f64 / 255.0 * (high - low) + low)
}

/// Orders height, width and channels by a layout.
fn ordered<T>(layout: Layout, [h, w, c]: [T; 3]) -> [T; 3] {
    match layout {
        Layout::Chw => [c, h, w],
        Layout::Hwc => [h, w, c],
    }
}

fn convert<T: Element>(table: &[T; 256], layout: Layout, channels: usize, pixels: &[u8], into: &mut [T]) {
    match (layout, channels) {
        (Layout::Hwc, _) | (_, 1) => convert_planes::<T, 1>(table, pixels, into),
        (Layout::Chw, 3) => convert_planes::<T, 3>(table, pixels, into),
        (Layout::Chw, 4) => convert_planes::<T, 4>(table, pixels, into),
        (Layout::Chw, _) => {
            let size = pixels.len() / channels.max(1);
            for (at, value) in into.iter_mut().enumerate() {
                *value = table[usize::from(pixels[at % size * channels + at / size])];
            }
        }
    }
}

/// The number of channels is a compile-time constant, which makes this loop twice as fast.
fn convert_planes<T: Element, const C: usize>(table: &[T; 256], pixels: &[u8], into: &mut [T]) {
    let (pixels, _) = pixels.as_chunks::<C>();
    for (channel, plane) in into.chunks_exact_mut(pixels.len().max(1)).enumerate().take(C) {
        for (value, pixel) in plane.iter_mut().zip(pixels) {
            *value = table[usize::from(pixel[channel])];
        }
    }
}

impl Node for ToTensor {
    type Config = ToTensorConfig;

    fn ports(config: &ToTensorConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        for (i, bound) in config.range.iter().enumerate().filter(|(_, bound)| !bound.is_finite()) {
            errors
                .at(format!("range[{i}]"), format!("`range` must be finite, got {bound}"))
                .help("write a finite number");
        }
        if config.range[0] == config.range[1] {
            let message = format!("the ends of `range` must differ, got {} twice", config.range[0]);
            errors.at("range", message).help("write `range: [0, 1]`, or remove `range`");
        }
        let dtype = match config.dtype {
            Float::F32 => DType::F32,
            Float::F16 => DType::F16,
        };
        let dims = shape::image_dims(given.single());
        let input = PortSpec::new(DType::U8, dims.cloned().unwrap_or_else(shape::any_image)).with_layout(Layout::Hwc);
        let layout = config.layout.layout();
        let output = dims.map(|dims| PortSpec::new(dtype, ordered(layout, dims.clone())).with_layout(layout));
        errors.into_result(shape::gives(shape::takes(Some(input)), output).cost(Cost::Medium))
    }

    fn build(config: ToTensorConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        let levels = levels(config.range);
        let table = match config.dtype {
            Float::F32 => ValueTable::F32(Box::new(levels.map(|v| v as f32))),
            Float::F16 => ValueTable::F16(Box::new(levels.map(f16::from_f64))),
        };
        Ok(ToTensor { table, layout: config.layout.layout() })
    }
}

impl Transform for ToTensor {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let pixels = input.body.as_slice::<u8>()?;
        let shape = input.body.shape();
        let &[h, w, c] = &*shape else {
            return Err(NodeError::input("in", format!("expected an image u8[h,w,c], found {:?}", input.body)));
        };
        let mut tensor = out.loan(input.header())?;
        shape::set_shape(&mut tensor, &ordered(self.layout, [h, w, c]))?;
        match &self.table {
            ValueTable::F32(table) => convert(table, self.layout, c, pixels, tensor.as_mut_slice()?),
            ValueTable::F16(table) => convert(table, self.layout, c, pixels, tensor.as_mut_slice()?),
        }
        out.send(tensor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_reach_both_ends_of_the_range() {
        for (range, at, expected) in [
            ([0.0, 1.0], 0, 0.0),
            ([0.0, 1.0], 255, 1.0),
            ([0.0, 1.0], 51, 0.2),
            ([-1.0, 1.0], 0, -1.0),
            ([-1.0, 1.0], 255, 1.0),
            ([0.0, 255.0], 77, 77.0),
            ([1.0, 0.0], 255, 0.0),
        ] {
            assert!((levels(range)[at] - expected).abs() < 1e-12, "{range:?} {at}");
        }
    }

    #[test]
    fn levels_equal_division_in_single_precision() {
        let table = levels([0.0, 1.0]).map(|v| v as f32);
        for (level, value) in table.iter().enumerate() {
            assert_eq!(*value, level as f32 / 255.0);
        }
    }

    #[test]
    fn channels_come_first_or_last() {
        let table = levels([0.0, 255.0]).map(|v| v as f32);
        // One row of two pixels with three channels.
        let pixels = [1, 2, 3, 4, 5, 6];
        for (layout, expected) in
            [(Layout::Hwc, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), (Layout::Chw, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0])]
        {
            let mut out = [0.0; 6];
            convert(&table, layout, 3, &pixels, &mut out);
            assert_eq!(out, expected);
        }
        for channels in [1, 2, 3, 4, 5] {
            let pixels: Vec<u8> = (0..60).collect();
            let mut out = [0.0; 60];
            convert(&table, Layout::Chw, channels, &pixels, &mut out);
            for (at, value) in out.iter().enumerate() {
                let (channel, pixel) = (at / (60 / channels), at % (60 / channels));
                assert_eq!(*value, (pixel * channels + channel) as f32, "{channels} channels");
            }
            convert(&table, Layout::Chw, channels, &[], &mut []);
        }
        convert(&table, Layout::Chw, 0, &[], &mut []);
    }
}
