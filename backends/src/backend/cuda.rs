//! Device programs on NVIDIA's GPUs, through CUDA. So far: their kernels in CUDA C.

mod cuda_c;

#[cfg(test)]
mod tests;
