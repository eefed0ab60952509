//! The stock nodes of the program: each field's crate is a feature, and the kinds of one that is
//! left out are known by name.

use limen::Registry;

/// Adds the stock nodes: those of `limen-nodes-core`, and those of each crate that is a feature of
/// this one.
pub fn register_nodes(registry: Registry) -> Registry {
    registry.with(limen_nodes_core::register).with(register_fields)
}

macro_rules! stock_nodes {
    ($($feature:tt $of:ident: $($kind:literal)*;)*) => {
        fn register_fields(registry: Registry) -> Registry {
            $(
                #[cfg(feature = $feature)]
                let registry = registry.with($of::register);
                #[cfg(not(feature = $feature))]
                let registry = registry.without_kinds(
                    &[$($kind),*],
                    concat!("build limen-run with `--features ", $feature, "`, or your program with the feature `", $feature, "` of limen-tools"),
                );
            )*
            registry
        }

        /// The kinds by crate, as they are listed and as the crate registers them.
        #[cfg(test)]
        fn listed() -> Vec<(&'static [&'static str], Registry)> {
            vec![$(
                #[cfg(feature = $feature)]
                (&[$($kind),*], Registry::new().with($of::register)),
            )*]
        }
    };
}

stock_nodes! {
    "codec" limen_codec: "decode" "encode";
    "devices" limen_devices: "audio" "can" "candump" "v4l2";
    "recording" limen_recording: "foxglove" "record" "replay";
    "signal" limen_signal: "fir" "iir" "log_mel" "stft" "wav";
    "vision" limen_vision: "colour" "crop" "crop_boxes" "decode_boxes" "decode_ctc" "decode_db" "decode_image" "decode_yolo" "draw"
        "encode_image" "image_files" "letterbox" "nms" "resize" "to_tensor" "tracker" "unletterbox" "y4m";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_a_feature_is_listed() {
        for (names, registry) in listed() {
            let mut registered: Vec<_> = registry.kinds().map(|kind| kind.name.as_str()).collect();
            registered.dedup();
            assert_eq!(registered, names);
        }
    }
}
