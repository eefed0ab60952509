"""The cases of `operators.py`: for each operator and element type, inputs and attributes at which runtimes are known to differ.

A builder takes an element type and yields cases `(label, inputs, attributes[, options])`. An input is an array that a call passes, a
`C(array)` that is a constant of the model, or None. Options: `outputs` (their number), `opset`, `scale` (the size of the terms that an
output adds up, for its tolerance). `chains.py` has models of several operators.
"""
from . import elementwise, images, layout, products, reductions, signals, windows
from .chains import chains
from .values import BUILDERS, FLOATS, ONNX, TYPES, C
