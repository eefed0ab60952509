//! The work of `graphs/classify` written by hand: draw a frame, resize it, normalize it, run the
//! model, find the five best classes. One loop that uses the same libraries as the nodes of the
//! graph.

use limen::backend::{Backend, BatchMut, BatchRef, Prepared, Session};
use limen::message::DType;
use limen_infer::onnx::OnnxLane;
use limen_infer::{OnnxModel, Rten};
use limen_resize::{Filter, Resizer};

const WIDTH: usize = 640;
const HEIGHT: usize = 480;
const SIDE: usize = 224;

/// The buffers and the session, created once.
pub struct ByHand {
    session: <<Rten as Backend>::Prepared as Prepared>::Session,
    resizer: Resizer,
    frame: Vec<u8>,
    small: Vec<u8>,
    pixels: Vec<f32>,
    classes: Vec<f32>,
}

impl std::fmt::Debug for ByHand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByHand").finish_non_exhaustive()
    }
}

impl Default for ByHand {
    fn default() -> Self {
        ByHand::new()
    }
}

impl ByHand {
    /// Loads the model.
    ///
    /// # Panics
    /// When the current folder is not the root of the workspace.
    pub fn new() -> Self {
        let path = "graphs/classify/classifier.onnx".into();
        let prepared = Rten::prepare(OnnxModel { path, ..OnnxModel::default() }).unwrap_or_else(|e| panic!("{e}"));
        let classes = prepared.signature().outputs[0].shape.iter().map(|dim| match dim {
            limen::message::Dim::Fixed(n) => *n,
            _ => 1,
        });
        ByHand {
            classes: vec![0.0; classes.product()],
            session: prepared.session(1).unwrap_or_else(|e| panic!("{e}")),
            resizer: Resizer::new(Filter::Bilinear),
            frame: vec![0; WIDTH * HEIGHT * 3],
            small: vec![0; SIDE * SIDE * 3],
            pixels: vec![0.0; 3 * SIDE * SIDE],
        }
    }

    /// Draws the n-th frame of the graph's camera.
    pub fn draw(&self, n: usize, into: &mut [u8]) {
        for (y, row) in into.chunks_exact_mut(WIDTH * 3).enumerate() {
            for (x, pixel) in row.chunks_exact_mut(3).enumerate() {
                for (c, value) in pixel.iter_mut().enumerate() {
                    *value = (x * (c + 1) / 2 + y * (3 - c) / 2 + 7 * n) as u8;
                }
            }
        }
    }

    /// Processes one frame; returns the sum of its five best classes.
    pub fn frame(&mut self, n: usize) -> u64 {
        let mut frame = std::mem::take(&mut self.frame);
        self.draw(n, &mut frame);
        self.frame = frame;
        let mut small = std::mem::take(&mut self.small);
        self.resizer.scale([HEIGHT, WIDTH, 3], &self.frame, [SIDE, SIDE, 3], &mut small).expect("sizes fit");
        let classes = self.classify(&small);
        self.small = small;
        classes
    }

    /// Classifies a resized image; returns the sum of its five best classes.
    ///
    /// # Panics
    /// When the model fails.
    pub fn classify(&mut self, small: &[u8]) -> u64 {
        let (mean, std) = ([0.485f32, 0.456, 0.406], [0.229f32, 0.224, 0.225]);
        for (c, plane) in self.pixels.chunks_exact_mut(SIDE * SIDE).enumerate() {
            for (at, value) in plane.iter_mut().enumerate() {
                *value = (f32::from(small[3 * at + c]) / 255.0 - mean[c]) / std[c];
            }
        }
        let input = BatchRef { dtype: DType::F32, shape: &[3, SIDE, SIDE], bytes: bytemuck::cast_slice(&self.pixels) };
        let n = self.classes.len();
        let output =
            BatchMut { dtype: DType::F32, shape: &mut [n], bytes: bytemuck::cast_slice_mut(&mut self.classes) };
        self.session.infer_one(&[input], &mut [output], &mut OnnxLane::default()).unwrap_or_else(|e| panic!("{e}"));
        let mut order: Vec<usize> = (0..n).collect();
        order.select_nth_unstable_by(5, |a, b| self.classes[*b].total_cmp(&self.classes[*a]));
        order[..5].iter().map(|class| *class as u64).sum()
    }
}
