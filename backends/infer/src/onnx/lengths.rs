//! Lengths that the values of a message decide: which outputs have such, and how long they are at
//! most.

use super::data_file::DataFile;
use super::node::{graphs_of, name_of, order};
use super::node_shapes::keeps_shape;
use super::shapes::{Extent, Lengths, MAX_NUMBERS, ShapeScope};
use super::wire;
use prost::bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Operators whose output shape depends on the values of inputs, and on which.
const DECIDING: [(&str, &[usize]); 29] = [
    ("AffineGrid", &[1]),
    ("BlackmanWindow", &[0]),
    ("CenterCropPad", &[1]),
    ("Col2Im", &[1, 2]),
    ("Compress", &[1]),
    ("ConstantOfShape", &[0]),
    ("DFT", &[1, 2]),
    ("Expand", &[1]),
    ("HammingWindow", &[0]),
    ("HannWindow", &[0]),
    ("MaxUnpool", &[2]),
    ("MelWeightMatrix", &[0, 1]),
    ("NonMaxSuppression", &[0, 1, 2, 3, 4]),
    ("NonZero", &[0]),
    ("OneHot", &[1]),
    ("Pad", &[1, 3]),
    ("Range", &[0, 1, 2]),
    ("Reshape", &[1]),
    ("Resize", &[1, 2, 3]),
    ("STFT", &[1, 3]),
    ("Slice", &[1, 2, 3, 4]),
    ("Split", &[1]),
    ("SplitToSequence", &[1]),
    ("Squeeze", &[1]),
    ("Tile", &[1]),
    ("TopK", &[1]),
    ("Unique", &[0]),
    ("Unsqueeze", &[1]),
    ("Upsample", &[1]),
];

/// What a tensor depends on.
#[derive(Clone, Copy, Default)]
struct Dependence<'a> {
    /// Whether its numbers differ from message to message.
    varies: bool,
    /// The node by which the values of a message decide its shape.
    decided_by: Option<&'a wire::Node>,
}

impl Dependence<'_> {
    fn or(self, other: Self) -> Self {
        Dependence { varies: self.varies || other.varies, decided_by: self.decided_by.or(other.decided_by) }
    }
}

/// The tensors of a graph that are not constant, and of the graphs around it.
struct Dependences<'s, 'a> {
    outer: Option<&'s Dependences<'s, 'a>>,
    known: HashMap<&'a str, Dependence<'a>>,
}

/// Returns the outputs of a graph whose shape depends on the values of its inputs, each with a node
/// where it begins to. The inputs in `constants` have the same values in every call.
pub(super) fn decided_by_values<'a>(
    graph: &'a wire::Graph,
    constants: &HashSet<&str>,
) -> HashMap<&'a str, &'a wire::Node> {
    let varying = Dependence { varies: true, decided_by: None };
    let weights: HashSet<&str> = graph.initializers.iter().map(|tensor| tensor.name.as_str()).collect();
    let inputs = graph.inputs.iter().map(|input| input.name.as_str());
    let inputs = inputs.filter(|name| !weights.contains(name) && !constants.contains(name));
    let mut found = Dependences { outer: None, known: inputs.map(|name| (name, varying)).collect() };
    found.read(graph);
    let decided = |output: &'a wire::ValueInfo| Some((output.name.as_str(), found.of(&output.name).decided_by?));
    graph.outputs.iter().filter_map(decided).collect()
}

