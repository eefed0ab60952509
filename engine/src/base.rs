//! The foundation of the engine: problems with places, quantities, policies, YAML trees. Imports
//! nothing from the other folders.

pub(crate) mod deprecation;
pub(crate) mod document;
pub(crate) mod error;
pub mod expression;
pub(crate) mod json;
pub mod policy;
pub mod unit;
