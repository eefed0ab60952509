"""Write `sound.wav`, `truth.csv`, `weights.npz` and `expected.csv`: voice in noise, and what the graph hears of it.

The sound is made like speech: syllables of a pulse train through the resonances of vowels, some after a hiss, in phrases with
pauses, over noise that gets louder from section to section (20, 15, 10 and 5 dB below the voice). The weights are learned from
other sounds of that kind, by logistic regression. What the graph should give is computed here by numpy alone.

    pip install numpy
    python make.py
"""

import wave
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RATE, HOP, LENGTH, MELS, LOWEST = 8000, 80, 200, 20, 100.0
SECTION, RATIOS = 4.0, [20, 15, 10, 5]
CUTOFF, FRAMES_A_SECOND = 5.0, RATE / HOP
AT, RELEASE = 0.3, -1.0
# First two resonances of some vowels in Hz.
VOWELS = [(730, 1090), (270, 2290), (300, 870), (530, 1840), (570, 840), (440, 1020)]


def resonance(x, frequency, width):
    """A resonator of two poles."""
    radius = np.exp(-np.pi * width / RATE)
    a1, a2 = -2 * radius * np.cos(2 * np.pi * frequency / RATE), radius * radius
    y = np.zeros(len(x) + 2)
    for n, sample in enumerate(x):
        y[n + 2] = sample - a1 * y[n + 1] - a2 * y[n]
    return y[2:]


def syllable(rng):
    """A vowel of a tenth to a third of a second, with a hiss before it in one case of three."""
    length = int(rng.uniform(0.12, 0.32) * RATE)
    pitch = rng.uniform(95, 210) * np.exp(np.cumsum(rng.normal(0, 0.002, length)))
    pulses = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0)
    first, second = VOWELS[rng.integers(len(VOWELS))]
    vowel = resonance(pulses, first, 80) / 4 + resonance(pulses, second, 120) / 8 + resonance(pulses, 2900, 200) / 16
    vowel *= np.sin(np.pi * (np.arange(length) + 0.5) / length) ** 0.5
    vowel /= np.sqrt(np.mean(vowel**2))
    if rng.random() < 1 / 3:
        hiss = rng.normal(0, 0.5, int(rng.uniform(0.04, 0.08) * RATE))
        vowel = np.concatenate([np.diff(hiss, prepend=0) * 0.5, vowel])
    return vowel


def phrase(rng):
    parts = []
    for _ in range(rng.integers(3, 6)):
        parts += [syllable(rng) * rng.uniform(0.7, 1.0), np.zeros(int(rng.uniform(0.02, 0.06) * RATE))]
    return np.concatenate(parts[:-1])


def sound(seed):
    """Samples as int16, and where voice is: begin and end of each phrase in samples."""
    rng = np.random.default_rng(seed)
    total = int(len(RATIOS) * SECTION * RATE)
    voice, spans, at = np.zeros(total), [], int(rng.uniform(0.4, 0.8) * RATE)
    while True:
        spoken = phrase(rng)
        if at + len(spoken) > total - RATE // 4:
            break
        voice[at : at + len(spoken)] = spoken
        spans.append((at, at + len(spoken)))
        at += len(spoken) + int(rng.uniform(0.5, 1.1) * RATE)
    # Noise of a room: more below than above.
    noise = np.zeros(total)
    white = rng.normal(0, 1, total)
    for n in range(1, total):
        noise[n] = 0.6 * noise[n - 1] + white[n]
    noise /= np.sqrt(np.mean(noise**2))
    gain = np.repeat(10 ** (-np.array(RATIOS) / 20), int(SECTION * RATE))
    return np.round(np.clip(4500 * (voice + gain * noise), -32768, 32767)).astype(np.int16), spans


