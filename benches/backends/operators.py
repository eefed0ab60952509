#!/usr/bin/env python3
"""Runs models of one operator on every runtime, with edge values and attributes, and compares the results with what ONNX defines.

    .ci/pip backends                                      into target/venv
    python operators.py PROGRAM                           fails if a runtime computes something else and does not list it
    python operators.py PROGRAM --runtimes rten --every 3 a part of the cases
    python operators.py PROGRAM --only 'Conv-f32'         the cases with names that match, with the reason of each difference

PROGRAM is `limen-conformance`. `cases` makes the cases, the same each time. Expected is what ONNX's reference
implementation and ONNX Runtime agree on; where they do not, `DECISIONS` says which is right, with a reason.

Integers, bools and the places of NaN and infinity are exact. A float may be off by 1e-5 of its size, and by 1e-6 of the largest term of the
output: a sum of terms that cancel has an error of the terms' size. An f16 has 11 significant bits, an error of 2e-3 in a few operators.

A difference is allowed where the runtime lists it as a deviation (such a model is refused), and where `EXCEPTIONS` gives a reason; a panic only
where `FAILS` does. Refusals, before or in a call, are counted apart, with their reasons. A pair of an operator and an element type that a runtime
claims and no case has is an error unless `UNTESTED` gives a reason; a pair of which every case is refused is printed. A run of all cases also
fails if no case needs a line of these tables, for each runtime that the line names and that ran.
"""
import argparse, collections, os, re, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

from cases import BUILDERS, FLOATS, ONNX, TYPES, C, chains
from cases.optional import LABEL, UNSUPPORTED, optional_cases

OPSET = 21
PORT = {"f64": "f32", "i64": "i32", "bool": "i32"}
NAME = {np.dtype(v): k for k, v in TYPES.items()}

# Where ONNX Runtime and the reference implementation differ: cases, which of them is right, and why. `common`: only the elements on which
# they agree count; `numbers`: of these only those that are no NaN; `explicit`: ONNX Runtime, with the pads that the text gives for `auto_pad`.
DECISIONS = [
    (r"(Average|Max|Lp)Pool-.*-r[123]p[34].*d2", "explicit", "both pad as without the dilation, against the formula in the text"),
    (r"AveragePool-.*d2", "ort", "the reference implementation computes the length without the dilation"),
    (r"AveragePool-.*ceil_wide.*", "ort", "the reference implementation swaps the pads of the dims"),
    (r"(AveragePool|LpPool)-.*-specials.*", "ort", "a NaN in a window makes its mean NaN; the reference implementation leaves it out"),
    (r"LpPool-.*-ceil.*", "ort", "the reference implementation scales by the part of the window that is inside"),
    (r"Clip-.*", "common", "without a bound ONNX's text names the greatest finite number, its code none"),
    (r"DynamicQuantizeLinear-f32-zeros", "common", "the scale of a range of length 0 is open"),
    (r"GlobalMaxPool-.*-r[13]", "ort", "the reference implementation reduces the dims of an image only"),
    (r"GridSample-.*-cubic_border.*", "common", "whether each tap or the centre is clamped to the border is open"),
    (r"(Hardmax|LogSoftmax|Softmax)-.*-old.*", "ort", "the reference implementation has only the rule since operator set 13"),
    (r"LRN-.*", "ort", "the reference implementation sums a window of another place"),
    (r"LogSoftmax-f64-masked", "common", "a row with inf has no logarithm of its sum"),
    (r"LogSoftmax-.*-(large|masked)", "ort", "the reference implementation takes the logarithm of a softmax that is 0"),
    (r"LpNormalization-.*p1", "ort", "the reference implementation sums without absolute values"),
    (r"MaxPool-.*-r[123]p[2345].*", "ort", "the reference implementation computes another length"),
    (r"MaxPool-.*-infinite", "reference", "the greatest of minus infinities is minus infinity"),
    (r"PRelu-.*-table", "ort", "0 is not less than 0, so the slope does not apply"),
    (r"Pow-.*-by0.5", "common", "the root of -inf is open"),
    (r"Chain-f32-half_product", "reference", "a `Mul` of float16 is one, which ends at 65504; ONNX Runtime drops both casts"),
    (r"QLinear(Conv|MatMul)-.*", "ort", "a zero point is added after rounding to even"),
    (r"QuantizeLinear-(f32-infinite|f16-.*)", "ort", "what does not fit saturates"),
    (r"(RNN|GRU|LSTM)-.*_(lengths|clip|relu)", "ort", "the reference implementation ignores these inputs and attributes"),
    (r"ReduceLogSum-f32-wide", "common", "the sum is 0 but for rounding"),
    (r"ReduceLogSumExp-.*-specials", "ort", "the logarithm of a sum of zeros is minus infinity"),
    (r"ReduceLogSumExp-.*-specials_all", "common", "infinities"),
    (r"(ReduceMax|ReduceMin|GlobalMaxPool|MaxPool)-.*-specials.*", "numbers", "the greatest of numbers with a NaN is open"),
    (r"ReduceSumSquare-i32-.*", "ort", "the reference implementation widens the type"),
    (r"Resize-.*-cubic_pytorch_half_pixel_one", "ort", "the coordinate of a result of length 1 is 0"),
    (r"Resize-.*-nearest_.*_align_corners1", "reference", "corners align to the length that scales give before rounding"),
    (r"ScatterElements-.*_nan", "common", "the greatest of numbers with a NaN is open"),
    (r"Shrink-[iu].*", "common", "`-x` overflows"),
    (r"Sign-f16-.*", "common", "the sign of a NaN is open"),
]

