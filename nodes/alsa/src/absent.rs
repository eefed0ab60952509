//! What there is without libasound: the same interface, and no device.

use crate::{Descriptor, FoundDevice, PcmCapabilities, PcmDirection, Position, Setup, Wanted, WantedPart};
use std::convert::Infallible;
use std::io;

/// An open device. Without the feature `link` there is none.
#[derive(Debug)]
pub struct Pcm(Infallible);

#[expect(missing_docs, clippy::missing_errors_doc, reason = "documented where it is linked")]
impl Pcm {
    pub fn open(_: &str, _: PcmDirection) -> io::Result<Pcm> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this program was built without sound devices"))
    }
    pub fn capabilities(&self) -> io::Result<PcmCapabilities> {
        match self.0 {}
    }
    pub fn refusals(&self, _: &Wanted) -> io::Result<Vec<(WantedPart, String)>> {
        match self.0 {}
    }
    pub fn set_up(&mut self, _: &Wanted) -> io::Result<Setup> {
        match self.0 {}
    }
    pub fn descriptors(&mut self) -> io::Result<Vec<Descriptor>> {
        match self.0 {}
    }
    pub fn acknowledge(&mut self) {
        match self.0 {}
    }
    pub fn position(&self) -> io::Result<Position> {
        match self.0 {}
    }
    pub fn start(&self) -> io::Result<()> {
        match self.0 {}
    }
    pub fn prepare(&self) -> io::Result<()> {
        match self.0 {}
    }
    pub fn drain(&self) -> io::Result<bool> {
        match self.0 {}
    }
    pub fn read(&mut self, _: &mut [f32]) -> io::Result<usize> {
        match self.0 {}
    }
    pub fn write(&mut self, _: &[f32]) -> io::Result<usize> {
        match self.0 {}
    }
}

/// Returns the sound devices of this machine's cards: without the feature `link`, none.
pub fn cards() -> Vec<FoundDevice> {
    Vec::new()
}