def bands():
    """The triangles of `librosa.filters.mel(sr=RATE, n_fft=LENGTH, n_mels=MELS, fmin=LOWEST)`."""
    step, knee, growth = 200 / 3, 1000.0, np.log(6.4) / 27
    to_mel = lambda f: np.where(f < knee, f / step, knee / step + np.log(np.maximum(f, knee) / knee) / growth)
    to_hz = lambda m: np.where(m < knee / step, m * step, knee * np.exp(growth * (m - knee / step)))
    edges = to_hz(np.linspace(to_mel(LOWEST), to_mel(RATE / 2), MELS + 2))
    at = np.fft.rfftfreq(LENGTH, 1 / RATE)
    up = (at - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - at) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def log_mel(samples):
    x = samples / 32768
    frames = np.lib.stride_tricks.sliding_window_view(x, LENGTH)[::HOP]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(LENGTH) / LENGTH)
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    return np.log(np.maximum(power @ bands().T, 1e-10))


def is_voice(spans, frames):
    """Whether the middle of each frame lies in a phrase."""
    middle = np.arange(frames) * HOP + LENGTH / 2
    return np.any([(begin <= middle) & (middle < end) for begin, end in spans], axis=0)


def learn(seeds):
    """Weights of the bands and a bias. The weights add up to 0, so that the gain of the microphone has no influence."""
    heard = [(log_mel(samples), spans) for samples, spans in map(sound, seeds)]
    x = np.concatenate([features for features, _ in heard])
    y = np.concatenate([is_voice(spans, len(features)) for features, spans in heard])
    x = x - x.mean(axis=1, keepdims=True)
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    z, weight, bias = (x - mean) / deviation, np.zeros(MELS), 0.0
    for _ in range(3000):
        error = 1 / (1 + np.exp(-(z @ weight + bias))) - y
        weight -= 0.3 * (z.T @ error / len(y) + 1e-3 * weight)
        bias -= 0.3 * error.mean()
    weight = weight / deviation
    bias -= weight @ mean
    return (weight - weight.mean()).astype(np.float32)[None], np.array([bias], np.float32)


def smooth(x):
    """A Butterworth low-pass of second order."""
    k = np.tan(np.pi * CUTOFF / FRAMES_A_SECOND)
    scale = 1 / (1 + np.sqrt(2) * k + k * k)
    b = np.array([1, 2, 1]) * k * k * scale
    a1, a2 = 2 * (k * k - 1) * scale, (1 - np.sqrt(2) * k + k * k) * scale
    y, s1, s2 = np.zeros(len(x)), 0.0, 0.0
    for n, v in enumerate(x):
        y[n] = b[0] * v + s1
        s1, s2 = b[1] * v - a1 * y[n] + s2, b[2] * v - a2 * y[n]
    return y


def main():
    samples, spans = sound(0)
    with wave.open(str(HERE / "sound.wav"), "wb") as out:
        out.setparams((1, 2, RATE, len(samples), "NONE", ""))
        out.writeframes(samples.astype("<i2").tobytes())
    with open(HERE / "truth.csv", "w", newline="\n") as out:
        out.write("begin,end\n")
        out.writelines(f"{begin / RATE:.4f},{end / RATE:.4f}\n" for begin, end in spans)
    weight, bias = learn(range(1, 9))
    np.savez(HERE / "weights.npz", weight=weight, bias=bias)

    level = smooth((log_mel(samples) @ weight.T + bias)[:, 0])
    voice, now = [], 0
    for value in level:
        now = int(value >= (RELEASE if now else AT))
        voice.append(now)
    # The first frame is complete with the third message.
    with open(HERE / "expected.csv", "w", newline="\n") as out:
        out.write("seq,voice_0,level_0\n")
        out.writelines(f"{seq},{v},{x:.4f}\n" for seq, v, x in zip(range(2, 2 + len(level)), voice, level))
    margin = min(np.abs(level - AT).min(), np.abs(level - RELEASE).min())
    print(f"{len(level)} frames, {len(spans)} phrases, {np.mean(is_voice(spans, len(level))):.0%} voice, least margin {margin:.5f}")


if __name__ == "__main__":
    main()
