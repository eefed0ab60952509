//! `limen-run doctor`: checks this host's settings for low latency, and names the fixes.

use crate::text::paragraph::paragraph;
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;
use std::fmt::Write;

/// One setting of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The setting.
    pub what: &'static str,
    /// Whether it is good.
    pub state: Health,
    /// Its value.
    pub found: String,
    /// A better value, and how to get it.
    pub remedy: Option<String>,
}

/// Whether a setting is good for low latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It is as it should be.
    Good,
    /// It costs latency, or allows outliers.
    Poor,
    /// The host does not report it.
    Unknown,
}

/// Most network interfaces that are looked at.
const MAX_INTERFACES: usize = 1024;

/// The root of `/proc` and `/sys`; tests use a folder of their own.
pub(crate) struct Host<'a> {
    pub(crate) root: &'a str,
}

impl Host<'_> {
    fn read(&self, path: &str) -> Option<String> {
        let text = limen::files::system_text(format!("{}{path}", self.root)).ok()?;
        Some(text.trim().to_string())
    }

    fn findings(&self) -> Vec<Finding> {
        vec![
            self.cores(),
            self.governor(),
            self.isolated(),
            self.smt(),
            self.clock_source(),
            self.kernel(),
            self.swap(),
            limit(
                "real-time priority",
                Resource::RLIMIT_RTPRIO,
                CAP_SYS_NICE,
                |soft| soft >= 50,
                "to allow a higher priority in a graph's `rt:`, run `ulimit -r 99`, write `@realtime - rtprio 99` in /etc/security/limits.d or \
                 LimitRTPRIO=99 in a service, or start a container with `--ulimit rtprio=99 --cap-add SYS_NICE`",
            ),
            limit(
                "locked memory",
                Resource::RLIMIT_MEMLOCK,
                CAP_IPC_LOCK,
                |soft| soft >= 1 << 32,
                "to allow `mlock: true` in a larger process, run `ulimit -l unlimited`, or write `@realtime - memlock unlimited` in \
                 /etc/security/limits.d or LimitMEMLOCK=infinity in a service",
            ),
        ]
    }

    fn cores(&self) -> Finding {
        let allowed = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let online = self.read("/sys/devices/system/cpu/online");
        let found = format!("{allowed} usable, online: {}", online.as_deref().unwrap_or("unknown"));
        if allowed > 1 {
            return Finding { what: "cores", state: Health::Good, found, remedy: None };
        }
        let remedy =
            "use `taskset`, or the container's `--cpus`, to allow at least two cores if the graph runs a model";
        Finding { what: "cores", state: Health::Poor, found, remedy: Some(remedy.into()) }
    }

    fn governor(&self) -> Finding {
        let what = "frequency governor";
        match self.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
            Some(found) if found == "performance" => Finding { what, state: Health::Good, found, remedy: None },
            Some(found) => {
                let remedy = "an idle core wakes at a low frequency: run `sudo cpupower frequency-set -g performance`";
                Finding { what, state: Health::Poor, found, remedy: Some(remedy.into()) }
            }
            None => unknown(what, "unknown to the kernel, as in most virtual machines"),
        }
    }

    fn isolated(&self) -> Finding {
        let what = "isolated cores";
        match self.read("/sys/devices/system/cpu/isolated") {
            None => unknown(what, "not reported by the kernel"),
            Some(found) if found.is_empty() => {
                let online = numbers(&self.read("/sys/devices/system/cpu/online").unwrap_or_default());
                let remedy = match online[..] {
                    [_, _, .., one, other] => {
                        let two = format!("{one},{other}");
                        format!(
                            "other processes and the kernel share every core: boot with `isolcpus={two} nohz_full={two} \
                             rcu_nocbs={two}` and run with `--cores {two}`"
                        )
                    }
                    _ => "other processes and the kernel share every core: use a machine with at least four cores to isolate two".into(),
                };
                Finding { what, state: Health::Poor, found: "none".into(), remedy: Some(remedy) }
            }
            Some(found) => Finding { what, state: Health::Good, found, remedy: None },
        }
    }

    fn smt(&self) -> Finding {
        let what = "hyper-threading";
        match self.read("/sys/devices/system/cpu/smt/active").as_deref() {
            Some("0") => Finding { what, state: Health::Good, found: "off, or not available".into(), remedy: None },
            Some(_) => Finding {
                what,
                state: Health::Poor,
                found: "on".into(),
                remedy: Some(
                    "two workers on one physical core halve each other's speed: name one CPU of each pair in `--cores` \
                     (/sys/devices/system/cpu/cpu0/topology/thread_siblings_list), or boot with `nosmt`"
                        .into(),
                ),
            },
            None => unknown(what, "not reported by the kernel"),
        }
    }

    fn clock_source(&self) -> Finding {
        let what = "clock source";
        match self.read("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
            Some(found) if found == "tsc" || found == "arch_sys_counter" => {
                Finding { what, state: Health::Good, found, remedy: None }
            }
            Some(found) => {
                let remedy = "reading this clock is slower than reading the processor's counter: boot with `clocksource=tsc tsc=reliable` if \
                              the counter is constant (`constant_tsc` and `nonstop_tsc` in /proc/cpuinfo)";
                Finding { what, state: Health::Poor, found, remedy: Some(remedy.into()) }
            }
            None => unknown(what, "not reported by the kernel"),
        }
    }

    fn kernel(&self) -> Finding {
        let version = self.read("/proc/sys/kernel/osrelease").unwrap_or_default();
        let is_real_time = self.read("/sys/kernel/realtime").as_deref() == Some("1");
        let (state, remedy) = if is_real_time {
            (Health::Good, None)
        } else {
            let remedy = "the worst-case latency has no bound: install a PREEMPT_RT kernel, packaged as `linux-image-rt` \
                          or `linux-realtime`";
            (Health::Poor, Some(remedy.to_string()))
        };
        let found = if is_real_time { format!("{version}, real-time") } else { version };
        Finding { what: "kernel", state, found, remedy }
    }

    /// The interfaces for the kinds `can`.
    fn buses(&self) -> Vec<Finding> {
        /// `ARPHRD_CAN` of `linux/if_arp.h`.
        const CAN: &str = "280";
        let what = "CAN bus";
        // A folder of the system: it has a name for each interface.
        let names = std::fs::read_dir(format!("{}/sys/class/net", self.root)).into_iter().flatten();
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).take(MAX_INTERFACES);
        let mut names: Vec<String> =
            names.filter(|name| self.read(&format!("/sys/class/net/{name}/type")).as_deref() == Some(CAN)).collect();
        names.sort();
        let finding = |name: String| match self.read(&format!("/sys/class/net/{name}/operstate")).as_deref() {
            Some("down") => Finding {
                what,
                state: Health::Poor,
                found: format!("{name}: down"),
                remedy: Some(format!(
                    "run `sudo ip link set {name} up type can bitrate 500000` with the bit rate of the bus"
                )),
            },
            _ => Finding { what, state: Health::Good, found: name, remedy: None },
        };
        if names.is_empty() {
            return vec![unknown(what, "none found in /sys/class/net")];
        }
        names.into_iter().map(finding).collect()
    }

    fn swap(&self) -> Finding {
        let what = "swap";
        match self.read("/proc/swaps").map(|text| text.lines().count().saturating_sub(1)) {
            Some(0) => Finding { what, state: Health::Good, found: "none".into(), remedy: None },
            Some(n) => Finding {
                what,
                state: Health::Poor,
                found: format!("{n} in use"),
                remedy: Some(
                    "reading a swapped-out page takes milliseconds: write `run: { mlock: true }`, or run `sudo swapoff -a`"
                        .into(),
                ),
            },
            None => unknown(what, "not reported by the kernel"),
        }
    }
}

