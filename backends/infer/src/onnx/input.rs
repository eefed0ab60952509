//! The declaration of a model's input.

use super::elem::{Elem, elem_of};
use super::wire;
use crate::base::port_name;
use limen::message::MAX_RANK;
use limen::unit::show_bytes;
use std::fmt;

/// The largest item of an input in bytes; a larger one is treated as damage.
const MAX_ITEM_BYTES: u64 = 1 << 30;

/// An input of a model.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its name in the model.
    pub name: String,
    /// Its port name.
    pub port: String,
    /// Its element type.
    pub elem: Elem,
    /// The meaning of its first dim.
    pub lead: LeadingDim,
    /// Its shape in the model.
    pub shape: Vec<Length>,
}

/// The meaning of an input's first dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadingDim {
    /// The batch, of any length.
    Batch,
    /// The batch, fixed at one item.
    One,
    /// Part of the item: the model has no batch.
    None,
}

/// A dim of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// A fixed length.
    Fixed(usize),
    /// A length that is the same wherever the name occurs.
    Symbol(String),
}

/// An input with a dim whose length is unknown or contradictory.
#[derive(Debug)]
pub(crate) struct Unbound {
    pub(crate) input: String,
    /// The dim, if it has no length.
    pub(crate) symbol: Option<String>,
    pub(crate) why: String,
}

impl Input {
    /// Returns its type and dims as declared: `f32[n,1,8,8]`.
    pub(crate) fn declared(&self) -> String {
        let dims: Vec<String> = self
            .shape
            .iter()
            .map(|length| match length {
                Length::Fixed(n) => n.to_string(),
                Length::Symbol(name) => name.clone(),
            })
            .collect();
        format!("{}[{}]", self.elem.dtype(), dims.join(","))
    }

    pub(super) fn read(value: &wire::ValueInfo) -> Result<Input, String> {
        let port = port_name(&value.name);
        let unsupported = |why: String| Err(format!("input `{port}` {why}"));
        let tensor = match &value.kind {
            Some(wire::Type { tensor: Some(tensor), .. }) => tensor,
            Some(wire::Type { sequence: Some(_), .. }) => {
                return unsupported("must be a tensor, got a sequence".into());
            }
            _ => return unsupported("does not declare its element type".into()),
        };
        let Some(elem) = Elem::of(tensor.elem) else {
            let (word, _) = elem_of(tensor.elem);
            return unsupported(format!("has elements of type {word}, which ports do not support"));
        };
        let Some(shape) = &tensor.shape else {
            return unsupported("does not declare its shape".into());
        };
        let mut dims = Vec::new();
        for (at, dim) in shape.dims.iter().enumerate() {
            dims.push(match (dim.length, dim.symbol.as_deref()) {
                // As PaddlePaddle writes unknown lengths.
                (Some(-1), _) => Length::Symbol(format!("{port}.{at}")),
                (Some(length), _) if length < 0 => {
                    return unsupported(format!("must have dims of length 1 or more, got {length}"));
                }
                (Some(0), _) => return unsupported("must have dims of length 1 or more, got 0".into()),
                (Some(length), _) => Length::Fixed(length as usize),
                (None, Some(symbol)) if !symbol.is_empty() && symbol != "?" => Length::Symbol(symbol.to_string()),
                // Unnamed dims may have different lengths.
                _ => Length::Symbol(format!("{port}.{at}")),
            });
        }
        let lead = match dims.first() {
            Some(Length::Symbol(_)) => LeadingDim::Batch,
            Some(Length::Fixed(1)) => LeadingDim::One,
            _ => LeadingDim::None,
        };
        if dims.len() > MAX_RANK + 1 {
            return unsupported(format!("must have at most {MAX_RANK} dims and a batch dim, got {} dims", dims.len()));
        }
        let fixed = dims.iter().map(|dim| if let Length::Fixed(length) = dim { *length as u64 } else { 1 });
        let bytes = fixed.fold(elem.dtype().size() as u64, u64::saturating_mul);
        if bytes > MAX_ITEM_BYTES {
            let (has, most) = (show_bytes(bytes), show_bytes(MAX_ITEM_BYTES));
            return unsupported(format!("must have at most {most} per item, got {has}"));
        }
        Ok(Input { name: value.name.clone(), port, elem, lead, shape: dims })
    }

    /// Returns its shape without the batch.
    pub fn item(&self, batch_dim: Option<usize>) -> Vec<&Length> {
        let dims = self.shape.iter().enumerate();
        dims.filter(|(at, _)| Some(*at) != batch_dim).map(|(_, dim)| dim).collect()
    }

    /// Returns the index of its batch dim, for an input that is not a state.
    pub fn batch_dim(&self) -> Option<usize> {
        (self.lead != LeadingDim::None).then_some(0)
    }

    /// Returns the type and dims of one item: `f32[3,h,w]`.
    pub(super) fn show(&self, batch_dim: Option<usize>) -> String {
        let dims: Vec<_> = self.item(batch_dim).into_iter().map(ToString::to_string).collect();
        format!("{}[{}]", self.elem.dtype(), dims.join(","))
    }

    pub(super) fn unbound(&self, why: String) -> Unbound {
        Unbound { input: self.port.clone(), symbol: None, why }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Fixed(length) => write!(f, "{length}"),
            Length::Symbol(symbol) => f.write_str(symbol),
        }
    }
}
