//! What is said between a program and the process of its device: a text in JSON, and bytes behind
//! it.

use crate::backend::cuda::kernel::{KernelCode, KernelInfo};
use crate::device::DeviceFault;
use crate::lowering::{Program, Source};
use limen::backend::BackendError;
use limen_infer::Compiled;
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Read, Result};
use std::sync::Arc;

/// What the process is asked for. Objects have numbers, which the program gives them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Command {
    /// The first one: the number of the GPU, and the process that asks.
    Open {
        gpu: usize,
        parent: u32,
    },
    /// Memory of the device.
    Buffer {
        id: u64,
        bytes: usize,
    },
    Stream {
        id: u64,
    },
    /// Memory of the host that the device writes, and where its bytes go in the memory that both
    /// processes share.
    Staging {
        id: u64,
        bytes: usize,
        at: u64,
    },
    Free {
        id: u64,
    },
    Follow {
        stream: u64,
        event: u64,
    },
    /// From `from` on in the memory that both processes share.
    Upload {
        stream: u64,
        from: u64,
        bytes: usize,
        buffer: u64,
        at: usize,
    },
    Download {
        stream: u64,
        buffer: u64,
        at: usize,
        staging: u64,
    },
    Record {
        stream: u64,
        event: u64,
    },
    Abandon {
        stream: u64,
    },
    /// A program, whose constants are the bytes behind this, of these lengths.
    Bind {
        id: u64,
        program: Box<Program>,
        constants: Vec<usize>,
        /// The bytes of the path.
        cache: Option<Vec<u8>>,
    },
    /// A call with the bytes behind this.
    Run {
        program: u64,
        inputs: Vec<usize>,
    },
    Enqueue {
        program: u64,
        stream: u64,
        buffers: Vec<Option<u64>>,
    },
    Load {
        id: u64,
        code: Box<KernelCode>,
        /// The bytes of the path.
        cache: Option<Vec<u8>>,
    },
    RunKernel {
        kernel: u64,
        inputs: Vec<usize>,
        longest_ns: u64,
    },
    EnqueueKernel {
        kernel: u64,
        stream: u64,
        buffers: Vec<u64>,
        limit_ns: Option<u64>,
    },
}

/// What the process answers, to commands that are waited for; and when work has ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Done,
    Opened {
        name: String,
        /// What it lacks for TF32.
        lacks_tf32: Option<String>,
    },
    Bound {
        memory: u64,
        compiled: Compiled,
    },
    Loaded(KernelInfo),
    /// The bytes of the outputs follow, of these lengths.
    Ran {
        outputs: Vec<usize>,
    },
    Failed(Failure),
    /// The work before an event has ended.
    Ended {
        event: u64,
        failure: Option<Failure>,
        time_ns: Option<u64>,
    },
}

/// An error, as the process of the device found it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Failure {
    Unavailable(String),
    Unsupported(String),
    Call(String),
    OutOfMemory(String),
    Lost(String),
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Unavailable(why) => Failure::Unavailable(why),
            BackendError::Unsupported(why) => Failure::Unsupported(why),
            BackendError::OutOfMemory(why) => Failure::OutOfMemory(why),
            BackendError::DeviceLost(why) => Failure::Lost(why),
            BackendError::Call(why) => Failure::Call(why),
            other => Failure::Call(other.to_string()),
        }
    }
}

impl From<DeviceFault> for Failure {
    fn from(fault: DeviceFault) -> Self {
        BackendError::from(fault).into()
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unavailable(why) => BackendError::Unavailable(why),
            Failure::Unsupported(why) => BackendError::Unsupported(why),
            Failure::OutOfMemory(why) => BackendError::OutOfMemory(why),
            Failure::Lost(why) => BackendError::DeviceLost(why),
            Failure::Call(why) => BackendError::Call(why),
        }
    }
}

impl From<Failure> for DeviceFault {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost(why) => DeviceFault::Lost(why),
            Failure::OutOfMemory(why) => DeviceFault::OutOfMemory(why),
            Failure::Unavailable(why) | Failure::Unsupported(why) | Failure::Call(why) => DeviceFault::Call(why),
        }
    }
}

/// The lengths in front of a message: of its text, and of the bytes behind it.
pub(super) const HEAD: usize = 16;
/// The longest text, and the most bytes.
const MAX_TEXT: u64 = 1 << 30;
const MAX_BYTES: u64 = 16 << 30;

/// Appends a message to bytes that are to be sent; `behind` is how many bytes follow it.
pub(super) fn append<M: Serialize>(to: &mut Vec<u8>, message: &M, behind: usize) -> Result<()> {
    let begin = to.len();
    to.extend([0; HEAD]);
    let written = serde_json::to_writer(&mut *to, message).map_err(Error::from).and_then(|()| {
        let text = (to.len() - begin - HEAD) as u64;
        to[begin..][..8].copy_from_slice(&text.to_le_bytes());
        to[begin + 8..][..8].copy_from_slice(&(behind as u64).to_le_bytes());
        to[begin..].first_chunk().map_or(Ok(()), |head| lengths(head).map(drop))
    });
    // Half a message would spoil the next one.
    written.inspect_err(|_| to.truncate(begin))
}

/// Reads the lengths in front of a message.
pub(super) fn lengths(head: &[u8; HEAD]) -> Result<(usize, usize)> {
    let number = |at: usize| head[at..][..8].try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
    let (text, bytes) = (number(0), number(8));
    if text > MAX_TEXT || bytes > MAX_BYTES {
        return Err(Error::new(
            ErrorKind::InvalidData,
            format!(
                "a message must have at most {MAX_TEXT} bytes of text and {MAX_BYTES} of data, got {text} and {bytes}"
            ),
        ));
    }
    Ok((text as usize, bytes as usize))
}

/// Reads a message and the bytes behind it; `None` at the end.
pub(super) fn read<M: for<'de> Deserialize<'de>>(from: &mut impl Read) -> Result<Option<(M, Vec<u8>)>> {
    let mut head = [0; HEAD];
    match from.read(&mut head)? {
        0 => return Ok(None),
        n => from.read_exact(&mut head[n..])?,
    }
    let (text_bytes, behind) = lengths(&head)?;
    let mut text = vec![0; text_bytes];
    from.read_exact(&mut text)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(behind).map_err(Error::other)?;
    bytes.resize(behind, 0);
    from.read_exact(&mut bytes)?;
    Ok(Some((serde_json::from_slice(&text)?, bytes)))
}

/// Takes the bytes of constants out of a program.
pub(super) fn without_constants(program: &Program) -> (Box<Program>, Vec<Arc<[u32]>>) {
    let mut program = program.clone();
    let mut constants = Vec::new();
    for array in &mut program.arrays {
        if let Source::Constant(bits) = &mut array.source {
            constants.push(std::mem::take(bits));
        }
    }
    (Box::new(program), constants)
}

/// Puts the bytes of constants into a program.
pub(super) fn with_constants(program: &mut Program, lengths: &[usize], bytes: &[u8]) {
    let mut parts = split(lengths, bytes).into_iter();
    for array in &mut program.arrays {
        if let Source::Constant(bits) = &mut array.source {
            let part = parts.next().unwrap_or_default();
            *bits = part.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect();
        }
    }
}

/// Divides bytes into parts of these lengths; what is missing is empty.
pub(super) fn split<'a>(lengths: &[usize], bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    let part = |length: &usize| {
        let (part, behind) = rest.split_at((*length).min(rest.len()));
        rest = behind;
        part
    };
    lengths.iter().map(part).collect()
}
