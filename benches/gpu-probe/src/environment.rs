//! The machine that the probe runs on, and its folders with GPU libraries.

use crate::report::Finding;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The library path before the probe extended it; PyTorch brings its own libraries and is run with this path.
const BEFORE: &str = "GPU_PROBE_LIBRARY_PATH_BEFORE";
const ADDED: &str = "GPU_PROBE_LIBRARY_PATH_ADDED";
const PATH: &str = "LD_LIBRARY_PATH";

/// Prefixes of the file names of libraries that the probe and its dependencies load.
pub const WANTED: [&str; 13] = [
    "libcuda.so",
    "libcudart.so",
    "libnvrtc.so",
    "libnvrtc-builtins.so",
    "libcublas.so",
    "libcublasLt.so",
    "libcudnn.so",
    "libcurand.so",
    "libcufft.so",
    "libnvinfer.so",
    "libnvidia-ml.so",
    "libonnxruntime",
    "libvulkan.so",
];

/// Folders with libraries that may not be on the loader's path: those of the toolkit, the driver, and Python packages.
pub fn library_folders(python: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for root in toolkits() {
        folders.extend([root.join("lib64"), root.join("targets/x86_64-linux/lib")]);
    }
    folders.extend(
        ["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu/nvidia/current"]
            .map(PathBuf::from),
    );
    for site in python_folders(python) {
        folders.extend(entries(&site.join("nvidia")).into_iter().map(|package| package.join("lib")));
        folders.extend([site.join("onnxruntime/capi"), site.join("onnxruntime_ep_webgpu"), site.join("tensorrt_libs")]);
    }
    distinct(folders)
}

/// Folders of headers.
pub fn header_folders(python: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        toolkits().iter().flat_map(|root| [root.join("include"), root.join("include/cccl")]).collect();
    for site in python_folders(python) {
        let packages = entries(&site.join("nvidia"));
        folders.extend(packages.iter().flat_map(|package| [package.join("include"), package.join("include/cccl")]));
    }
    folders.push("/usr/include".into());
    distinct(folders)
}

/// Folders where a CUDA toolkit may be installed.
pub fn toolkits() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let mut roots: Vec<PathBuf> = named.collect();
    let is_toolkit =
        |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("cuda"));
    roots.extend(entries(Path::new("/usr/local")).into_iter().filter(is_toolkit));
    roots.extend(entries(Path::new("/opt")).into_iter().filter(is_toolkit));
    distinct(roots)
}

/// The package folders of a Python interpreter.
pub fn python_folders(python: &str) -> Vec<PathBuf> {
    let ask = Command::new(python)
        .args(["-c", "import sys; print('\\n'.join(p for p in sys.path if p))"])
        .stderr(Stdio::null())
        .output();
    let Ok(answer) = ask else { return Vec::new() };
    distinct(String::from_utf8_lossy(&answer.stdout).lines().map(PathBuf::from).collect())
}

/// The entries of a folder, sorted by name; empty if it cannot be read.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(read) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = read.filter_map(|entry| entry.ok().map(|e| e.path())).collect();
    paths.sort();
    paths
}

pub fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// The folders that exist, without duplicates through links.
fn distinct(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    folders
        .into_iter()
        .filter(|folder| folder.is_dir() && folder.canonicalize().is_ok_and(|real| seen.insert(real)))
        .collect()
}

/// Appends the folders with wanted libraries to the loader's path of the children.
pub fn extend_library_path(python: &str) -> Vec<String> {
    let holds = |folder: &PathBuf| {
        entries(folder).iter().any(|file| WANTED.iter().any(|name| file_name(file).starts_with(name)))
    };
    let before = std::env::var(PATH).unwrap_or_default();
    let known: Vec<&str> = before.split(':').filter(|part| !part.is_empty()).collect();
    let added: Vec<String> = library_folders(python)
        .iter()
        .filter(|folder| holds(folder))
        .map(|folder| folder.to_string_lossy().into_owned())
        .filter(|folder| !known.contains(&folder.as_str()))
        .collect();
    let all: Vec<&str> = known.iter().copied().chain(added.iter().map(String::as_str)).collect();
    // SAFETY: no other thread has been started yet.
    unsafe {
        std::env::set_var(BEFORE, &before);
        std::env::set_var(ADDED, added.join(":"));
        if !all.is_empty() {
            std::env::set_var(PATH, all.join(":"));
        }
    }
    added
}

/// Whether a library was found only because the probe added its folder.
pub fn was_added(library: &Path) -> bool {
    let added = std::env::var(ADDED).unwrap_or_default();
    library.parent().is_some_and(|folder| added.split(':').any(|part| Path::new(part) == folder))
}

/// A command with the original library path.
pub fn with_path_before(mut command: Command) -> Command {
    match std::env::var(BEFORE) {
        Ok(before) if !before.is_empty() => command.env(PATH, before),
        _ => command.env_remove(PATH),
    };
    command
}

/// Processor, memory, kernel, driver.
pub fn machine() -> Vec<Finding> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let after = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_string()).unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, |n| n.get());
    let system = after(&read("/etc/os-release").replace('=', ":"), "PRETTY_NAME");
    let driver = read("/proc/driver/nvidia/version");
    let mut found = vec![
        Finding::fact("processor", after(&read("/proc/cpuinfo"), "model name")).note(format!("{cores} cores")),
        Finding::fact("memory", after(&read("/proc/meminfo"), "MemTotal")),
        Finding::fact("system", system.trim_matches('"')).note(read("/proc/sys/kernel/osrelease").trim()),
    ];
    found.push(match driver.lines().next() {
        Some(line) => Finding::fact("kernel driver", line),
        None => Finding::missing("kernel driver", "no /proc/driver/nvidia/version"),
    });
    let nodes: Vec<String> = entries(Path::new("/dev"))
        .iter()
        .map(|p| file_name(p).to_string())
        .filter(|name| name.starts_with("nvidia"))
        .collect();
    found.push(Finding::fact("device files", nodes.join(" ")));
    let dri: Vec<String> = entries(Path::new("/dev/dri")).iter().map(|p| file_name(p).to_string()).collect();
    found.push(Finding::fact("render nodes", dri.join(" ")));
    found
}
