//! Names and units of numbers in messages.

/// The name and the unit of a number in a message, for logs and plots: `ax` in `m/s²`. Either may
/// be empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Label {
    name: String,
    unit: String,
}

impl Label {
    /// The most bytes of a name or a unit.
    pub const MAX_LEN: usize = 64;
    /// The most labels of a port: more numbers are no columns of a table.
    pub const MAX_COUNT: usize = 1024;

    /// Creates a label; each part may be empty.
    ///
    /// # Errors
    /// A part is longer than [`Label::MAX_LEN`], or has a comma, a quote or a control character:
    /// labels go into the headers of tables.
    pub fn new(name: impl Into<String>, unit: impl Into<String>) -> Result<Self, &'static str> {
        let (name, unit) = (name.into(), unit.into());
        for part in [&name, &unit] {
            if part.len() > Label::MAX_LEN {
                return Err("must be at most 64 bytes");
            }
            if part.chars().any(|c| matches!(c, ',' | '"') || c.is_control()) {
                return Err("must have no comma, quote or control character");
            }
        }
        Ok(Label { name, unit })
    }

    /// Creates a label, leaving out a name or a unit that [`Label::new`] refuses.
    pub fn of(name: &str, unit: &str) -> Self {
        let Label { name, .. } = Label::new(name, "").unwrap_or_default();
        let Label { unit, .. } = Label::new("", unit).unwrap_or_default();
        Label { name, unit }
    }

    /// Returns the name; empty if there is none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the unit; empty if it is not known.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// Returns the same name without a unit.
    #[must_use]
    pub fn without_unit(self) -> Self {
        Label { unit: String::new(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_break_the_header_of_a_table() {
        let long = "x".repeat(Label::MAX_LEN + 1);
        for (name, unit, expected) in [
            ("ax", "m/s²", ("ax", "m/s²")),
            ("", "", ("", "")),
            ("a,b", "m", ("", "m")),
            ("a", "m\n", ("a", "")),
            (&long, "\"", ("", "")),
        ] {
            let label = Label::of(name, unit);
            assert_eq!((label.name(), label.unit()), expected);
            assert_eq!(Label::new(name, unit).is_ok(), expected == (name, unit));
        }
    }
}
