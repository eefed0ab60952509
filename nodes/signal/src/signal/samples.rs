//! Where the samples of a channel are in messages.

use limen::message::{Content, DType, PortSpec};
use limen::node::{Connected, PlanErrors, Ports};
use schemars::JsonSchema;
use serde::Deserialize;

/// Axis along which the samples of a channel follow each other in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Along {
    /// Samples follow each other in the first dim. A message contains many samples of each channel,
    /// such as sound.
    FirstDim,
    /// Samples follow each other in successive messages. Each message contains one sample of every
    /// channel, such as a sensor reading.
    Messages,
}

/// The samples of a message `f32`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Samples {
    pub(crate) along: Along,
    /// How many channels there are: elements that are one sample each.
    pub(crate) channels: usize,
    /// The most samples of a channel in a message.
    pub(crate) most: usize,
}

/// The most channels, and the most samples of a channel in a message.
const MOST: usize = 1 << 20;

impl Samples {
    /// Returns the samples of the connected messages, and reports messages that have none. A scalar
    /// is a sample of one channel.
    pub(crate) fn of(given: Option<&PortSpec>, along: Option<Along>, errors: &mut PlanErrors) -> Samples {
        let alone = Samples { along: Along::Messages, channels: 1, most: 1 };
        let Some(spec) = given else { return alone };
        let along = along.unwrap_or(if spec.shape.is_empty() { Along::Messages } else { Along::FirstDim });
        let counted = |dims: &[limen::message::Dim]| dims.iter().try_fold(1usize, |n, dim| n.checked_mul(dim.max()?));
        let is_fixed = |dims: &[limen::message::Dim]| PortSpec::new(DType::F32, dims.to_vec()).fixed_shape().is_some();
        let (time, channels) = match (along, &spec.shape[..]) {
            (Along::FirstDim, [time, channels @ ..]) => (std::slice::from_ref(time), channels),
            (Along::FirstDim, []) => {
                let message = format!("expected an input with a first dim, found {spec}");
                errors.at("along", message).help("remove `along`: each message is then one sample");
                return alone;
            }
            (Along::Messages, channels) => (&[][..], channels),
        };
        let samples = Samples { along, channels: counted(channels).unwrap_or(0), most: counted(time).unwrap_or(0) };
        if !is_fixed(channels) || samples.channels == 0 || samples.channels > MOST {
            let help = format!("connect messages with a fixed number of channels, from 1 to {MOST}");
            errors
                .input("in", format!("expected a fixed number of channels from 1 to {MOST}, found {spec}"))
                .help(help);
            return alone;
        }
        if samples.most == 0 || samples.most > MOST {
            let help = format!("connect messages of 1 to {MOST} samples");
            errors.input("in", format!("expected 1 to {MOST} samples, found {spec}")).help(help);
            return alone;
        }
        samples
    }

    /// As above, of the input of a node that is being built.
    pub(crate) fn of_input(inputs: &[(String, Option<PortSpec>)], along: Option<Along>) -> Samples {
        let spec = inputs.first().and_then(|(_, spec)| spec.as_ref());
        // Errors were reported while planning.
        Samples::of(spec, along, &mut PlanErrors::default())
    }
}

/// Adds a notice if the elements of short messages are taken for samples that follow each other,
/// which they may not be.
pub(crate) fn with_notice(ports: Ports, given: Option<&PortSpec>, along: Option<Along>) -> Ports {
    match given.and_then(PortSpec::fixed_shape).as_deref() {
        Some([count]) if along.is_none() && *count <= 16 => ports.notice(format!(
            "treats a message of {count} elements as consecutive samples of one channel: for {count} channels, write `along: messages`"
        )),
        _ => ports,
    }
}

/// Returns the spec of messages of `f32` with the connected shape, and reports another type.
pub(crate) fn takes_f32(given: &Connected, errors: &mut PlanErrors) -> Option<PortSpec> {
    let spec = given.single()?;
    if spec.content != Content::Numbers {
        let help = "put a `decode` node upstream of this node";
        errors.input("in", format!("expected samples, found encoded bytes, {spec}")).help(help);
    } else if spec.dtype != DType::F32 {
        let help = "put a `cast` node with `dtype: f32` upstream of this node";
        errors.input("in", format!("expected f32, found {spec}")).help(help);
    }
    Some(spec.clone().with_dtype(DType::F32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_what_is_beside_each_other() {
        for (spec, along, expected) in [
            ("f32[]", None, Some((Along::Messages, 1, 1))),
            ("f32[<=160,2]", None, Some((Along::FirstDim, 2, 160))),
            ("f32[160]", None, Some((Along::FirstDim, 1, 160))),
            ("f32[3]", Some(Along::Messages), Some((Along::Messages, 3, 1))),
            ("f32[2,3]", Some(Along::Messages), Some((Along::Messages, 6, 1))),
            ("f32[]", Some(Along::FirstDim), None),
            ("f32[<=3]", Some(Along::Messages), None),
            ("f32[2,<=3]", None, None),
            ("f32[4294967296]", None, None),
        ] {
            let parsed: PortSpec = spec.parse().unwrap();
            let mut errors = PlanErrors::default();
            let found = Samples::of(Some(&parsed), along, &mut errors);
            match expected {
                Some((along, channels, most)) => assert_eq!(found, Samples { along, channels, most }, "{spec}"),
                None => assert_eq!(errors.messages().count(), 1, "{spec}"),
            }
        }
    }
}
