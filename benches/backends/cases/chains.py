"""Models of several operators: those whose numbers need more bits in between than at their inputs and outputs, and those with sequences."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

BIG = 3_000_000_000
PRIME = {"p": 7}
X = np.array([1, 2, 3], np.int64)
F = np.array([3e9, 1.0, -3e9], np.float32)
FEW = np.array([1, 2, 3], np.float32)
HALF = np.array([2_000_000_000] * 3, np.int64)
ROW = np.array([[100_000] * 3], np.int64)
COLUMN = np.full((3, 1), 100_000)

# A label, the nodes (`to=7` is a cast to int64, `to=11` one to double, `to=1` one to float; `@` names a tensor), the constants and the
# inputs. Integers are int64.
CHAINS = [
    # A constant of more than 32 bits, in all the ways in which a model has one.
    ("mod", "a = Mul x b; y = Mod a p", {"b": 3_000_000_019, "p": 1009}, X),
    ("less", "y = Less x b", {"b": BIG}, X),
    ("add_sub", "a = Add x b; y = Sub a b", {"b": 5_000_000_000}, X),
    ("div", "a = Mul x b; y = Div a b", {"b": 5_000_000_000}, X),
    ("cast_constant", "a = Cast b to=1; y = Mul x a", {"b": [BIG]}, FEW),
    ("gather", "a = Gather b x; y = Cast a to=1", {"b": [1, BIG, 2, -BIG, 5]}, X),
    ("gather_elements", "a = GatherElements b x; y = Mod a p", {"b": [1, BIG, 2, -BIG, 5], **PRIME}, X),
    ("where", "k = Greater x one; a = Where k b x; y = Mod a p", {"b": BIG, "one": 1, **PRIME}, X),
    ("concat", "a = Concat x b axis=0; y = Mod a p", {"b": [BIG], **PRIME}, X),
    ("constant_of_shape", "s = Shape x; b = ConstantOfShape s value=@big; a = Div b x; y = Cast a to=1", {"big": [BIG]}, X),
    ("value_int", f"b = Constant value_int={BIG}; c = Cast b to=1; f = Cast x to=1; y = Mul c f", {}, X),
    ("value_ints", f"b = Constant value_ints=[{BIG}]; a = Div b x; y = Cast a to=1", {}, X),
    ("value", "b = Constant value=@big; a = Div b x; y = Cast a to=1", {"big": [BIG]}, X),
    ("scatter", "a = ScatterElements x i b; y = Mod a p", {"i": [0], "b": [BIG], **PRIME}, X),
    ("scatter_nd", "a = ScatterND x i b; y = Mod a p", {"i": [[0]], "b": [BIG], **PRIME}, X),
    ("pad", "a = Pad x i b; y = Mod a p", {"i": [0, 1], "b": BIG, **PRIME}, X),
    ("one_hot", "a = OneHot x i b; y = Mod a p", {"i": 4, "b": [0, BIG], **PRIME}, X),
    ("expand", "a = Expand b i; s = Add a x; y = Mod s p", {"i": [3], "b": BIG, **PRIME}, X),
    ("unsqueeze", "a = Unsqueeze b z; c = Mod a p; y = Add c x", {"b": BIG, "z": [0], **PRIME}, X),
    ("transpose", "a = Transpose b; c = Mod a p; y = Add c x", {"b": [[BIG]], **PRIME}, X),
    ("output", "y = Concat x b axis=0", {"b": [BIG]}, X),
    ("range", "r = Range a b d; s = Gather r x; y = Mod s p", {"a": 2**31 - 2, "b": 2**31 + 6, "d": 2, **PRIME}, X),
    # The greatest and the least number are an end.
    ("clip_ends", "y = Clip x b e", {"b": -(2**63), "e": 2**63 - 1}, X),
    ("slice_ends", "y = Slice x b e", {"b": [1], "e": [2**63 - 1]}, X),
    ("slice_ends_moved", "c = Concat e axis=0; y = Slice x b c", {"b": [1], "e": [2**63 - 1]}, X),
    # Results of more than 32 bits.
    ("add", "s = Add x q; y = Mod s p", {"q": 2**31 - 1, **PRIME}, X),
    ("sub", "s = Sub x q; y = Mod s p", {"q": 2**31 - 1, **PRIME}, np.array([-(2**31), 70_000, 3])),
    ("mul", "s = Mul x w; y = Mod s p", {"w": 70_000, **PRIME}, np.array([60_000, 70_000, 3])),
    ("square", "s = Mul x x; y = Mod s p", PRIME, np.array([60_000, 70_000, 3])),
    ("sum", "s = Sum x x x; y = Mod s p", PRIME, HALF),
    ("mean", "s = Mean x x; y = Mod s p", PRIME, HALF),
    ("neg", "s = Neg x; y = Mod s p", PRIME, np.array([-(2**31), 5])),
    ("abs", "s = Abs x; y = Mod s p", PRIME, np.array([-(2**31), 5])),
    ("pow2", "s = Pow x t; y = Mod s p", {"t": 2, **PRIME}, np.array([60_000, 70_000, 3])),
    ("pow3", "s = Pow x t; y = Mod s p", {"t": 3, **PRIME}, np.array([2_000, 3_000, 3])),
    ("pow5", "s = Pow x t; y = Mod s p", {"t": 5, **PRIME}, np.array([200, 300, 3])),
    ("pow_by_float", "s = Pow x t; y = Mod s p", {"t": np.float32(2), **PRIME}, np.array([60_000, 70_000, 3])),
    ("reduce_sum", "s = ReduceSum x keepdims=0; y = Mod s p", PRIME, HALF),
    ("reduce_sum_wide", "m = Mul x b; s = ReduceSum m keepdims=0; y = Mod s p", {"b": 1_000_000_000, **PRIME}, np.array([9, 1, 1])),
    ("reduce_sum_axis", "s = ReduceSum x a; y = Mod s p", {"a": [0], **PRIME}, np.array([[2_000_000_000, 1]] * 3)),
    ("reduce_mean", "s = ReduceMean x keepdims=0; y = Mod s p", PRIME, HALF),
    ("reduce_prod", "s = ReduceProd x keepdims=0; y = Mod s p", PRIME, np.array([60_000, 60_000, 3])),
    ("reduce_l1", "s = ReduceL1 x keepdims=0; y = Mod s p", PRIME, -HALF),
    ("reduce_sum_square", "s = ReduceSumSquare x keepdims=0; y = Mod s p", PRIME, np.array([60_000] * 3)),
    ("cum_sum", "s = CumSum x z; y = Mod s p", {"z": 0, **PRIME}, HALF),
    ("mat_mul", "s = MatMul x w; y = Mod s p", {"w": COLUMN, **PRIME}, ROW),
    ("mat_mul_vectors", "s = MatMul x x; y = Mod s p", PRIME, ROW[0]),
    ("gemm", "s = Gemm x w; y = Mod s p", {"w": COLUMN, **PRIME}, ROW),
    ("einsum", "s = Einsum x w equation=ij,jk->ik; y = Mod s p", {"w": COLUMN, **PRIME}, ROW),
    ("einsum_sum", "s = Einsum x equation=ij->i; y = Mod s p", PRIME, HALF[None]),
    ("size", "s = Size x; m = Mul s q; y = Mod m p", {"q": 2_000_000_000, **PRIME}, X),
    ("top_k", "m = Mul x b; v,i = TopK m k; y = Cast i to=1", {"b": 2_000_000_000, "k": [2]}, X),
    ("fmod", "m = Mul x b; y = Mod m p fmod=1", {"b": -2_000_000_000, **PRIME}, X),
    ("to_bool", "m = Mul x b; c = Cast m to=9; y = Cast c to=6", {"b": 2**30}, np.array([4, 1, 0])),
    ("to_int64", "m = Mul x b; c = Cast m to=7; y = Mod c p", {"b": 2_000_000_000, **PRIME}, X),
    ("to_int32", "m = Mul x b; d = Div m b; y = Cast d to=6", {"b": 2_000_000_000}, X),
    ("relu", "s = Sub x b; r = Relu s; y = Add r x", {"b": 2**31 - 10}, np.array([-100, 5, 9])),
    ("mat_mul_integer", "u = Cast x to=2; s = MatMulInteger u w; l = Cast s to=7; m = Mul l q; y = Mod m p",
     {"q": 100_000, "w": np.full((3, 1), 200, np.uint8), **PRIME}, np.full((1, 3), 200, np.float32)),
    # Floats that become integers of more than 32 bits.
    ("cast", "a = Cast x to=7; y = Cast a to=1", {}, F),
    ("cast_fits", "a = Cast x to=7; y = Cast a to=1", {}, np.array([5.5, -2.5, 2e9], np.float32)),
    ("cast_like", "a = CastLike x p; y = Mod a p", PRIME, F),
    ("cast_round", "r = Round x; a = Cast r to=7; y = Mod a p", PRIME, F),
    ("cast_div", "a = Cast x to=7; y = Div a q", {"q": 1000}, F),
    ("cast_narrow", "a = Cast x to=7; b = Cast a to=3; y = Cast b to=6", {}, np.array([300.7, -1.5, 129], np.float32)),
    ("unsigned32", "a = Cast x to=12; e = Mul a k; y = Cast e to=1", {"k": np.uint32(1_000_000_000)}, np.array([1, 3, 4], np.float32)),
    ("unsigned32_sum", "a = Cast x to=12; e = Mul a k; s = ReduceSum e keepdims=0; y = Cast s to=1", {"k": np.uint32(1_000_000_000)},
     np.array([3, 1], np.float32)),
    ("unsigned32_to_int64", "a = Cast x to=12; e = Mul a k; c = Cast e to=7; y = Cast c to=1", {"k": np.uint32(1_000_000_000)},
     np.array([1, 3, 4], np.float32)),
    ("unsigned64", "a = Cast x to=13; e = Mul a k; h = Mod e q; y = Cast h to=1", {"k": np.uint64(BIG), "q": np.uint64(7)}, FEW),
    ("unsigned64_sum", "a = Cast x to=13; e = Mul a k; s = ReduceSum e keepdims=0; h = Mod s q; y = Cast h to=1",
     {"k": np.uint64(BIG), "q": np.uint64(7)}, FEW),
    ("shift", "u = Cast x to=13; m = BitShift u q direction=LEFT; h = Mod m s; y = Cast h to=1", {"s": np.uint64(7), "q": np.uint64(40)}, FEW),
    # Doubles between floats.
    ("double_add", "a = Cast x to=11; e = Add a k; g = Sub e k; y = Cast g to=1", {"k": 1e9}, FEW),
    ("double_exp", "a = Cast x to=11; e = Exp a; g = Log e; y = Cast g to=1", {}, np.array([1, 200, 3], np.float32)),
    ("double_to_int64", "a = Cast x to=11; e = Mul a k; g = Cast e to=7; y = Mod g p", {"k": 16_777_217.0, **PRIME}, FEW),
    ("double_mean", "a = Cast x to=11; m = ReduceMean a keepdims=0; y = Cast m to=1", {}, np.array([1e8, 1, -1e8], np.float32)),
    ("double_constant_to_int64", "g = Cast k to=7; m = Mod g p; y = Add m x", {"k": 16_777_217.0, **PRIME}, X),
    # Half floats between floats.
    ("half_overflow", "h = Cast x to=10; y = Cast h to=1", {}, np.array([1e5, 1, -7e4], np.float32)),
    ("half_product", "h = Cast x to=10; g = Mul h h; y = Cast g to=1", {}, np.array([300, 2, -400], np.float32)),
    # Sequences.
    ("sequence_at", "q = SequenceConstruct x c; y = SequenceAt q i", {"c": np.full(3, 5, np.float32), "i": -1}, FEW),
    ("sequence_insert", "q = SequenceEmpty; r = SequenceInsert q x; s = SequenceInsert r c i; y = ConcatFromSequence s axis=0",
     {"c": np.full(2, 5, np.float32), "i": 0}, FEW),
    ("sequence_erase", "q = SequenceConstruct x c x; r = SequenceErase q i; y = ConcatFromSequence r axis=0 new_axis=1",
     {"c": np.full(3, 5, np.float32), "i": 1}, FEW),
    ("sequence_length", "q = SequenceConstruct x x x; y = SequenceLength q", {}, FEW),
    ("sequence_split", "q = SplitToSequence x n axis=0; y = SequenceAt q i", {"n": [1, 2], "i": 1}, FEW),
]


def constant(value):
    """Numbers without a type of NumPy are int64 or double."""
    return value if isinstance(value, (np.ndarray, np.generic)) else np.array(value)


def attribute(text, constants):
    if text.startswith("@"):
        return numpy_helper.from_array(constant(constants[text[1:]]))
    if text.startswith("["):
        return [int(n) for n in text[1:-1].split(",")]
    return int(text) if text.lstrip("-").isdigit() else text


def nodes_of(text, constants):
    nodes = []
    for step in text.split(";"):
        outputs, call = step.strip().split(" = ", 1)
        op, *words = call.split()
        given = dict(word.split("=", 1) for word in words if "=" in word and word[0] != "=")
        inputs = [word for word in words if "=" not in word]
        nodes.append(helper.make_node(op, inputs, outputs.split(","), name=outputs, **{k: attribute(v, constants) for k, v in given.items()}))
    return nodes


def model(nodes, constants, x, output="y"):
    used = {name for node in nodes for name in node.input} | {
        name for node in nodes for a in node.attribute for inner in a.g.node for name in inner.input}
    weights = [numpy_helper.from_array(constant(value), name) for name, value in constants.items() if name in used]
    ports = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_empty_tensor_value_info(output)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def branch(text, output, constants):
    declared = helper.make_tensor_value_info(output, TensorProto.INT64, None)
    return helper.make_graph(nodes_of(text, constants), output, [], [declared])


def chains():
    """The label, model and input of each."""
    for label, text, constants, x in CHAINS:
        yield label, model(nodes_of(text, constants), constants, x), x
    # Constants in and around subgraphs.
    for label, compare in (("then", "Greater"), ("else", "Less")):
        constants = {"z": 0, "b": BIG, **PRIME}
        nodes = nodes_of(f"s = ReduceSum x keepdims=0; k = {compare} s z", constants)
        nodes.append(helper.make_node("If", ["k"], ["y"], name="y", then_branch=branch("t1 = Mul x b; t = Mod t1 p", "t", constants),
                                      else_branch=branch(f"c = Constant value_int={BIG}; m = Mod c p; e = Add x m", "e", constants)))
        yield f"if_{label}", model(nodes, constants, X), X
    body = helper.make_graph(
        nodes_of("after = Add before one; m = ReduceMax after keepdims=0; goes_on = Less m most", {}), "body",
        [helper.make_tensor_value_info("turn", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("before", TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, None), helper.make_tensor_value_info("after", TensorProto.INT64, [3])])
    constants = {"turns": 2**63 - 1, "go": np.array(True), "one": 1, "most": 10}
    loop = helper.make_node("Loop", ["turns", "first", "x"], ["y"], name="y", body=body)
    yield "loop_ends", model([loop], {**constants, "first": np.array(True)}, X), X
