//! Connections to viewers.

pub(crate) mod web_socket;
