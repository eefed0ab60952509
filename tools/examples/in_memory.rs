//! A model and weights that are in the program, and not in files: the model as a decrypted or
//! downloaded one would be, the weights from numbers.

use limen::{Connection, GraphBuilder, NodeBuilder, Plan, Spec, Tensor};
use std::collections::BTreeMap;
use std::time::Duration;

const GRAPH: &str = "
version: 1
nodes:
  images: { kind: inlet, config: { spec: \"f32[1,8,8]\" } }
  digit: { kind: infer, config: { model: \"mem:digits.onnx\", verify: { case: \"mem:verify.npz\" } }, from: images }
  best: { kind: linear, config: { weight: { file: \"mem:sums\", dtype: f32, shape: [2, 10] } }, from: digit }
  sums: { kind: outlet, config: { hold: 4 }, from: best }
";

/// Part of the program.
static CASE: &[u8] = include_bytes!("../../graphs/digits/verify.npz");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Models are tried in another process, which gets the bytes too.
    let registry = limen_run::registry();
    limen_infer::trial::serve(&registry);
    let model = include_bytes!("../../graphs/digits/digits.onnx").to_vec();
    // A row of ones and a row of halves.
    let weights: Vec<u8> = [[1.0f32; 10], [0.5; 10]].concat().into_iter().flat_map(f32::to_le_bytes).collect();
    let spec = Spec::from_text(GRAPH, "graph.yaml")?
        .with_file("digits.onnx", model)
        .with_file("verify.npz", CASE)
        .with_file("sums", weights.clone());

    let plan = Plan::new(spec, &registry)?;
    // The model's bytes are gone, the weights stay for a restart of their node.
    assert_eq!(plan.memory().files, weights.capacity());
    let mut graph = plan.wire()?;
    let mut images = graph.inlet::<Tensor>("images")?;
    let mut sums = graph.outlet::<Tensor>("sums")?;
    let running = graph.start()?;
    let mut image = images.loan(&images.header())?;
    image.as_mut_slice::<f32>()?.fill(0.5);
    images.send(image)?;
    let sum = sums.recv_timeout(Duration::from_secs(10))?;
    let sum = sum.body.as_slice::<f32>()?;
    assert!((sum[0] - 2.0 * sum[1]).abs() < 1e-3, "{sum:?}");
    drop(images);
    assert_eq!(running.wait().exit_code(), 0);

    // The same with a builder; `constant` gives an input of a model the same value in every call.
    let config = BTreeMap::from([("model", "mem:voice.onnx")]);
    let voice = NodeBuilder::new("infer").config(config).input("sound", Connection::new("mic")).constant("sr", 16000);
    println!("{}", GraphBuilder::new("voice").node("voice", voice).to_yaml());
    Ok(())
}
