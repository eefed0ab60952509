//! A cast to `bool`, for runtimes that keep bools as integers and cut off fractions:
//! `Not(Equal(x, 0))`.

use super::edit::{constant, int, made, number, replace_nodes};
use super::elems::{BOOL, FLOAT, elems_everywhere};
use super::wire;
use prost::Message;

/// How many operators longer each node makes the longest chain.
pub(crate) const LONGER: usize = 2;

/// Returns the file of a model with a comparison for each `Cast` to `bool`, and for each `CastLike`
/// a tensor that is known to be `bool`; `None` if there is none.
pub(crate) fn without_bool_casts(file: &[u8]) -> Option<Vec<u8>> {
    let graph = wire::Model::decode(file).ok()?.graph?;
    let elems = elems_everywhere(&graph);
    let is_bool = |node: &wire::Node| match node.op.as_str() {
        "Cast" => node.attributes.iter().any(|a| a.name == "to" && a.int == Some(i64::from(BOOL))),
        "CastLike" => node.inputs.get(1).is_some_and(|like| elems.get(like) == Some(&BOOL)),
        _ => false,
    };
    replace_nodes(file, &graph, |node| {
        let (x, y) = (node.inputs.first()?, node.outputs.first()?);
        (matches!(&*node.domain, "" | "ai.onnx") && is_bool(node)).then(|| {
            let named = |what: &str| format!("{y}/bool/{what}");
            // As floats all types compare with one zero. None becomes 0 but a 0, and a NaN differs
            // from it.
            vec![
                constant(&named("zero"), number(0.0)),
                made("Cast", &[x], &named("float"), vec![int("to", i64::from(FLOAT))]),
                made("Equal", &[&named("float"), &named("zero")], &named("is_zero"), Vec::new()),
                made("Not", &[&named("is_zero")], y, Vec::new()),
            ]
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::test_models::model;
    use rten_onnx::onnx::DataType as D;

    #[test]
    fn casts_to_bool_compare_with_zero() {
        let (x, b) = (("x", D::FLOAT, &["n"][..]), ("b", D::BOOL, &["n"][..]));
        let ops = |nodes: &[&str]| {
            let file = without_bool_casts(&model(&[x, b], &[("y", D::BOOL, &["n"])], &[], nodes))?;
            let graph = wire::Model::decode(&*file).unwrap().graph.unwrap();
            Some(graph.nodes.into_iter().map(|node| node.op).collect::<Vec<_>>().join(" "))
        };
        let compared = Some("Constant Cast Equal Not".to_string());
        assert_eq!(ops(&["y = Cast x to==9"]), compared);
        assert_eq!(ops(&["y = CastLike x b"]), compared);
        assert_eq!(ops(&["a = IsNaN x", "y = CastLike x a"]), Some("IsNaN Constant Cast Equal Not".into()));
        assert_eq!(ops(&["y = Cast x to==6"]), None);
        assert_eq!(ops(&["y = CastLike b x"]), None);
    }

    #[test]
    fn a_damaged_file_is_left_alone() {
        let file = model(&[("x", D::FLOAT, &["n"])], &[("y", D::BOOL, &["n"])], &[], &["y = Cast x to==9"]);
        (0..file.len()).for_each(|length| _ = without_bool_casts(&file[..length]));
        assert!(without_bool_casts(&file).is_some());
    }
}
