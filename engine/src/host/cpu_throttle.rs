//! What keeps CPUs from doing as much as they can: a control group's quota, heat, a lower frequency.

use crate::base::unit::show_ns;
use crate::host::files::{open_system, system_text};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// What kept CPUs from doing as much as they can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuThrottle {
    /// The process, or a control group that it belongs to, had used up its CPU quota.
    Quota {
        /// In how many periods.
        times: u64,
        /// How long CPUs could not be used, summed over CPUs.
        stopped: Duration,
    },
    /// The processor slowed itself down because it was hot.
    Heat {
        /// The CPU; `None` if it was the whole processor.
        cpu: Option<usize>,
        /// How often.
        times: u64,
    },
    /// The kernel lowered the highest frequency of a CPU, as it does against heat and to save power, or raised it again.
    Frequency {
        /// The CPU.
        cpu: usize,
        /// The highest frequency from now on, kHz.
        khz: u64,
        /// The highest frequency of the hardware, kHz.
        of_khz: u64,
    },
}

/// Control groups above that of the process whose quotas are read.
const ANCESTORS: usize = 8;
/// Of the highest frequency, a CPU that is kept from nothing reaches at least so many hundredths: turbo is for some CPUs at a time.
const REACHED: u64 = 70;

/// The files that say what throttles a set of CPUs.
#[derive(Debug, Default)]
pub(crate) struct ThrottleReader {
    /// `cpu.stat` of the control groups.
    quotas: Vec<File>,
    /// Counters of how often heat slowed a CPU, or a processor, down.
    heat: Vec<(Option<usize>, File)>,
    /// Highest frequencies.
    frequencies: Vec<Frequency>,
}

/// The frequency of a CPU, kHz.
#[derive(Debug)]
struct Frequency {
    cpu: usize,
    now: File,
    most: File,
    /// What the hardware can do, and what it does if nothing slows it down.
    highest: u64,
    usual: u64,
}

/// The counters of what throttles CPUs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttled {
    /// Periods in which a quota was used up, and for how long CPUs stood still, ns.
    quota: (u64, u64),
    heat: Vec<u64>,
    most: Vec<u64>,
}

impl Throttled {
    /// Copies other counters of the same reader.
    pub(crate) fn copy(&mut self, other: &Throttled) {
        self.quota = other.quota;
        self.heat.copy_from_slice(&other.heat);
        self.most.copy_from_slice(&other.most);
    }
}

impl fmt::Display for CpuThrottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |n: u64| if n == 1 { "" } else { "s" };
        let ghz = |khz: u64| khz as f64 / 1e6;
        match *self {
            CpuThrottle::Quota { times, stopped } => {
                let stopped = show_ns(u64::try_from(stopped.as_nanos()).unwrap_or(u64::MAX));
                write!(
                    f,
                    "the CPU quota was used up in {times} period{}; CPUs stood still for {stopped} in sum",
                    s(times)
                )
            }
            CpuThrottle::Heat { cpu: Some(cpu), times } => {
                write!(f, "heat slowed CPU {cpu} down {times} time{}", s(times))
            }
            CpuThrottle::Heat { cpu: None, times } => {
                write!(f, "heat slowed the processor down {times} time{}", s(times))
            }
            CpuThrottle::Frequency { cpu, khz, of_khz } => {
                write!(f, "CPU {cpu} may run at up to {:.2} of {:.2} GHz", ghz(khz), ghz(of_khz))
            }
        }
    }
}

impl ThrottleReader {
    /// Opens what there is about the calling process and the given CPUs.
    pub(crate) fn new(cpus: &[usize]) -> Self {
        // Miri reads no files of the system.
        if cfg!(miri) { ThrottleReader::default() } else { ThrottleReader::below(Path::new("/"), cpus) }
    }

