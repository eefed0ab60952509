//! Which nodes the messages of a node can reach.

/// The neighbours of each node, and the nodes found last: a run allocates nothing.
pub(super) struct Neighbours {
    after: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
    found: Marked,
    between: Marked,
    open: Vec<usize>,
}

/// A set of nodes; emptying it takes as long as filling it took, however large the graph is.
struct Marked {
    is_in: Vec<bool>,
    nodes: Vec<usize>,
}

impl Marked {
    fn new(nodes: usize) -> Self {
        Marked { is_in: vec![false; nodes], nodes: Vec::with_capacity(nodes) }
    }

    fn clear(&mut self) {
        self.nodes.drain(..).for_each(|node| self.is_in[node] = false);
    }

    /// Adds a node; false if it is there already.
    fn insert(&mut self, node: usize) -> bool {
        let is_new = !std::mem::replace(&mut self.is_in[node], true);
        if is_new {
            self.nodes.push(node);
        }
        is_new
    }

    fn contains(&self, node: usize) -> bool {
        self.is_in.get(node).copied().unwrap_or(false)
    }
}

impl Neighbours {
    pub(super) fn new(nodes: usize, edges: &[(usize, usize)]) -> Self {
        let (mut after, mut before) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
        for (from, to) in edges {
            after[*from].push(*to);
            before[*to].push(*from);
        }
        let (found, between) = (Marked::new(nodes), Marked::new(nodes));
        Neighbours { after, before, found, between, open: Vec::with_capacity(edges.len() + 1) }
    }

    /// Finds the nodes that messages of a node can reach, itself included.
    pub(super) fn find_after(&mut self, node: usize) {
        find(node, &self.after, |_| true, &mut self.found, &mut self.open);
    }

    /// Finds the nodes whose messages can reach a node, itself included.
    pub(super) fn find_before(&mut self, node: usize) {
        find(node, &self.before, |_| true, &mut self.found, &mut self.open);
    }

    pub(super) fn is_found(&self, node: usize) -> bool {
        self.found.contains(node)
    }

    /// Finds the nodes on the ways from one node to another.
    pub(super) fn find_between(&mut self, from: usize, to: usize) {
        self.find_before(to);
        find(from, &self.after, |node| self.found.contains(node), &mut self.between, &mut self.open);
    }

    /// The nodes found last on the ways from one node to another.
    pub(super) fn between(&self) -> &[usize] {
        &self.between.nodes
    }

    /// The nodes found last that can reach a node, or that it can reach.
    pub(super) fn found(&self) -> &[usize] {
        &self.found.nodes
    }

    pub(super) fn len(&self) -> usize {
        self.before.len()
    }

    /// Whether a node has several inputs.
    pub(super) fn is_join(&self, node: usize) -> bool {
        self.before[node].len() > 1
    }

    pub(super) fn is_between(&self, node: usize) -> bool {
        self.between.contains(node)
    }
}

/// Finds the nodes that are reached from one by steps to nodes that are allowed, itself included.
fn find(
    start: usize,
    next: &[Vec<usize>],
    is_allowed: impl Fn(usize) -> bool,
    found: &mut Marked,
    open: &mut Vec<usize>,
) {
    found.clear();
    open.push(start);
    while let Some(node) = open.pop() {
        if is_allowed(node) && found.insert(node) {
            open.extend(&next[node]);
        }
    }
}
