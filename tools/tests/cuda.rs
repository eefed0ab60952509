//! `backend: cuda` from a user's point of view, on the driver double. Without `LIMEN_CUDA_DOUBLE`, the folder of `.ci/cuda` with it and
//! with builds of it that lack something, these tests do nothing.

use crate::program::{Folder, Ran};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const GRAPH: &str = "
version: 1
nodes:
  numbers: { kind: synthetic, config: { pattern: counter, dtype: f32, shape: [4], count: 20 } }
  steps: { kind: threshold, config: { at: 10, device: cuda }, from: numbers }
  nothing: { kind: 'null', from: steps }
";

/// The folder of the double, if the environment names it.
fn double() -> Option<PathBuf> {
    std::env::var_os("LIMEN_CUDA_DOUBLE").map(PathBuf::from).filter(|path| path.is_dir())
}

/// Runs the program with the libraries of a folder.
fn run(folder: &Folder, words: &str, libraries: &Path, switches: &[(&str, &str)]) -> Ran {
    let mut command = folder.command(words);
    command.env("LD_LIBRARY_PATH", libraries);
    for (switch, value) in switches {
        command.env(format!("CUDA_DOUBLE_{switch}"), value);
    }
    Ran::from(command.output().unwrap())
}

#[track_caller]
fn says(ran: &Ran, code: i32, parts: &[&str]) {
    // Long lines are folded.
    let all = format!("{} {}", ran.out, ran.err).split_whitespace().collect::<Vec<_>>().join(" ").replace("│ ", "");
    assert_eq!(ran.code, Some(code), "{all}");
    parts.iter().for_each(|part| assert!(all.contains(part), "no `{part}`: {all}"));
}

#[test]
fn a_gpu_is_chosen_by_its_number_or_name() {
    let Some(double) = double() else { return };
    let folder = Folder::with("cuda-gpu", GRAPH);
    let two = [("DEVICES", "2")];
    let listed = run(&folder, "doctor", &double, &two);
    says(&listed, 0, &["CUDA: 0, driver double", "CUDA: 1, driver double"]);
    for gpu in ["0", "1", "DOUBLE"] {
        says(&run(&folder, &format!("graph.yaml --gpu {gpu} --fail-on lost>0"), &double, &two), 0, &["20 messages"]);
    }
    for (gpu, parts) in [
        ("2", ["there is no GPU `2` (`--gpu`)", "0 is `driver double"]),
        ("radeon", ["no GPU `radeon`", "1 is `driver"]),
    ] {
        says(&run(&folder, &format!("check graph.yaml --gpu {gpu}"), &double, &two), 2, &parts);
    }
}

#[test]
fn what_is_missing_is_named_and_where_it_comes_from() {
    let Some(double) = double() else { return };
    let folder = Folder::with("cuda-missing", GRAPH);
    let libraries = |name: &str, files: &[(&str, &str)]| {
        let made = folder.0.join(name);
        fs::create_dir_all(&made).unwrap();
        for (from, file) in files {
            symlink(double.join(from).join(file), made.join(file)).unwrap();
        }
        made
    };
    let (driver, nvrtc) = ("libcuda.so.1", "libnvrtc.so.12");
    let none = libraries("none", &[]);
    let no_compiler = libraries("no-compiler", &[("", driver)]);
    let no_launch = libraries("no-launch", &[("without", driver), ("", nvrtc)]);
    let no_cubin = libraries("no-cubin", &[("", driver), ("without", nvrtc)]);
    let not_a_library = libraries("not-a-library", &[]);
    fs::write(not_a_library.join(driver), "text").unwrap();
    let driver_missing = ["NVIDIA's driver (`libcuda.so.1`) is not found", "install NVIDIA's driver"];
    for (libraries, switches, parts) in [
        (&none, &[][..], &driver_missing[..]),
        (&not_a_library, &[], &driver_missing),
        (&no_compiler, &[], &["NVRTC (`libnvrtc.so`) is not found", "pip install nvidia-cuda-nvrtc"]),
        (&no_launch, &[], &["has no function `cuLaunchKernel`", "too old"]),
        (&no_cubin, &[], &["has no function `nvrtcGetCUBIN`", "too old"]),
        (&double, &[("DEVICES", "0")], &["NVIDIA's driver finds no GPU"]),
        (&double, &[("ARCH", "30")], &["makes no code for this GPU (sm_30)", "an older GPU needs an earlier version"]),
    ] {
        let doctor = run(&folder, "doctor", libraries, switches);
        assert_eq!(doctor.code, Some(0), "{}", doctor.err);
        let ran = run(&folder, "check graph.yaml", libraries, switches);
        says(&ran, 2, parts);
        says(&ran, 2, &["graph.yaml:5:"]);
    }
}
