//! Matrix products of cuBLASLt.

use crate::context::Context;
use crate::error::Error;
use crate::library::Library;
use crate::memory::Buffer;
use crate::routine::{ElementType, Extent};
use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtEpilogue_t as Epilogue, cublasLtMatmulDescAttributes_t as OfProduct,
    cublasLtMatmulPreferenceAttributes_t as OfPreference, cublasLtMatrixLayoutAttribute_t as OfLayout, cudaDataType,
};
use cudarc::cublaslt::{result, sys as lt};
use cudarc::driver::sys::CUstream;
use std::ffi::c_void;
use std::sync::Arc;

/// Where the elements of a matrix lie in memory, as distances of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// From the beginning of the memory to the first element.
    pub offset: usize,
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
    pub column: usize,
    /// From one matrix of a batch to the next.
    pub batch: usize,
}

/// A matrix product to be prepared: `d = a b`, for each of a batch, computed in `F32`.
#[derive(Clone, Debug)]
pub struct Multiplication {
    /// The rows of `a` and `d`.
    pub m: usize,
    /// The columns of `b` and `d`.
    pub n: usize,
    /// The columns of `a` and rows of `b`.
    pub k: usize,
    /// How many.
    pub batches: usize,
    /// The elements of `a` and `b`.
    pub factors: ElementType,
    /// The elements of `d` and the bias.
    pub result: ElementType,
    /// The first factor.
    pub a: Operand,
    /// The second factor.
    pub b: Operand,
    /// The result, whose columns lie beside each other.
    pub d: Operand,
    /// Whether factors in `F32` may be rounded to 11 significant bits.
    pub tf32: bool,
    /// `n` numbers that are added to each row, and where they begin.
    pub bias: Option<(Arc<Buffer>, usize)>,
}

/// A matrix product, with the algorithm that cuBLASLt chose for it.
#[derive(Debug)]
pub struct Product {
    context: Arc<Context>,
    description: lt::cublasLtMatmulDesc_t,
    /// Of its factors and its result, in cuBLASLt's order: `b`, `a`, `d`.
    layouts: [lt::cublasLtMatrixLayout_t; 3],
    algorithm: lt::cublasLtMatmulAlgo_t,
    /// Of `a`, `b` and `d`.
    extent: Extent,
    /// The memory of the bias.
    bias: Option<Arc<Buffer>>,
}

// SAFETY: descriptions and layouts are plain data of the host, which nothing changes after they
// were made; cuBLASLt may be called by several threads at the same time.
unsafe impl Send for Product {}
// SAFETY: as above.
unsafe impl Sync for Product {}

/// The handle of cuBLASLt for a context.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) lt::cublasLtHandle_t);

// SAFETY: cuBLASLt's documentation says that a handle may be used by several threads.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Creates the handle for the context of the calling thread.
    pub(crate) fn new() -> Result<Handle, Error> {
        Library::CublasLt.load()?;
        result::create_handle().map(Handle).named("cublasLtCreate")
    }
}

