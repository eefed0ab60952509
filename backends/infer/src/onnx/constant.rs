//! Inputs of a model that have the same value in every call.

use super::input::Length;
use super::outline::Outline;
use crate::base::Access;
#[cfg(feature = "tract")]
use limen::message::DType;
use std::collections::BTreeMap;

/// The value of an input that is the same in every call. Such an input is not a port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConstantInput {
    /// Its shape: that of one item.
    pub shape: Vec<usize>,
    /// Its numbers, in row-major order.
    pub values: Vec<f64>,
}

impl ConstantInput {
    /// Checks that a model has an input that can hold this value.
    ///
    /// # Errors
    /// What is there instead.
    pub(crate) fn check(&self, port: &str, outline: &Outline) -> Result<(), String> {
        let Some(input) = outline.inputs.iter().find(|input| input.port == port) else {
            let there: Vec<String> = outline.inputs.iter().map(|input| format!("`{}`", input.port)).collect();
            return Err(format!("expected an input of the model ({}), found `{port}`", there.join(", ")));
        };
        let item = input.item(input.batch_dim());
        let fits = |(length, dim): (&usize, &&Length)| match dim {
            Length::Fixed(fixed) => fixed == length,
            Length::Symbol(_) => *length > 0,
        };
        if item.len() != self.shape.len() || !self.shape.iter().zip(&item).all(fits) {
            return Err(format!(
                "expected {} as one item of `{port}`, found the shape {:?}",
                input.show(input.batch_dim()),
                self.shape
            ));
        }
        let access = Access::for_dtype(input.elem.dtype());
        match self.values.iter().find(|value| !access.holds(**value)) {
            Some(value) => Err(format!("the values must fit in {}, got {value}", input.elem.dtype())),
            None => Ok(()),
        }
    }

    /// Returns its numbers as so many elements of a port: as many copies as fit.
    #[cfg(feature = "tract")]
    pub(crate) fn repeated(&self, dtype: DType, elements: usize) -> Vec<u8> {
        let mut bytes = vec![0; elements.saturating_mul(dtype.size())];
        self.fill(Access::for_dtype(dtype), &mut bytes);
        bytes
    }

    /// Writes as many copies of its numbers as fit.
    pub(super) fn fill(&self, access: Access, bytes: &mut [u8]) {
        access.write(self.values.iter().copied().cycle(), bytes);
    }
}

/// Constants by port name.
pub(crate) type Constants = BTreeMap<String, ConstantInput>;