impl<'a> Dependences<'_, 'a> {
    fn of(&self, name: &str) -> Dependence<'a> {
        let found = self.known.get(name).copied();
        found.or_else(|| self.outer.map(|outer| outer.of(name))).unwrap_or_default()
    }

    fn read(&mut self, graph: &'a wire::Graph) {
        // The graph has no cycle: `Contents::read` has checked it.
        for at in order(graph).unwrap_or_default() {
            let node = &graph.nodes[at];
            let found = self.node(node);
            // An optional output that is left out has no name.
            for output in node.outputs.iter().filter(|output| !output.is_empty()) {
                self.known.insert(output, found);
            }
        }
    }

    fn node(&self, node: &'a wire::Node) -> Dependence<'a> {
        let inputs: Vec<Dependence<'a>> = node.inputs.iter().map(|input| self.of(input)).collect();
        let all = inputs.iter().copied().fold(Dependence::default(), Dependence::or);
        let op = node.op.as_str();
        if graphs_of(node).next().is_some() {
            return self.within(node, &inputs, all);
        }
        if matches!(op, "Shape" | "Size") {
            return Dependence { varies: all.decided_by.is_some(), decided_by: None };
        }
        let deciding = DECIDING.iter().find(|(known, _)| *known == op).map_or(&[][..], |(_, inputs)| inputs);
        let decides = deciding.iter().any(|at| inputs.get(*at).is_some_and(|input| input.varies));
        let before = if keeps_shape(op) { inputs.first().and_then(|first| first.decided_by) } else { all.decided_by };
        Dependence { varies: all.varies, decided_by: before.or(decides.then_some(node)) }
    }

    /// Of a node with subgraphs, whose outputs are theirs. A branch that differs from another one
    /// only in its shape does not count.
    fn within(&self, node: &'a wire::Node, inputs: &[Dependence<'a>], all: Dependence<'a>) -> Dependence<'a> {
        let is_loop = node.op == "Loop";
        let mut found = all;
        // The count and the condition of a loop.
        let mut ends = is_loop && inputs.iter().take(2).any(|input| input.varies);
        for graph in graphs_of(node) {
            let outputs = match is_loop {
                true => self.of_turns(graph, inputs, all),
                false => self.of_turn(graph, &[], all),
            };
            for (at, output) in outputs.into_iter().enumerate() {
                ends |= is_loop && at == 0 && output.varies;
                found = found.or(output);
            }
        }
        Dependence { decided_by: found.decided_by.or(ends.then_some(node)), ..found }
    }

    /// Of the outputs of a subgraph, with what its first inputs depend on; the others vary.
    fn of_turn(&self, graph: &'a wire::Graph, inputs: &[Dependence<'a>], all: Dependence<'a>) -> Vec<Dependence<'a>> {
        let mut inner = Dependences { outer: Some(self), known: HashMap::new() };
        for (at, input) in graph.inputs.iter().enumerate() {
            let known = inputs.get(at).copied().unwrap_or(Dependence { varies: true, ..all });
            inner.known.insert(&input.name, known);
        }
        inner.read(graph);
        graph.outputs.iter().map(|output| inner.of(&output.name)).collect()
    }

    /// Of the outputs of a loop's body after any number of turns: a counter that each turn
    /// increases does not vary, unless its start or its step does.
    fn of_turns(&self, graph: &'a wire::Graph, inputs: &[Dependence<'a>], all: Dependence<'a>) -> Vec<Dependence<'a>> {
        let mut begin = inputs.to_vec();
        // The number of the turn.
        if let Some(turn) = begin.first_mut() {
            *turn = Dependence::default();
        }
        // A loop within a loop is read once: each level would multiply the work.
        let turns = if self.outer.is_none() { MAX_TURNS } else { 0 };
        for _ in 0..turns {
            let outputs = self.of_turn(graph, &begin, all);
            let next = begin.iter().enumerate().map(|(at, known)| match at.checked_sub(1) {
                Some(output) => known.or(outputs.get(output).copied().unwrap_or_default()),
                None => *known,
            });
            let next: Vec<Dependence<'a>> = next.collect();
            let is_same = |(a, b): (&Dependence<'_>, &Dependence<'_>)| {
                a.varies == b.varies && a.decided_by.is_some() == b.decided_by.is_some()
            };
            if std::iter::zip(&begin, &next).all(is_same) {
                return outputs;
            }
            begin = next;
        }
        // What turns pass on may vary.
        begin.truncate(2);
        self.of_turn(graph, &begin, all)
    }
}

/// The most turns that are read of a loop, each of which may show that one more of its values
/// varies.
const MAX_TURNS: usize = 16;

/// A graph without what its lengths do not depend on: without the elements of tensors that are not
/// small.
#[derive(Clone, Debug)]
pub(super) struct ValueShaped(wire::Graph);

/// An input of a model, as its calls have it.
pub(super) struct BoundInput<'a> {
    pub(super) name: &'a str,
    pub(super) shape: Lengths,
    /// Its numbers, if they are the same in every call.
    pub(super) constant: Option<&'a [f64]>,
}

/// What is known of an output whose shape depends on values.
#[derive(Clone, Debug)]
pub(super) struct ValueLengths {
    /// The node by which they decide it.
    pub(super) decided_by: String,
    /// Whether that is a loop.
    pub(super) is_loop: bool,
    pub(super) shape: Option<Lengths>,
}

impl ValueShaped {
    pub(super) fn new(graph: &wire::Graph, data: &[DataFile]) -> Self {
        ValueShaped(reduced(graph, &ShapeScope::new(data)))
    }