/// The numbers in a list of the kernel's, such as `0-3,8`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse().ok().zip(last.parse::<usize>().ok())
    };
    list.split(',').filter_map(range).flat_map(|(first, last): (usize, usize)| first..=last.min(first + 4096)).collect()
}

fn unknown(what: &'static str, found: &str) -> Finding {
    Finding { what, state: Health::Unknown, found: found.into(), remedy: None }
}

/// Bit numbers of two Linux capabilities.
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_NICE: u32 = 23;

/// Whether this process has a capability; root in a container may lack it.
fn has_capability(capability: u32) -> bool {
    let status = limen::files::system_text("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    effective.is_some_and(|bits| bits >> capability & 1 == 1)
}

fn limit(
    what: &'static str,
    resource: Resource,
    capability: u32,
    is_enough: impl Fn(u64) -> bool,
    remedy: &str,
) -> Finding {
    match getrlimit(resource) {
        Ok(_) if has_capability(capability) => {
            Finding { what, state: Health::Good, found: "unlimited, by a capability".into(), remedy: None }
        }
        Ok((soft, _)) if is_enough(soft) => {
            let found = if soft == u64::MAX { "unlimited".into() } else { format!("up to {soft}") };
            Finding { what, state: Health::Good, found, remedy: None }
        }
        Ok((soft, _)) => {
            Finding { what, state: Health::Poor, found: format!("up to {soft}"), remedy: Some(remedy.into()) }
        }
        Err(error) => unknown(what, error.desc()),
    }
}

/// Checks this host.
pub fn examine() -> Vec<Finding> {
    let mut findings = Host { root: "" }.findings();
    findings.extend(adapters());
    findings.extend(cuda_devices());
    #[cfg(feature = "devices")]
    findings.extend(cameras());
    findings.extend(Host { root: "" }.buses());
    #[cfg(feature = "devices")]
    findings.extend(sound_devices());
    findings
}

/// The devices of sound cards for the kind `audio`.
#[cfg(feature = "devices")]
fn sound_devices() -> Vec<Finding> {
    let what = "sound device";
    let found = limen_devices::stream::sound_devices().into_iter().map(|device| match device.about {
        Ok(about) => Finding { what, state: Health::Good, found: format!("{}: {about}", device.name), remedy: None },
        Err(error) => {
            let remedy = "close the program that uses the device, or add the user to the group `audio`";
            Finding { remedy: Some(remedy.into()), ..unknown(what, &format!("{}: {error}", device.name)) }
        }
    });
    found.collect()
}

/// The cameras for the kind `v4l2`, and their modes.
#[cfg(feature = "devices")]
fn cameras() -> Vec<Finding> {
    let found = limen_devices::source::v4l2::cameras().into_iter().map(|camera| {
        let finding = |state, about: String, remedy| Finding {
            what: "camera",
            state,
            found: format!("{}: {about}", camera.device),
            remedy,
        };
        match camera.modes {
            Ok(modes) => finding(Health::Good, modes, None),
            Err(error) => finding(Health::Unknown, error.to_string(), Some("add the user to the group `video`".into())),
        }
    });
    let found: Vec<Finding> = found.collect();
    if found.is_empty() { vec![unknown("camera", "none found at /dev/video*")] } else { found }
}

/// The devices that the backend `wgpu` may take.
#[cfg(feature = "wgpu")]
fn adapters() -> Vec<Finding> {
    let what = "GPU";
    let finding = |(number, adapter): (usize, limen_gpu::GpuAdapter)| {
        let found = format!("{number}, {}: {}", adapter.name, adapter.about);
        let remedy = "install the Vulkan driver of a GPU, or add `--allow-software` to use this slow adapter";
        match adapter.is_software {
            true => Finding { what, state: Health::Poor, found, remedy: Some(remedy.into()) },
            false => Finding { what, state: Health::Good, found, remedy: None },
        }
    };
    let found: Vec<Finding> = limen_gpu::gpu_adapters().into_iter().enumerate().map(finding).collect();
    if !found.is_empty() {
        return found;
    }
    let remedy = "for `backend: wgpu`, install the Vulkan driver of a GPU (in a container with an NVIDIA GPU: Debian's `libvulkan1`, `libegl1` \
                  and `libglx0`; for tests on the CPU: `mesa-vulkan-drivers`)";
    vec![Finding { remedy: Some(remedy.into()), ..unknown(what, "none found") }]
}

#[cfg(not(feature = "wgpu"))]
fn adapters() -> Vec<Finding> {
    Vec::new()
}

/// The GPUs of NVIDIA's, and what the backend `cuda` lacks.
#[cfg(feature = "cuda")]
fn cuda_devices() -> Vec<Finding> {
    let what = "CUDA";
    let good = |(number, device): (usize, limen_gpu::CudaDevice)| {
        let found = format!("{number}, {}: {}", device.name, device.about);
        Finding { what, state: Health::Good, found, remedy: None }
    };
    match limen_gpu::cuda_devices() {
        Ok(devices) if !devices.is_empty() => {
            let slower = limen_gpu::missing_cuda_libraries().into_iter().map(|why| {
                let (found, remedy) = why.split_once(": ").unwrap_or((&why, ""));
                let found = format!("{found}; limen's own kernels are used instead");
                Finding { what, state: Health::Poor, found, remedy: Some(remedy.into()) }
            });
            devices.into_iter().enumerate().map(good).chain(slower).collect()
        }
        Ok(_) => vec![Finding { remedy: None, ..unknown(what, "NVIDIA's driver finds no GPU") }],
        Err(why) => {
            let (found, remedy) = why.split_once(": ").unwrap_or((&why, "install the library for `backend: cuda`"));
            vec![Finding { remedy: Some(remedy.into()), ..unknown(what, found) }]
        }
    }
}

#[cfg(not(feature = "cuda"))]
fn cuda_devices() -> Vec<Finding> {
    Vec::new()
}

/// Formats findings as text.
pub fn show_findings(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.state {
            Health::Good => "good",
            Health::Poor => "poor",
            Health::Unknown => "?",
        };
        paragraph(&mut text, &format!("{mark:4}  {}: ", finding.what), &finding.found);
        if let Some(remedy) = &finding.remedy {
            paragraph(&mut text, "      ", remedy);
        }
    }
    let poor = findings.iter().filter(|finding| finding.state == Health::Poor).count();
    let _ = match poor {
        0 => writeln!(text, "\nnothing to fix"),
        n => {
            writeln!(text, "\n{n} of {} settings can be improved; graphs also run without these fixes", findings.len())
        }
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether there is an adapter or none.
    #[cfg(feature = "wgpu")]
    #[test]
    fn adapters_are_listed() {
        let found = adapters();
        assert!(!found.is_empty());
        for finding in found {
            let is_none = finding.found == "none found";
            assert!(finding.what == "GPU" && (is_none || finding.found.contains(", driver ")), "{finding:?}");
            assert_eq!(finding.remedy.is_some(), finding.state != Health::Good, "{finding:?}");
        }
    }

    #[test]
    fn settings_of_a_host_are_rated() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let host = Host { root: folder.path().to_str().unwrap() };
        let state = |what: &str| host.findings().into_iter().find(|finding| finding.what == what).unwrap();
        // Without files, every setting is unknown.
        for what in ["frequency governor", "isolated cores", "hyper-threading", "clock source", "swap"] {
            assert_eq!((state(what).state, state(what).remedy), (Health::Unknown, None), "{what}");
        }
        let governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
        let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        for (what, path, good, poor) in [
            ("frequency governor", governor, "performance\n", "powersave\n"),
            ("isolated cores", "/sys/devices/system/cpu/isolated", "2-3\n", "\n"),
            ("hyper-threading", "/sys/devices/system/cpu/smt/active", "0\n", "1\n"),
            ("clock source", clock, "tsc\n", "hpet\n"),
            ("kernel", "/sys/kernel/realtime", "1\n", "0\n"),
            ("swap", "/proc/swaps", "Filename Type\n", "Filename Type\n/swapfile file\n"),
        ] {
            write(path, good);
            assert_eq!((state(what).state, state(what).remedy), (Health::Good, None), "{what}");
            write(path, poor);
            let found = state(what);
            assert!(found.state == Health::Poor && found.remedy.is_some(), "{found:?}");
        }
        // Advice is for cores that there are.
        for (online, part) in [
            ("0-1\n", "at least four cores"),
            ("0-7\n", "isolcpus=6,7 "),
            ("0-3,8-11\n", "--cores 10,11`"),
            ("0-1,3,5\n", "--cores 3,5`"),
        ] {
            write("/sys/devices/system/cpu/online", online);
            let remedy = state("isolated cores").remedy.unwrap();
            assert!(remedy.contains(part), "{online}: {remedy}");
        }
        assert_eq!(host.buses()[0].state, Health::Unknown);
        for (name, kind, operstate) in [("can0", "280\n", "up\n"), ("can1", "280\n", "down\n"), ("eth0", "1\n", "up\n")]
        {
            write(&format!("/sys/class/net/{name}/type"), kind);
            write(&format!("/sys/class/net/{name}/operstate"), operstate);
        }
        let buses: Vec<(String, Health)> = host.buses().into_iter().map(|bus| (bus.found, bus.state)).collect();
        assert_eq!(buses, [("can0".to_string(), Health::Good), ("can1: down".to_string(), Health::Poor)]);
    }
}