# Where a runtime may differ: runtime, cases, the text of the difference, and why no model is refused for it.
EXCEPTIONS = [
    ("rten|tract|wgpu|cuda", r"(Celu|Clip|HardSigmoid|HardSwish|Max|Min|PRelu|Relu|Sigmoid|Swish|Tanh|LeakyRelu|Elu|Selu|ThresholdedRelu)-.*",
     "not NaN", "a NaN is lost: listing it would refuse most models, and `Where(IsNaN(x), x, Relu(x))` costs 34 to 43 % of a call on rten; "
     "`guard: finite` finds a NaN in the inputs"),
    ("tract|wgpu|cuda", r"(Mul|Div)-.*", "", "a product with the constant 0 is 0, and a quotient by a denormal one by 0"),
    ("tract", r"HardSwish-.*", "inf at", "its square overflows beyond 1e19"),
    ("tract|ort|wgpu|cuda", r"MaxPool-.*-infinite", "not -inf", "the greatest of minus infinities is the least finite number"),
    ("tract", r"Mean-f16-.*", "inf at", "the sum overflows"),
    ("tract|wgpu|cuda", r"Resize-.*-cubic_pytorch_half_pixel_one", "", "a result of length 1 takes the centre"),
    ("wgpu", r"com.microsoft..*|Gelu-.*", "not NaN", "an infinity times 0 is not NaN"),
    ("tract", r"(com.microsoft..*|Gelu)-.*", "not -0", "tanh is 0.9999997 at most, so 3e-7 of a large negative number remains"),
    ("tract", r"ReduceMax-.*-specials", "not -inf", "the greatest of minus infinities is the least finite number"),
    ("tract|wgpu|cuda", r"Pow-f16-by0.5", "not inf", "the root of -inf is NaN"),
    ("wgpu", r"Pow-.*-by-0.5", "holds NaN at 2", "the root of -inf is NaN"),
    ("cuda", r"Chain-f32-half_(overflow|product)", "not -?inf", "a half is an `f32` on the device, so the numbers have more digits and a wider range"),
    ("ort", r"Chain-f32-half_product", "not inf", "its CPU has no `Mul` of halves: it widens them, and drops that with the cast before; the numbers have more digits"),
    ("tract|wgpu|cuda", r"Pow-f(16|32)-empty0", "ENDS", "the trial refuses such a model"),
    ("wgpu", r".*", "not (NaN|-?inf)$", "WGSL lets a driver assume that no number is NaN or infinite"),
    ("wgpu", r"(Cast|CastLike)-.*bool", "holds 0 at .*, not 1", "WGSL lets a driver assume that no number is NaN"),
    ("wgpu", r"(Acos|Asin)-.*", "", "WGSL allows an error of 4,096 units in the last place"),
    ("wgpu", r"Log-.*", "at [56], not -92", "WGSL allows that denormal numbers are 0"),
]