impl Drop for Handle {
    /// The context must still work: one that does not forgets the handle instead.
    fn drop(&mut self) {
        // SAFETY: created by `new`; products hold the context that holds it, so none is left.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

trait Named<T> {
    fn named(self, call: &str) -> Result<T, Error>;
}

impl<T> Named<T> for Result<T, CublasError> {
    fn named(self, call: &str) -> Result<T, Error> {
        self.map_err(|error| Error::Refused(format!("{call}: {:?}", error.0)))
    }
}

/// The most memory that an algorithm may use beside its matrices: what NVIDIA recommends for its
/// newest GPUs.
const MAX_WORKSPACE: usize = 32 << 20;

impl ElementType {
    fn of_cublas(self) -> cudaDataType {
        match self {
            ElementType::F32 => cudaDataType::CUDA_R_32F,
            ElementType::F16 => cudaDataType::CUDA_R_16F,
            ElementType::Bf16 => cudaDataType::CUDA_R_16BF,
        }
    }
}

/// The numbers of cuBLAS's operations on a matrix, which the bindings of cuBLASLt leave out.
const AS_IT_IS: i32 = 0;
const TRANSPOSED: i32 = 1;

/// How a matrix is described to cuBLASLt, which counts columns first.
struct Described {
    rows: usize,
    columns: usize,
    distance: usize,
    /// What is done to it: see [`AS_IT_IS`].
    operation: i32,
}

impl Described {
    /// Describes the transpose of a matrix of so many rows and columns; `None` if neither lie
    /// beside each other.
    fn of(operand: &Operand, rows: usize, columns: usize) -> Option<Described> {
        if operand.column == 1 && operand.row >= columns {
            return Some(Described { rows: columns, columns: rows, distance: operand.row, operation: AS_IT_IS });
        }
        let fits = operand.row == 1 && operand.column >= rows;
        fits.then_some(Described { rows, columns, distance: operand.column, operation: TRANSPOSED })
    }

    /// The bytes that it begins and ends at.
    fn range(&self, operand: &Operand, batches: usize, element: ElementType) -> Option<(usize, usize)> {
        let last = (self.columns - 1).checked_mul(self.distance)?.checked_add(self.rows)?;
        let behind = (batches - 1).checked_mul(operand.batch)?.checked_add(last)?.checked_add(operand.offset)?;
        Some((operand.offset.checked_mul(element.bytes())?, behind.checked_mul(element.bytes())?))
    }
}

/// Sets an attribute of so many bytes.
fn attribute<T>(
    set: impl FnOnce(*const c_void, usize) -> Result<(), CublasError>,
    call: &str,
    value: T,
) -> Result<(), Error> {
    set(std::ptr::from_ref(&value).cast(), size_of::<T>()).named(call)
}

impl Product {
    /// Prepares a product.
    ///
    /// # Errors
    /// If cuBLASLt is missing, or has no algorithm for it.
    pub fn new(context: &Arc<Context>, of: &Multiplication) -> Result<Product, Error> {
        let refused = |why: &str| Error::Refused(why.into());
        if [of.m, of.n, of.k, of.batches].contains(&0) {
            return Err(refused("a product must have at least 1 element, got 0"));
        }
        let handle = context.cublas_lt()?;
        let b = Described::of(&of.b, of.k, of.n)
            .ok_or_else(|| refused("the second factor must be contiguous along an axis"))?;
        let a = Described::of(&of.a, of.m, of.k)
            .ok_or_else(|| refused("the first factor must be contiguous along an axis"))?;
        let d =
            Described::of(&of.d, of.m, of.n).ok_or_else(|| refused("the result must be contiguous along an axis"))?;
        if d.operation != AS_IT_IS {
            return Err(refused("the rows of the result must be contiguous"));
        }
        let parts = [(&b, &of.b, of.factors), (&a, &of.a, of.factors), (&d, &of.d, of.result)];
        let mut ranges = [(0, 0); 3];
        let [of_b, of_a, of_d] = parts;
        for (range, (described, operand, element)) in std::iter::zip(&mut ranges, [of_a, of_b, of_d]) {
            *range = described
                .range(operand, of.batches, element)
                .ok_or_else(|| refused("the size of a matrix must fit 64 bits, got more"))?;
        }
        let compute = match of.tf32 && of.factors == ElementType::F32 {
            true => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
            false => Compute::CUBLAS_COMPUTE_32F,
        };
        let description =
            result::create_matmul_desc(compute, cudaDataType::CUDA_R_32F).named("cublasLtMatmulDescCreate")?;
        let mut made = Product {
            context: context.clone(),
            description,
            layouts: [std::ptr::null_mut(); 3],
            // SAFETY: an array of numbers; the heuristic writes them.
            algorithm: unsafe { std::mem::zeroed() },
            extent: Extent { ranges, workspace: 0 },
            bias: None,
        };
        for (layout, (described, operand, element)) in std::iter::zip(&mut made.layouts, parts) {
            let (rows, columns) = (described.rows as u64, described.columns as u64);
            *layout = result::create_matrix_layout(element.of_cublas(), rows, columns, described.distance as i64)
                .named("cublasLtMatrixLayoutCreate")?;
            let too_many =
                |_| Error::Refused(format!("a product must have at most {} matrices, got {}", i32::MAX, of.batches));
            let count = i32::try_from(of.batches).map_err(too_many)?;
            for (which, bytes) in [
                (OfLayout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count.to_ne_bytes()[..]),
                (OfLayout::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &(operand.batch as i64).to_ne_bytes()),
            ] {
                // SAFETY: the layout was created above; so many bytes are there.
                unsafe { result::set_matrix_layout_attribute(*layout, which, bytes.as_ptr().cast(), bytes.len()) }
                    .named("cublasLtMatrixLayoutSetAttribute")?;
            }
        }
        // SAFETY: the description was created above.
        let set =
            |which| move |from, bytes| unsafe { result::set_matmul_desc_attribute(description, which, from, bytes) };
        let call = "cublasLtMatmulDescSetAttribute";
        attribute(set(OfProduct::CUBLASLT_MATMUL_DESC_TRANSA), call, b.operation)?;
        attribute(set(OfProduct::CUBLASLT_MATMUL_DESC_TRANSB), call, a.operation)?;
        if let Some((buffer, offset)) = &of.bias {
            let bytes = buffer.bytes();
            let outside = || refused(&format!("the bias must end within {bytes} bytes, got more"));
            let begin = offset.checked_mul(of.result.bytes()).ok_or_else(outside)?;
            let end =
                of.n.checked_mul(of.result.bytes()).and_then(|bytes| bytes.checked_add(begin)).ok_or_else(outside)?;
            if !Arc::ptr_eq(buffer.context(), context) {
                return Err(refused("expected a bias on the device of the product, found a bias on another device"));
            }
            if end > bytes {
                return Err(refused(&format!("the bias must end within {bytes} bytes, got {end}")));
            }
            // As vectors of 16 bytes.
            if !begin.is_multiple_of(16) {
                return Err(refused(&format!("the bias must be aligned to 16 bytes, got an offset of {begin} bytes")));
            }
            attribute(set(OfProduct::CUBLASLT_MATMUL_DESC_EPILOGUE), call, Epilogue::CUBLASLT_EPILOGUE_BIAS)?;
            attribute(set(OfProduct::CUBLASLT_MATMUL_DESC_BIAS_POINTER), call, buffer.address() + begin as u64)?;
            made.bias = Some(buffer.clone());
        }
        made.choose(handle)?;
        Ok(made)
    }

    /// Takes the algorithm that cuBLASLt expects to be the fastest.
    fn choose(&mut self, handle: &Handle) -> Result<(), Error> {
        let preference = result::create_matmul_pref().named("cublasLtMatmulPreferenceCreate")?;
        // SAFETY: the preference was created above, and is destroyed below.
        let set =
            |which| move |from, bytes| unsafe { result::set_matmul_pref_attribute(preference, which, from, bytes) };
        let call = "cublasLtMatmulPreferenceSetAttribute";
        let [a, b, d] = self.extent.ranges.map(|(begin, _)| alignment(begin));
        let [of_b, of_a, of_d] = self.layouts;
        let chosen = attribute(set(OfPreference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), call, MAX_WORKSPACE as u64)
            .and_then(|()| attribute(set(OfPreference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), call, b))
            .and_then(|()| attribute(set(OfPreference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES), call, a))
            .and_then(|()| attribute(set(OfPreference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), call, d))
            .and_then(|()| attribute(set(OfPreference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), call, d))
            .and_then(|()| {
                // SAFETY: all of these were created above.
                unsafe {
                    result::get_matmul_algo_heuristic(handle.0, self.description, of_b, of_a, of_d, of_d, preference)
                }
                .named("cublasLtMatmulAlgoGetHeuristic")
            });
        // SAFETY: created above, and not used any more.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        let chosen = chosen?;
        (self.algorithm, self.extent.workspace) = (chosen.algo, chosen.workspaceSize);
        Ok(())
    }

    /// Returns how much memory it needs beside its matrices.
    pub fn workspace(&self) -> usize {
        self.extent.workspace
    }

    /// Enqueues it; the memory is that of `a`, `b` and `d`.
    pub(crate) fn enqueue(&self, stream: CUstream, arrays: [&Buffer; 3], workspace: &Buffer) -> Result<(), Error> {
        let [a, b, d] = self.extent.addresses(&self.context, arrays, workspace)?;
        let handle = self.context.cublas_lt()?;
        let [of_b, of_a, of_d] = self.layouts;
        let (one, zero) = (1f32, 0f32);
        let factor = |number: &f32| std::ptr::from_ref(number).cast();
        // SAFETY: the ranges of all matrices were compared with their memory, and the caller keeps
        // that until the work has ended; the bias was compared when this was made, and lives as
        // long. Both factors are read before this returns.
        unsafe {
            result::matmul(
                handle.0,
                self.description,
                factor(&one),
                factor(&zero),
                b,
                of_b,
                a,
                of_a,
                d,
                of_d,
                d,
                of_d,
                &self.algorithm,
                workspace.address() as *mut c_void,
                self.extent.workspace,
                stream.cast(),
            )
        }
        .named("cublasLtMatmul")
    }
}

/// The alignment that an address has which begins so many bytes behind an allocation.
fn alignment(begin: usize) -> u32 {
    1 << begin.trailing_zeros().min(8)
}

impl Drop for Product {
    fn drop(&mut self) {
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: created by `new`; a call reads it only before it returns.
            let _ = unsafe { result::destroy_matrix_layout(layout) };
        }
        // SAFETY: as above.
        let _ = unsafe { result::destroy_matmul_desc(self.description) };
    }
}
