//! The kind `audio` on ALSA's plugins `null` and `file`, which need no card.

use crate::program::{Folder, Ran};
use std::fs;
use std::path::Path;

/// Runs a graph of which the sound devices are files: `played` writes out.raw, and `heard` reads
/// in.raw.
fn run(folder: &Folder, words: &str) -> Ran {
    let path = |name: &str| folder.0.join(name).display().to_string();
    let config = format!(
        "</usr/share/alsa/alsa.conf>\npcm.played {{ type file; slave.pcm null; file \"{}\"; format raw }}\n\
         pcm.heard {{ type file; slave.pcm null; file /dev/null; infile \"{}\"; format raw }}\n",
        path("out.raw"),
        path("in.raw")
    );
    fs::write(folder.0.join("alsa.conf"), config).unwrap();
    Ran::from(folder.command(words).env("ALSA_CONFIG_PATH", path("alsa.conf")).output().unwrap())
}

/// A WAV file of 16 bits, and its samples.
fn wav(path: &Path, channels: u16, rate: u32, frames: usize) -> Vec<u8> {
    let samples: Vec<i16> = (0..frames * usize::from(channels)).map(|n| (n * n * 31 + n) as i16).collect();
    fs::write(path, limen_tests::files::wav(channels, rate, &samples)).unwrap();
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

#[test]
fn every_sample_is_played_and_heard() {
    // The last message is shorter.
    for (format, frames) in [("s16", 512), ("s16", 40_000), ("f32", 999), ("s32", 1)] {
        let graph = format!(
            "version: 1
nodes:
  a: {{ kind: wav, config: {{ path: a.wav, frames: {frames} }} }}
  out: {{ kind: audio, from: a, config: {{ pcm: played, sample_rate: 16kHz, format: {format} }} }}
"
        );
        let folder = Folder::with("played", &graph);
        let samples = wav(&folder.0.join("a.wav"), 2, 16_000, 10_001);
        let ran = run(&folder, "graph.yaml --allow-path /dev --json");
        let metrics = ran.expect(0, "", "").json()["metrics"].clone();
        let value = |name: &str| metrics[name].as_f64();
        assert_eq!((value("out.frames"), value("out.drained")), (Some(10_001.0), Some(1.0)), "{metrics}");
        assert_eq!(
            (value("out.unsent"), value("out.unplayed"), value("out.underruns")),
            (Some(0.0), Some(0.0), Some(0.0))
        );
        let played = fs::read(folder.0.join("out.raw")).unwrap();
        let expected: Vec<u8> = samples
            .as_chunks()
            .0
            .iter()
            .flat_map(|sample| {
                let sample = i16::from_le_bytes(*sample);
                match format {
                    "s16" => sample.to_le_bytes().to_vec(),
                    "s32" => (i32::from(sample) << 16).to_le_bytes().to_vec(),
                    _ => (f32::from(sample) / 32_768.0).to_le_bytes().to_vec(),
                }
            })
            .collect();
        assert!(played == expected, "{format}: {} bytes of {}", played.len(), expected.len());
    }
}

#[test]
fn sound_of_a_device_is_that_of_a_file() {
    let graph = "version: 1
nodes:
  mic: { kind: audio, config: { pcm: heard, sample_rate: 16kHz, format: s16, CHANNELS, frames: 250, context: 50 } }
  file: { kind: wav, config: { path: a.wav, frames: 250, context: 50, tail: pad } }
  heard: { kind: npy, from: mic, config: { path: heard.npy } }
  read: { kind: npy, from: file, config: { path: read.npy } }
";
    for channels in ["channels: 2", "channels: all", "buffer: 10ms"] {
        let folder = Folder::with("heard", &graph.replace("CHANNELS", channels));
        let samples = wav(&folder.0.join("a.wav"), 2, 16_000, 10_000);
        fs::write(folder.0.join("in.raw"), samples).unwrap();
        run(&folder, "graph.yaml --allow-path /dev --frames 40").expect(0, "", "");
        let array = |name: &str| fs::read(folder.0.join(name)).unwrap();
        assert!(array("heard.npy") == array("read.npy"), "{channels}");
    }
    let folder = Folder::with("mono", &graph.replace("CHANNELS", "channels: mono"));
    wav(&folder.0.join("a.wav"), 1, 16_000, 10_000);
    fs::write(folder.0.join("in.raw"), wav(&folder.0.join("b.wav"), 1, 16_000, 10_000)).unwrap();
    run(&folder, "graph.yaml --allow-path /dev --frames 40").expect(0, "", "");
    let array = |name: &str| fs::read(folder.0.join(name)).unwrap();
    assert!(array("heard.npy") == array("read.npy"));
}

#[test]
fn what_a_device_lacks_is_refused_with_what_it_has() {
    let graph = "version: 1
nodes:
  mic: { kind: audio, config: { pcm: 'null', sample_rate: 9MHz, channels: 300, frames: 0, buffer: 1us, timeout: 1ms } }
  a: { kind: audio, config: { pcm: nowhere, frames: 10 } }
  out: { kind: audio, from: mic, config: { pcm: 'null', sample_rate: 0.5Hz } }
  b: { kind: 'null', from: a }
";
    let ran = run(&Folder::with("lacks", graph), "graph.yaml --allow-path /dev --check");
    ran.expect(2, "", "`channels` must be 1 to 256, got 300").expect(2, "", "`frames` must be 1 to 1048576, got 0");
    ran.expect(2, "", "write 100ms or more").expect(2, "", "got 0.5");
    ran.expect(2, "", "nowhere").expect(2, "", "write a device that `limen-run doctor` lists");
    // Nothing of the library's own goes to stderr.
    assert!(!ran.err.contains("ALSA lib"), "{}", ran.err);
    let graph = "version: 1
nodes:
  mic: { kind: audio, config: { pcm: narrow, sample_rate: 8kHz, channels: 3, frames: 10, format: s16 } }
  out: { kind: 'null', from: mic }
";
    let folder = Folder::with("narrow", graph);
    let config = "</usr/share/alsa/alsa.conf>\npcm.narrow { type linear; slave { pcm null; format S32_LE } }\n";
    fs::write(folder.0.join("narrow.conf"), config).unwrap();
    let mut command = folder.command("graph.yaml --allow-path /dev --plan");
    let ran = Ran::from(command.env("ALSA_CONFIG_PATH", folder.0.join("narrow.conf")).output().unwrap());
    ran.expect(0, "narrow: 8000 Hz, s16, channels: 3", "");
}
