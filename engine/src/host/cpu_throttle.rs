//! What keeps CPUs from doing as much as they can: a control group's quota, heat, a lower
//! frequency.

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
    /// A processor slowed itself down because it was hot.
    Heat {
        /// The CPU; `None` if it was a whole processor.
        cpu: Option<usize>,
        /// How often.
        times: u64,
    },
    /// The kernel lowered the highest frequency of CPUs, as it does against heat and to save power,
    /// or raised it again.
    Frequency {
        /// How many CPUs.
        cpus: usize,
        /// Their highest frequency from now on, kHz.
        khz: u64,
        /// The highest frequency of the hardware, kHz.
        of_khz: u64,
    },
}

/// Control groups whose quotas are read: that of the process and those above it.
const GROUPS: usize = 8;

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

/// The highest frequency of a CPU, kHz: what the kernel allows now, and what the hardware can do.
#[derive(Debug)]
struct Frequency {
    cpu: usize,
    most: File,
    highest: u64,
}

/// The counters of what throttles CPUs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttled {
    /// By control group: periods in which its quota was used up, and for how long CPUs stood still,
    /// ns.
    quotas: Vec<(u64, u64)>,
    heat: Vec<u64>,
    most: Vec<u64>,
}

impl Throttled {
    /// Copies other counters of the same reader.
    pub(crate) fn copy(&mut self, other: &Throttled) {
        self.quotas.copy_from_slice(&other.quotas);
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
                    "the CPU quota was used up in {times} period{}, which stopped CPUs for {stopped} in total",
                    s(times)
                )
            }
            CpuThrottle::Heat { cpu: Some(cpu), times } => {
                write!(f, "heat slowed CPU {cpu} down {times} time{}", s(times))
            }
            CpuThrottle::Heat { cpu: None, times } => {
                write!(f, "heat slowed the processor down {times} time{}", s(times))
            }
            CpuThrottle::Frequency { cpus, khz, of_khz } => {
                write!(
                    f,
                    "the frequency of {cpus} CPU{} is limited to {:.2} of {:.2} GHz",
                    s(cpus as u64),
                    ghz(khz),
                    ghz(of_khz)
                )
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
            let highest = number("cpufreq/cpuinfo_max_freq").filter(|highest| *highest > 0);
            let most = open(folder.join("cpufreq/scaling_max_freq"));
            frequencies.extend(most.zip(highest).map(|(most, highest)| Frequency { cpu: *cpu, most, highest }));
        }
        ThrottleReader { quotas, heat, frequencies }
    }

    /// Reads the counters.
    pub(crate) fn read(&self) -> Throttled {
        let (groups, heat, most) = (self.quotas.len(), self.heat.len(), self.frequencies.len());
        let mut counters = Throttled { quotas: vec![(0, 0); groups], heat: vec![0; heat], most: vec![0; most] };
        self.read_into(&mut counters);
        counters
    }

    /// Reads the counters into earlier ones of this reader; those that cannot be read, as of a CPU
    /// that was taken away, stay.
    pub(crate) fn read_into(&self, counters: &mut Throttled) {
        let quota = |file: &File| {
            read(file, |text| {
                let micros = field(text, "throttled_usec").map(|us| us.saturating_mul(1000));
                Some((field(text, "nr_throttled")?, micros.or_else(|| field(text, "throttled_time"))?))
            })
        };
        let number = |file: &File| read(file, |text| text.trim().parse().ok());
        counters.quotas.iter_mut().zip(&self.quotas).for_each(|(old, file)| *old = quota(file).unwrap_or(*old));
        counters.heat.iter_mut().zip(&self.heat).for_each(|(old, (_, file))| *old = number(file).unwrap_or(*old));
        let most = counters.most.iter_mut().zip(&self.frequencies);
        most.for_each(|(old, of)| *old = number(&of.most).unwrap_or(*old));
    }

    /// The CPUs whose highest frequency is lower in `now` than it was in `then`.
    pub(crate) fn limited<'a>(&'a self, then: &'a Throttled, now: &'a Throttled) -> impl Iterator<Item = usize> + 'a {
        let most = self.frequencies.iter().zip(then.most.iter().zip(&now.most));
        most.filter(|(_, (then, now))| now < then).map(|(frequency, _)| frequency.cpu)
    }

    /// What throttled CPUs between two readings of this reader.
    pub(crate) fn between<'a>(
        &'a self,
        then: &'a Throttled,
        now: &'a Throttled,
    ) -> impl Iterator<Item = CpuThrottle> + 'a {
        let of_groups = then.quotas.iter().zip(&now.quotas);
        let of_groups = of_groups.map(|(then, now)| (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1)));
        // One below another may stand still at the same time.
        let longest = of_groups.max_by_key(|(_, ns)| *ns).filter(|(times, _)| *times > 0);
        let quota = longest.map(|(times, ns)| CpuThrottle::Quota { times, stopped: Duration::from_nanos(ns) });
        let heat = self.heat.iter().zip(then.heat.iter().zip(&now.heat));
        let heat = heat.map(|((cpu, _), (then, now))| (*cpu, now.saturating_sub(*then)));
        let whole = heat.clone().filter(|(cpu, _)| cpu.is_none()).map(|(_, times)| times).sum();
        let cores = heat.filter(|(cpu, _)| cpu.is_some());
        let heat = std::iter::once((None, whole)).chain(cores).filter(|(_, times)| *times > 0);
        let change = |at: usize| {
            let (then, now, of) = (then.most.get(at)?, now.most.get(at)?, self.frequencies.get(at)?);
            (then != now).then_some((*now, of.highest))
        };
        // Those that change alike are told of once.
        let frequencies = (0..self.frequencies.len()).filter_map(move |at| {
            let is_alike = |other: &usize| change(*other) == change(at);
            let (khz, of_khz) = change(at).filter(|_| !(0..at).any(|other| is_alike(&other)))?;
            let cpus = (at..self.frequencies.len()).filter(is_alike).count();
            Some(CpuThrottle::Frequency { cpus, khz, of_khz })
        });
        quota.into_iter().chain(heat.map(|(cpu, times)| CpuThrottle::Heat { cpu, times })).chain(frequencies)
    }
}

