//! What travels: the bytes themselves, or a handle to them.

pub trait Payload: Send + Sized + 'static {
    /// Buffers come from a pool and go back to the source.
    const POOLED: bool;
    fn alloc(words: usize) -> Self;
    fn words(&self) -> &[u64];
    fn words_mut(&mut self) -> &mut [u64];
    #[inline(always)]
    fn put(&mut self, stamp: u64, seq: u64) {
        let words = self.words_mut();
        words[0] = stamp;
        words[1] = seq;
    }
    #[inline(always)]
    fn get(&self) -> (u64, u64) {
        let words = self.words();
        (words[0], words[1])
    }
}

/// By value through the ring.
#[derive(Clone, Copy)]
pub struct Inline<const W: usize>(pub [u64; W]);

impl<const W: usize> Payload for Inline<W> {
    const POOLED: bool = false;
    #[inline(always)]
    fn alloc(_: usize) -> Self {
        Inline([0; W])
    }
    #[inline(always)]
    fn words(&self) -> &[u64] {
        &self.0
    }
    #[inline(always)]
    fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}

/// A pointer to a pooled buffer; nothing is copied.
pub struct Handle(pub Box<[u64]>);

impl Payload for Handle {
    const POOLED: bool = true;
    fn alloc(words: usize) -> Self {
        Handle(vec![1; words].into())
    }
    #[inline(always)]
    fn words(&self) -> &[u64] {
        &self.0
    }
    #[inline(always)]
    fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}
