//! Libraries that are found, under which of the tried names, and further ones on disk.
//!
//! Works without a GPU too.

use crate::Options;
use crate::check::caught;
use crate::cuda;
use crate::environment::{self, entries, file_name};
use crate::report::Finding;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library, the names that are tried, and how to read its version.
struct Wanted {
    what: &'static str,
    names: Vec<String>,
    /// A required symbol, from whose address the path of the library is found.
    symbol: &'static CStr,
    version: fn(&Library) -> Option<String>,
}

pub fn section(options: &Options) -> Result<(), String> {
    for wanted in wanted() {
        look(&wanted);
    }
    driver_details();
    features();
    on_disk(options);
    headers(options);
    vulkan();
    python(options);
    Ok(())
}

fn wanted() -> Vec<Wanted> {
    let named = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let cudarc = |name: &str| cudarc::get_lib_name_candidates(name);
    // Names of versions newer than cudarc knows come last: a match shows which feature would work.
    let with_newer = |name: &str| {
        let mut names = cudarc(name);
        names.extend(
            [13, 14]
                .map(|major| format!("lib{name}.so.{major}"))
                .into_iter()
                .filter(|newer| !cudarc(name).contains(newer)),
        );
        names
    };
    vec![
        Wanted {
            what: "driver",
            names: cudarc("cuda"),
            symbol: c"cuInit",
            version: |library| cuda_version(library, c"cuDriverGetVersion"),
        },
        Wanted { what: "NVRTC", names: with_newer("nvrtc"), symbol: c"nvrtcVersion", version: nvrtc_version },
        Wanted {
            what: "cuBLAS",
            names: with_newer("cublas"),
            symbol: c"cublasCreate_v2",
            version: |l| property(l, c"cublasGetProperty"),
        },
        Wanted {
            what: "cuBLASLt",
            names: with_newer("cublasLt"),
            symbol: c"cublasLtCreate",
            version: |l| property(l, c"cublasLtGetProperty"),
        },
        Wanted {
            what: "cudart",
            names: with_newer("cudart"),
            symbol: c"cudaMalloc",
            version: |l| cuda_version(l, c"cudaRuntimeGetVersion"),
        },
        Wanted { what: "cuDNN", names: cudnn_names(), symbol: c"cudnnCreate", version: cudnn_version },
        Wanted {
            what: "cuRAND",
            names: with_newer("curand"),
            symbol: c"curandCreateGenerator",
            version: |l| property(l, c"curandGetProperty"),
        },
        Wanted {
            what: "cuFFT",
            names: named(&["libcufft.so", "libcufft.so.12", "libcufft.so.11"]),
            symbol: c"cufftExecC2C",
            version: |l| property(l, c"cufftGetProperty"),
        },
        Wanted {
            what: "TensorRT",
            names: named(&["libnvinfer.so", "libnvinfer.so.10", "libnvinfer.so.11"]),
            symbol: c"getInferLibVersion",
            version: tensorrt_version,
        },
        Wanted {
            what: "NVML",
            names: named(&["libnvidia-ml.so.1", "libnvidia-ml.so"]),
            symbol: c"nvmlInit_v2",
            version: |_| None,
        },
        Wanted {
            what: "onnxruntime",
            names: named(&["libonnxruntime.so", "libonnxruntime.so.1"]),
            symbol: c"OrtGetApiBase",
            version: onnxruntime_version,
        },
        Wanted {
            what: "Vulkan loader",
            names: named(&["libvulkan.so.1", "libvulkan.so"]),
            symbol: c"vkGetInstanceProcAddr",
            version: vulkan_version,
        },
        Wanted {
            what: "NVIDIA's Vulkan driver (GLX)",
            names: named(&["libGLX_nvidia.so.0"]),
            symbol: c"vk_icdGetInstanceProcAddr",
            version: |_| None,
        },
        Wanted {
            what: "NVIDIA's Vulkan driver (EGL)",
            names: named(&["libEGL_nvidia.so.0"]),
            symbol: c"vk_icdGetInstanceProcAddr",
            version: |_| None,
        },
    ]
}

fn cudnn_names() -> Vec<String> {
    let mut names = cudarc::get_lib_name_candidates("cudnn");
    names.extend(
        ["libcudnn.so.9", "libcudnn.so.10"]
            .map(String::from)
            .into_iter()
            .filter(|name| !cudarc::get_lib_name_candidates("cudnn").contains(name)),
    );
    names
}

