"""Operators on images and boxes."""
import itertools

import numpy as np

from .values import C, FLOATS, TYPES, build, some


@build("DepthToSpace SpaceToDepth")
def depth(t, op):
    if op == "DepthToSpace":
        for mode in ("DCR", "CRD"):
            yield mode, [some(t, 1, 8, 2, 3)], {"blocksize": 2, "mode": mode}
    yield "plain", [some(t, 1, 8, 2, 4)], {"blocksize": 2}


@build("Resize")
def resize(t, op):
    x = some(t, 1, 1, 4, 5)
    none, roi = C(np.zeros(0, np.float32)), None
    for mode in ("nearest", "linear", "cubic"):
        if mode != "nearest" and t not in FLOATS:
            continue
        for how in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
            for at, scales in enumerate(([1, 1, 2, 2], [1, 1, 0.5, 0.6], [1, 1, 1.5, 1])):
                yield f"{mode}_{how}_s{at}", [x, roi, C(np.array(scales, np.float32))], {"mode": mode, "coordinate_transformation_mode": how}
            yield f"{mode}_{how}_sizes", [x, roi, None, C([1, 1, 3, 8])], {"mode": mode, "coordinate_transformation_mode": how}
            yield f"{mode}_{how}_one", [x, roi, None, C([1, 1, 1, 1])], {"mode": mode, "coordinate_transformation_mode": how}
    for how in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        for mode in ("half_pixel", "asymmetric", "align_corners"):
            for at, scales in enumerate(([1, 1, 2, 3], [1, 1, 0.5, 0.7])):
                yield f"nearest_{how}_{mode}{at}", [x, roi, C(np.array(scales, np.float32))], {
                    "mode": "nearest", "nearest_mode": how, "coordinate_transformation_mode": mode}
    if t in FLOATS:
        yield "antialias", [x, roi, C(np.array([1, 1, 0.5, 0.5], np.float32))], {"mode": "linear", "antialias": 1}
        yield "cubic_coeff", [x, roi, C(np.array([1, 1, 2, 2], np.float32))], {"mode": "cubic", "cubic_coeff_a": -0.5}
        yield "cubic_exclude", [x, roi, C(np.array([1, 1, 2, 2], np.float32))], {"mode": "cubic", "exclude_outside": 1}
        yield "crop", [x, C(np.array([0, 0, 0.4, 0.6, 1, 1, 0.6, 1.2], np.float32)), None, C([1, 1, 3, 3])], {
            "mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
        yield "axes", [x, roi, C(np.array([2, 2], np.float32))], {"mode": "linear", "axes": [2, 3]}
        yield "larger", [x, roi, None, C([8, 7])], {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}
        yield "half_symmetric", [x, roi, C(np.array([1, 1, 0.6, 0.6], np.float32))], {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}
        yield "rank3", [some(t, 1, 2, 5), roi, C(np.array([1, 1, 2], np.float32))], {"mode": "linear"}
        yield "old", [x, C(np.array([1, 1, 2, 2], np.float32))], {"mode": "nearest"}, {"opset": 10}
        yield "old_linear", [x, C(np.array([1, 1, 2, 2], np.float32))], {"mode": "linear"}, {"opset": 10}


@build("Upsample")
def upsample(t, op):
    for mode in ("nearest", "linear"):
        if mode == "nearest" or t in FLOATS:
            yield mode, [some(t, 1, 1, 3, 4), C(np.array([1, 1, 2, 3], np.float32))], {"mode": mode}, {"opset": 9}


@build("GridSample")
def grid_sample(t, op):
    if t not in FLOATS:
        # How interpolated integers are rounded is open.
        return
    grid = np.random.default_rng(4).uniform(-1.3, 1.3, (1, 3, 4, 2)).astype(np.float32)
    for mode, padding, corners in itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)):
        yield f"{mode}_{padding}{corners}", [some(t, 1, 2, 4, 5), C(grid)], {"mode": mode, "padding_mode": padding, "align_corners": corners}, {"opset": 20}
    yield "old", [some(t, 1, 2, 4, 5), C(grid)], {}, {"opset": 16}


@build("NonMaxSuppression")
def non_max_suppression(t, op):
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]], np.float32)
    scores = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3]]], np.float32)
    limits = [C([3]), C(np.array([0.5], np.float32)), C(np.array([0.0], np.float32))]
    yield "one", [boxes, scores, *limits], {}
    yield "classes", [boxes, np.concatenate([scores, scores[:, :, ::-1]], 1), *limits], {}
    yield "flipped", [boxes[:, :, [2, 3, 0, 1]].copy(), scores, *limits], {}
    yield "centre", [np.array([[[0.5, 0.5, 1, 1], [0.5, 0.6, 1, 1], [0.5, 10.5, 1, 1]]], np.float32), scores[:, :, :3].copy(), *limits], {"center_point_box": 1}


@build("RoiAlign MaxRoiPool")
def roi(t, op):
    x, rois = some(t, 1, 2, 6, 6), np.array([[0, 0, 3, 3], [1, 2, 5, 5]], np.float32)
    if op == "MaxRoiPool":
        yield "plain", [x, C(np.concatenate([np.zeros((2, 1), np.float32), rois], 1))], {"pooled_shape": [2, 2]}
        return
    for mode in ("avg", "max"):
        yield mode, [x, C(rois.astype(TYPES[t])), C([0, 0])], {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "mode": mode}
