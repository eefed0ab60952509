//! Structures and calls of the kernel, as `linux/videodev2.h` defines them.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "nix's macros make calls that are unsafe to call, which `lib` argues"
)]

use nix::libc::timeval;

pub(crate) const CAPTURE: u32 = 1;
pub(crate) const MEMORY_MMAP: u32 = 1;
pub(crate) const CAP_CAPTURE: u32 = 0x0000_0001;
pub(crate) const CAP_STREAMING: u32 = 0x0400_0000;
pub(crate) const CAP_DEVICE_CAPS: u32 = 0x8000_0000;
pub(crate) const FLAG_ERROR: u32 = 0x0040;
pub(crate) const FLAG_TIMESTAMP_MASK: u32 = 0xe000;
pub(crate) const FLAG_TIMESTAMP_MONOTONIC: u32 = 0x2000;
pub(crate) const FIELD_NONE: u32 = 1;
pub(crate) const SIZE_DISCRETE: u32 = 1;

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Capability {
    pub(crate) driver: [u8; 16],
    pub(crate) card: [u8; 32],
    pub(crate) bus_info: [u8; 32],
    pub(crate) version: u32,
    pub(crate) capabilities: u32,
    pub(crate) device_caps: u32,
    pub(crate) reserved: [u32; 3],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FormatDescription {
    pub(crate) index: u32,
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) description: [u8; 32],
    pub(crate) pixel_format: u32,
    pub(crate) mbus_code: u32,
    pub(crate) reserved: [u32; 3],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PixFormat {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) pixel_format: u32,
    pub(crate) field: u32,
    pub(crate) bytes_per_line: u32,
    pub(crate) size_image: u32,
    pub(crate) colorspace: u32,
    pub(crate) private: u32,
    pub(crate) flags: u32,
    pub(crate) ycbcr_encoding: u32,
    pub(crate) quantization: u32,
    pub(crate) transfer: u32,
}

/// The union of formats begins where a pointer may begin, because one of them has pointers.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelFormat {
    pub(crate) kind: u32,
    #[cfg(target_pointer_width = "64")]
    pub(crate) padding: u32,
    pub(crate) pix: PixFormat,
    pub(crate) rest: [u32; 38],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RequestBuffers {
    pub(crate) count: u32,
    pub(crate) kind: u32,
    pub(crate) memory: u32,
    pub(crate) capabilities: u32,
    pub(crate) flags: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelBuffer {
    pub(crate) index: u32,
    pub(crate) kind: u32,
    pub(crate) bytes_used: u32,
    pub(crate) flags: u32,
    pub(crate) field: u32,
    pub(crate) timestamp: timeval,
    pub(crate) timecode: [u32; 4],
    pub(crate) sequence: u32,
    pub(crate) memory: u32,
    /// The offset for mapping; as wide as a pointer, which it is for other memory.
    pub(crate) offset: usize,
    pub(crate) length: u32,
    pub(crate) reserved: [u32; 2],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Fraction {
    pub(crate) numerator: u32,
    pub(crate) denominator: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct StreamParameters {
    pub(crate) kind: u32,
    pub(crate) capability: u32,
    pub(crate) mode: u32,
    pub(crate) time_per_frame: Fraction,
    pub(crate) rest: [u32; 46],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FrameSize {
    pub(crate) index: u32,
    pub(crate) pixel_format: u32,
    pub(crate) kind: u32,
    /// Width and height; or the least, greatest and step of each.
    pub(crate) sizes: [u32; 6],
    pub(crate) reserved: [u32; 2],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FrameInterval {
    pub(crate) index: u32,
    pub(crate) pixel_format: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) kind: u32,
    /// The interval; or the least, greatest and step.
    pub(crate) intervals: [Fraction; 3],
    pub(crate) reserved: [u32; 2],
}

/// The sizes by which the kernel tells its calls apart.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Capability>() == 104);
    assert!(size_of::<FormatDescription>() == 64);
    assert!(size_of::<KernelFormat>() == 208);
    assert!(size_of::<RequestBuffers>() == 20);
    assert!(size_of::<KernelBuffer>() == 88);
    assert!(size_of::<StreamParameters>() == 204);
    assert!(size_of::<FrameSize>() == 44);
    assert!(size_of::<FrameInterval>() == 52);
};

nix::ioctl_read!(query_capability, b'V', 0, Capability);
nix::ioctl_readwrite!(enumerate_formats, b'V', 2, FormatDescription);
nix::ioctl_readwrite!(get_format, b'V', 4, KernelFormat);
nix::ioctl_readwrite!(set_format, b'V', 5, KernelFormat);
nix::ioctl_readwrite!(request_buffers, b'V', 8, RequestBuffers);
nix::ioctl_readwrite!(query_buffer, b'V', 9, KernelBuffer);
nix::ioctl_readwrite!(queue_buffer, b'V', 15, KernelBuffer);
nix::ioctl_readwrite!(dequeue_buffer, b'V', 17, KernelBuffer);
nix::ioctl_write_ptr!(stream_on, b'V', 18, nix::libc::c_int);
nix::ioctl_write_ptr!(stream_off, b'V', 19, nix::libc::c_int);
nix::ioctl_readwrite!(set_parameters, b'V', 22, StreamParameters);
nix::ioctl_readwrite!(try_format, b'V', 64, KernelFormat);
nix::ioctl_readwrite!(enumerate_sizes, b'V', 74, FrameSize);
nix::ioctl_readwrite!(enumerate_intervals, b'V', 75, FrameInterval);