/// Tries every name; reports which were found, the path of the first, and its version.
fn look(wanted: &Wanted) {
    let mut found = Vec::new();
    let mut first = None;
    let mut why = String::new();
    for name in &wanted.names {
        // SAFETY: runs the initialisers of NVIDIA's, Khronos' and onnxruntime's libraries, which is what users do.
        match unsafe { Library::new(name) } {
            Ok(library) => {
                found.push(name.as_str());
                first.get_or_insert(library);
            }
            Err(error) => {
                let error = words(&error);
                // An error of an existing file is more informative than a missing file.
                if !error.contains("No such file") || why.is_empty() {
                    why = error;
                }
            }
        }
    }
    let Some(library) = first else {
        // cudarc also tries names of other systems.
        let mut names: Vec<&str> =
            wanted.names.iter().map(String::as_str).filter(|name| !name.contains("64")).collect();
        names.dedup();
        Finding::missing(wanted.what, format!("tried {}; {why}", names.join(" "))).tell();
        return;
    };
    found.dedup();
    let version = caught(|| Ok((wanted.version)(&library))).ok().flatten().unwrap_or_default();
    let mut finding = Finding::fact(wanted.what, version).note(format!("found as {}", found.join(" ")));
    match path_of(&library, wanted.symbol) {
        Some(path) => {
            if environment::was_added(&path) {
                finding = finding.note("only because the probe added its folder to the library path");
            }
            let real = path.canonicalize().unwrap_or(path);
            finding = finding.note(format!("at {}", real.display()));
        }
        None => finding = finding.note(format!("but without {}", wanted.symbol.to_string_lossy())),
    }
    finding.tell();
    // Some of these crash when they are unloaded.
    std::mem::forget(library);
}

/// The loader's message, which follows that of the crate that calls it.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}

/// The path that a library was loaded from.
fn path_of(library: &Library, symbol: &CStr) -> Option<PathBuf> {
    // SAFETY: only the address is used.
    unsafe {
        let address = library.get::<*const c_void>(symbol.to_bytes_with_nul()).ok()?.into_raw().into_raw();
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()))
    }
}

/// `major.minor` of a version that is `major * 1000 + minor * 10`.
fn cuda_style(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn cuda_version(library: &Library, symbol: &CStr) -> Option<String> {
    type Ask = unsafe extern "C" fn(*mut c_int) -> c_int;
    let mut version = 0;
    // SAFETY: the signature of both functions that are asked for here; works without a device.
    let answer = unsafe { library.get::<Ask>(symbol.to_bytes_with_nul()).ok()?(&mut version) };
    (answer == 0).then(|| format!("CUDA {}", cuda_style(version)))
}

fn nvrtc_version(library: &Library) -> Option<String> {
    type Ask = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the signature of `nvrtcVersion`.
    let answer = unsafe { library.get::<Ask>(b"nvrtcVersion\0").ok()?(&mut major, &mut minor) };
    (answer == 0).then(|| format!("{major}.{minor}"))
}

/// Libraries of the toolkit report their version part by part.
fn property(library: &Library, symbol: &CStr) -> Option<String> {
    type Ask = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
    // SAFETY: the signature of all `...GetProperty` functions: which part, and where to store it.
    unsafe {
        let ask = library.get::<Ask>(symbol.to_bytes_with_nul()).ok()?;
        let mut parts = Vec::new();
        for part in 0..3 {
            let mut value = 0;
            if ask(part, &mut value) != 0 {
                return None;
            }
            parts.push(value.to_string());
        }
        Some(parts.join("."))
    }
}

fn cudnn_version(library: &Library) -> Option<String> {
    type Ask = unsafe extern "C" fn() -> usize;
    // SAFETY: the signature of `cudnnGetVersion`.
    Some(unsafe { library.get::<Ask>(b"cudnnGetVersion\0").ok()?() }.to_string())
}

fn tensorrt_version(library: &Library) -> Option<String> {
    type Ask = unsafe extern "C" fn() -> c_int;
    // SAFETY: the signature of `getInferLibVersion`.
    Some(unsafe { library.get::<Ask>(b"getInferLibVersion\0").ok()?() }.to_string())
}

fn onnxruntime_version(library: &Library) -> Option<String> {
    #[repr(C)]
    struct Base {
        api: *const c_void,
        version: Option<unsafe extern "C" fn() -> *const c_char>,
    }
    type Ask = unsafe extern "C" fn() -> *const Base;
    // SAFETY: the layout of `OrtApiBase`, which has not changed since its first version.
    unsafe {
        let base = library.get::<Ask>(b"OrtGetApiBase\0").ok()?().as_ref()?;
        Some(cuda::text(base.version?()))
    }
}

fn vulkan_version(library: &Library) -> Option<String> {
    type Ask = unsafe extern "C" fn(*mut u32) -> c_int;
    let mut version = 0u32;
    // SAFETY: the signature of `vkEnumerateInstanceVersion`.
    let answer = unsafe { library.get::<Ask>(b"vkEnumerateInstanceVersion\0").ok()?(&mut version) };
    (answer == 0).then(|| format!("{}.{}.{}", version >> 22 & 0x7f, version >> 12 & 0x3ff, version & 0xfff))
}

/// The driver's version and its devices.
fn driver_details() {
    match nvml() {
        Ok(version) => Finding::fact("driver release", version).tell(),
        Err(why) => Finding::missing("driver release", why).tell(),
    }
    let devices = caught(|| {
        cuda::driver_present()?;
        let words = cuda::failed("driver");
        use cudarc::driver::result::{self, device};
        result::init().map_err(&words)?;
        let count = device::get_count().map_err(&words)?;
        for i in 0..count {
            let found = device::get(i).map_err(&words)?;
            let name = device::get_name(found).map_err(&words)?;
            use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
            // SAFETY: the device was found above.
            let ask = |attribute| unsafe { device::get_attribute(found, attribute) }.unwrap_or(-1);
            // SAFETY: as above.
            let memory = unsafe { device::total_mem(found) }.map_err(&words)?;
            let major = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
            let minor = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
            Finding::fact(format!("device {i}"), name)
                .note(format!("compute capability {major}.{minor}"))
                .note(format!("{} MiB", memory >> 20))
                .note(format!("{} multiprocessors", ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)))
                .note(format!("{} copy engines", ask(Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)))
                .note(format!("memory pools {}", ask(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)))
                .note(format!("kernel time limit {}", ask(Attribute::CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT)))
                .tell();
        }
        Ok(count)
    });
    match devices {
        Ok(count) => Finding::fact("devices", count).tell(),
        Err(why) => Finding::missing("devices", why).tell(),
    }
}

