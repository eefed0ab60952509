//! Sound devices: what a graph may name.

use super::refused;

/// Whether or not libasound is linked.
#[test]
fn names_that_open_files_or_programs_are_refused_and_so_are_devices_that_are_not_allowed() {
    let graph = |device: &str| {
        format!(
            "
  mic: {{ kind: audio, config: {{ pcm: '{device}', frames: 0, sample_rate: 0.5Hz, channels: 0 }} }}
  out: {{ kind: audio, config: {{ pcm: '{device}', sample_rate: 16kHz, buffer: 1us }}, from: wav }}
  wav: {{ kind: synthetic, config: {{ pattern: counter, dtype: f32, shape: [16, 2] }} }}
  b: {{ kind: 'null', from: mic }}"
        )
    };
    for device in ["file:FILE=|reboot,FORMAT=raw", "tee:hw,x,raw"] {
        refused(&graph(device), &["an argument could open a file or start a program", "~/.asoundrc"]);
    }
    refused(&graph("{ type hw }"), &["is not the name of a sound device"]);
    let problems = [
        "`frames` must be 1 to 1048576, got 0",
        "from 1 to 10 million, got 0.5",
        "`channels` must be 1 to 256, got 0",
        "`buffer` must be 1ms to 10s, got ",
    ];
    refused(&graph("default"), &problems);
    refused(&graph("default"), &["`--allow-path /dev`"]);
}