# The reason that holds only for a program in the folder `debug`.
DEBUG = "a debug build checks for overflow"

# Cases that a runtime may answer with a panic, which fails the call: runtime, cases, and why.
FAILS = [
    ("tract", r"(Abs|Add|Mod|Neg|Sub|Scatter\w+)-[iu]\d+-.*", DEBUG),
    ("tract", r"Einsum-[iu]16-e[014567]", "there is no kernel for this type"),
    ("tract", r"GatherND-.*-(batch|negative)", "it takes no negative indices"),
    ("tract", r"OneHot-.*", "a negative index is out of range"),
    ("tract|wgpu|cuda", r"Reduce\w+-f\d+-empty", "it sums no rows without elements"),
    ("tract|wgpu|cuda", r"Range-f(32|64)-fraction", "its length is cut to a whole number"),
    ("tract|wgpu|cuda", r"Squeeze-.*-axes2_0", "it expects the axes in order"),
    ("tract", r"Pad-.*-(mixed|negative)", "it cuts off nothing"),
]

# What a refusal says, and its reason in a few words.
REASONS = [
    (r"elements of type|unsupported data type|unsupported input type|expected tensor with type|not a number|does not support [BFIU]", "type"),
    (r"not supported or not enabled|Unimplemented", "operator"),
    (r"^not (supported|a readable model)", "attributes"),
    (r"", "call"),
]

# The reason that holds only where a case of the ONNX project for the operator passes on the runtime.
CONFORMANCE = "conformance.py runs the cases of the ONNX project"

# Claimed and covered elsewhere: runtime, operators (and types), and why.
UNTESTED = [
    ("rten|tract|wgpu|cuda", r"(Attention|BitCast|If|Loop|Scan|RotaryEmbedding)-.*", CONFORMANCE),
    ("rten", r"(Sequence\w+|ConcatFromSequence|SplitToSequence)-.*", "the chains of `cases/chains.py`"),
    (".*", r"Constant-.*", "the parameters of every other case are constants"),
    (".*", r"com.microsoft.(DynamicQuantizeLSTM|GroupQueryAttention|MatMulNBits|MultiHeadAttention)-.*",
     "not defined by ONNX; the public models of benches/models use them"),
    (".*", r"LRN-f64|Resize-bool|MaxRoiPool-f64|OneHot-.*", "neither ONNX Runtime nor the reference implementation runs it"),
    (".*", r"GridSample-([iu]\d+|bool)", "how interpolated integers are rounded is open"),
    ("tract|wgpu|cuda", r"(\w*Gelu|MatMulNBits|Skip\w+|GatherBlockQuantized|Rsqrt|ConstantLike|ParametricSoftplus|ScaledTanh)-",
     "of another domain than ONNX's, or removed from it; tract does not tell domains apart"),
    ("tract|wgpu|cuda", r"(ArrayFeatureExtractor|CategoryMapper|Linear\w+|Normalizer|TreeEnsemble\w+)-", "ONNX-ML"),
    (".*", r"(DFT|STFT)-", CONFORMANCE),
    (".*", r"(Random\w+|Multinomial)-", "random"),
    (".*", r"(ReduceLogSum|ReduceLogSumExp)-u(32|64)|(GlobalLpPool|MeanVarianceNormalization)-f64",
     "neither ONNX Runtime nor the reference implementation runs it"),
    # Deviations that another test shows.
    ("rten", r"(DynamicQuantizeLinear|com.microsoft.DynamicQuantizeLSTM) .*", "seen in public models; depends on the processor"),
    ("rten", r"GRU runs all steps.*", "recurrent.py"),
    ("ort", r"MaxUnpool .*", "conformance.py"),
    ("ort", r"LpPool ignores .*", "as `MaxPool`; the reference implementation has no dilations here"),
    ("wgpu", r"(Einsum|Gemm|MatMul) sums .*", "as on `tract`; programs have 32 bits, and their cases of wide integers fit"),
    ("tract|wgpu", r"(BitShift|LSTM does not couple|SpaceToDepth) .*", "conformance.py and recurrent.py"),
]