/// The driver's release, as its tools print it; read-only.
fn nvml() -> Result<String, String> {
    // SAFETY: NVML's documented calls and signatures.
    unsafe {
        let library = Library::new("libnvidia-ml.so.1").map_err(|e| words(&e))?;
        let call =
            |name: &[u8]| library.get::<unsafe extern "C" fn() -> c_int>(name).map(|f| f()).map_err(|e| e.to_string());
        match call(b"nvmlInit_v2\0")? {
            0 => {}
            error => return Err(format!("NVML answers with error {error}")),
        }
        let mut text = [0 as c_char; 96];
        type Ask = unsafe extern "C" fn(*mut c_char, u32) -> c_int;
        let ask = library.get::<Ask>(b"nvmlSystemGetDriverVersion\0").map_err(|e| e.to_string())?;
        let answer = ask(text.as_mut_ptr(), 95);
        let version = cuda::text(text.as_ptr());
        let _ = call(b"nvmlShutdown\0");
        std::mem::forget(library);
        if answer == 0 { Ok(version) } else { Err(format!("NVML answers with error {answer}")) }
    }
}

/// The features of cudarc that match the installed libraries.
fn features() {
    let built = if cfg!(feature = "cuda-13") { "cuda-13000" } else { "cuda-12080" };
    Finding::fact("cudarc's feature in this build", built).tell();
    match cuda::driver_version() {
        Ok(version) => Finding::fact("newest feature that the driver supports", format!("cuda-{version}"))
            .note(cuda_style(version))
            .tell(),
        Err(why) => Finding::missing("newest feature that the driver supports", why).tell(),
    }
    for major in [11, 12, 13] {
        // Only names with a version; the findings above show where a name without one leads.
        let finds = |library: &str| {
            let names = [
                format!("lib{library}.so.{major}"),
                format!("lib{library}.so.{major}.0"),
                format!("lib{library}.so.{major}.2"),
            ];
            // SAFETY: as in `look`.
            names.into_iter().find(|name| unsafe { Library::new(name) }.map(std::mem::forget).is_ok())
        };
        let found: Vec<String> = ["nvrtc", "cublas", "cublasLt", "cudart"]
            .iter()
            .map(|library| finds(library).unwrap_or_else(|| format!("no {library}")))
            .collect();
        let all = found.iter().all(|name| !name.starts_with("no "));
        Finding::fact(format!("libraries for the features cuda-{major}xxx"), all).note(found.join(", ")).tell();
    }
    for (name, present) in [
        // SAFETY: as in `look`.
        ("driver", unsafe { cudarc::driver::sys::is_culib_present() }),
        ("NVRTC", unsafe { cudarc::nvrtc::sys::is_culib_present() }),
        ("cuBLAS", unsafe { cudarc::cublas::sys::is_culib_present() }),
    ] {
        Finding::fact(format!("cudarc finds {name}"), present).tell();
    }
}