    /// Returns the outputs that have lengths which depend on values. `symbols` has the greatest
    /// lengths of declared dims.
    pub(super) fn outputs(
        &self,
        inputs: &[BoundInput<'_>],
        symbols: &HashMap<&str, Extent>,
    ) -> HashMap<String, ValueLengths> {
        let ValueShaped(graph) = self;
        let constants = inputs.iter().filter(|input| input.constant.is_some()).map(|input| input.name).collect();
        let decided = decided_by_values(graph, &constants);
        let mut scope = ShapeScope::new(&[]);
        for value in &graph.value_info {
            let shape = value.kind.as_ref().and_then(|kind| kind.tensor.as_ref()?.shape.as_ref());
            let length = |dim: &wire::Dimension| match (dim.length, &dim.symbol) {
                (Some(length), _) => u64::try_from(length).ok().map(Extent::exactly),
                (None, Some(symbol)) => symbols.get(symbol.as_str()).copied(),
                (None, None) => None,
            };
            if let Some(shape) = shape.and_then(|shape| shape.dims.iter().map(length).collect()) {
                scope.declare(&value.name, shape);
            }
        }
        for BoundInput { name, shape, constant } in inputs {
            let numbers = constant.filter(|numbers| (1..=MAX_NUMBERS).contains(&numbers.len()));
            scope.know(name, Some(Rc::new(shape.clone())), numbers.map(<[f64]>::to_vec));
        }
        scope.read(graph, &mut |_, _, _| ());
        let lengths = |(output, node): (&str, &wire::Node)| {
            let shape = scope.shape_of(output).map(|shape| Lengths::clone(shape));
            let is_loop = node.op == "Loop";
            (output.to_string(), ValueLengths { decided_by: name_of(node), is_loop, shape })
        };
        decided.into_iter().map(lengths).collect()
    }
}

/// The longest text of an attribute that is kept: the equation of an `Einsum`.
const MAX_TEXT: usize = 256;

fn reduced(graph: &wire::Graph, scope: &ShapeScope<'_>) -> wire::Graph {
    let node = |node: &wire::Node| wire::Node {
        inputs: node.inputs.clone(),
        outputs: node.outputs.clone(),
        name: node.name.clone(),
        op: node.op.clone(),
        attributes: node.attributes.iter().map(|attribute| reduced_attribute(attribute, scope)).collect(),
        domain: node.domain.clone(),
    };
    wire::Graph {
        nodes: graph.nodes.iter().map(node).collect(),
        initializers: graph.initializers.iter().map(|tensor| reduced_tensor(tensor, scope)).collect(),
        inputs: graph.inputs.clone(),
        outputs: graph.outputs.clone(),
        value_info: graph.value_info.clone(),
        ..wire::Graph::default()
    }
}

fn reduced_attribute(attribute: &wire::Attribute, scope: &ShapeScope<'_>) -> wire::Attribute {
    let wire::Attribute { name, text, tensor, graph, floats, ints, graphs, .. } = attribute;
    wire::Attribute {
        name: name.clone(),
        float: attribute.number(),
        int: attribute.integer(),
        // A copy: a slice would keep the whole file.
        text: Bytes::copy_from_slice(if text.len() <= MAX_TEXT { text } else { &[] }),
        tensor: tensor.as_ref().map(|tensor| reduced_tensor(tensor, scope)),
        graph: graph.as_deref().map(|graph| Box::new(reduced(graph, scope))),
        // One more than are used: a list that was too long stays so.
        floats: floats.iter().copied().take(MAX_NUMBERS + 1).collect(),
        ints: ints.iter().copied().take(MAX_NUMBERS + 1).collect(),
        graphs: graphs.iter().map(|graph| reduced(graph, scope)).collect(),
        ..wire::Attribute::default()
    }
}

fn reduced_tensor(tensor: &wire::Tensor, scope: &ShapeScope<'_>) -> wire::Tensor {
    let doubles = scope.numbers_in(tensor).unwrap_or_default();
    wire::Tensor { name: tensor.name.clone(), dims: tensor.dims.clone(), elem: 11, doubles, ..wire::Tensor::default() }
}

#[cfg(all(test, feature = "rten"))]
mod tests {
    use super::*;
    use crate::onnx::Artifact;
    use crate::onnx::test_models::{Io, floats, ints, model};
    use crate::onnx::test_subgraphs::{branches, looped};
    use rten_onnx::onnx::{DataType as D, TensorProto};

    /// What is known of the output `y` of a model with an input `x: f32[1,2,3]`, an input
    /// `n: i64[1]`, and boxes and scores.
    fn lengths(nodes: &[&str], constants: &[(&str, &[f64])]) -> Option<ValueLengths> {
        let y = [("y", D::FLOAT, &["k"][..])];
        outputs(model(&INPUTS, &y, &weights(), nodes), constants).remove("y")
    }

