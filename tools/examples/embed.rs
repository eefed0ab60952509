//! A graph inside a program: the program sends frames, receives results, taps an output in between,
//! changes a setting, and stops the graph.

use limen::{Drain, Message, Plan, RecvError, SendError, Spec, Tensor};
use std::thread;
use std::time::Duration;

const GRAPH: &str = "
version: 1
graph: classes
nodes:
  frames: { kind: inlet, config: { spec: \"u8[48,64,3]\", layout: hwc } }
  gate: { kind: gate, from: frames }
  small: { kind: resize, config: { width: 8, height: 8 }, from: gate }
  pixels: { kind: to_tensor, config: { dtype: f32, layout: nchw, range: [0, 1] }, from: small }
  model:
    kind: infer
    config:
      backend: mock
      mock: { inputs: { image: \"f32[3,8,8]\" }, outputs: { scores: \"f32[10]\" } }
      batch: { max: 4, within: 1ms }
    from: pixels
  best: { kind: argmax, from: model }
  labels: { kind: outlet, config: { hold: 16 }, from: best/index }
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = Plan::new(Spec::from_text(GRAPH, "classes.yaml")?, &limen_run::registry())?;
    let mut graph = plan.wire()?;
    let mut frames = graph.inlet::<Tensor>("frames")?;
    let mut labels = graph.outlet::<Tensor>("labels")?;
    let mut pixels = graph.tap::<Tensor>("pixels")?;
    let running = graph.start()?;

    // A simulated camera on a thread of its own: loan, write, send.
    let camera = thread::spawn(move || {
        for n in 0.. {
            let mut frame = frames.loan(&frames.header()).expect("one is on loan at a time");
            frame.bytes_mut().fill(n as u8);
            match frames.send(frame) {
                Ok(()) => {}
                Err(SendError::Closed(_)) => return n,
                Err(error) => panic!("{error}"),
            }
        }
        0
    });
    for _ in 0..200 {
        let label: Message<Tensor> = labels.recv_timeout(Duration::from_secs(10))?;
        assert_eq!(label.body.as_slice::<i32>()?, [9]);
    }
    let seen = pixels.recv_timeout(Duration::from_secs(10))?;
    println!("frame {} as the model sees it: {:?}", seen.header().seq, seen.body);

    running.set("gate", "open", 0.0)?;
    for node in running.stats() {
        println!("{:8} {} calls", node.node, node.done);
    }

    // A stop drains what was accepted, so the program has to keep receiving, or drop the outlet.
    let taker = thread::spawn(move || {
        loop {
            match labels.recv() {
                Ok(_) => {}
                Err(RecvError::Ended) => return,
                Err(error) => panic!("{error}"),
            }
        }
    });
    let report = running.stop(Drain::within(Duration::from_secs(10)));
    taker.join().expect("the taker ends with the stream");
    let accepted = camera.join().expect("the camera ends with the run");
    println!("{accepted} frames were accepted");
    print!("{}", limen_run::show_report(&report, limen_run::Detail::Usual));
    assert!(report.bugs.is_empty() && report.exit_code() == 0);
    Ok(())
}