/// Library files in folders that may not be on the loader's path.
fn on_disk(options: &Options) {
    for folder in environment::library_folders(&options.python) {
        let files: Vec<String> = entries(&folder)
            .iter()
            .map(|path| file_name(path).to_string())
            .filter(|name| environment::WANTED.iter().any(|wanted| name.starts_with(wanted)))
            .collect();
        if !files.is_empty() {
            Finding::fact(format!("files in {}", folder.display()), files.len()).note(files.join(" ")).tell();
        }
        // onnxruntime opens its providers by these file names; that fails if a library they need is not found.
        for file in files.iter().filter(|name| name.starts_with("libonnxruntime_")) {
            let name = format!("provider {file}");
            match unmet(&folder.join(file)) {
                Ok(missing) if missing.is_empty() => {
                    Finding::fact(name, true).note("all libraries that it needs are found").tell()
                }
                Ok(missing) => Finding::fact(name, false).note(format!("not found: {}", missing.join(" "))).tell(),
                Err(why) => Finding::missing(name, why).tell(),
            }
        }
    }
    let toolkits: Vec<String> = environment::toolkits().iter().map(|path| path.display().to_string()).collect();
    Finding::fact("toolkits", toolkits.join(" ")).tell();
}

/// The dependencies of a library that the loader does not find.
fn unmet(library: &Path) -> Result<Vec<String>, String> {
    let answer = Command::new("ldd").arg(library).output().map_err(|e| format!("ldd: {e}"))?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    Ok(text
        .lines()
        .filter(|line| line.contains("not found"))
        .filter_map(|line| line.split_whitespace().next())
        .map(String::from)
        .collect())
}

/// The headers that the kernels and tract-cuda include.
fn headers(options: &Options) {
    let folders = environment::header_folders(&options.python);
    for header in [
        "cuda.h",
        "cuda_runtime.h",
        "cuda_fp16.h",
        "cuda_bf16.h",
        "mma.h",
        "cuda/std/type_traits",
        "cub/cub.cuh",
        "cudnn.h",
    ] {
        let places: Vec<String> = folders
            .iter()
            .filter(|folder| folder.join(header).is_file())
            .map(|folder| folder.display().to_string())
            .collect();
        match places.as_slice() {
            [] => Finding::missing(format!("header {header}"), "in no folder of headers").tell(),
            places => Finding::fact(format!("header {header}"), places.join(" ")).tell(),
        }
    }
}

/// The manifests of Vulkan drivers, and whether the libraries they name can be loaded.
fn vulkan() {
    let mut folders: Vec<PathBuf> =
        ["/etc", "/usr/share", "/usr/local/share", "/usr/local/nvidia/share", "/usr/local/etc"]
            .iter()
            .map(|root| Path::new(root).join("vulkan/icd.d"))
            .collect();
    if let Some(home) = std::env::var_os("HOME") {
        folders.push(Path::new(&home).join(".local/share/vulkan/icd.d"));
    }
    let mut files: Vec<PathBuf> = folders.iter().flat_map(|folder| entries(folder)).collect();
    for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"] {
        if let Ok(value) = std::env::var(variable) {
            Finding::fact(variable, value.clone()).tell();
            files.extend(std::env::split_paths(&value));
        }
    }
    if files.is_empty() {
        Finding::missing("Vulkan drivers", "no file names one").tell();
    }
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(library) = parsed.pointer("/ICD/library_path").and_then(|path| path.as_str()) else {
            Finding::missing(format!("Vulkan driver {}", file.display()), "names no library").tell();
            continue;
        };
        let path = if library.contains('/') && !library.starts_with('/') {
            file.parent().unwrap_or(Path::new("/")).join(library).display().to_string()
        } else {
            library.to_string()
        };
        // SAFETY: as in `look`.
        let loads = unsafe { Library::new(&path) }.map(std::mem::forget);
        let name = format!("Vulkan driver {}", file.display());
        let version = parsed.pointer("/ICD/api_version").and_then(|v| v.as_str()).unwrap_or_default();
        match loads {
            Ok(()) => Finding::fact(name, version).note(format!("loads {path}")).tell(),
            Err(why) => Finding::missing(name, words(&why)).tell(),
        }
    }
}

/// Python packages that contain libraries.
fn python(options: &Options) {
    let folders = environment::python_folders(&options.python);
    let interesting = |name: &str| {
        let name = name.to_lowercase();
        name.ends_with(".dist-info")
            && ["nvidia", "torch-", "onnxruntime", "onnx-", "tensorrt", "cupy", "triton"]
                .iter()
                .any(|start| name.starts_with(start))
    };
    let mut packages: Vec<String> = folders
        .iter()
        .flat_map(|folder| entries(folder))
        .map(|path| file_name(&path).to_string())
        .filter(|name| interesting(name))
        .map(|name| name.trim_end_matches(".dist-info").to_string())
        .collect();
    packages.sort();
    Finding::fact("Python packages", packages.join(" ")).note(&options.python).tell();
}
