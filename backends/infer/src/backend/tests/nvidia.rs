//! ONNX Runtime on an NVIDIA GPU, with the library that the other tests use, which is one for the
//! CPU.

use crate::backend::{OrtCuda, OrtNvidiaRuntime, OrtTensorrt};
use crate::base::BackendOptions;
use crate::onnx::Runtime;

#[test]
fn a_library_for_the_cpu_is_refused_with_what_to_install() {
    let options = BackendOptions::default();
    let found = [OrtNvidiaRuntime::<OrtCuda>::probe(&options), OrtNvidiaRuntime::<OrtTensorrt>::probe(&options)];
    for (found, device) in std::iter::zip(found, ["cuda", "tensorrt"]) {
        // Somebody may run the tests with the library for GPUs.
        let Err(why) = found else { continue };
        let why = why.to_string();
        let is_named = why.contains(&format!("built without {device}")) && why.contains("pip install onnxruntime-gpu");
        assert!(is_named || why.contains(&format!("cannot start {device}")), "{why}");
    }
}
