#!/usr/bin/env python3
"""Trains small models on scikit-learn's digits, and writes them as ONNX files into a folder, with their inputs as `digits.npy`.

    python trained.py FOLDER
"""
import sys
from pathlib import Path

import lightgbm
import numpy as np
import onnxmltools
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    np.save(folder / "digits.npy", x)

    def save(name, model):
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())

    def convert(model, example=x[:1], **options):
        return to_onnx(model, example, options=options or None, target_opset=17)

    logistic = LogisticRegression(max_iter=2000).fit(x, y)
    forest = RandomForestClassifier(30, random_state=0).fit(x, y)
    mlp = make_pipeline(StandardScaler(), MLPClassifier((64,), max_iter=60, random_state=0)).fit(x, y)
    save("logistic", convert(logistic, zipmap=False))
    save("logistic_zipmap", convert(logistic))
    save("forest", convert(forest, zipmap=False))
    save("forest_zipmap", convert(forest))
    save("scaled_mlp", convert(mlp, zipmap=False))
    save("scaled_mlp_f64", convert(mlp, x[:1].astype(np.float64), zipmap=False))
    save("neighbours", convert(KNeighborsClassifier(3).fit(x[:400], y[:400]), zipmap=False))
    save("svc", convert(SVC(random_state=0).fit(x[:400], y[:400]), zipmap=False))
    save("boosted_regressor", convert(GradientBoostingRegressor(n_estimators=40, random_state=0).fit(x, y)))
    boosted = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, num_threads=1, deterministic=True).fit(x, y)
    save("lightgbm", onnxmltools.convert_lightgbm(boosted, initial_types=[("X", FloatTensorType([None, 64]))], zipmap=False, target_opset=15))


if __name__ == "__main__":
    main()
