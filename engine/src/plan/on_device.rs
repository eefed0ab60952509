//! Kinds whose nodes can also run on a device, where their config says `device:`.

use crate::base::error::PlanErrors;
use crate::exec::infer::InferPlan;
use crate::message::port_spec::PortSpec;
use crate::node::Node;
use crate::node::planning::{Connected, Planning};
use crate::node::ports::Ports;

/// The field of a config that says on which device a node runs.
pub(super) const DEVICE: &str = "device";
/// The device of nodes that run on none.
pub(super) const CPU: &str = "cpu";

/// How the nodes of a kind run on a device.
///
/// The config and the ports are those of the kind: its [`Node::ports`] reports what is wrong with
/// the config, and the messages that are connected have to be those that its ports take.
pub trait OnDevice: 'static {
    /// The kind.
    type Node: Node;
    /// The name of the device.
    const DEVICE: &'static str;
    /// Whether its inputs may vary in their first dim. The memory of such a message has the length
    /// behind the elements, as a number of their type.
    const TAKES_ROWS: bool = false;

    /// Plans a node whose messages are in the memory of the device ([`InferPlan::on_device`]).
    ///
    /// # Errors
    /// What of the config or the messages the device cannot do.
    fn plan(
        config: <Self::Node as Node>::Config,
        ports: &DevicePorts,
        cx: &mut Planning<'_>,
    ) -> Result<InferPlan, PlanErrors>;
}

/// The ports of a node on a device: their names and messages. The shapes of inputs are fixed,
/// unless it takes rows ([`OnDevice::TAKES_ROWS`]).
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePorts {
    /// What is connected to its inputs, which take it.
    pub inputs: Vec<(String, PortSpec)>,
    /// What the kind says of its outputs.
    pub outputs: Vec<(String, PortSpec)>,
}

impl DevicePorts {
    fn of(ports: &Ports, given: &Connected, takes_rows: bool) -> Result<DevicePorts, PlanErrors> {
        let mut errors = PlanErrors::default();
        let mut inputs = Vec::new();
        for port in &ports.inputs {
            let only = given.single().filter(|_| ports.inputs.len() == 1);
            // What is not known is reported elsewhere.
            let Some(spec) = given.input(&port.name).or(only) else { return Err(errors) };
            // The ports of the node are made of what is connected, so this is compared here.
            let fits = port.spec.as_ref().is_none_or(|want| errors.check_port(&port.name, spec, want));
            if fits && !takes_rows && spec.fixed_shape().is_none() {
                let message = format!("messages on a device must have a fixed shape, got {spec}");
                errors
                    .input(&port.name, message)
                    .help("remove `device`, or put a `resize` or `pad` node upstream of this node");
            }
            inputs.push((port.name.clone(), spec.clone()));
        }
        let mut outputs = Vec::new();
        for port in &ports.outputs {
            match &port.spec {
                Some(spec) => outputs.push((port.name.clone(), spec.clone())),
                None if errors.messages().next().is_some() => {}
                None => {
                    let message = format!("the type of output `{}` is unknown for these inputs", port.name);
                    errors.node(message).help("remove `device`, or connect inputs of another type");
                }
            }
        }
        errors.into_result(DevicePorts { inputs, outputs })
    }
}

/// Plans a node on a device.
pub(super) fn plan_on_device<D: OnDevice>(
    config: <D::Node as Node>::Config,
    given: &Connected,
    cx: &mut Planning<'_>,
) -> Result<InferPlan, PlanErrors> {
    let given = given.in_host_memory();
    let ports = D::Node::ports(&config, &given, cx)?;
    let ports = DevicePorts::of(&ports, &given, D::TAKES_ROWS)?;
    Ok(D::plan(config, &ports, cx)?.with_content(&ports.outputs))
}
