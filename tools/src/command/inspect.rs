//! `limen-run inspect`: describes a model or a weights file, as text and as the manifest that a graph names.

use crate::text::escape::one_line;
use crate::text::table::Table;
use limen::backend::BackendError;
use limen::policy::Trials;
use limen_backends::{BackendOptions, Dispatch, trial};
use std::fmt::Write;
use std::path::Path;

/// Describes a file.
///
/// # Errors
/// When the file cannot be read or is malformed, or the trial process fails.
pub(crate) fn show_inspection(
    path: &Path,
    json: bool,
    trials: &Trials,
    options: &BackendOptions,
) -> Result<String, BackendError> {
    let found = trial::inspect(path, trials)?;
    if json {
        return Ok(format!("{:#}\n", serde_json::json!(found)));
    }
    let mut text = String::new();
    let name = one_line(&path.file_name().unwrap_or_default().to_string_lossy());
    let opset = found.opset.map(|opset| format!(", opset {opset}")).unwrap_or_default();
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "{name}: {}{opset}, {} parameters, SHA-256 {}", found.format, found.parameters(), found.sha256);
    let mut ports = Table::new(["<", "<port", "<in the model", "<type"]);
    for (what, bindings) in [("input", &found.inputs), ("output", &found.outputs)] {
        for binding in bindings {
            let spec = binding.spec.clone().unwrap_or_default();
            ports.row([what.to_string(), binding.port.clone(), binding.name.clone(), spec]);
        }
    }
    let dispatch = found.dispatch(options);
    let mut operators = Table::new(["<operator", "count"].into_iter().chain(dispatch.iter().map(|(name, _)| *name)));
    for (operator, n) in &found.operators {
        let support = dispatch.iter().map(|(_, dispatch)| support(dispatch, operator));
        operators.row([operator.clone(), n.to_string()].into_iter().chain(support));
    }
    let mut tensors = Table::new(["<tensor", "<type", "<shape", "<in"]);
    for stored in &found.tensors {
        let file = stored.file.clone().unwrap_or_default();
        tensors.row([stored.name.clone(), stored.dtype.clone(), format!("{:?}", stored.shape), file]);
    }
    for table in [ports, operators, tensors].iter().filter(|table| !table.is_empty()) {
        text.push('\n');
        table.write(&mut text);
    }
    if !found.operators.is_empty() {
        text.push('\n');
        for (backend, dispatch) in &dispatch {
            let _ = writeln!(text, "{backend}: {}", one_line(&dispatch.to_string()));
        }
    }
    Ok(text)
}

/// How a backend runs an operator, in a word.
fn support(dispatch: &Dispatch, operator: &String) -> String {
    match dispatch {
        Dispatch::NotThere(_) => "-",
        Dispatch::Unsaid => "?",
        Dispatch::Known { native, .. } if native.contains(operator) => "native",
        Dispatch::Known { rewritten, .. } if rewritten.contains(operator) => "rewritten",
        Dispatch::Known { deviating, .. } if deviating.iter().any(|(op, _)| op == operator) => "deviates",
        Dispatch::Known { .. } => "unsupported",
    }
    .to_string()
}