    /// Reads `/sys` and `/proc` below a root.
    fn below(root: &Path, cpus: &[usize]) -> Self {
        let open = |path: PathBuf| open_system(path.to_str()?).ok();
        let own = system_text(root.join("proc/self/cgroup")).unwrap_or_default();
        let quotas = quota_folders(&own).map(|path| root.join("sys/fs/cgroup").join(path).join("cpu.stat"));
        let is_counted = |file: &File| read(file, |text| field(text, "nr_throttled")).is_some();
        let quotas = quotas.filter_map(open).filter(is_counted).collect();
        let (mut heat, mut frequencies, mut packages) = (Vec::new(), Vec::new(), Vec::new());
        for cpu in cpus {
            let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
            let number = |path: &str| system_text(folder.join(path)).ok()?.trim().parse::<u64>().ok();
            heat.extend(open(folder.join("thermal_throttle/core_throttle_count")).map(|file| (Some(*cpu), file)));
            let package = number("topology/physical_package_id");
            if !packages.contains(&package) {
                packages.push(package);
                heat.extend(open(folder.join("thermal_throttle/package_throttle_count")).map(|file| (None, file)));
            }
            let scaling = |name: &str| open(folder.join("cpufreq").join(name));
            let Some(highest) = number("cpufreq/cpuinfo_max_freq").filter(|highest| *highest > 0) else { continue };
            let (Some(now), Some(most)) = (scaling("scaling_cur_freq"), scaling("scaling_max_freq")) else { continue };
            let usual = number("cpufreq/base_frequency").unwrap_or(highest / 100 * REACHED);
            frequencies.push(Frequency { cpu: *cpu, now, most, highest, usual });
        }
        ThrottleReader { quotas, heat, frequencies }
    }

    /// Reads the counters.
    pub(crate) fn read(&self) -> Throttled {
        let mut counters =
            Throttled { quota: (0, 0), heat: vec![0; self.heat.len()], most: vec![0; self.frequencies.len()] };
        self.read_into(&mut counters);
        counters
    }

    /// Reads the counters into earlier ones of this reader.
    pub(crate) fn read_into(&self, counters: &mut Throttled) {
        let quota = |file: &File| {
            read(file, |text| {
                let micros = field(text, "throttled_usec").map(|us| us.saturating_mul(1000));
                Some((field(text, "nr_throttled")?, micros.or_else(|| field(text, "throttled_time"))?))
            })
        };
        let number = |file: &File| read(file, |text| text.trim().parse().ok()).unwrap_or_default();
        // A group stands still as often as the one above it, so the sum would count twice.
        counters.quota = self.quotas.iter().filter_map(quota).max().unwrap_or_default();
        counters.heat.iter_mut().zip(&self.heat).for_each(|(count, (_, file))| *count = number(file));
        counters.most.iter_mut().zip(&self.frequencies).for_each(|(most, of)| *most = number(&of.most));
    }

    /// Whether a CPU runs at a lower frequency than it does if nothing slows it down. Only to be asked of a CPU that has been busy: an idle
    /// one is slow to save power.
    pub(crate) fn is_slow(&self, cpu: usize) -> bool {
        let frequency = self.frequencies.iter().find(|frequency| frequency.cpu == cpu);
        frequency.is_some_and(|frequency| {
            read(&frequency.now, |text| text.trim().parse::<u64>().ok()).is_some_and(|now| now < frequency.usual)
        })
    }

    /// What throttled CPUs between two readings of this reader.
    pub(crate) fn between<'a>(
        &'a self,
        then: &'a Throttled,
        now: &'a Throttled,
    ) -> impl Iterator<Item = CpuThrottle> + 'a {
        let (times, ns) = (now.quota.0.saturating_sub(then.quota.0), now.quota.1.saturating_sub(then.quota.1));
        let quota = (times > 0).then(|| CpuThrottle::Quota { times, stopped: Duration::from_nanos(ns) });
        let heat = self.heat.iter().zip(then.heat.iter().zip(&now.heat));
        let heat =
            heat.map(|((cpu, _), (then, now))| CpuThrottle::Heat { cpu: *cpu, times: now.saturating_sub(*then) });
        let most = self.frequencies.iter().zip(then.most.iter().zip(&now.most));
        let most = most.filter(|(_, (then, now))| then != now).map(|(frequency, (_, now))| CpuThrottle::Frequency {
            cpu: frequency.cpu,
            khz: *now,
            of_khz: frequency.highest,
        });
        quota.into_iter().chain(heat.filter(|heat| !matches!(heat, CpuThrottle::Heat { times: 0, .. }))).chain(most)
    }
}

