//! What becomes of a model's operators in a runtime.

use std::fmt;

/// What becomes of a model's operators in a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// It is not there, and why.
    NotThere(String),
    /// It publishes no list: loading the model tells.
    Unsaid,
    /// It says of each what it makes of it.
    Known {
        /// It has a kernel of that name.
        native: Vec<String>,
        /// Loading makes others of it, or a constant.
        rewritten: Vec<String>,
        /// It does not know it.
        unsupported: Vec<String>,
    },
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dispatch::NotThere(why) => f.write_str(why),
            Dispatch::Unsaid => f.write_str("publishes no list of its operators: loading the model tells"),
            Dispatch::Known { native, rewritten, unsupported } => {
                write!(f, "{} native", native.len())?;
                if !rewritten.is_empty() {
                    write!(f, ", {} rewritten ({})", rewritten.len(), rewritten.join(", "))?;
                }
                if !unsupported.is_empty() {
                    write!(f, ", {} unsupported ({})", unsupported.len(), unsupported.join(", "))?;
                }
                Ok(())
            }
        }
    }
}
