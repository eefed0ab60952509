//! A program for a device: what a model's call computes, in kernels over arrays, with its memory
//! planned.

use super::kernel::{Kernel, Scalar};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An array in device memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Array {
    pub(crate) scalar: Scalar,
    /// Its elements.
    pub(crate) len: usize,
    pub(crate) source: Source,
    /// Whether a device keeps its fractions in 16 bits each.
    pub(crate) is_half: bool,
}

/// Where an array's elements come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Source {
    /// An input of the program.
    Input,
    /// An input of unsigned bytes, of which a device may keep four in a word.
    Bytes,
    /// The bits of its elements, which are no part of its text.
    Constant(#[serde(skip)] Arc<[u32]>),
    Computed,
}

/// How a device stores the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// In 32 bits each.
    Word(Scalar),
    /// In unsigned bytes.
    Byte,
    /// As fractions of 16 bits.
    Half,
}

impl Array {
    pub(crate) fn storage(&self) -> Storage {
        match self.source {
            Source::Bytes => Storage::Byte,
            _ if self.is_half => Storage::Half,
            _ => Storage::Word(self.scalar),
        }
    }

    /// The words that it takes on a device.
    pub(crate) fn words(&self) -> usize {
        match self.source {
            Source::Bytes => self.len.div_ceil(4),
            _ if self.is_half => self.len.div_ceil(2),
            _ => self.len,
        }
    }
}

/// Fractions of 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Half {
    /// Those of IEEE 754: 11 digits up to 65504.
    #[default]
    F16,
    /// The upper half of an `f32`: 8 digits, and its range.
    Bf16,
}

/// Kernels in the order in which they run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) arrays: Vec<Array>,
    pub(crate) kernels: Vec<Kernel>,
    /// The arrays of the inputs.
    pub(crate) inputs: Vec<usize>,
    /// The arrays of the outputs, with their shapes.
    pub(crate) outputs: Vec<(usize, Vec<usize>)>,
    /// What its arrays of fractions of 16 bits hold.
    pub(crate) half: Half,
    /// Whether products of matrices may keep 11 significant bits of each factor (TF32), where a
    /// device has that.
    pub(crate) tf32: bool,
}

/// The memory of a program: arrays that are never needed at the same time share a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The words of each shared buffer.
    pub(crate) buffers: Vec<usize>,
    /// The shared buffer of each array; `None` if it has its own, or none.
    pub(crate) of: Vec<Option<usize>>,
}

impl Program {
    /// Adds an array and returns its number.
    pub(crate) fn array(&mut self, scalar: Scalar, len: usize, source: Source) -> usize {
        self.arrays.push(Array { scalar, len, source, is_half: false });
        self.arrays.len() - 1
    }

    /// Keeps the fractions between its inputs and outputs in 16 bits: weights, and what one kernel
    /// computes for another.
    pub(crate) fn halve(&mut self, half: Half) {
        self.half = half;
        let outputs: Vec<usize> = self.outputs.iter().map(|(array, _)| *array).collect();
        for (at, array) in self.arrays.iter_mut().enumerate() {
            let is_inner = matches!(array.source, Source::Constant(_) | Source::Computed) && !outputs.contains(&at);
            array.is_half = is_inner && array.scalar == Scalar::F32;
        }
    }

    /// Removes the elements of arrays that no kernel needs: constants that are shapes or were
    /// written into expressions, and arrays whose kernel was fused with another or writes
    /// elsewhere.
    pub(crate) fn drop_unread(&mut self) {
        let (mut is_read, mut is_written) = (vec![false; self.arrays.len()], vec![false; self.arrays.len()]);
        self.kernels.iter().flat_map(Kernel::arrays).for_each(|array| is_read[array] = true);
        self.kernels.iter().for_each(|kernel| is_written[kernel.write.array] = true);
        self.outputs.iter().for_each(|(array, _)| is_read[*array] = true);
        for (at, array) in self.arrays.iter_mut().enumerate().filter(|(at, _)| !is_read[*at]) {
            match array.source {
                Source::Constant(_) => (array.len, array.source) = (0, Source::Constant(Arc::default())),
                Source::Computed if !is_written[at] => array.len = 0,
                Source::Computed | Source::Input | Source::Bytes => {}
            }
        }
    }

    /// Assigns computed arrays to buffers. A buffer is free again after the last kernel that reads
    /// its array, so a kernel never writes a buffer that it reads.
    pub(crate) fn memory(&self) -> Memory {
        let mut last = vec![0; self.arrays.len()];
        for (at, kernel) in self.kernels.iter().enumerate() {
            for array in kernel.arrays().into_iter().chain([kernel.write.array]) {
                last[array] = at;
            }
        }
        let is_output = |array: usize| self.outputs.iter().any(|(output, _)| *output == array);
        let mut memory = Memory { buffers: Vec::new(), of: vec![None; self.arrays.len()] };
        let mut free: Vec<usize> = Vec::new();
        for (at, kernel) in self.kernels.iter().enumerate() {
            let array = kernel.write.array;
            let is_shared = matches!(self.arrays[array].source, Source::Computed) && !is_output(array);
            if is_shared && memory.of[array].is_none() {
                let len = self.arrays[array].words();
                // The smallest that is large enough, otherwise the largest, which then grows.
                let fits = |buffer: &usize| (memory.buffers[*buffer] < len, memory.buffers[*buffer].abs_diff(len));
                let buffer = match free.iter().enumerate().min_by_key(|(_, buffer)| fits(buffer)) {
                    Some((place, _)) => free.remove(place),
                    None => {
                        memory.buffers.push(0);
                        memory.buffers.len() - 1
                    }
                };
                memory.buffers[buffer] = memory.buffers[buffer].max(len);
                memory.of[array] = Some(buffer);
            }
            let mut ended: Vec<usize> = kernel.arrays();
            ended.push(array);
            ended.sort_unstable();
            ended.dedup();
            free.extend(ended.into_iter().filter(|array| last[*array] == at).filter_map(|array| memory.of[array]));
        }
        memory
    }
}
