//! Substitutes `${NAME}` and `${NAME:-default}` in values: environment variables, and parameters of
//! subgraphs.
//!
//! Substituted text is never parsed as YAML structure. A value that consists of one parameter takes
//! over the parameter's value, of any type.

use super::{Budget, Layers};
use crate::base::document::{Substituted, Tree, Value};
use crate::base::error::{Place, Problem, Problems};
use std::collections::HashMap;

/// The longest text after substitution.
const MAX_TEXT: usize = 64 << 10;

/// The values of variables.
pub(super) struct Variables<'a> {
    layers: &'a Layers,
    pub(super) budget: &'a Budget,
}

/// A text after substitution.
struct Filled {
    text: String,
    /// The text with secret values left as variables.
    written: String,
    hidden: bool,
    changed: bool,
}

impl<'a> Variables<'a> {
    pub(super) fn new(layers: &'a Layers, budget: &'a Budget) -> Self {
        Variables { layers, budget }
    }

    /// Substitutes variables in all values of a tree, but not in keys.
    pub(super) fn substitute(&self, tree: &mut Tree, parameters: &HashMap<&str, Tree>, problems: &mut Problems) {
        match &mut tree.value {
            Value::List(items) => items.iter_mut().for_each(|item| self.substitute(item, parameters, problems)),
            Value::Map(entries) => {
                entries.iter_mut().for_each(|(_, value)| self.substitute(value, parameters, problems));
            }
            Value::Text(_) | Value::Substituted(_) => {
                let (text, was_substituted) = match &tree.value {
                    Value::Substituted(word) if word.written().is_some() => return,
                    Value::Substituted(word) => (word.characters(), true),
                    Value::Text(text) => (text.as_str(), false),
                    _ => return,
                };
                if !text.contains("${") {
                    return;
                }
                let whole = text.strip_prefix("${").and_then(|t| t.strip_suffix('}'));
                if let Some(value) = whole.and_then(|name| parameters.get(name)) {
                    if self.budget.allows(value.size(), &tree.place, problems) {
                        *tree = value.clone();
                    }
                    return;
                }
                match self.fill(text, parameters) {
                    Ok(filled) if filled.changed || was_substituted => {
                        self.budget.allows(filled.text.len() / 64, &tree.place, problems);
                        let written = filled.hidden.then_some(filled.written);
                        tree.value = Value::Substituted(Substituted::new(filled.text, written));
                    }
                    Ok(filled) => tree.value = Value::Text(filled.text),
                    Err((message, help)) => {
                        problems.push(Problem::new("E0151", tree.place.clone(), message).help(help));
                    }
                }
            }
            _ => {}
        }
    }

    fn fill(&self, text: &str, parameters: &HashMap<&str, Tree>) -> Result<Filled, (String, String)> {
        let mut filled = Filled { text: String::new(), written: String::new(), hidden: false, changed: false };
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let before = &rest[..at];
            if let Some(before) = before.strip_suffix('$') {
                // `$${` escapes `${`.
                filled.text += before;
                filled.text += "${";
                filled.written += before;
                filled.written += "$${";
                rest = &rest[at + 2..];
                continue;
            }
            filled.text += before;
            filled.written += before;
            let Some(end) = rest[at..].find('}') else {
                let help = "write `${NAME}`, `${NAME:-default}`, or `$${` for a literal `${`";
                return Err((format!("expected `}}` at the end of `{}`", &rest[at..]), help.into()));
            };
            let whole = &rest[at..=at + end];
            let (value, written) = self.value(whole, parameters)?;
            filled.hidden |= written.is_some();
            filled.written += &written.unwrap_or_else(|| value.replace("${", "$${"));
            filled.text += &value;
            filled.changed = true;
            if filled.text.len() > MAX_TEXT {
                let message = format!("the text must be at most {} KiB after substitution, got more", MAX_TEXT >> 10);
                return Err((message, "shorten the values of the variables".into()));
            }
            rest = &rest[at + end + 1..];
        }
        filled.text += rest;
        filled.written += rest;
        Ok(filled)
    }

    /// Returns the value of a variable, and how to write it if the value is secret.
    fn value(
        &self,
        whole: &str,
        parameters: &HashMap<&str, Tree>,
    ) -> Result<(String, Option<String>), (String, String)> {
        let inner = &whole[2..whole.len() - 1];
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        if let Some(parameter) = parameters.get(name) {
            return match &parameter.value {
                Value::Text(text) => Ok((text.clone(), None)),
                Value::Substituted(word) => Ok((word.characters().to_string(), word.written().map(str::to_string))),
                Value::Int(n) => Ok((n.to_string(), None)),
                Value::Float(x) => Ok((x.to_string(), None)),
                Value::Bool(b) => Ok((b.to_string(), None)),
                other => Err((
                    format!("parameter `{name}` must be a scalar inside text, got {}", other.describe()),
                    format!("write `${{{name}}}` as the whole value"),
                )),
            };
        }
        // The flat form writes an untyped value this way.
        if let (true, Some(default)) = (name.is_empty(), default) {
            return Ok((default.to_string(), None));
        }
        let is_variable = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_variable || name.starts_with(|c: char| c.is_ascii_lowercase()) && !self.known(name) {
            let mut there: Vec<&&str> = parameters.keys().collect();
            there.sort();
            let there: Vec<String> = there.into_iter().map(|name| format!("`{name}`")).collect();
            let help = if there.is_empty() && is_variable {
                let variable = name.to_ascii_uppercase();
                format!(
                    "declare `{name}` in `parameters` of a subgraph, or write a variable such as `LIMEN_{variable}`"
                )
            } else if there.is_empty() {
                "write the name of a variable, such as `LIMEN_RATE`".to_string()
            } else {
                format!("write one of {}", there.join(", "))
            };
            return Err((format!("unknown parameter `{name}`"), help));
        }
        if let Some(value) = self.layers.variables.get(name) {
            return Ok((value.clone(), None));
        }
        let listed = self.layers.env.iter().any(|listed| listed == name);
        if !listed && !name.starts_with("LIMEN_") {
            let help = format!("run with `--env {name}`, or rename the variable to `LIMEN_{name}`");
            return Err((format!("the graph is not allowed to read the variable `{name}`"), help));
        }
        match (std::env::var(name), default) {
            (Ok(value), _) => Ok((value, (!listed).then(|| whole.to_string()))),
            (Err(std::env::VarError::NotPresent), Some(default)) => Ok((default.to_string(), None)),
            (Err(std::env::VarError::NotPresent), None) => {
                let help = format!("set `{name}`, or write `${{{name}:-default}}`");
                Err((format!("the variable `{name}` is not set"), help))
            }
            (Err(std::env::VarError::NotUnicode(_)), _) => {
                Err((format!("the variable `{name}` must be UTF-8"), format!("set `{name}` to UTF-8 text")))
            }
        }
    }

    fn known(&self, name: &str) -> bool {
        self.layers.variables.contains_key(name) || self.layers.env.iter().any(|listed| listed == name)
    }

    /// Substitutes variables in one text that is needed before the rest.
    pub(super) fn text(&self, text: &str, place: &Place, problems: &mut Problems) -> Option<String> {
        match self.fill(text, &HashMap::new()) {
            Ok(filled) => Some(filled.text),
            Err((message, help)) => {
                problems.push(Problem::new("E0151", place.clone(), message).help(help));
                None
            }
        }
    }
}
