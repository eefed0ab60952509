//! The frames of `graphs/classify` through GStreamer: `appsrc ! videoscale ! appsink`, whose
//! callback normalises and calls the same library on the same model. `peers-classify [SECONDS]`,
//! from the workspace's root; beside it run `cargo bench -p limen-benches --bench infer`, which has
//! the loop by hand and limen.

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app::{AppSink, AppSinkCallbacks, AppSrc};
use hdrhistogram::Histogram;
use limen_benches::ByHand;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

thread_local! {
    // The sink's callback is called by one streaming thread; a session stays on its thread.
    static HAND: RefCell<Option<ByHand>> = const { RefCell::new(None) };
}

struct Seen {
    frames: u64,
    latencies: Histogram<u64>,
}

/// Runs for some seconds; frames per second, and p50 and p99 from when a frame was due, in ns.
fn run(queue: &str, rate: Option<f64>, seconds: f64) -> (f64, u64, u64) {
    let text = format!(
        "appsrc name=camera format=time block=true max-bytes=7372800 caps=video/x-raw,format=RGB,width=640,height=480,framerate=30/1 \
         ! videoscale method=bilinear ! video/x-raw,width=224,height=224 {queue} ! appsink name=end sync=false max-buffers=8"
    );
    let pipeline = gst::parse::launch(&text).expect("a pipeline").downcast::<gst::Pipeline>().expect("a pipeline");
    let camera = pipeline.by_name("camera").expect("named").downcast::<AppSrc>().expect("an appsrc");
    let end = pipeline.by_name("end").expect("named").downcast::<AppSink>().expect("an appsink");
    let latencies = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds");
    let seen = Arc::new(Mutex::new(Seen { frames: 0, latencies }));
    let counted = seen.clone();
    let begin = Instant::now();
    end.set_callbacks(
        AppSinkCallbacks::builder()
            .new_sample(move |end| {
                let sample = end.pull_sample().map_err(|_| gst::FlowError::Eos)?;
                let buffer = sample.buffer().ok_or(gst::FlowError::Error)?;
                let pixels = buffer.map_readable().map_err(|_| gst::FlowError::Error)?;
                HAND.with_borrow_mut(|hand| {
                    std::hint::black_box(hand.get_or_insert_with(ByHand::new).classify(&pixels));
                });
                let due = buffer.pts().map_or(0, gst::ClockTime::nseconds);
                let now = begin.elapsed().as_nanos() as u64;
                let mut seen = counted.lock().expect("nobody panics");
                seen.frames += 1;
                seen.latencies.saturating_record(now.saturating_sub(due).max(1));
                Ok(gst::FlowSuccess::Ok)
            })
            .build(),
    );
    pipeline.set_state(gst::State::Playing).expect("plays");
    let hand = ByHand::new();
    let mut n = 0u64;
    while begin.elapsed().as_secs_f64() < seconds {
        let due = match rate {
            Some(rate) => {
                let due = Duration::from_secs_f64(n as f64 / rate);
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
                due
            }
            None => begin.elapsed(),
        };
        let mut buffer = gst::Buffer::with_size(640 * 480 * 3).expect("a buffer");
        {
            let buffer = buffer.get_mut().expect("its only owner");
            buffer.set_pts(gst::ClockTime::from_nseconds(due.as_nanos() as u64));
            hand.draw(n as usize, &mut buffer.map_writable().expect("its only owner"));
        }
        camera.push_buffer(buffer).expect("it plays");
        n += 1;
    }
    camera.end_of_stream().expect("it plays");
    let bus = pipeline.bus().expect("has one");
    bus.timed_pop_filtered(gst::ClockTime::from_seconds(10), &[gst::MessageType::Eos, gst::MessageType::Error]);
    let wall = begin.elapsed().as_secs_f64();
    pipeline.set_state(gst::State::Null).expect("stops");
    let seen = seen.lock().expect("nobody panics");
    assert_eq!(seen.frames, n, "a frame is missing");
    (n as f64 / wall, seen.latencies.value_at_quantile(0.5), seen.latencies.value_at_quantile(0.99))
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(4.0);
    gst::init().expect("GStreamer");
    println!("{}; {}; {seconds} s a row", limen_benches::host(), gst::version_string());
    for (name, queue) in [("GStreamer, appsink", ""), ("GStreamer, a queue before the appsink", "! queue max-size-buffers=8")] {
        let (saturated, ..) = run(queue, None, seconds);
        let (_, p50, p99) = run(queue, Some(30.0), seconds);
        println!(
            "{name:44}{saturated:>10.1} frames/s; at 30 frames a second p50 {:.2} ms, p99 {:.2} ms",
            p50 as f64 / 1e6,
            p99 as f64 / 1e6
        );
    }
}
