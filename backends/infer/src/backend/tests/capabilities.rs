//! What a runtime says that it can do, beside what it does.

use super::*;
use crate::onnx::{Elem, capabilities};

on_every_runtime! {
    element_types_are_those_that_calls_read
    calls_are_of_the_kind_that_is_listed
}

/// The types that a port carries as they are, by ONNX's numbers.
const ELEMS: [(D, DType); 9] = [
    (D::FLOAT, DType::F32),
    (D::FLOAT16, DType::F16),
    (D::INT8, DType::I8),
    (D::UINT8, DType::U8),
    (D::INT16, DType::I16),
    (D::UINT16, DType::U16),
    (D::INT32, DType::I32),
    (D::UINT32, DType::U32),
    (D::UINT64, DType::U64),
];

fn element_types_are_those_that_calls_read<R: Runtime>() {
    let listed = capabilities::<R>(&BackendOptions::default()).unwrap().dtypes;
    for (elem, dtype) in ELEMS {
        let file = model(&[("x", elem, &["n", "2"])], &[("y", elem, &["n", "2"])], &[], &["y = Identity x"]);
        let called = prepare_bytes::<R>(file, &[]).and_then(|prepared| {
            let (x, mut y, size) = ([1u64; 2], [0u64; 2], 2 * dtype.size());
            let input = BatchRef { dtype, shape: &[2], bytes: &bytemuck::cast_slice(&x)[..size] };
            let output = BatchMut { dtype, shape: &mut [2], bytes: &mut bytemuck::cast_slice_mut(&mut y)[..size] };
            prepared.session(1)?.infer_one(&[input], &mut [output], &mut OnnxLane::default())?;
            let same = bytemuck::cast_slice::<_, u8>(&x)[..size] == bytemuck::cast_slice::<_, u8>(&y)[..size];
            if same { Ok(()) } else { Err(BackendError::Call(format!("expected {x:?}, found {y:?}"))) }
        });
        assert_eq!(called.is_ok(), listed.contains(&dtype), "{dtype}: {called:?}, {listed:?}");
    }
    // Ports carry these as another type.
    let wide = [DType::F64, DType::I64, DType::BF16];
    assert!(!wide.iter().any(|dtype| listed.contains(dtype)), "{listed:?}");
    assert_eq!(Elem::ALL.len(), ELEMS.len() + 4);
}

fn calls_are_of_the_kind_that_is_listed<R: Runtime>() {
    let found = capabilities::<R>(&BackendOptions::default()).unwrap();
    let prepared = prepare::<R>("digits/digits.onnx");
    let mut session = prepared.session(64).unwrap();
    assert_eq!(session.enqueued().is_some(), found.streams);
    let memory = [Memory::Host, Memory::Device(0)];
    assert_eq!(found.memory, memory[..1 + usize::from(R::MEMORY.is_some())]);
    assert_eq!((found.graph_capture, found.max_batch), (false, None));
    assert_eq!(numbers(&mut session, &[1, 8, 8], &pixels(64), 10).unwrap().len(), 640);
    let model = OnnxModel { path: graphs("digits/digits.onnx"), threads: 2, ..OnnxModel::default() };
    let threads = Onnx::<R>::prepare(model).unwrap().session(1).unwrap().metadata().threads;
    assert_eq!(threads, found.max_threads.unwrap_or(2).min(2));
}
