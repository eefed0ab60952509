//! The models in `graphs`: signatures, numbers, and how they are prepared and called.

use super::*;

on_every_runtime! {
    the_shipped_models_have_their_signatures
    the_shipped_models_give_the_recorded_numbers
    outputs_that_differ_from_the_recorded_ones_are_named
    unaligned_buffers_are_copied
    more_threads_give_the_same_numbers
    a_lazy_model_is_prepared_by_its_first_call
}

fn the_shipped_models_have_their_signatures<R: Runtime>() {
    let shown = |model: &str| {
        let prepared = prepare::<R>(&format!("{model}.onnx"));
        let signature = prepared.signature();
        assert_eq!((signature.max_batch, prepared.single()), (None, None));
        let sides = signature.inputs.iter().chain(&signature.outputs);
        let text = |s: &TensorSpec| format!("{} {}", s.name, limen::message::PortSpec::new(s.dtype, s.shape.clone()));
        sides.map(text).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(shown(MODELS[0]), "image f32[1,8,8], logits f32[10]");
    assert_eq!(shown(MODELS[1]), "image f32[3,224,224], logits f32[100]");
    assert_eq!(shown(MODELS[2]), "image f32[3,192,256], scores f32[768,3], boxes f32[768,4]");
}

fn the_shipped_models_give_the_recorded_numbers<R: Runtime>() {
    for (model, items) in MODELS.into_iter().zip([8, 1, 1]) {
        let prepared = prepare::<R>(&format!("{model}.onnx"));
        for batch in [1, 3, 8] {
            assert_eq!(case_of(model).check(&prepared, batch, STRICT).unwrap(), items, "{model} {batch}");
        }
    }
}

fn outputs_that_differ_from_the_recorded_ones_are_named<R: Runtime>() {
    let exact = Tolerance { atol: 0.0, rtol: 0.0 };
    let prepared = prepare::<R>("digits/digits.onnx");
    let wrong = case_of(MODELS[0]).perturbed("logits").check(&prepared, 8, exact).unwrap_err();
    let text = wrong[0].to_string();
    assert!(text.starts_with("output `logits` differs from the recorded output: at ["), "{text}");
    assert!(text.contains("exceeds 0 (atol 0, rtol 0)") && text.contains("of 80 numbers"), "{text}");
}

fn unaligned_buffers_are_copied<R: Runtime>() {
    let prepared = prepare::<R>("digits/digits.onnx");
    let mut session = prepared.session(1).unwrap();
    let pixels = pixels(2);
    let images: Vec<&[u8]> = pixels.chunks(64).map(bytemuck::cast_slice).collect();
    let mut shifted = vec![0; images[0].len() + 8];
    let at = (1..5).find(|at| !(shifted.as_ptr() as usize + at).is_multiple_of(4)).unwrap();
    let found = answers(&[(0, false), (0, true), (1, false), (1, true)], |&(image, is_skewed)| {
        let mut y = [0f32; 10];
        let image: &[u8] = images[image];
        let skewed = &mut shifted[at..at + image.len()];
        skewed.copy_from_slice(image);
        let bytes = if is_skewed { skewed } else { image };
        call(&mut session, 1, bytes, &[1, 8, 8], &mut y).map(|()| y).unwrap()
    });
    assert_eq!((found[0], found[2]), (found[1], found[3]));
    let error = call(&mut session, 1, &images[0][..60], &[1, 8, 8], &mut [0f32; 10]).unwrap_err();
    assert!(matches!(error, BackendError::Call(_)), "{error}");
}

fn more_threads_give_the_same_numbers<R: Runtime>() {
    let path = graphs("detect/detector.onnx");
    let prepared = Onnx::<R>::prepare(OnnxModel { path, threads: 2, ..OnnxModel::default() }).unwrap();
    assert_eq!(case_of(MODELS[2]).check(&prepared, 1, STRICT).unwrap(), 1);
    let metadata = prepared.session(1).unwrap().metadata();
    assert_eq!(metadata.copied_out, 768 * 7 * 4);
    assert!(caught(|| drop(prepared)).is_ok());
}

fn a_lazy_model_is_prepared_by_its_first_call<R: Runtime>() {
    let model = |lazy| OnnxModel { path: graphs("digits/digits.onnx"), lazy, ..OnnxModel::default() };
    let case = case_of("digits/digits.onnx");
    let prepared = Onnx::<R>::prepare(model(true)).unwrap();
    let before = prepared.compiled().map_or(0, |found| found.compiled);
    let mut session = prepared.session(5).unwrap();
    assert!(!session.is_ready() && session.first_call().is_none());
    assert_eq!(prepared.compiled().map_or(0, |found| found.compiled), before);
    answers(&[pixels(1), pixels(2)], |x| numbers(&mut session, &[1, 8, 8], x, 10).unwrap());
    assert!(session.is_ready() && session.first_call().is_some_and(|took| !took.is_zero()));
    assert_eq!(session.metadata().threads, 1);
    assert!(case.check(&prepared, 5, STRICT).is_ok());
}
