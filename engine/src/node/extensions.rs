//! Values of a program's own types that reach the kinds of its registry.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;

/// Values for the kinds of a [`Registry`](crate::Registry), one per type: options of a crate of
/// kinds that a program sets and a graph file cannot. The engine passes them on
/// ([`Planning::extensions`](crate::node::Planning::extensions)) without knowing their types.
///
/// ```
/// use limen::Registry;
///
/// #[derive(Debug, PartialEq)]
/// struct Licence(u64);
///
/// let registry = Registry::new().with_extension(Licence(1)).with_extension(Licence(2));
/// assert_eq!(registry.extensions().get(), Some(&Licence(2)));
/// assert_eq!(registry.extensions().get::<String>(), None);
/// ```
#[derive(Default)]
pub struct Extensions(HashMap<TypeId, (&'static str, Box<dyn Any + Send + Sync>)>);

impl Extensions {
    /// Adds a value; it replaces an earlier one of the same type.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, value: T) -> Self {
        self.0.insert(TypeId::of::<T>(), (type_name::<T>(), Box::new(value)));
        self
    }

    /// The value of a type, if there is one.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.1.downcast_ref()
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.0.values().map(|(name, _)| name).collect();
        names.sort();
        f.debug_set().entries(names).finish()
    }
}