def schema_types(op):
    """The element types of an operator's first input that is data."""
    if "." in op or op == "SimplifiedLayerNormalization":
        return ["f32"]
    version = {"Upsample": 9, "Scatter": 10, "Swish": 24, "RMSNormalization": 23}.get(op, OPSET)
    schema = onnx.defs.get_schema(op, version)
    if not schema.inputs:
        return ["f32"]
    first = schema.inputs[1 if op == "Where" else 0].type_str
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == first), [first])
    names = {"float": "f32", "float16": "f16", "double": "f64", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16",
             "int32": "i32", "int64": "i64", "uint32": "u32", "uint64": "u64", "bool": "bool"}
    found = {a[len("tensor("):-1] for a in allowed if a.startswith("tensor(")}
    return [t for name, t in names.items() if name in found]


def model_of(op, inputs, attributes, outputs, opset, results=None):
    """The model of one operator, with the types of its results once they are known."""
    domain, name = op.rsplit(".", 1) if "." in op else ("", op)
    names, ports, weights = [], [], []
    for at, value in enumerate(inputs):
        names.append("" if value is None else f"x{at}")
        if isinstance(value, C):
            weights.append(onnx.numpy_helper.from_array(value.array, f"x{at}"))
        elif value is not None:
            ports.append(helper.make_tensor_value_info(f"x{at}", ONNX[NAME[value.dtype]], value.shape))
    ys = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(name, names, ys, name="node", domain=domain, **attributes)
    declared = [helper.make_tensor_value_info(y, ONNX[NAME[r.dtype]], r.shape) for y, r in zip(ys, results)] if results else [
        helper.make_tensor_value_info(y, 1, None) if domain else onnx.ValueInfoProto(name=y) for y in ys]
    graph = helper.make_graph([node], "g", ports, declared, weights)
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def on_ort(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def on_reference(model, feeds):
    return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds)]


def attempt(run, model, feeds):
    try:
        with np.errstate(all="ignore"):
            found = run(model, feeds)
        # NumPy may widen what ONNX does not.
        return found if all(y.dtype in NAME for y in found) else None
    except Exception as error:
        attempt.why = f"{type(error).__name__}: {error}"
        return None


def tolerance(expected, scale):
    """The error that each element may have."""
    if expected.dtype.kind != "f":
        return np.zeros(expected.shape, np.float32)
    finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    largest = max([1.0, scale or 0.0, *(finite[finite < 1e4].max(initial=0.0),)])
    relative, floor = (2e-3, 1e-3) if expected.dtype == np.float16 else (1e-5, 1e-6)
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(expected), np.abs(expected.astype(np.float64)), 0)
        return np.minimum(size * relative + floor * largest, 3e38).astype(np.float32)


def same(a, b, scale):
    """Where two results of one shape agree."""
    with np.errstate(all="ignore"):
        equal = (a == b) | ((a != a) & (b != b))
        if a.dtype.kind == "f":
            equal |= np.abs(a.astype(np.float64) - b.astype(np.float64)) <= tolerance(a, scale)
        return equal


def agree(a, b, scale):
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.all(same(a, b, scale)))


def decided(name):
    return next((d for d in DECISIONS if re.fullmatch(d[0], name)), None)


