//! Something with a descriptor that a node has, and that its worker waits for where the node is a source.

use limen::{Descriptors, Interest, Watched};
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;

/// A socket of a source, which its worker waits for, or of a sink, which asks for itself.
#[derive(Debug)]
pub(crate) enum Held<T: AsFd + 'static> {
    Plain(T),
    Watched(Watched<T>),
}

impl<T: AsFd + 'static> Held<T> {
    /// Registers it where there is somebody who waits.
    pub(crate) fn new(what: T, descriptors: Option<&Descriptors>, interest: Interest) -> io::Result<Self> {
        Ok(match descriptors {
            Some(descriptors) => Held::Watched(descriptors.watch(what, interest)?),
            None => Held::Plain(what),
        })
    }

    /// Whether it was found ready; of what nobody waits for nothing is known.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Held::Plain(_) => false,
            Held::Watched(watched) => watched.is_ready(),
        }
    }

    pub(crate) fn set_interest(&self, interest: Interest) {
        if let Held::Watched(watched) = self {
            watched.set_interest(interest);
        }
    }
}

impl<T: AsFd + 'static> Deref for Held<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Held::Plain(what) => what,
            Held::Watched(watched) => watched,
        }
    }
}