/// The folders below `/sys/fs/cgroup` of the control groups that may limit a process, by its `/proc/self/cgroup`: of both versions, its own and
/// those above.
fn quota_folders(own: &str) -> impl Iterator<Item = PathBuf> + '_ {
    own.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let roots: &[&str] = match controllers {
            "" => &["", "unified"],
            _ if controllers.split(',').any(|controller| controller == "cpu") => &["cpu", "cpu,cpuacct"],
            _ => &[],
        };
        // Above the top of a namespace lies nothing that can be seen.
        let path = Path::new(path.trim_start_matches('/'));
        let roots = if path.components().all(|part| matches!(part, Component::Normal(_))) { roots } else { &[] };
        roots.iter().flat_map(move |root| path.ancestors().take(ANCESTORS).map(|path| Path::new(root).join(path)))
    })
}

/// Reads a short file without allocating.
fn read<T>(file: &File, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut text = [0; 512];
    let length = file.read_at(&mut text, 0).ok()?;
    // A longer text is cut within a character at worst, behind what is looked for.
    parse(std::str::from_utf8(&text[..length]).ok()?)
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    /// Writes files below a folder.
    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    const CPU: &str = "sys/devices/system/cpu/cpu";

    #[test]
    fn quotas_of_either_version_and_of_groups_above_are_read() {
        let second = "usage_usec 9\nnr_periods 5\nnr_throttled 3\nthrottled_usec 250000\n";
        for (own, files) in [
            ("0::/\n", vec![("sys/fs/cgroup/cpu.stat", second)]),
            ("0::/a/b\n", vec![("sys/fs/cgroup/a/cpu.stat", second), ("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 9\n")]),
            (
                "3:cpuset:/\n1:cpu,cpuacct:/docker/x\n0::/\n",
                vec![(
                    "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.stat",
                    "nr_periods 5\nnr_throttled 3\nthrottled_time 250000000\n",
                )],
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), &[("proc/self/cgroup", own)]);
            write(root.path(), &files);
            let reader = ThrottleReader::below(root.path(), &[]);
            let (then, now) = (Throttled::default(), reader.read());
            assert_eq!(now.quota, (3, 250_000_000), "{own}");
            let expected = CpuThrottle::Quota { times: 3, stopped: Duration::from_millis(250) };
            assert_eq!(reader.between(&then, &now).collect::<Vec<_>>(), [expected], "{own}");
            assert_eq!(reader.between(&now, &reader.read()).count(), 0);
        }
    }

    #[test]
    fn heat_and_lowered_frequencies_are_found_by_cpu_and_processor() {
        let root = tempfile::tempdir().unwrap();
        let path = |cpu: usize, name: &str| format!("{CPU}{cpu}/{name}");
        for cpu in 0..2 {
            for (name, text) in [
                ("topology/physical_package_id", "0\n"),
                ("thermal_throttle/core_throttle_count", "7\n"),
                ("thermal_throttle/package_throttle_count", "9\n"),
                ("cpufreq/cpuinfo_max_freq", "3600000\n"),
                ("cpufreq/scaling_max_freq", "3600000\n"),
                ("cpufreq/scaling_cur_freq", "3300000\n"),
            ] {
                write(root.path(), &[(&path(cpu, name), text)]);
            }
        }
        let reader = ThrottleReader::below(root.path(), &[0, 1]);
        let then = reader.read();
        assert_eq!(reader.between(&then, &reader.read()).count(), 0);
        assert!(!reader.is_slow(1));
        write(
            root.path(),
            &[
                (&path(1, "thermal_throttle/core_throttle_count"), "9\n"),
                (&path(0, "thermal_throttle/package_throttle_count"), "10\n"),
                (&path(1, "cpufreq/scaling_max_freq"), "1200000\n"),
                (&path(1, "cpufreq/scaling_cur_freq"), "1199000\n"),
            ],
        );
        let now = reader.read();
        assert_eq!(
            reader.between(&then, &now).collect::<Vec<_>>(),
            [
                CpuThrottle::Heat { cpu: None, times: 1 },
                CpuThrottle::Heat { cpu: Some(1), times: 2 },
                CpuThrottle::Frequency { cpu: 1, khz: 1_200_000, of_khz: 3_600_000 },
            ]
        );
        assert!(reader.is_slow(1) && !reader.is_slow(0) && !reader.is_slow(2));
    }

    #[test]
    fn a_machine_that_says_nothing_throttles_nothing() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[("proc/self/cgroup", "nonsense\n::\n0::/../..\n"), ("sys/fs/cgroup/cpu.stat", "nr_throttled x\n")],
        );
        let reader = ThrottleReader::below(root.path(), &[0]);
        assert_eq!((reader.read(), reader.is_slow(0)), (Throttled::default(), false));
    }
}
