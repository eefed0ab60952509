//! Convolutions of cuDNN.

use crate::context::Context;
use crate::error::Error;
use crate::library::Library;
use crate::memory::Buffer;
use crate::routine::{ElementType, Extent};
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys::{
    self as dn, cudnnConvolutionBwdDataAlgo_t as Backward, cudnnConvolutionFwdAlgo_t as Forward,
    cudnnConvolutionMode_t as Mode, cudnnDataType_t as Type, cudnnMathType_t as Math, cudnnTensorFormat_t as Format,
};
use cudarc::driver::sys::CUstream;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::{Arc, PoisonError};

/// Images in memory: how many, their channels, layers, rows and columns, and the distances of
/// elements along each. An image of two dimensions has one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Images {
    /// From the beginning of the memory to the first element.
    pub offset: usize,
    /// Images, channels, layers, rows, columns.
    pub lengths: [usize; 5],
    /// The distances of elements.
    pub strides: [usize; 5],
}

/// A convolution to be prepared, computed in `F32`: the sum over the taps of a window and the
/// channels of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvolutionSpec {
    /// The input.
    pub x: Images,
    /// From the beginning of the memory to the first weight.
    pub w_offset: usize,
    /// The weights, which lie without gaps: output channels, input channels of a group, layers,
    /// rows, columns. If it is transposed: input channels, output channels of a group, layers,
    /// rows, columns.
    pub w: [usize; 5],
    /// The output.
    pub y: Images,
    /// Whether it is a transposed convolution (ONNX: `ConvTranspose`): what the convolution from
    /// `y` to `x` with this window would read to compute an element of `x` is what that element is
    /// added to, weighted.
    pub transposed: bool,
    /// Into how many groups channels are divided.
    pub groups: usize,
    /// Layers, rows and columns of zeros around an image, on each side.
    pub pads: [usize; 3],
    /// From one place of the window to the next.
    pub strides: [usize; 3],
    /// From one tap to the next.
    pub dilations: [usize; 3],
    /// The elements of all three.
    pub element: ElementType,
    /// Whether elements in `F32` may be rounded to 11 significant bits.
    pub tf32: bool,
}

/// A convolution, with the algorithm that cuDNN chose for it.
#[derive(Debug)]
pub struct Convolution {
    context: Arc<Context>,
    x: dn::cudnnTensorDescriptor_t,
    w: dn::cudnnFilterDescriptor_t,
    y: dn::cudnnTensorDescriptor_t,
    window: dn::cudnnConvolutionDescriptor_t,
    algorithm: Algorithm,
    /// Of `x`, `w` and `y`.
    extent: Extent,
}

/// An algorithm of cuDNN.
#[derive(Clone, Copy, Debug)]
enum Algorithm {
    Forward(Forward),
    /// Of the gradient of the data: what a transposed convolution computes.
    Backward(Backward),
}

// SAFETY: descriptors are plain data of the host, which nothing changes after they were made; cuDNN
// reads them while the handle is locked.
unsafe impl Send for Convolution {}
// SAFETY: as above.
unsafe impl Sync for Convolution {}

/// The handle of cuDNN for a context, which one thread may use at a time.
#[derive(Debug)]
pub(crate) struct DnnHandle(dn::cudnnHandle_t);

// SAFETY: cuDNN's documentation says that a handle may be used by several threads, one after the
// other.
unsafe impl Send for DnnHandle {}

/// The oldest version whose errors are those that are known here.
const OLDEST: usize = 90000;

impl DnnHandle {
    /// Creates the handle for the context of the calling thread.
    pub(crate) fn new() -> Result<DnnHandle, Error> {
        Library::Cudnn.load()?;
        let version = result::get_version();
        if version < OLDEST {
            return Err(Error::Refused(format!("cuDNN must be version {OLDEST} or later, got {version}")));
        }
        result::create_handle().map(DnnHandle).named("cudnnCreate")
    }
}

