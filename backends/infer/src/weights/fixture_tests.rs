//! Files that PyTorch, `gguf` and `onnx` wrote (`fixtures/make.py`), compared with what the same
//! libraries read from them; and damaged ones.

use super::byte_reader::ByteReader;
use super::config::WeightConfig;
use super::config::tests::load;
use super::file::{TensorFile, WeightFormat};
use crate::array::Weights;
use crate::base::{sha256, sha256_of};
use crate::onnx::data_files_of;
use limen::Folders;
use limen::files::{FetchedFile, MemoryFiles, RemoteFiles};
use limen::message::DType;
use prost::bytes::Bytes;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use zip::CompressionMethod::{Deflated, Stored};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// The tensors that `NAME.safetensors` has, which the library of the file's format read from it.
fn expected(name: &str) -> Vec<(String, Weights)> {
    let file = format!("{name}.safetensors");
    let bytes = Bytes::from(std::fs::read(fixtures().join(&file)).unwrap());
    let names = TensorFile::open(WeightFormat::SafeTensors, &bytes, Path::new(&file), None).unwrap().names().unwrap();
    let read = |tensor: String| {
        let weights = load(&fixtures(), json!({ "file": file, "tensor": tensor })).unwrap();
        (tensor, weights)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn every_tensor_has_the_bytes_that_its_own_library_reads() {
    for (name, count) in [
        ("views.pt", 10),
        ("dtypes.pt", 15),
        ("checkpoint.ckpt", 8),
        ("protocol4.pth", 4),
        ("single.pt", 1),
        ("blocks.gguf", 6),
        ("weights.onnx", 27),
    ] {
        let all = expected(name);
        assert_eq!(all.len(), count, "{name}");
        for (tensor, expected) in all {
            let config = match name {
                "single.pt" => json!({ "file": name }),
                _ => json!({ "file": name, "tensor": tensor }),
            };
            let found = load(&fixtures(), config).unwrap_or_else(|error| panic!("{name} {tensor}: {error}"));
            assert_eq!((found.dtype, &found.shape), (expected.dtype, &expected.shape), "{name} {tensor}");
            assert_eq!(found.bytes, expected.bytes, "{name} {tensor}");
        }
    }
}

#[test]
fn blocks_say_what_they_were_widened_from() {
    let widened = |tensor: &str| {
        let weights = load(&fixtures(), json!({ "file": "blocks.gguf", "tensor": tensor })).unwrap();
        (weights.dtype, weights.widened)
    };
    assert_eq!(widened("q4_k"), (DType::F32, Some("q4_k".into())));
    assert_eq!(widened("f16"), (DType::F16, None));
}

#[test]
fn a_file_is_found_by_its_start_too() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(fixtures().join("blocks.gguf"), folder.path().join("a.bin")).unwrap();
    std::fs::copy(fixtures().join("single.pt"), folder.path().join("b.bin")).unwrap();
    let cube = load(folder.path(), json!({ "file": "a.bin", "tensor": "cube" })).unwrap();
    assert_eq!(cube.shape, [2, 3, 32]);
    assert_eq!(load(folder.path(), json!({ "file": "b.bin" })).unwrap().shape, [2, 3]);
}

/// What a file says of itself: type, shape and bytes of each tensor, totals, metadata.
#[test]
fn files_are_inspected_without_being_loaded() {
    let about = |name: &str| crate::inspect(&fixtures().join(name)).unwrap();
    let found = about("blocks.gguf");
    let rows: Vec<String> = found
        .tensors
        .iter()
        .map(|stored| format!("{} {}{:?} {}", stored.name, stored.dtype, stored.shape, stored.bytes.unwrap()))
        .collect();
    let expected = [
        "f32 f32[3, 5] 60",
        "f16 f16[3, 5] 30",
        "q8_0 q8_0[3, 64] 204",
        "q4_0 q4_0[3, 64] 108",
        "q4_k q4_k[3, 256] 432",
        "cube q8_0[2, 3, 32] 204",
        "q6_k q6_k[1, 256] 210",
    ];
    assert_eq!(rows, expected);
    assert_eq!((found.format.as_str(), found.bytes(), found.parameters()), ("gguf", 1248, 1630));
    let long = format!("{}…", "long ".repeat(16));
    for (key, value) in [
        ("general.architecture", "limen"),
        ("general.name", "a fixture"),
        ("limen.block_count", "3"),
        ("limen.scale", "0.5"),
        ("limen.flag", "true"),
        ("limen.words", "string[3]"),
        ("limen.numbers", "i32[4]"),
        ("limen.text", &long),
    ] {
        assert_eq!(found.metadata.get(key).map(String::as_str), Some(value), "{key}");
    }
    let again = serde_json::from_value::<crate::Inspection>(json!(found)).unwrap();
    assert_eq!(again.metadata, found.metadata);

    let found = about("views.pt");
    let windows = found.tensors.iter().find(|stored| stored.name == "windows").unwrap();
    assert_eq!((found.format.as_str(), windows.shape.as_slice(), windows.bytes), ("pt", &[3, 4][..], Some(48)));
    assert_eq!(about("dtypes.pt").tensors.iter().filter(|stored| stored.dtype == "f8_e4m3").count(), 1);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    let about = std::collections::HashMap::from([("format".to_string(), "pt".to_string())]);
    let none: [(&str, safetensors::tensor::TensorView<'_>); 0] = [];
    std::fs::write(&path, safetensors::serialize(none, Some(about)).unwrap()).unwrap();
    assert_eq!(crate::inspect(&path).unwrap().metadata["format"], "pt");
}

/// An error of loading a tensor of a fixture.
fn refused(name: &str, tensor: Option<&str>) -> String {
    let config = tensor.map_or(json!({ "file": name }), |tensor| json!({ "file": name, "tensor": tensor }));
    load(&fixtures(), config).unwrap_err()
}

#[test]
fn what_is_not_supported_is_refused_by_its_name() {
    for (name, tensor, why) in [
        (
            "module.pt",
            None,
            "file: `module.pt` needs the Python object `torch.nn.modules.container.Sequential`, expected only tensors in \
             dicts and lists: save the tensors with `torch.save(model.state_dict(), FILE)`",
        ),
        ("sparse.pt", None, "needs the Python object `torch._utils._rebuild_sparse_tensor`"),
        ("quantized.pt", None, "needs the Python object `torch._utils._rebuild_qtensor`"),
        ("complex.pt", None, "needs the Python object `torch.ComplexFloatStorage`"),
        (
            "legacy.pt",
            None,
            "file: `legacy.pt` is a PyTorch file of the format before 1.6, expected a zip archive: save the file again with \
             `torch.save(torch.load(FILE), FILE)`",
        ),
        (
            "script.pt",
            None,
            "file: `script.pt` is a TorchScript archive, expected tensors: save the tensors with \
             `torch.save(torch.jit.load(FILE).state_dict(), FILE)`",
        ),
        (
            "views.pt",
            None,
            "tensor: `views.pt` holds several tensors: write the name of one tensor in `tensor`: `base`, `transposed`,",
        ),
        ("views.pt", None, " and 2 more (`limen-run inspect views.pt` lists all)"),
        ("views.pt", Some("bas"), "tensor: `views.pt` has no tensor `bas`: did you mean `base`?"),
        ("single.pt", Some("w"), "tensor: `single.pt` holds a single unnamed tensor: remove `tensor: w`"),
        (
            "blocks.gguf",
            Some("q6_k"),
            "file: `blocks.gguf` has the tensor `q6_k`, which must have elements of type f32, f16, q8_0, q4_0 or q4_k, \
             got q6_k: save the tensor as `.npy` with `gguf.quants.dequantize`",
        ),
        (
            "weights.onnx",
            Some("text"),
            "has the tensor `text`, which must have numbers or bools as elements, got string",
        ),
        ("weights.onnx", Some("sparse"), "has the tensor `sparse`, which must be dense, got a sparse tensor"),
        ("weights.onnx", Some("y"), "tensor: `weights.onnx` has no tensor `y`"),
    ] {
        let error = refused(name, tensor);
        assert!(error.contains(why), "{why}: {error}");
    }
    let sum = sha256(&std::fs::read(fixtures().join("weights.onnx")).unwrap());
    let config = |tensor: &str| json!({ "file": "weights.onnx", "tensor": tensor, "sha256": sum });
    assert!(load(&fixtures(), config("float.raw")).is_ok());
    let error = load(&fixtures(), config("outside")).unwrap_err();
    assert!(error.starts_with("sha256: `weights.onnx` has its tensors in another file"), "{error}");
}

/// A file beside a model lies in the model's folder, and is as long as the model says.
#[test]
fn tensors_beside_a_model_are_read_from_its_folder_only() {
    let model = std::fs::read(fixtures().join("weights.onnx")).unwrap();
    let place = |of: &[u8]| model.windows(of.len()).position(|bytes| bytes == of).unwrap();
    let renamed = |to: &[u8; 12]| {
        let mut bytes = model.clone();
        let at = place(b"weights.data");
        bytes[at..at + 12].copy_from_slice(to);
        bytes
    };
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(folder.path().join("weights.data"), [0; 88]).unwrap();
    std::os::unix::fs::symlink("../weights.data", inner.join("weights.link")).unwrap();
    std::fs::write(inner.join("weights.shrt"), [0; 47]).unwrap();
    for (name, why) in [
        (b"../weights.d", "has the tensor `outside`, whose weight file `../weights.d` is outside the model's folder"),
        (b"/weights.dat", "`/weights.dat` is outside the model's folder"),
        (b"weights.link", "`weights.link` links to a file outside the model's folder"),
        (b"weights.shrt", "must have 48 bytes at offset 0, got a file of 47 bytes"),
        (b"weights.none", "`weights.none` cannot be read: No such file"),
    ] {
        std::fs::write(inner.join("m.onnx"), renamed(name)).unwrap();
        let error = load(folder.path(), json!({ "file": "inner/m.onnx", "tensor": "outside" })).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
}

/// The files beside a model in memory, and beside a fetched one, are found where the model is.
#[test]
fn tensors_beside_a_model_that_is_not_on_the_disk_are_read() {
    let names = ["weights.onnx", "weights.data"];
    assert_eq!(data_files_of(&fixtures().join(names[0]), 1 << 20).unwrap(), [names[1].to_string()].into());
    let expected = expected("weights.onnx").into_iter().find(|(name, _)| name == "outside").unwrap().1;
    let read = |name: &str| std::fs::read(fixtures().join(name)).unwrap();
    let in_memory = |names: &[&str]| {
        let mut memory = MemoryFiles::default();
        names.iter().for_each(|name| memory.add(*name, read(name)));
        Folders { memory, ..Folders::default() }
    };
    let fetched = |names: &[&str]| {
        let copies = names.iter().map(|name| {
            let (path, bytes) = (fixtures().join(name), read(name));
            let copy = FetchedFile { path, size: bytes.len() as u64, sha256: sha256(&bytes) };
            (format!("hf://acme/voice/{name}@v1"), copy)
        });
        Folders { remote: RemoteFiles::new(copies.collect(), sha256_of, "g.yaml"), ..Folders::default() }
    };
    let load = |file: &str, folders: Folders| {
        let config: WeightConfig = serde_json::from_value(json!({ "file": file, "tensor": "outside" })).unwrap();
        config.load(&folders).map_err(|(_, why)| why)
    };
    assert_eq!(load("mem:weights.onnx", in_memory(&names)).unwrap().bytes, expected.bytes);
    let url = "hf://acme/voice/weights.onnx@v1";
    assert_eq!(load(url, fetched(&names)).unwrap().bytes, expected.bytes);
    let error = load("mem:weights.onnx", in_memory(&names[..1])).unwrap_err();
    assert!(error.contains("whose weight file `weights.data` cannot be read: "), "{error}");
    let error = load(url, fetched(&names[..1])).unwrap_err();
    assert!(error.contains("cannot be read: `hf://acme/voice/weights.data@v1` was not fetched"), "{error}");
}

/// A message of `onnx.proto` within a model: lengths that lie, and more than is kept.
#[test]
fn a_damaged_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let of = |model: &[u8]| {
        std::fs::write(folder.path().join("m.onnx"), model).unwrap();
        load(folder.path(), json!({ "file": "m.onnx", "tensor": "w" })).map(|weights| weights.shape)
    };
    let field = crate::onnx::test_models::field;
    let model = |tensor: &[u8]| field(7, &field(5, &[&field(8, b"w")[..], tensor].concat()));
    // Dims, the element type `float`, raw data.
    let tensor = |dims: &[u8], raw: &[u8]| [dims, b"\x10\x01", &field(9, raw)].concat();
    assert_eq!(of(&model(&tensor(b"\x08\x02", &[0; 8]))), Ok(vec![2]));
    let many = field(7, &field(5, b"").repeat((1 << 16) + 1));
    let long = tensor(&b"\x08\x01".repeat(9 << 20), &[0; 4]);
    let huge = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f].repeat(2);
    for (file, why) in [
        (b"\x08\x07".to_vec(), "file: `m.onnx` is not a readable ONNX model: expected a graph, found none"),
        (b"\x3a\x05a".to_vec(), "is not a readable ONNX model: expected a field of 5 bytes, found 1"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".to_vec(), "bytes, found 0"),
        (b"\x0b".to_vec(), "a field must have the type 0, 1, 2 or 5, got 3"),
        (many, "a graph must have at most 65536 initialisers, got more"),
        (
            model(&long),
            "tensor `w`, which must have at most 16.0 MiB of single numbers, got 18.0 MiB: make the tensor with",
        ),
        (model(&tensor(b"\x08\x03", &[0; 8])), "has the tensor `w`, which must have 12 bytes for float[3], got 8"),
        (model(&tensor(&huge, &[0; 8])), "which must have a shape that fits in memory, got"),
        (model(b"\x08\x02\x10\x01"), "must have 8 bytes for float[2], got 0"),
        (model(b"\x08\xe8\x07\x10\x01"), "must fit in the file of "),
        (field(7, &[field(5, &field(8, b"w")), field(5, &field(8, b"w"))].concat()), "has two tensors `w`"),
    ] {
        let error = of(&file).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
}

/// An archive of a pickle and of storages.
fn archive(pickle: &[u8], storages: &[(&str, &[u8])], method: zip::CompressionMethod) -> Vec<u8> {
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let data = storages.iter().map(|(key, bytes)| (format!("m/data/{key}"), *bytes));
    for (name, bytes) in [("m/data.pkl".to_string(), pickle)].into_iter().chain(data) {
        archive.start_file(name, options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// The pickle of a tensor, without the STOP: its storage, offset, shape and strides.
fn tensor(storage: &str, key: &str, elements: i32, offset: u8, shape: &[i32], strides: &[i32]) -> Vec<u8> {
    let text = |text: &str| [&[b'X'][..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let int = |number: i32| [&[b'J'][..], &number.to_le_bytes()].concat();
    let ints = |numbers: &[i32]| {
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| int(*number)).collect();
        [&b"("[..], &numbers, b"t"].concat()
    };
    let id = [&text("storage"), format!("ctorch\n{storage}\n").as_bytes(), &text(key), &text("cpu"), &int(elements)]
        .concat();
    [
        &b"ctorch._utils\n_rebuild_tensor_v2\n(("[..],
        &id,
        b"tQK",
        &[offset],
        &ints(shape),
        &ints(strides),
        b"\x89ccollections\nOrderedDict\n)RtR",
    ]
    .concat()
}

/// What is said of a file of PyTorch.
fn torch_error(file: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.pt"), file).unwrap();
    match load(folder.path(), json!({ "file": "m.pt" })) {
        Ok(weights) => format!("{}{:?}", weights.dtype, weights.shape),
        Err(error) => error,
    }
}

#[test]
fn a_pickle_describes_tensors_and_runs_nothing() {
    let eight = [("0", &[0u8; 32][..])];
    let of = |pickle: Vec<u8>| torch_error(&archive(&[&b"\x80\x02"[..], &pickle, b"."].concat(), &eight, Stored));
    let one = |elements, offset, shape: &[i32], strides: &[i32]| {
        of(tensor("FloatStorage", "0", elements, offset, shape, strides))
    };
    assert_eq!(one(8, 0, &[2, 4], &[4, 1]), "f32[2, 4]");
    assert_eq!(one(8, 7, &[1, 1], &[1 << 30, 1 << 30]), "f32[1, 1]", "the stride of a dim of length 1 is never used");
    let list_in_itself = b"]q\x00h\x00a".to_vec();
    let deep = [&b"]".repeat(70)[..], &b"a".repeat(69)].concat();
    // Each list contains the one before twice: 2^40 values.
    let mut doubled = b"]q\x00".to_vec();
    for at in 0..40u8 {
        doubled.extend([b']', b'q', at + 1, b'(', b'h', at, b'h', at, b'e']);
    }
    let tensors = tensor("FloatStorage", "0", 8, 0, &[8], &[1]);
    let entry = |key: &[u8]| [&b"X"[..], &(key.len() as u32).to_le_bytes(), key, &tensors, b"s"].concat();
    let twice = [&b"}"[..], &entry(b"a"), &entry(b"a")].concat();
    let by_float = [&b"}G\0\0\0\0\0\0\0\0"[..], &tensors, b"s"].concat();
    let two_types = [&b"]"[..], &tensors, b"a", &tensor("IntStorage", "0", 8, 0, &[8], &[1]), b"a"].concat();
    let many_dims = [1; 65];
    for (pickle, why) in [
        (b"cos\nsystem\n(X\x02\0\0\0lstR".to_vec(), "needs the Python object `os.system`, expected only tensors"),
        (b"c__builtin__\neval\n(X\x01\0\0\x001tR".to_vec(), "needs the Python object `__builtin__.eval`"),
        (b"\x8c\x05posix\x8c\x06system\x93".to_vec(), "needs the Python object `posix.system`"),
        (b"ctorch.serialization\nload\n".to_vec(), "needs the Python object `torch.serialization.load`"),
        (b"(ios\nsystem\n".to_vec(), "needs the operation `INST`"),
        (b"ccollections\nOrderedDict\n)\x81".to_vec(), "needs the operation `NEWOBJ`"),
        (b"\xff".to_vec(), "needs the operation `0xff`"),
        (b"]Nb".to_vec(), "needs the operation `BUILD`"),
        (
            b"N)R".to_vec(),
            "has a damaged index: expected a function to call, found another value (at byte 4 of `data.pkl`)",
        ),
        (b"h\x00".to_vec(), "expected a value, found an unknown reference"),
        (b"t".to_vec(), "a mark is missing"),
        (b"(".to_vec(), "a value is missing"),
        (b"X\xff\xff\xff\xffab".to_vec(), "is truncated: expected 4294967295 bytes at 7, found 3"),
        (b"\x8a\xff".to_vec(), "is truncated: expected 255 bytes"),
        (b"cos".to_vec(), "is truncated: expected a line at 3, found none"),
        (Vec::new(), "a value is missing"),
        (b"N".to_vec(), "file: `m.pt` holds no tensors"),
        (list_in_itself, "the values contain each other too often"),
        (deep, "must have at most 64 levels of values, got more"),
        (doubled, "the values contain each other too often"),
        (twice, "has two tensors `a`"),
        (by_float, "must have texts or integers as keys of tensors"),
        (two_types, "storage `0` has two sizes or types"),
        (tensor("FloatStorage", "0", 8, 0, &many_dims, &many_dims), "a tensor must have at most 64 dims, got 65"),
        (tensor("FloatStorage", "0", 8, 0, &[2], &[1, 1]), "a tensor of 1 dims must have as many strides, got 2"),
        (tensor("FloatStorage", "0", 8, 0, &[-1], &[1]), "a size must be 0 or more, got -1"),
        (tensor("FloatStorage", "0", 8, 0, &[8], &[-1]), "a size must be 0 or more, got -1"),
        (tensor("FloatStorage", "0", -8, 0, &[8], &[1]), "storage `0` has -8 elements"),
        (
            tensor("FloatStorage", "0", 8, 0, &[9], &[1]),
            "has a tensor f32[9] from element 0 on with the strides [1] in storage `0`, which has 32 bytes",
        ),
        (tensor("FloatStorage", "0", 8, 1, &[8], &[1]), "from element 1 on"),
        (tensor("FloatStorage", "0", 8, 0, &[2, 4], &[5, 1]), "in storage `0`, which has 32 bytes"),
        (
            tensor("FloatStorage", "0", 8, 0, &[i32::MAX, i32::MAX, i32::MAX], &[0, 0, 0]),
            "must have tensors whose shapes fit in memory, got",
        ),
        // A single number, repeated.
        (tensor("FloatStorage", "0", 8, 0, &[1 << 15, 1 << 16], &[0, 0]), "has the tensor ``, which must be at most "),
        (tensor("FloatStorage", "0", 9, 0, &[8], &[1]), "must have 36 bytes in `data/0`, got 32"),
        (tensor("FloatStorage", "1", 8, 0, &[8], &[1]), "has `data/1`, which cannot be read: "),
        (tensor("FloatStorage", "../../0", 8, 0, &[8], &[1]), "has `data/../../0`, which cannot be read: "),
        (
            tensor("FloatStorage", &"0".repeat(40), 8, 0, &[8], &[1]),
            "a key of a storage must have at most 32 bytes, got 40",
        ),
        (tensor("QInt8Storage", "0", 8, 0, &[8], &[1]), "needs the Python object `torch.QInt8Storage`"),
    ] {
        let error = of(pickle);
        assert!(error.contains(why), "{why}: {error}");
    }
    let long = b"N".repeat((1 << 20) + 1);
    assert!(of(long).contains("must have at most 1048576 operations in the index"));
}

#[test]
fn an_archive_of_pytorch_is_stored_and_its_files_lie_apart() {
    let pickle = [&b"\x80\x02"[..], &tensor("FloatStorage", "0", 8, 0, &[8], &[1]), b"."].concat();
    let whole = archive(&pickle, &[("0", &[0; 32])], Stored);
    assert_eq!(torch_error(&whole), "f32[8]");
    for (file, why) in [
        (
            archive(&pickle, &[("0", &[0; 32])], Deflated),
            "has `data.pkl`, which must be uncompressed, got a compressed file",
        ),
        (whole[..whole.len() - 1].to_vec(), "is not a readable PyTorch archive: "),
        (
            b"PK\x05\x06".iter().chain(&[0; 18]).copied().collect(),
            "is a zip archive without `data.pkl`, expected a file",
        ),
        (b"PK\x03\x04".to_vec(), "is not a readable PyTorch archive: "),
        (Vec::new(), "is not a readable PyTorch archive: "),
    ] {
        let error = torch_error(&file);
        assert!(error.contains(why), "{why}: {error}");
    }
    // The storage's place in the directory is changed to that of the pickle.
    let entry = whole.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").unwrap();
    let mut overlapping = whole.clone();
    overlapping[entry + 42..entry + 46].copy_from_slice(&[0; 4]);
    let error = torch_error(&overlapping);
    assert!(error.contains("is not a readable PyTorch archive: the files of the archive overlap"), "{error}");
    // A bit of the storage.
    let data = whole.windows(9).position(|bytes| bytes == b"m/data/0\0").unwrap() + 8;
    let mut flipped = whole;
    flipped[data] ^= 1;
    let error = torch_error(&flipped);
    assert!(error.contains("has `data/0`, which cannot be read: ") && error.contains("hecksum"), "{error}");
}

#[test]
fn the_bytes_of_a_header_stay_in_the_file() {
    let file = std::fs::read(fixtures().join("blocks.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let of = |bytes: &[u8]| {
        std::fs::write(folder.path().join("m.gguf"), bytes).unwrap();
        load(folder.path(), json!({ "file": "m.gguf", "tensor": "f32" })).map(|weights| weights.shape)
    };
    let with = |at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        of(&file).unwrap_err()
    };
    let place = |of: &[u8]| file.windows(of.len()).position(|bytes| bytes == of).unwrap();
    // The tensor: its name, the number of its dims, its dims, its type, its place.
    let tensor = place(b"\x03\0\0\0\0\0\0\0f32\x02\0\0\0") + 11;
    let second = place(b"\x03\0\0\0\0\0\0\0f16\x02\0\0\0") + 11;
    let words = place(b"limen.words") + 11;
    let long = &u64::MAX.to_le_bytes()[..];
    assert_eq!(of(&file), Ok(vec![3, 5]));
    for (error, why) in [
        (with(4, &[1]), "must be a GGUF file of version 2 or 3, got 1"),
        (with(4, &[0, 0, 0, 3]), "is a big-endian GGUF file, expected little-endian"),
        (with(0, b"X"), "must begin with `GGUF`, got `XGUF`"),
        (with(8, long), "tensors, found "),
        (with(16, long), "is truncated: expected 18446744073709551615 entries of metadata, found "),
        (with(24, long), "is truncated: expected 18446744073709551615 bytes at 32"),
        (with(words, &[13]), "must have values of type 0 to 12, got 13 (metadata `limen.words`)"),
        (with(words + 4, &[13]), "must have lists of type 0 to 12, got 13"),
        (with(words + 8, long), "is truncated: "),
        (with(tensor, &[5]), "has the tensor `f32`, which must have at most 4 dims, got 5"),
        (with(tensor + 4, long), "must have a shape that fits in memory, got [3, 18446744073709551615]"),
        (with(tensor + 4, &[6]), "has the overlapping tensors `f32` and `f16`"),
        (with(tensor + 20, &[8]), "must have rows of a multiple of 32 elements for q8_0, got 5"),
        (with(tensor + 20, &[99]), "or q4_k, got type 99: save"),
        (with(tensor + 24, &[1]), "must have 60 bytes at a multiple of 32 in "),
        (with(tensor + 24, &[0, 0, 0, 0, 1]), "bytes of data, got the offset 4294967296"),
        (with(tensor + 28, &[0xff; 4]), "got the offset 18446744069414584320"),
    ] {
        assert!(error.contains(why), "{why}: {error}");
    }
    let twice = with(second - 3, b"f32");
    assert!(twice.contains("has two tensors `f32`"), "{twice}");
    for end in 0..file.len() {
        assert!(of(&file[..end]).is_err() || end > tensor, "{end}");
    }
}

#[test]
fn nothing_is_read_beyond_the_end() {
    let mut from = ByteReader::new(&[1, 0, 0, 0, b'a', b'\n', 2]);
    assert_eq!((from.u32(), from.line(), from.at(), from.left()), (Ok(1), Ok(&b"a"[..]), 6, 1));
    assert_eq!(from.take(2), Err("is truncated: expected 2 bytes at 6, found 1".into()));
    assert!(from.take(u64::MAX).is_err() && from.line().is_err());
    assert_eq!((from.u8(), from.left()), (Ok(2), 0));
}
