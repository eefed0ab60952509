//! The files of a model: other files in their place, shared ones, and those of weights.

use super::*;

on_every_runtime! {
    a_file_of_another_kind_is_named
    nodes_with_the_same_file_share_its_weights
    weights_may_be_in_files_beside_the_model
}

fn open<R: Runtime>(path: &Path) -> Result<Arc<Loaded<R>>, String> {
    let loaded =
        Artifact::open(path, Trials::MAX_SIZE).and_then(|artifact| Loaded::share(artifact, &BackendOptions::default()));
    loaded.map_err(|error| error.to_string())
}

fn a_file_of_another_kind_is_named<R: Runtime>() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, what) in [
        (&b"nodes:\n  camera:\n"[..], "expected an ONNX model, found text"),
        (b"", "found an empty file"),
        (b"\x89PNG\r\n\x1a\n", "found a PNG image"),
        (b"PK\x03\x04abc", "found a zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (&[1, 2, 3, 4, 0, 0, 0, 0, 9], "expected an ONNX model, found 9 bytes of another format"),
    ] {
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, bytes).unwrap();
        let error = open::<R>(&path).err().unwrap();
        assert!(error.contains(what), "{what}: {error}");
    }
    for (path, what) in
        [(folder.path().join("none.onnx"), "No such file"), (folder.path().into(), "is not a regular file")]
    {
        let error = open::<R>(&path).err().unwrap();
        assert!(error.contains(what), "{what}: {error}");
    }
}

fn nodes_with_the_same_file_share_its_weights<R: Runtime>() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let relu = |out: &str| {
        let node = format!("{out} = Relu x");
        model(&[("x", D::FLOAT, &["n"])], &[(out, D::FLOAT, &["n"])], &[], &[&node])
    };
    std::fs::write(&path, relu("y")).unwrap();
    let one = open::<R>(&path).unwrap();
    assert!(Arc::ptr_eq(&one, &open(&folder.path().join("./m.onnx")).unwrap()));
    let kept = BackendOptions { cache: Some(folder.path().into()), ..BackendOptions::default() };
    let kept = Loaded::<R>::share(Artifact::open(&path, Trials::MAX_SIZE).unwrap(), &kept).unwrap();
    assert!(!Arc::ptr_eq(&one, &kept), "another graph keeps what is compiled elsewhere");
    std::fs::write(&path, relu("other")).unwrap();
    assert_eq!(open::<R>(&path).unwrap().outline.outputs[0].name, "other");
    // The bytes that were read are the bytes that run, even if the file changes.
    let read = Artifact::open(&path, Trials::MAX_SIZE).unwrap();
    std::fs::write(&path, relu("newer")).unwrap();
    assert_eq!(Loaded::<R>::share(read, &BackendOptions::default()).unwrap().outline.outputs[0].name, "other");
}

fn weights_may_be_in_files_beside_the_model<R: Runtime>() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("inside/m.onnx");
    std::fs::create_dir(folder.path().join("inside")).unwrap();
    let prepare = |location: &str, length: &str| {
        let weights = external("w", &[2], location, 4, length.parse().unwrap());
        let (x, y) = (("x", D::FLOAT, &["n", "2"][..]), ("y", D::FLOAT, &["n", "2"][..]));
        std::fs::write(&path, model(&[x], &[y], &[weights], &["y = Add x w"])).unwrap();
        Onnx::<R>::prepare(OnnxModel { path: path.clone(), ..OnnxModel::default() })
    };
    let data = |at: &str| std::fs::write(folder.path().join(at), bytemuck::cast_slice::<f32, u8>(&[9.0, 1.0, 2.0]));
    data("outside.data").unwrap();
    std::os::unix::fs::symlink("../outside.data", folder.path().join("inside/link.data")).unwrap();
    std::fs::write(folder.path().join("inside/short.data"), [0; 8]).unwrap();
    for (location, length, what) in [
        ("m.onnx.data", "8", "`m.onnx.data` cannot be read: No such file"),
        ("../outside.data", "8", "`../outside.data` is outside the model's folder"),
        ("/etc/passwd", "8", "`/etc/passwd` is outside the model's folder"),
        ("link.data", "8", "`link.data` links to a file outside the model's folder"),
        ("short.data", "8", "`short.data` must have 8 bytes at offset 4 for `w`, got a file of 8 bytes"),
        ("m.onnx.data", "9", "tensor `w` must have 8 bytes in another file for float[2], got 9"),
    ] {
        let error = prepare(location, length).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    data("inside/m.onnx.data").unwrap();
    let prepared = prepare("m.onnx.data", "8").unwrap();
    let mut session = prepared.session(1).unwrap();
    let found = answers(&[[0.0, 0.0], [3.0, 4.0]], |x| numbers(&mut session, &[2], x, 2).unwrap());
    assert_eq!(found, [[1.0, 2.0], [4.0, 6.0]]);
}