impl Drop for DnnHandle {
    /// The context must still work: one that does not forgets the handle instead.
    fn drop(&mut self) {
        // SAFETY: created by `new`; convolutions hold the context that holds it, so none is left.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

trait Named<T> {
    fn named(self, call: &str) -> Result<T, Error>;
}

impl<T> Named<T> for Result<T, CudnnError> {
    fn named(self, call: &str) -> Result<T, Error> {
        self.map_err(|error| Error::Refused(format!("{call}: {:?}", error.0)))
    }
}

/// The most memory that an algorithm may use beside its arrays.
const MAX_WORKSPACE: usize = 64 << 20;

/// Algorithms that cuDNN is asked for: as many as it has.
const FORWARD: [Forward; 8] = [
    Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
    Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
    Forward::CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
    Forward::CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
    Forward::CUDNN_CONVOLUTION_FWD_ALGO_FFT,
    Forward::CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
    Forward::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
    Forward::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
];

/// As above, of transposed convolutions.
const BACKWARD: [Backward; 6] = [
    Backward::CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
    Backward::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
    Backward::CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
    Backward::CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
    Backward::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
    Backward::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
];

impl ElementType {
    fn of_cudnn(self) -> Type {
        match self {
            ElementType::F32 => Type::CUDNN_DATA_FLOAT,
            ElementType::F16 => Type::CUDNN_DATA_HALF,
            ElementType::Bf16 => Type::CUDNN_DATA_BFLOAT16,
        }
    }
}

impl Images {
    /// The bytes that they begin and end at.
    fn range(&self, element: ElementType) -> Option<(usize, usize)> {
        let mut last = self.offset;
        for (length, stride) in std::iter::zip(self.lengths, self.strides) {
            last = last.checked_add(length.checked_sub(1)?.checked_mul(stride)?)?;
        }
        Some((self.offset.checked_mul(element.bytes())?, last.checked_add(1)?.checked_mul(element.bytes())?))
    }
}

fn numbers(of: &[usize]) -> Result<Vec<c_int>, Error> {
    let number = |of: &usize| {
        c_int::try_from(*of).map_err(|_| Error::Refused(format!("a length or stride must fit 32 bits, got {of}")))
    };
    of.iter().map(number).collect()
}

/// Without the number of layers, if there is one of each.
fn without_layer<const N: usize>(of: &[usize; N], is_flat: bool) -> Result<Vec<c_int>, Error> {
    let mut numbers = numbers(of)?;
    if is_flat {
        numbers.remove(N - 3);
    }
    Ok(numbers)
}

/// The answers of cuDNN that may be used, the fastest first: each algorithm as a number and whether
/// it succeeded.
macro_rules! usable {
    ($found:expr, $count:expr, $of:ty, $known:expr) => {{
        let answer = |found: &MaybeUninit<$of>| {
            let found = found.as_ptr();
            // SAFETY: cuDNN has written so many. Read as numbers, because a newer version may have
            // others than are known here.
            unsafe {
                ((&raw const (*found).algo).cast::<u32>().read(), (&raw const (*found).status).cast::<u32>().read())
            }
        };
        let succeeds = |status: u32| status == dn::cudnnStatus_t::CUDNN_STATUS_SUCCESS as u32;
        let answers = $found.iter().take(usize::try_from($count).unwrap_or(0)).map(answer);
        let usable = answers.filter(|(_, status)| succeeds(*status));
        usable.filter_map(|(number, _)| $known.into_iter().find(|known| *known as u32 == number)).collect::<Vec<_>>()
    }};
}

impl Convolution {
    /// Prepares a convolution.
    ///
    /// # Errors
    /// If cuDNN is missing, or has no algorithm for it.
    pub fn new(context: &Arc<Context>, of: &ConvolutionSpec) -> Result<Convolution, Error> {
        let too_large = || Error::Refused("the length of an array must fit 64 bits, got more".into());
        let weights = of.w.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
        let w = Images { offset: of.w_offset, lengths: [1, 1, 1, 1, weights.ok_or_else(too_large)?], strides: [1; 5] };
        let mut ranges = [(0, 0); 3];
        for (range, images) in std::iter::zip(&mut ranges, [&of.x, &w, &of.y]) {
            *range = images.range(of.element).ok_or_else(too_large)?;
            // Kernels that use tensor cores read vectors of 16 bytes.
            if !range.0.is_multiple_of(16) {
                let why = format!("an array must be aligned to 16 bytes, got an offset of {} bytes", range.0);
                return Err(Error::Refused(why));
            }
        }
        let handle = context.cudnn()?.lock().unwrap_or_else(PoisonError::into_inner);
        let mut made = Convolution {
            context: context.clone(),
            x: std::ptr::null_mut(),
            w: std::ptr::null_mut(),
            y: std::ptr::null_mut(),
            window: std::ptr::null_mut(),
            algorithm: if of.transposed { Algorithm::Backward(BACKWARD[0]) } else { Algorithm::Forward(FORWARD[0]) },
            extent: Extent { ranges, workspace: 0 },
        };
        made.describe(of)?;
        made.choose(&handle)?;
        Ok(made)
    }

    fn describe(&mut self, of: &ConvolutionSpec) -> Result<(), Error> {
        let element = of.element.of_cudnn();
        // cuDNN has more algorithms for images of two dimensions.
        let is_flat = [of.x.lengths[2], of.y.lengths[2], of.w[2]] == [1; 3] && of.pads[0] == 0;
        for (descriptor, images) in [(&mut self.x, &of.x), (&mut self.y, &of.y)] {
            *descriptor = result::create_tensor_descriptor().named("cudnnCreateTensorDescriptor")?;
            let (lengths, strides) =
                (without_layer(&images.lengths, is_flat)?, without_layer(&images.strides, is_flat)?);
            let rank = lengths.len() as c_int;
            // SAFETY: created above; there are `rank` lengths and strides.
            unsafe { result::set_tensornd_descriptor(*descriptor, element, rank, lengths.as_ptr(), strides.as_ptr()) }
                .named("cudnnSetTensorNdDescriptor")?;
        }
        self.w = result::create_filter_descriptor().named("cudnnCreateFilterDescriptor")?;
        let lengths = without_layer(&of.w, is_flat)?;
        let format = Format::CUDNN_TENSOR_NCHW;
        // SAFETY: created above; there are as many lengths.
        unsafe { result::set_filternd_descriptor(self.w, element, format, lengths.len() as c_int, lengths.as_ptr()) }
            .named("cudnnSetFilterNdDescriptor")?;
        self.window = result::create_convolution_descriptor().named("cudnnCreateConvolutionDescriptor")?;
        let [pads, strides, dilations] =
            [&of.pads, &of.strides, &of.dilations].map(|numbers| without_layer(numbers, is_flat));
        let (pads, strides, dilations) = (pads?, strides?, dilations?);
        let groups = numbers(&[of.groups])?[0];
        let (mode, computed) = (Mode::CUDNN_CROSS_CORRELATION, Type::CUDNN_DATA_FLOAT);
        let math = match of.element {
            // The default is TF32 where the device has it.
            ElementType::F32 if !of.tf32 => Math::CUDNN_FMA_MATH,
            ElementType::F32 => Math::CUDNN_DEFAULT_MATH,
            ElementType::F16 | ElementType::Bf16 => Math::CUDNN_TENSOR_OP_MATH,
        };
        // SAFETY: created above; there are as many numbers of each.
        unsafe {
            result::set_convolutionnd_descriptor(
                self.window,
                pads.len() as c_int,
                pads.as_ptr(),
                strides.as_ptr(),
                dilations.as_ptr(),
                mode,
                computed,
            )
            .named("cudnnSetConvolutionNdDescriptor")?;
            result::set_convolution_group_count(self.window, groups).named("cudnnSetConvolutionGroupCount")?;
            result::set_convolution_math_type(self.window, math).named("cudnnSetConvolutionMathType")
        }
    }

    /// Takes the algorithm that cuDNN expects to be the fastest.
    fn choose(&mut self, handle: &DnnHandle) -> Result<(), Error> {
        let (call, found) = match self.algorithm {
            Algorithm::Forward(_) => ("cudnnGetConvolutionForwardAlgorithm_v7", self.forward_algorithms(handle)),
            Algorithm::Backward(_) => ("cudnnGetConvolutionBackwardDataAlgorithm_v7", self.backward_algorithms(handle)),
        };
        for algorithm in found.named(call)? {
            // SAFETY: all of these were created before. An algorithm that does not fit answers with
            // an error.
            let needed = unsafe {
                match algorithm {
                    Algorithm::Forward(algorithm) => result::get_convolution_forward_workspace_size(
                        handle.0,
                        self.x,
                        self.w,
                        self.window,
                        self.y,
                        algorithm,
                    ),
                    Algorithm::Backward(algorithm) => result::get_convolution_backward_data_workspace_size(
                        handle.0,
                        self.w,
                        self.x,
                        self.window,
                        self.y,
                        algorithm,
                    ),
                }
            };
            if let Ok(workspace) = needed
                && workspace <= MAX_WORKSPACE
            {
                (self.algorithm, self.extent.workspace) = (algorithm, workspace);
                return Ok(());
            }
        }
        Err(Error::Refused(format!("{call}: cuDNN has no algorithm for this convolution")))
    }

    fn forward_algorithms(&self, handle: &DnnHandle) -> Result<Vec<Algorithm>, CudnnError> {
        let mut found = [const { MaybeUninit::<dn::cudnnConvolutionFwdAlgoPerf_t>::uninit() }; FORWARD.len()];
        let mut count = 0;
        // SAFETY: all of these were created before; there is room for so many.
        unsafe {
            result::get_convolution_forward_algorithm(
                handle.0,
                self.x,
                self.w,
                self.window,
                self.y,
                FORWARD.len() as c_int,
                &mut count,
                found.as_mut_ptr().cast(),
            )
        }?;
        Ok(usable!(found, count, dn::cudnnConvolutionFwdAlgoPerf_t, FORWARD)
            .into_iter()
            .map(Algorithm::Forward)
            .collect())
    }

    fn backward_algorithms(&self, handle: &DnnHandle) -> Result<Vec<Algorithm>, CudnnError> {
        let mut found = [const { MaybeUninit::<dn::cudnnConvolutionBwdDataAlgoPerf_t>::uninit() }; BACKWARD.len()];
        let mut count = 0;
        // SAFETY: all of these were created before; there is room for so many.
        unsafe {
            result::get_convolution_backward_data_algorithm(
                handle.0,
                self.w,
                self.x,
                self.window,
                self.y,
                BACKWARD.len() as c_int,
                &mut count,
                found.as_mut_ptr().cast(),
            )
        }?;
        Ok(usable!(found, count, dn::cudnnConvolutionBwdDataAlgoPerf_t, BACKWARD)
            .into_iter()
            .map(Algorithm::Backward)
            .collect())
    }

    /// Returns how much memory it needs beside its arrays.
    pub fn workspace(&self) -> usize {
        self.extent.workspace
    }

    /// Enqueues it; the memory is that of `x`, `w` and `y`.
    pub(crate) fn enqueue(&self, stream: CUstream, arrays: [&Buffer; 3], workspace: &Buffer) -> Result<(), Error> {
        let [x, w, y] = self.extent.addresses(&self.context, arrays, workspace)?;
        let (one, zero) = (1f32, 0f32);
        let [one, zero] = [&one, &zero].map(|factor| std::ptr::from_ref(factor).cast());
        let (workspace, bytes) = (workspace.address() as *mut _, self.extent.workspace);
        let handle = self.context.cudnn()?.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the ranges of all arrays were compared with their memory, and the caller keeps
        // that until the work has ended. The stream is the caller's; no other thread sets another
        // one while the handle is locked. Both factors are read before this returns.
        unsafe {
            result::set_stream(handle.0, stream.cast()).named("cudnnSetStream")?;
            match self.algorithm {
                Algorithm::Forward(algorithm) => result::convolution_forward(
                    handle.0,
                    one,
                    self.x,
                    x,
                    self.w,
                    w,
                    self.window,
                    algorithm,
                    workspace,
                    bytes,
                    zero,
                    self.y,
                    y,
                )
                .named("cudnnConvolutionForward"),
                Algorithm::Backward(algorithm) => result::convolution_backward_data(
                    handle.0,
                    one,
                    self.w,
                    w,
                    self.x,
                    x,
                    self.window,
                    algorithm,
                    workspace,
                    bytes,
                    zero,
                    self.y,
                    y,
                )
                .named("cudnnConvolutionBackwardData"),
            }
        }
    }
}

impl Drop for Convolution {
    fn drop(&mut self) {
        // SAFETY: created by `new`, where they are not null; a call reads them only before it
        // returns.
        unsafe {
            for tensor in [self.x, self.y].into_iter().filter(|tensor| !tensor.is_null()) {
                let _ = result::destroy_tensor_descriptor(tensor);
            }
            if !self.w.is_null() {
                let _ = result::destroy_filter_descriptor(self.w);
            }
            if !self.window.is_null() {
                let _ = result::destroy_convolution_descriptor(self.window);
            }
        }
    }
}
