//! The attributes of convolutions and pools that ONNX infers, written out, for runtimes that expect
//! them.

use super::edit::{ints, replace_nodes};
use super::known_dims::KnownDims;
use super::wire;
use prost::Message;

/// The most dims of a window.
const MAX_DIMS: usize = 8;

/// Returns the file of a model in which each node with one of these operators has its `strides`,
/// and its `dilations` and `pads` where ONNX has them; `None` if none lacks any. The window of a
/// convolution is that of its weights, as far as the file says their dims.
pub(crate) fn with_window_attributes(file: &[u8], ops: &[&str]) -> Option<Vec<u8>> {
    let graph = wire::Model::decode(file).ok()?.graph?;
    let dims = KnownDims::of(&graph);
    replace_nodes(file, &graph, |node| {
        if !matches!(&*node.domain, "" | "ai.onnx") || !ops.contains(&&*node.op) {
            return None;
        }
        let has =
            |name: &str| node.attributes.iter().any(|a| a.name == name && (!a.ints.is_empty() || !a.text.is_empty()));
        let given = |name: &str| node.attributes.iter().find(|a| a.name == name).map(|a| &*a.ints);
        let is_pool = node.op.ends_with("Pool");
        let weights = || Some(dims.get(node.inputs.get(1)?)?.get(2..)?.to_vec());
        let window = given("kernel_shape").filter(|dims| !dims.is_empty());
        let window: Option<Vec<Option<i64>>> = window.map(|window| window.iter().copied().map(Some).collect());
        let window = window.or_else(|| if is_pool { None } else { weights() })?;
        let rank = Some(window.len()).filter(|rank| (1..=MAX_DIMS).contains(rank))?;
        let mut added = Vec::new();
        let mut add = |name: &str, numbers: &[i64]| {
            if !has(name) {
                added.push(ints(name, numbers));
            }
        };
        if let Some(window) = window.into_iter().collect::<Option<Vec<i64>>>() {
            add("kernel_shape", &window);
        }
        add("strides", &vec![1; rank]);
        // Average pools have them since operator set 19.
        if node.op != "AveragePool" {
            add("dilations", &vec![1; rank]);
        }
        let is_explicit = node.attributes.iter().all(|a| a.name != "auto_pad" || *a.text == *b"NOTSET");
        let is_given = node.attributes.iter().any(|a| a.name == "output_shape" && !a.ints.is_empty());
        if is_explicit && !is_given {
            add("pads", &vec![0; 2 * rank]);
        }
        let names: Vec<String> = added.iter().map(|attribute| attribute.name.clone()).collect();
        let mut node = node.clone();
        node.attributes.retain(|attribute| !names.contains(&attribute.name));
        node.attributes.extend(added);
        (!names.is_empty()).then(|| vec![node])
    })
}

#[cfg(test)]
mod tests {
    use super::with_window_attributes;
    use crate::onnx::test_models::{floats, model};
    use crate::onnx::wire;
    use prost::Message;
    use rten_onnx::onnx::DataType as D;

    #[test]
    fn only_what_is_left_out_is_added() {
        let (x, y) = (("x", D::FLOAT, &["n", "1", "l"][..]), ("y", D::FLOAT, &["n", "1", "l"][..]));
        let weights = floats("w", &[1, 1, 2], &[1.0, 2.0]);
        for (node, expected) in [
            ("y = Conv x w", Some("kernel_shape [2] strides [1] dilations [1] pads [0, 0]")),
            ("y = Conv x w strides=2", Some("strides [2] kernel_shape [2] dilations [1] pads [0, 0]")),
            ("y = Conv x w auto_pad=:SAME_UPPER", Some("auto_pad [] kernel_shape [2] strides [1] dilations [1]")),
            ("y = Conv x w kernel_shape=2 strides=1 dilations=1 pads=1,1", None),
            ("y = Conv x other", None),
            ("y = Conv x v", Some("strides [1] dilations [1] pads [0, 0]")),
            ("y = MaxPool x kernel_shape=3", Some("kernel_shape [3] strides [1] dilations [1] pads [0, 0]")),
            ("y = AveragePool x kernel_shape=3", Some("kernel_shape [3] strides [1] pads [0, 0]")),
            ("y = Relu x", None),
        ] {
            let file = model(&[x, ("v", D::FLOAT, &["1", "1", "k"])], &[y], std::slice::from_ref(&weights), &[node]);
            let edited = with_window_attributes(&file, &["Conv", "MaxPool", "AveragePool"]);
            let found = edited.map(|file| {
                let node = &wire::Model::decode(&*file).unwrap().graph.unwrap().nodes[0];
                let one = |a: &wire::Attribute| format!("{} {:?}", a.name, a.ints);
                node.attributes.iter().map(one).collect::<Vec<_>>().join(" ")
            });
            assert_eq!(found.as_deref(), expected, "{node}");
        }
    }
}
