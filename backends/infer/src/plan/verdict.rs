//! Whether a runtime meets the requirements of a model.

use limen::backend::MissingCapability;
use std::fmt;

/// Whether a runtime meets the requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeVerdict {
    /// It has everything that is required; whether it runs the model shows when it is tried.
    Fits,
    /// It was tried and runs the model.
    Runs,
    /// A library that was not loaded, because the node names another backend.
    NotAsked,
    NotBuilt(&'static str),
    Unavailable(String),
    Lacks(Vec<MissingCapability>),
    /// It has the operators of some nodes, and not what these say.
    Refuses(Vec<String>),
    /// It would compute other numbers than ONNX defines, and no recorded case shows that they do
    /// not matter.
    Deviates(Vec<String>),
    /// It is on a device, which `auto` selects only by a measurement of this machine.
    NotMeasured,
    /// Its outputs differed from those of a backend on the CPU when it was measured.
    Differs(String),
    /// It meets the requirements and yet fails to run the model.
    Failed(Vec<String>),
}

/// Follows the name of the runtime.
impl fmt::Display for RuntimeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuntimeVerdict::Fits => f.write_str("supports the operators and types of the model, but was not tried"),
            RuntimeVerdict::Runs => f.write_str("runs the model"),
            RuntimeVerdict::NotAsked => f.write_str("was not loaded, because the node names another backend"),
            RuntimeVerdict::NotBuilt(name) => write!(f, "is not built in (cargo feature `{name}`)"),
            RuntimeVerdict::Unavailable(why) => write!(f, "is {why}"),
            RuntimeVerdict::Lacks(lacks) => {
                // A missing operator is named once, however many nodes use it.
                let mut shown: Vec<String> = Vec::new();
                let mut more = 0;
                for lack in lacks {
                    let seen = |other: &MissingCapability| matches!((lack, other), (MissingCapability::Op { op: a, .. }, MissingCapability::Op { op: b, .. }) if a == b);
                    let is_first = lacks.iter().position(seen).is_none_or(|first| std::ptr::eq(lack, &lacks[first]));
                    if is_first {
                        shown.push(lack.to_string());
                    } else {
                        more += 1;
                    }
                }
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                write!(f, "has {}{more}", shown.join(", "))
            }
            RuntimeVerdict::Refuses(what) => write!(f, "does not support {}", what.join(", ")),
            RuntimeVerdict::Deviates(what) => write!(f, "computes differently from ONNX: {}", what.join(", ")),
            RuntimeVerdict::NotMeasured => {
                f.write_str("was not measured on this machine: run `limen-run calibrate GRAPH --cache DIR`")
            }
            RuntimeVerdict::Differs(what) => write!(f, "computed other numbers in the measurement: {what}"),
            RuntimeVerdict::Failed(why) => write!(f, "cannot run the model: {}", why.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_missing_at_many_nodes_is_named_once() {
        let lack = |op: &str, node: &str| MissingCapability::Op { op: op.into(), node: node.into() };
        let lacks = vec![lack("Foo", "a"), lack("Bar", "b/c"), lack("Foo", "d"), lack("Foo", "e")];
        let said = RuntimeVerdict::Lacks(lacks).to_string();
        let expected =
            "has no operator Foo (node `a` of the model), no operator Bar (node `b/c` of the model) and 2 more";
        assert_eq!(said, expected);
        assert_eq!(RuntimeVerdict::NotBuilt("ort").to_string(), "is not built in (cargo feature `ort`)");
    }
}