def explicit(model, feeds):
    """Runs a model of a window with the pads that ONNX's text gives for its `auto_pad`."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    node, shape = model.graph.node[0], next(iter(feeds.values())).shape[2:]
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    before, behind = [], []
    for length, kernel, stride, dilation in zip(shape, given["kernel_shape"], given["strides"], given["dilations"]):
        total = max((-(-length // stride) - 1) * stride + (kernel - 1) * dilation + 1 - length, 0)
        small, large = total // 2, total - total // 2
        before.append(small if given["auto_pad"] == b"SAME_UPPER" else large)
        behind.append(total - before[-1])
    kept = [a for a in node.attribute if a.name != "auto_pad"]
    del node.attribute[:]
    node.attribute.extend(kept + [helper.make_attribute("pads", before + behind)])
    model.graph.output[0].CopyFrom(onnx.ValueInfoProto(name=model.graph.output[0].name))
    return on_ort(model, feeds)


def expectation(name, model, feeds, scale):
    """What a runtime has to compute; None if nothing can be said, with the reason."""
    theirs, ours = attempt(on_ort, model, feeds), attempt(on_reference, model, feeds)
    decision = decided(name)
    if decision:
        if decision[1] == "explicit":
            right = attempt(explicit, model, feeds)
            return right, None if right is not None else "neither runs it"
        right = theirs if decision[1] == "ort" or ours is None else ours
        if right is not None and decision[1] in ("common", "numbers"):
            counts = lambda y, other: same(y, other, scale) & ((y == y) | (decision[1] == "common"))
            return [(y, counts(y, other)) for y, other in zip(right, theirs or right)], None
        return right, None if right is not None else "neither runs it"
    if theirs is None or ours is None:
        found = theirs if ours is None else ours
        return found, None if found is not None else "neither runs it"
    if len(theirs) == len(ours) and all(agree(a, b, scale) for a, b in zip(ours, theirs)):
        return theirs, None
    return None, "undecided"


def as_port(array):
    """The array as a port carries it; None if a number does not fit."""
    t = NAME[array.dtype]
    if t == "i64" and array.size and (array.min() < -(2**31) or array.max() >= 2**31):
        return None
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(array.astype(TYPES[PORT.get(t, t)])).reshape(array.shape)


def cases(only, types):
    for op, builder in sorted(BUILDERS.items()):
        for t in schema_types(op):
            if t not in types or only and not re.search(only.split("-")[0], op):
                continue
            for label, inputs, attributes, *options in builder(t):
                options = options[0] if options else {}
                name = f"{op}-{t}-{label}"
                yield name, op, inputs, attributes, options
    for label, model, x in chains():
        yield f"Chain-{NAME[x.dtype]}-{label}", None, model, {"x": x}, {}
    yield from ((name, None, model, feeds, {}) for name, model, feeds in optional_cases())


def write(folder, only, types, every):
    """Writes the cases; returns how many, and those whose result has to be decided."""
    written, undecided, neither = 0, [], []
    for at, (name, op, inputs, attributes, options) in enumerate(cases(only, types)):
        if only and not re.search(only, name) or at % every:
            continue
        scale = options.get("scale")
        if op is None:
            model, feeds = inputs, attributes
        else:
            outputs, opset = options.get("outputs", 1), options.get("opset", OPSET)
            model = model_of(op, inputs, attributes, outputs, opset)
            feeds = {f"x{n}": value for n, value in enumerate(inputs) if value is not None and not isinstance(value, C)}
        expected, why = expectation(name, model, feeds, scale)
        if expected is not None:
            counts = [y[1] if isinstance(y, tuple) else np.ones(y.shape, bool) for y in expected]
            expected = [y[0] if isinstance(y, tuple) else y for y in expected]
        if expected is None:
            (undecided if why == "undecided" else neither).append((name, "" if why == "undecided" else attempt.why))
            continue
        if op is not None:
            model = model_of(op, inputs, attributes, outputs, opset, expected)
        else:
            model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", ONNX[NAME[expected[0].dtype]], expected[0].shape))
        target = folder / name
        target.mkdir()
        (target / "model.onnx").write_bytes(model.SerializeToString())
        for n, array in enumerate(feeds.values()):
            np.save(target / f"in_{n}.npy", as_port(array))
        for n, array in enumerate(expected):
            carried = as_port(array)
            if carried is None:
                (target / f"out_{n}.fails").touch()
                continue
            np.save(target / f"out_{n}.npy", carried)
            # What does not count may be anything.
            allowed = np.where(counts[n], tolerance(array, scale), np.float32("nan")).astype(np.float32)
            np.save(target / f"tol_{n}.npy", allowed.reshape(array.shape))
        written += 1
    return written, undecided, neither


def claims(program, runtimes):
    """The operators that each runtime claims, and the element types of its ports."""
    found = {}
    # Without a name the program leaves out `cuda`.
    env = {**os.environ, **({"LIMEN_RUNTIME": ",".join(runtimes)} if runtimes else {})}
    for line in subprocess.run([program, "--claims"], stdout=subprocess.PIPE, text=True, check=True, env=env).stdout.splitlines():
        runtime, dtypes, ops = line.split("\t")
        if not runtimes or runtime in runtimes:
            found[runtime] = (dtypes.split(), ops.split())
    if missing := set(runtimes) - set(found):
        sys.exit(f"{program} was built without {', '.join(sorted(missing))}")
    return found


def run(program, folder, runtime):
    """The result of each case on a runtime. After a case that ends the process, the program is started again with the next one."""
    results, names, start = {}, sorted(p.name for p in folder.iterdir()), ""
    while names:
        done = subprocess.run([program, folder, start], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env={**os.environ, "LIMEN_RUNTIME": runtime})
        for line in done.stdout.splitlines():
            _, case, listed, text = line.split("\t")
            results[case] = (listed, text)
        if done.returncode == 0:
            break
        missing = [n for n in names if n not in results]
        results[missing[0]] = ("", "ENDS THE PROCESS")
        if not missing[1:]:
            break
        start = missing[1]
    return results


# The lines of the tables that were needed, with the runtime.
NEEDED = set()


def line_for(table, runtime, name, text=""):
    """The first line of a table for a runtime and a case, which this makes a needed one."""
    for line in table:
        if re.fullmatch(line[0], runtime) and re.fullmatch(line[1], name) and re.search(line[2] if table is EXCEPTIONS else "", text):
            NEEDED.add((line, runtime))
            return line
    return None


def unneeded(runtimes, program, is_some):
    """The lines that no case needed, with the runtimes for which that is so. A line for all runtimes is needed if one of them needs it,
    of which a run of some says nothing."""
    is_debug = Path(program).parent.name == "debug"
    for line in [*EXCEPTIONS, *FAILS, *UNTESTED, *UNSUPPORTED]:
        without = [r for r in sorted(runtimes) if re.fullmatch(line[0], r) and (line, r) not in NEEDED]
        if line[0] == ".*":
            without = without if len(without) == len(runtimes) and not is_some else []
        if without and (is_debug or line[-1] != DEBUG):
            yield line, without


def verdict(runtime, name, listed, text, is_claimed):
    """How a runtime did on a case: right, refused (before or in the call), listed, excepted, fails (a panic, in `FAILS`) or WRONG."""
    if text.startswith("pass"):
        return "right"
    if listed:
        return "listed"
    if text == "PANIC" and line_for(FAILS, runtime, name):
        return "fails"
    if not text.startswith(("DIFFERS", "PANIC", "ENDS")):
        # A runtime that claims an operator has to run it with what ONNX lets a model leave out.
        is_optional = is_claimed and f"-{LABEL}_" in name
        return "WRONG" if is_optional and not line_for(UNSUPPORTED, runtime, name) else "refused"
    return "excepted" if line_for(EXCEPTIONS, runtime, name, text) else "WRONG"


def reason(text):
    """Why a runtime refused a case, in a few words."""
    return next(why for pattern, why in REASONS if re.search(pattern, text))


def shown_by_conformance(runtime, op):
    """Whether a case of the ONNX project for an operator passes on a runtime."""
    results = Path(__file__).with_name(f"conformance-{runtime}.txt")
    passed = (line.split()[0] for line in results.read_text().splitlines() if " pass" in line)
    return any(name.replace("_", "").startswith(f"test{op.lower()}") for name in passed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--runtimes", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--keep", help="a folder for the cases")
    given = parser.parse_args()
    runtimes = [name for name in given.runtimes.split(",") if name]
    claimed = claims(given.program, runtimes)
    carried = {t for dtypes, _ in claimed.values() for t in dtypes} | {"bool", "i64", "f64"}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(given.keep or folder)
        folder.mkdir(exist_ok=True)
        count, undecided, neither = write(folder, given.only, carried, given.every)
        # A core each: a runtime may compute on one thread.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            ran = pool.map(lambda runtime: run(given.program, folder, runtime), claimed)
            results = dict(zip(claimed, ran))
    failed = bool(undecided)
    for name, _ in undecided:
        print(f"UNDECIDED {name}: ONNX Runtime and the reference implementation differ; add the case to DECISIONS")
    if given.only:
        for name, why in neither:
            print(f"neither runs {name}: {why[:300]}")
    partial = given.only or given.every > 1
    for runtime, (dtypes, ops) in sorted(claimed.items()):
        table, used, reasons = collections.defaultdict(collections.Counter), collections.Counter(), collections.defaultdict(collections.Counter)
        for name, (listed, text) in sorted(results[runtime].items()):
            op, t = name.split("-")[:2]
            what = verdict(runtime, name, listed, text, op in ops)
            table[op, t][what] += 1
            used[listed] += what == "listed" and text.startswith(("DIFFERS", "PANIC", "ENDS"))
            if what == "refused":
                reasons[op, t][reason(text)] += 1
            if what == "WRONG" or given.only:
                print(f"{runtime} {name} {what}: {text}{' [' + listed + ']' if listed else ''}")
        totals, refused = sum(table.values(), collections.Counter()), sum(reasons.values(), collections.Counter())
        failed |= totals["WRONG"] > 0
        print(f"{runtime}: {count} cases, " + ", ".join(f"{n} {what}" for what, n in sorted(totals.items()))
              + "".join(f"; refused for its {why}: {n}" for why, n in refused.most_common()))
        if partial:
            continue
        print_coverage(runtime, table, reasons)
        failed |= print_untested(runtime, dtypes, ops, table)
        # A deviation that no case shows may be outdated.
        for listed in subprocess.run([given.program, "--deviations", runtime], stdout=subprocess.PIPE, text=True).stdout.splitlines():
            if not used[listed] and not line_for(UNTESTED, runtime, listed):
                failed = True
                print(f"UNSEEN {runtime}: no case shows `{listed}`")
    for line, without in unneeded(claimed, given.program, runtimes) if not partial else ():
        failed = True
        print(f"UNUSED {', '.join(without)}: no case needs {line}")
    if failed:
        sys.exit("an operator differs from what ONNX defines: let the loader rewrite it, or list it as a deviation")


def print_untested(runtime, dtypes, ops, table):
    """Prints the claimed pairs of an operator and a type without a case that was run, and whether one of them has no reason."""
    failed, only_refused = False, []
    for op in ops:
        for t in schema_types(op) if op in BUILDERS else [""]:
            if t and PORT.get(t, t) not in dtypes:
                continue
            if table[op, t]:
                if set(table[op, t]) == {"refused"}:
                    only_refused.append(f"{op}-{t}")
                continue
            *_, why = line_for(UNTESTED, runtime, f"{op}-{t}") or [None]
            if not why or why == CONFORMANCE and not shown_by_conformance(runtime, op):
                failed = True
                print(f"UNTESTED {runtime} {op}-{t}: it claims the operator, and no case has this type" + (f"; not true: {why}" if why else ""))
    if only_refused:
        print(f"{runtime} refuses each case of {len(only_refused)} pairs: {' '.join(only_refused)}")
    return failed


def print_coverage(runtime, table, reasons):
    """A line for each operator: its types, with what became of their cases."""
    marks = {"right": "", "fails": "f", "listed": "d", "refused": "-", "excepted": "e", "WRONG": "!"}
    for op in sorted({op for op, _ in table}):
        cells = []
        for t in TYPES:
            if counts := table.get((op, t)):
                why = f" ({', '.join(sorted(reasons[op, t]))})" if reasons[op, t] else ""
                cells.append(t + ":" + " ".join(f"{n}{marks[what]}" for what, n in sorted(counts.items()) if n) + why)
        print(f"  {runtime} {op}  {'  '.join(cells)}")


if __name__ == "__main__":
    main()