    const INPUTS: [Io<'_>; 5] = [
        ("x", D::FLOAT, &["1", "2", "3"]),
        ("n", D::INT64, &["1"]),
        ("one", D::INT64, &["1"]),
        ("boxes", D::FLOAT, &["1", "6", "4"]),
        ("scores", D::FLOAT, &["1", "2", "6"]),
    ];

    fn weights() -> Vec<TensorProto> {
        vec![
            ints("zero", &[0]),
            ints("two", &[2]),
            ints("most", &[3]),
            ints("minus", &[-1]),
            ints("shape", &[1, 2, 3]),
            floats("table", &[5, 7], &[0.0; 35]),
            floats("five", &[5], &[1.0; 5]),
            floats("kernel", &[2, 6, 3], &[0.0; 36]),
        ]
    }

    fn outputs(file: Vec<u8>, constants: &[(&str, &[f64])]) -> HashMap<String, ValueLengths> {
        let outline = Artifact::parse("m.onnx".as_ref(), file).unwrap().outline;
        let bound = |input: &crate::onnx::Input| {
            let shape = input.shape.iter().map(|dim| Extent::exactly(dim.to_string().parse().unwrap())).collect();
            (input.name.clone(), shape)
        };
        let inputs: Vec<(String, Lengths)> = outline.inputs.iter().map(bound).collect();
        let constant = |name: &str| constants.iter().find(|(known, _)| *known == name).map(|(_, numbers)| *numbers);
        let inputs =
            inputs.iter().map(|(name, shape)| BoundInput { name, shape: shape.clone(), constant: constant(name) });
        let inputs: Vec<_> = inputs.collect();
        outline.value_shaped.as_ref().map(|graph| graph.outputs(&inputs, &HashMap::new())).unwrap_or_default()
    }

    #[test]
    fn values_decide_lengths_through_many_operators() {
        for (nodes, by) in [
            (&["y = NonZero x"][..], Some("node `y` (NonZero)")),
            (&["y = Range zero n one"], Some("node `y` (Range)")),
            (&["y = ConstantOfShape n"], Some("node `y` (ConstantOfShape)")),
            (&["y = Expand x n"], Some("node `y` (Expand)")),
            (&["y = Tile x n"], Some("node `y` (Tile)")),
            (&["a = Add n one", "y = Reshape x a"], Some("node `y` (Reshape)")),
            (&["a = Range zero n one", "b = Cast a to==1", "y = Neg b"], Some("node `a` (Range)")),
            (&["y = TopK x n"], Some("node `y` (TopK)")),
            (&["y = Slice x zero n"], Some("node `y` (Slice)")),
            // Of which shape something is, values do not decide.
            (&["a = NonZero x", "y = ScatterND x a five"], None),
            (&["a = NonZero x", "y = Shape a"], None),
            (&["a = NonZero x", "b = Shape a", "y = ConstantOfShape b"], Some("node `y` (ConstantOfShape)")),
            (&["a = Shape x", "y = ConstantOfShape a"], None),
            (&["a = Shape x", "b = ConstantOfShape a", "y = NonZero b"], None),
            (&["y = TopK x two"], None),
            (&["y = Tile x one"], Some("node `y` (Tile)")),
        ] {
            assert_eq!(lengths(nodes, &[]).as_ref().map(|found| &*found.decided_by), by, "{nodes:?}");
        }
        // A constant of the node is no value of a message.
        assert!(lengths(&["y = Tile x one"], &[("one", &[1.0])]).is_none());
    }

    #[test]
    fn values_decide_what_a_subgraph_captures() {
        let condition = |nodes: &[&str]| {
            let inner = model(&[], &[("z", D::INT64, &["2", "k"])], &[], &["z = Identity a"]);
            branches(model(&INPUTS, &[("both", D::INT64, &["2", "k"])], &weights(), nodes), &inner)
        };
        let found = |file| outputs(file, &[]).remove("both").map(|found| found.decided_by);
        assert_eq!(found(condition(&["a = NonZero x"])).as_deref(), Some("node `a` (NonZero)"));
        assert_eq!(found(condition(&["a = Neg x"])), None);
    }

