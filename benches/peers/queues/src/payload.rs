//! What travels: the bytes themselves, or a handle to them.

pub trait Payload: Send + Sized + 'static {
    /// Buffers come from a pool and go back to the source.
    const POOLED: bool;
    type Stage: Send;
    fn alloc(words: usize) -> Self;
    fn stage(words: usize) -> Self::Stage;
    fn put(&mut self, stamp: u64, seq: u64);
    fn get(&self) -> (u64, u64);
    /// The pass-through stage.
    fn hop(self, st: &mut Self::Stage) -> Self;
}

/// By value through the ring.
#[derive(Clone, Copy)]
pub struct Inline<const W: usize>(pub [u64; W]);

impl<const W: usize> Payload for Inline<W> {
    const POOLED: bool = false;
    type Stage = ();
    #[inline(always)]
    fn alloc(_: usize) -> Self {
        Inline([0; W])
    }
    fn stage(_: usize) {}
    #[inline(always)]
    fn put(&mut self, stamp: u64, seq: u64) {
        self.0[0] = stamp;
        self.0[1] = seq;
    }
    #[inline(always)]
    fn get(&self) -> (u64, u64) {
        (self.0[0], self.0[1])
    }
    #[inline(always)]
    fn hop(self, _: &mut ()) -> Self {
        self
    }
}

/// A pointer to a pooled buffer; nothing is copied.
pub struct Handle(pub Box<[u64]>);

impl Payload for Handle {
    const POOLED: bool = true;
    type Stage = ();
    fn alloc(words: usize) -> Self {
        Handle(vec![1; words].into())
    }
    fn stage(_: usize) {}
    #[inline(always)]
    fn put(&mut self, stamp: u64, seq: u64) {
        self.0[0] = stamp;
        self.0[1] = seq;
    }
    #[inline(always)]
    fn get(&self) -> (u64, u64) {
        (self.0[0], self.0[1])
    }
    #[inline(always)]
    fn hop(self, _: &mut ()) -> Self {
        self
    }
}
