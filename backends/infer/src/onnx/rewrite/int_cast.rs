//! A cast of a float to `int64`, for runtimes that compute `int64` in 32 bits and check for
//! overflow: the result plus 1, minus 2, plus 1.
//!
//! Such a runtime gives the nearest number of 32 bits for one that does not fit. At either end of
//! the range one of the additions overflows, so the call fails. The two numbers at the ends fail it
//! too.

use super::edit::{constant, list, made, replace_nodes};
use super::elems::{BOOL, INT64, elems_everywhere};
use super::wire;
use prost::Message;

/// How many operators longer each node makes the longest chain.
pub(crate) const LONGER: usize = 3;

/// Returns the file of a model whose casts to `int64` fail beyond 32 bits; `None` if there is none.
pub(crate) fn with_checked_casts(file: &[u8]) -> Option<Vec<u8>> {
    let graph = wire::Model::decode(file).ok()?.graph?;
    let elems = elems_everywhere(&graph);
    let elem = |name: &String| elems.get(name).copied();
    replace_nodes(file, &graph, |node| {
        let is_cast = match node.op.as_str() {
            "Cast" => node.attributes.iter().any(|a| a.name == "to" && a.int == Some(i64::from(INT64))),
            "CastLike" => node.inputs.get(1).is_some_and(|like| elem(like) == Some(INT64)),
            _ => false,
        };
        let (x, y) = (node.inputs.first()?, node.outputs.first()?);
        let is_whole = || matches!(elem(x), Some(2..=INT64 | BOOL));
        (matches!(&*node.domain, "" | "ai.onnx") && is_cast && !is_whole()).then(|| checked(node, y))
    })
}

fn checked(node: &wire::Node, y: &str) -> Vec<wire::Node> {
    let named = |what: &str| format!("{y}/int64/{what}");
    let [one, two, cast, above, below] = ["one", "two", "cast", "above", "below"].map(named);
    let plain = |op: &str, a: &str, b: &str, to: &str| made(op, &[a, b], to, Vec::new());
    let scalar = |number: i64| wire::Tensor { dims: Vec::new(), ..list(&[number]) };
    vec![
        constant(&one, scalar(1)),
        constant(&two, scalar(2)),
        wire::Node { outputs: vec![cast.clone()], ..node.clone() },
        plain("Add", &cast, &one, &above),
        plain("Sub", &above, &two, &below),
        plain("Add", &below, &one, y),
    ]
}

#[cfg(test)]
mod tests {
    use super::with_checked_casts;
    use crate::onnx::test_models::{ints, model};
    use crate::onnx::wire;
    use prost::Message;
    use rten_onnx::onnx::DataType as D;

    #[test]
    fn only_casts_of_floats_to_int64_are_checked() {
        let (x, y) = (("x", D::FLOAT, &["n"][..]), ("y", D::INT64, &["n"][..]));
        let ops = |nodes: &[&str]| {
            let file = with_checked_casts(&model(&[x], &[y], &[ints("l", &[1])], nodes))?;
            let graph = wire::Model::decode(&*file).unwrap().graph.unwrap();
            Some(graph.nodes.into_iter().map(|node| node.op).collect::<Vec<_>>().join(" "))
        };
        let checked = Some("Constant Constant Cast Add Sub Add".to_string());
        assert_eq!(ops(&["y = Cast x to==7"]), checked);
        assert_eq!(ops(&["y = CastLike x l"]), checked.clone().map(|ops| ops.replace("Cast ", "CastLike ")));
        assert_eq!(ops(&["a = Unknown x", "y = Cast a to==7"]), checked.map(|ops| format!("Unknown {ops}")));
        assert_eq!(ops(&["a = Shape x", "y = Cast a to==7"]), None);
        assert_eq!(ops(&["a = Greater x x", "y = Cast a to==7"]), None);
        assert_eq!(ops(&["y = Cast x to==6"]), None);
        let file = model(&[x], &[y], &[], &["y = Cast x to==7"]);
        (0..file.len()).for_each(|length| _ = with_checked_casts(&file[..length]));
    }
}