    /// A loop ends by a counter, whose start or step may come from a message, or by what it
    /// computes.
    #[test]
    fn a_loop_that_counts_has_lengths_that_values_do_not_decide() {
        let body = |nodes: &[&str]| {
            let inputs = [
                ("i", D::INT64, &[][..]),
                ("c", D::BOOL, &[]),
                ("k", D::INT64, &["1"]),
                ("v", D::FLOAT, &["1", "2", "3"]),
            ];
            let outputs = [("c2", D::BOOL, &["1"][..]), ("k2", D::INT64, &["1"]), ("v2", D::FLOAT, &["1", "2", "3"])];
            model(&inputs, &outputs, &[ints("step", &[1]), floats("limit", &[1], &[9.0])], nodes)
        };
        let found = |start: &str, nodes: &[&str]| {
            let outer = model(&INPUTS, &[("v3", D::FLOAT, &["a", "2", "3"])], &weights(), &[]);
            let file = looped(outer, &["", "", start, "x"], &["c3", "k3", "v3"], &body(nodes));
            outputs(file, &[]).remove("v3").map(|found| (found.decided_by, found.is_loop))
        };
        let counts = ["k2 = Add k step", "c2 = Less k2 most", "v2 = Neg v"];
        assert_eq!(found("zero", &counts), None);
        let by_loop = Some(("node `loop` (Loop)".to_string(), true));
        assert_eq!(found("n", &counts), by_loop);
        assert_eq!(found("zero", &["k2 = Add k n", "c2 = Less k2 most", "v2 = Neg v"]), by_loop);
        assert_eq!(found("zero", &["k2 = Add k step", "m = ReduceMax v", "c2 = Less m limit", "v2 = Neg v"]), by_loop);
        // The counter varies from the second turn on.
        let late = ["s = Cast v to==7", "k2 = ReduceMax s", "c2 = Less k most", "v2 = Neg v"];
        assert_eq!(found("zero", &late), by_loop);
        let other = ["k2 = Add k step", "c2 = Less k2 most", "a = NonZero v", "b = Cast a to==1", "v2 = Neg b"];
        assert_eq!(found("zero", &other), Some(("node `a` (NonZero)".into(), false)));
    }

    #[test]
    fn bounds_follow_from_the_shapes_of_the_inputs() {
        for (nodes, shape) in [
            (&["y = NonZero x"][..], Some("3 0-6")),
            (&["a = Greater x one", "y = NonZero a"], Some("3 0-6")),
            (&["a = NonZero x", "y = Transpose a perm=1,0"], Some("0-6 3")),
            (&["a = NonZero x", "b = Transpose a perm=1,0", "y = GatherND x b"], Some("0-6")),
            (
                &["a = NonZero x", "b = Gather a two axis==0", "c = Squeeze b zero", "y = Gather table c axis==0"],
                Some("0-6 7"),
            ),
            (&["a = NonZero x", "y = Unsqueeze a zero"], Some("1 3 0-6")),
            (&["a = NonZero x", "b = Cast a to==1", "y = Concat b b axis==1"], Some("3 0-12")),
            (&["a = NonZero x", "y = Slice a zero two one"], Some("0-3 0-6")),
            (&["a = NonZero x", "y = Slice a zero two two"], None),
            (&["a = NonZero x", "b = Transpose a perm=1,0", "y = Slice b zero two zero"], Some("0-2 3")),
            (&["a = NonZero x", "b = Transpose a perm=1,0", "y = Slice b minus two zero"], Some("0-6 3")),
            (&["a = ReduceMax x keepdims==0", "y = NonZero a"], Some("0 0-1")),
            (&["a = ArgMax x axis==2 keepdims==0", "y = NonZero a"], Some("2 0-2")),
            (&["a = Reshape x minus", "y = NonZero a"], Some("1 0-6")),
            (
                &["a = Shape x", "b = Gather a two", "c = Concat minus b axis==0", "d = Reshape x c", "y = NonZero d"],
                Some("2 0-6"),
            ),
            (&["y = NonMaxSuppression boxes scores most"], Some("0-6 3")),
            (&["y = NonMaxSuppression boxes scores"], Some("0-12 3")),
            (&["y = NonMaxSuppression boxes scores n"], Some("0-12 3")),
            (&["y = Unique x"], Some("0-6")),
            (&["a = Greater five n", "y = Compress table a axis==0"], Some("0-5 7")),
            (&["a = Conv boxes kernel", "y = NonZero a"], Some("3 0-4")),
            (&["a = Det x", "y = NonZero a"], None),
            (&["y = Range zero n one"], None),
        ] {
            let found = lengths(nodes, &[]).unwrap_or_else(|| panic!("{nodes:?}")).shape;
            let show = |dim: &Extent| match dim.is_exact() {
                true => dim.most.to_string(),
                false => format!("0-{}", dim.most),
            };
            let found = found.filter(|shape| shape.iter().all(|dim| dim.most < u64::MAX));
            let found = found.map(|shape| shape.iter().map(show).collect::<Vec<_>>().join(" "));
            assert_eq!(found.as_deref(), shape, "{nodes:?}");
        }
    }
}
