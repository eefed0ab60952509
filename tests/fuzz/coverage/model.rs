//! ONNX files: messages, outline, and sizes of constants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let found = limen_infer::onnx::Artifact::parse("/nowhere/model.onnx".as_ref(), bytes.to_vec());
    if let Err(error) = found {
        assert!(!error.to_string().is_empty());
    }
});
