//! `limen-run inspect`: describes a model or a weights file, as text and as the manifest that a
//! graph names.

use crate::text::escape::one_line;
use crate::text::paragraph::{paragraph, width};
use crate::text::table::{NAME, Table, cut};
use limen::backend::BackendError;
use limen::node::Extensions;
use limen::policy::Trials;
use limen::unit::show_bytes;
use limen_infer::{Dispatch, trial};
use std::fmt::Write;
use std::path::Path;

/// The most weights of a model that are listed without being asked for.
const MAX_TENSORS: usize = 8;

/// Describes a file; `all` lists every weight of a model.
///
/// # Errors
/// When the file cannot be read or is malformed, or the trial process fails.
pub(crate) fn show_inspection(
    path: &Path,
    json: bool,
    all: bool,
    trials: &Trials,
    extensions: &Extensions,
) -> Result<String, BackendError> {
    let found = trial::inspect(path, trials)?;
    if json {
        return Ok(format!("{:#}\n", serde_json::json!(found)));
    }
    let mut text = String::new();
    let name = one_line(&path.file_name().unwrap_or_default().to_string_lossy());
    let opset = found.opset.map(|opset| format!(", opset {opset}")).unwrap_or_default();
    // Writing to a string cannot fail.
    let bytes = Some(found.bytes()).filter(|bytes| *bytes > 0);
    let bytes = bytes.map(|bytes| format!(" in {}", show_bytes(bytes))).unwrap_or_default();
    let parameters = found.parameters();
    let about = format!("{}{opset}, {parameters} parameters{bytes}, SHA-256 {}", found.format, found.sha256);
    paragraph(&mut text, &format!("{name}: "), &about);
    let dispatch = found.dispatch(extensions);
    if !found.operators.is_empty() {
        for (backend, dispatch) in &dispatch {
            paragraph(&mut text, &format!("{backend} "), &verdict(dispatch));
        }
    }
    let mut ports = Table::new(["<", "<port", "<in the model", "<type"]);
    for (what, bindings) in [("input", &found.inputs), ("output", &found.outputs)] {
        for binding in bindings {
            let spec = shortened(binding.spec.as_deref().unwrap_or_default());
            ports.row([what.to_string(), binding.port.clone(), binding.name.clone(), spec]);
        }
    }
    let there: Vec<_> = dispatch.iter().filter(|(_, dispatch)| !matches!(dispatch, Dispatch::NotThere(_))).collect();
    let mut operators = Table::new(["<operator", "count"].into_iter().chain(there.iter().map(|(name, _)| *name)));
    for (operator, n) in &found.operators {
        let support = there.iter().map(|(_, dispatch)| support(dispatch, operator));
        operators.row([operator.clone(), n.to_string()].into_iter().chain(support));
    }
    let mut metadata = Table::new(["<metadata", "<value"]);
    for (key, value) in &found.metadata {
        metadata.row([key.clone(), value.clone()]);
    }
    let mut tensors = Table::new(["<tensor", "<type", "<shape", "bytes", "<in"]);
    // A model may have hundreds of weights; a file of weights is nothing else.
    let most = if all || found.operators.is_empty() { usize::MAX } else { MAX_TENSORS };
    let hidden = found.tensors.len().saturating_sub(most);
    for stored in found.tensors.iter().take(most) {
        let file = stored.file.clone().unwrap_or_default();
        let bytes = stored.bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        tensors.row([stored.name.clone(), stored.dtype.clone(), format!("{:?}", stored.shape), bytes, file]);
    }
    for table in [ports, operators, metadata, tensors].iter().filter(|table| !table.is_empty()) {
        text.push('\n');
        table.write(&mut text);
    }
    if hidden > 0 {
        let _ = writeln!(text, "\ntensors not shown: {hidden}; `--tensors` lists all");
    }
    Ok(text)
}

/// Cuts the names of dims, so that a table shows all dims of
/// `f32[DynamicDimension.0,3,DynamicDimension.1]`.
fn shortened(spec: &str) -> String {
    let Some((dtype, dims)) = spec.strip_suffix(']').and_then(|spec| spec.split_once('[')) else { return spec.into() };
    let mut depth = 0;
    // The name of a dim may be an expression: `floor(a,2)`.
    let is_end = |letter: char| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ',' && depth == 0
    };
    let dims: Vec<&str> = dims.split(is_end).collect();
    let shown = |most| {
        let dims: Vec<String> = dims.iter().map(|dim| cut(dim, most)).collect();
        format!("{dtype}[{}]", dims.join(","))
    };
    // The longest names that fit; not below a width at which they differ no more.
    (4..=NAME).rev().map(shown).find(|text| width(text) <= NAME).unwrap_or_else(|| shown(4))
}

/// Why a file cannot be described. It need not hold a model, so nothing is said about one.
pub(crate) fn reason(error: &BackendError) -> String {
    match error {
        BackendError::Model(why) => why.clone(),
        other => other.to_string(),
    }
}

/// Whether a backend runs the model; follows the backend's name.
fn verdict(dispatch: &Dispatch) -> String {
    let verdict = match dispatch {
        Dispatch::NotThere(why) => return why.clone(),
        Dispatch::Unsaid { deviating } if deviating.is_empty() => "is loaded",
        Dispatch::Unsaid { .. } => "needs a recorded case",
        Dispatch::Known { unsupported, .. } if !unsupported.is_empty() => "does not run the model",
        Dispatch::Known { deviating, .. } if !deviating.is_empty() => "needs a recorded case",
        Dispatch::Known { .. } => "has all operators",
    };
    format!("{verdict}: {dispatch}")
}

/// How a backend runs an operator, in a word.
fn support(dispatch: &Dispatch, operator: &String) -> String {
    match dispatch {
        Dispatch::NotThere(_) => "-",
        Dispatch::Unsaid { deviating } if deviating.iter().any(|(op, _)| op == operator) => "deviates",
        Dispatch::Unsaid { .. } => "?",
        Dispatch::Known { native, .. } if native.contains(operator) => "native",
        Dispatch::Known { rewritten, .. } if rewritten.contains(operator) => "rewritten",
        Dispatch::Known { deviating, .. } if deviating.iter().any(|(op, _)| op == operator) => "deviates",
        Dispatch::Known { .. } => "unsupported",
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dim_of_a_type_is_shown() {
        for (spec, expected) in [
            ("f32[batch,1,8,8]", "f32[batch,1,8,8]"),
            ("f32[]", "f32[]"),
            ("", ""),
            (
                "f32[p2o.DynamicDimension.0,3,p2o.DynamicDimension.1,p2o.DynamicDimension.2]",
                "f32[p2o.…on.0,3,p2o.…on.1,p2o.…on.2]",
            ),
            ("f32[floor(height_of_the_image,2),floor(width_of_the_image,2)]", "f32[floor(h…mage,2),floor(w…mage,2)]"),
        ] {
            let shown = shortened(spec);
            assert_eq!(shown, expected, "{spec}");
            assert!(width(&shown) <= NAME);
        }
    }
}
