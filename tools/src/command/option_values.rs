//! Values of command-line options that are more than a word or a number.

use limen::policy::Trials;
use limen::unit::{Bytes, Span};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// The value of `--shadow`: a backend that repeats one call in `every`: `ort:10`; 100 by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The backend, which planning compares with those of the program.
    pub backend: String,
    /// One call in this many is repeated.
    pub every: u64,
}

impl FromStr for Shadow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (backend, every) = text.split_once(':').unwrap_or((text, "100"));
        let backend = backend_name(backend)?;
        match every.parse() {
            Ok(every) if every > 0 => Ok(Shadow { backend, every }),
            _ => Err(format!("expected a number of calls, as in `{backend}:100`, found `{every}`")),
        }
    }
}

/// Reads the name of a backend, which planning compares with those of the program.
pub(super) fn backend_name(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match text.chars().all(is_name) && !text.is_empty() {
        true => Ok(text.into()),
        false => Err(format!("expected the name of a backend, such as `rten`, found `{text}`")),
    }
}

/// Reads a value of `--env`: the name of a variable, as a graph writes it in `${NAME}`.
pub(super) fn variable_name(text: &str) -> Result<String, String> {
    if let Some((name, value)) = text.split_once('=') {
        return Err(format!(
            "expected only the name of a variable, found a value: write `--env {name}`, and set the variable before the command: \
             `{name}={value} limen-run …`"
        ));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match text.chars().all(is_name) && !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) {
        true => Ok(text.into()),
        false => Err(format!("expected the name of a variable, such as `RATE`, found `{text}`")),
    }
}

/// The value of `--model-limits`, which bounds a model and the process of its trial:
/// `size=2GiB,memory=4GiB,cpu=30s,wall=1m` or some of these (those of the process follow from the
/// model's size); or `none`, which tries models in this process, without limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLimits(pub Trials);

impl FromStr for ModelLimits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut trials = Trials { here: text.trim() == "none", ..Trials::default() };
        for part in text.split(',').filter(|_| !trials.here) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let time = || match value.trim().parse::<Span>() {
                Ok(span) if !span.0.is_zero() => Ok(Some(span.0)),
                Ok(_) => Err(format!("`{}` must be above 0s, got 0s", name.trim())),
                Err(error) => Err(error),
            };
            match name.trim() {
                "size" => trials.size = Some(value.trim().parse::<Bytes>()?.0),
                "memory" => trials.memory = Some(value.trim().parse::<Bytes>()?.0),
                "cpu" => trials.cpu = time()?,
                "wall" => trials.wall = time()?,
                other => {
                    return Err(format!(
                        "expected `none` or limits such as `size=2GiB,memory=4GiB,cpu=30s,wall=1m`, found `{other}`"
                    ));
                }
            }
        }
        Ok(ModelLimits(trials))
    }
}

/// The value of `--cores`: CPUs by the kernel's numbers, in the kernel's notation: `2,3`, `0-3,6`.
/// The order is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

/// The highest CPU number that fits in the kernel's `cpu_set_t`.
const MAX_CPU: usize = 1023;

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.trim().parse::<usize>() {
            Ok(cpu) if cpu <= MAX_CPU => Ok(cpu),
            _ => Err(format!("expected CPU numbers from 0 to {MAX_CPU}, such as 2,3 or 2-5, found `{text}`")),
        };
        let mut cpus: Vec<usize> = Vec::new();
        for part in text.split(',') {
            let (from, to) = match part.split_once('-') {
                Some((from, to)) => (number(from)?, number(to)?),
                None => (number(part)?, number(part)?),
            };
            if from > to {
                return Err(format!("expected the lower CPU first, as in {to}-{from}, found `{part}`"));
            }
            for cpu in from..=to {
                if cpus.contains(&cpu) {
                    return Err(format!("expected each CPU once, found CPU {cpu} twice"));
                }
                cpus.push(cpu);
            }
        }
        Ok(CpuList(cpus))
    }
}

/// The value of `--metrics`: a port of this machine that other machines cannot reach (`9464`; 0 is
/// any free one), or a numeric address with its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerAddress(pub SocketAddr);

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let port = text.strip_prefix("localhost:").unwrap_or(text).parse();
        let address = port.map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)).or_else(|_| text.parse());
        address.map(ServerAddress).map_err(|_| {
            format!("expected a port, such as 9464, or a numeric address, such as 127.0.0.1:9464, found `{text}`")
        })
    }
}
