//! Work that is captured once and run many times with a single call.

use crate::context::Context;
use crate::error::{Error, NamedResult};
use crate::stream::{Stream, Used};
use cudarc::driver::result;
use cudarc::driver::sys;
use std::sync::Arc;

/// Captured work, with the memory that it uses.
#[derive(Clone, Debug)]
pub struct Graph(Arc<GraphExec>);

#[derive(Debug)]
pub(crate) struct GraphExec {
    context: Arc<Context>,
    graph: sys::CUgraph,
    raw: sys::CUgraphExec,
    #[expect(dead_code, reason = "kept as long as the graph")]
    used: Vec<Used>,
}

// SAFETY: the driver allows one thread at a time to use a graph. It is launched through a `Stream`
// with a `Graph`, whose clones share it: launches of one graph executable at the same time are
// ordered by the driver, and nothing here changes it after it was made.
unsafe impl Send for GraphExec {}
// SAFETY: as above.
unsafe impl Sync for GraphExec {}

impl GraphExec {
    pub(crate) fn raw(&self) -> sys::CUgraphExec {
        self.raw
    }
}

impl Graph {
    /// Captures what `work` enqueues on a stream; nothing of it runs.
    ///
    /// # Errors
    /// What `work` fails with, or that the device cannot capture it.
    pub fn capture<E: From<Error>>(
        stream: &mut Stream,
        work: impl FnOnce(&mut Stream) -> Result<(), E>,
    ) -> Result<Graph, E> {
        stream.begin_capture()?;
        let done = work(stream);
        let ended = stream.end_capture();
        done?;
        let (graph, used) = ended?;
        let context = stream.context().clone();
        // SAFETY: the graph was captured above.
        let made = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        let made = context.noted(made.named("cuGraphInstantiate")).inspect_err(|_| {
            // SAFETY: nothing else has it.
            let _ = unsafe { result::graph::destroy(graph) };
        });
        Ok(Graph(Arc::new(GraphExec { context, graph, raw: made?, used })))
    }

    /// Runs the captured work.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run(&self, stream: &mut Stream) -> Result<(), Error> {
        if !Arc::ptr_eq(stream.context(), &self.0.context) {
            return Err(Error::Refused("a graph must run on the device that captured it".into()));
        }
        stream.run(&self.0)
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made in `capture`; work that runs it holds it, so none is under way.
            let _ = unsafe { result::graph::exec_destroy(self.raw) };
            // SAFETY: as above.
            let _ = unsafe { result::graph::destroy(self.graph) };
        }
    }
}
