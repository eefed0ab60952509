//! How a runtime handles a model's operators.

use std::fmt;

/// How a runtime handles a model's operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// The runtime is not available, and why.
    NotThere(String),
    /// The runtime does not list its operators: only loading the model shows.
    Unsaid {
        /// Operators that it computes otherwise than ONNX in this model, and what it does.
        deviating: Vec<(String, &'static str)>,
    },
    /// The runtime lists its operators.
    Known {
        /// Operators with a kernel of that name.
        native: Vec<String>,
        /// Operators that loading replaces by others, or folds into constants.
        rewritten: Vec<String>,
        /// Operators that it computes otherwise than ONNX in this model, and what it does.
        deviating: Vec<(String, &'static str)>,
        /// Operators that it does not have.
        unsupported: Vec<String>,
    },
}

impl Dispatch {
    /// That of a model which is loaded: what the runtime does not have was folded into constants.
    pub(crate) fn of_loaded(mut self) -> Self {
        if let Dispatch::Known { rewritten, unsupported, .. } = &mut self {
            rewritten.append(unsupported);
        }
        self
    }
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dispatch::NotThere(why) => f.write_str(why),
            Dispatch::Unsaid { deviating } => {
                f.write_str("supported operators are known only after the model is loaded")?;
                deviating.iter().try_for_each(|(op, what)| write!(f, "; {op} {what}"))
            }
            Dispatch::Known { native, rewritten, deviating, unsupported } => {
                write!(f, "{} native", native.len())?;
                if !rewritten.is_empty() {
                    write!(f, ", {} rewritten ({})", rewritten.len(), rewritten.join(", "))?;
                }
                for (op, what) in deviating {
                    write!(f, ", {op} {what}")?;
                }
                if !unsupported.is_empty() {
                    write!(f, ", {} unsupported ({})", unsupported.len(), unsupported.join(", "))?;
                }
                Ok(())
            }
        }
    }
}
