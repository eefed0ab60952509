//! Port names of a model's tensors.

/// Returns the port name of a model's tensor: lower case, `_` for each character that a port name
/// cannot have, at most 64 bytes.
///
/// Exporters write names such as `input.1` and `serving_default_x:0`; a graph file writes `input_1`
/// and `serving_default_x_0`.
pub(crate) fn port_name(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
    let mut port: String = name.chars().map(legal).collect();
    if !port.starts_with(|c: char| c.is_ascii_lowercase()) {
        port.insert(0, 't');
    }
    port.truncate(64);
    port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_names_become_port_names() {
        for (name, port) in
            [("logits", "logits"), ("input.1", "input_1"), ("X:0", "x_0"), ("495", "t495"), ("/conv/Ä", "t_conv__")]
        {
            assert_eq!(port_name(name), port);
        }
        assert_eq!(port_name(&"n".repeat(100)).len(), 64);
    }
}