/// The folders below `/sys/fs/cgroup` of the control groups that may limit a process, by its
/// `/proc/self/cgroup`: of both versions, its own and those above.
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
        roots.iter().flat_map(move |root| path.ancestors().take(GROUPS).map(|path| Path::new(root).join(path)))
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
        let of = |times: u64, ms: u64| {
            format!("usage_usec 9\nnr_periods 5\nnr_throttled {times}\nthrottled_usec {}\n", ms * 1000)
        };
        let of_first =
            |times: u64, ms: u64| format!("nr_periods 5\nnr_throttled {times}\nthrottled_time {}\n", ms * 1_000_000);
        for (own, file) in [
            ("0::/\n", "sys/fs/cgroup/cpu.stat"),
            ("0::/a/b\n", "sys/fs/cgroup/a/cpu.stat"),
            ("3:cpuset:/\n1:cpu,cpuacct:/docker/x\n0::/\n", "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.stat"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let text: fn(u64, u64) -> String = if file.contains("cpuacct") { of_first } else { of };
            write(root.path(), &[("proc/self/cgroup", own), (file, &text(1, 100))]);
            // Another group has stood still for longer, and before.
            write(root.path(), &[("sys/fs/cgroup/unified/cpu.stat", &of(1000, 90_000))]);
            let reader = ThrottleReader::below(root.path(), &[]);
            let then = reader.read();
            write(root.path(), &[(file, &text(4, 350))]);
            let now = reader.read();
            let expected = CpuThrottle::Quota { times: 3, stopped: Duration::from_millis(250) };
            assert_eq!(reader.between(&then, &now).collect::<Vec<_>>(), [expected], "{own}");
            assert_eq!(reader.between(&now, &reader.read()).count(), 0);
        }
    }

    #[test]
    fn heat_and_lowered_frequencies_are_found_by_cpu_and_processor() {
        let root = tempfile::tempdir().unwrap();
        let path = |cpu: usize, name: &str| format!("{CPU}{cpu}/{name}");
        for cpu in 0..3 {
            for (name, text) in [
                ("topology/physical_package_id", "0\n"),
                ("thermal_throttle/core_throttle_count", "7\n"),
                ("thermal_throttle/package_throttle_count", "9\n"),
                ("cpufreq/cpuinfo_max_freq", "3600000\n"),
                ("cpufreq/scaling_max_freq", "3600000\n"),
            ] {
                write(root.path(), &[(&path(cpu, name), text)]);
            }
        }
        let reader = ThrottleReader::below(root.path(), &[0, 1, 2]);
        let then = reader.read();
        assert_eq!(reader.between(&then, &reader.read()).count(), 0);
        write(
            root.path(),
            &[
                (&path(1, "thermal_throttle/core_throttle_count"), "9\n"),
                (&path(0, "thermal_throttle/package_throttle_count"), "10\n"),
                (&path(1, "cpufreq/scaling_max_freq"), "1200000\n"),
                (&path(2, "cpufreq/scaling_max_freq"), "1200000\n"),
                // As of a CPU that was taken away.
                (&path(0, "thermal_throttle/core_throttle_count"), ""),
                (&path(0, "cpufreq/scaling_max_freq"), ""),
            ],
        );
        let mut now = reader.read();
        now.copy(&then);
        reader.read_into(&mut now);
        assert_eq!(
            reader.between(&then, &now).collect::<Vec<_>>(),
            [
                CpuThrottle::Heat { cpu: None, times: 1 },
                CpuThrottle::Heat { cpu: Some(1), times: 2 },
                CpuThrottle::Frequency { cpus: 2, khz: 1_200_000, of_khz: 3_600_000 },
            ]
        );
        assert_eq!(reader.limited(&then, &now).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(reader.limited(&now, &then).count(), 0);
    }

    #[test]
    fn a_machine_that_says_nothing_throttles_nothing() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[("proc/self/cgroup", "nonsense\n::\n0::/../..\n"), ("sys/fs/cgroup/cpu.stat", "nr_throttled x\n")],
        );
        let reader = ThrottleReader::below(root.path(), &[0]);
        assert_eq!(reader.read(), Throttled::default());
    }
}
