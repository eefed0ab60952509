//! Transfers: copies between host memory and a device, inserted where the two ends of a connection
//! keep their messages in different memory.
//!
//! A kind says of a config on which device its nodes keep their messages, before anything is
//! planned. A node that only prefers a device resides there if a neighbour does: a model between
//! nodes of the host makes its copies itself, within its call. Transfers are nodes like any other:
//! they appear in the plan, and the graph may write them itself.
//!
//! The policy of a connection stays where its messages are in host memory: in front of a copy to a
//! device, which is then made only of messages that are used, and behind a copy to the host.

use super::registry::Registry;
use crate::base::document::{Key, Tree, Value};
use crate::base::policy::{EdgePolicy, NodePolicy};
use crate::exec::infer::{DeviceSide, DeviceUse};
use crate::file::spec::{InputSpec, NodeSpec, Placed, Places, Spec};
use std::collections::{HashMap, HashSet};

/// The kinds of inserted nodes.
pub(super) const TO_DEVICE: &str = "to_device";
pub(super) const TO_HOST: &str = "to_host";

/// What was found about the memory of a graph's messages.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// The nodes whose messages are on a device, by name.
    residents: HashMap<String, DeviceUse>,
    /// The inserted nodes, by name, and why.
    pub(super) inserted: HashMap<String, String>,
}

impl Transfers {
    /// Finds out which nodes keep their messages on a device, and inserts the copies that are
    /// missing.
    pub(super) fn insert(spec: &mut Spec, registry: &Registry) -> Transfers {
        let mut found = Transfers { residents: residents(spec, registry), inserted: HashMap::new() };
        if !found.residents.is_empty() {
            found.copy(spec);
        }
        found
    }

    /// Whether a node keeps its messages on a device.
    pub(super) fn is_resident(&self, node: &str) -> bool {
        self.residents.contains_key(node)
    }

    /// The device of what a node gives, and of what it takes.
    fn gives(&self, node: &str) -> Option<&str> {
        let there = self.residents.get(node).filter(|there| there.side != DeviceSide::Inputs)?;
        Some(&there.device)
    }

    fn takes(&self, node: &str) -> Option<&str> {
        let there = self.residents.get(node).filter(|there| there.side != DeviceSide::Outputs)?;
        Some(&there.device)
    }

    fn copy(&mut self, spec: &mut Spec) {
        let mut names: HashSet<String> = spec.nodes.iter().map(|node| node.name.clone()).collect();
        let policies: HashMap<String, NodeSpec> = spec
            .nodes
            .iter()
            .filter(|node| self.is_resident(&node.name))
            .map(|node| (node.name.clone(), node.clone()))
            .collect();
        // By producer, output, kind and device: copies that others can take from too. Those in
        // front of a device have the policy of their connection, so only connections with the same
        // one share them.
        let mut made: Vec<(InputSpec, String, String, String)> = Vec::new();
        let mut added = Vec::new();
        for node in &mut spec.nodes {
            let to = self.takes(&node.name).map(str::to_string);
            for input in &mut node.inputs {
                let from = self.gives(&input.node).map(str::to_string);
                if from == to || !names.contains(&input.node) {
                    continue;
                }
                let mut steps = Vec::new();
                steps.extend(from.map(|device| (TO_HOST, device, input.node.clone())));
                steps.extend(to.clone().map(|device| (TO_DEVICE, device, node.name.clone())));
                for (kind, device, served) in steps {
                    let policy = if kind == TO_DEVICE { input.policy } else { EdgePolicy::default() };
                    let is_same = |(before, its_kind, its_device, _): &&(InputSpec, String, String, String)| {
                        (&before.node, &before.output, &before.policy) == (&input.node, &input.output, &policy)
                            && (&**its_kind, &**its_device) == (kind, &*device)
                    };
                    let shared = made.iter().find(is_same).map(|(.., name)| name.clone());
                    let name = shared.unwrap_or_else(|| {
                        let taken = InputSpec { port: None, policy, ..input.clone() };
                        let name = new_name(&taken, kind, &device, &mut names);
                        let why = match kind {
                            TO_DEVICE => {
                                format!("inserted because `{served}` reads messages in the memory of `{device}`")
                            }
                            _ => format!("inserted because `{served}` writes messages in the memory of `{device}`"),
                        };
                        self.inserted.insert(name.clone(), why);
                        let side = if kind == TO_DEVICE { DeviceSide::Outputs } else { DeviceSide::Inputs };
                        let of = DeviceUse { device: device.clone(), side, is_optional: false };
                        self.residents.insert(name.clone(), of);
                        added.push(copy_node(&name, kind, &device, taken.clone(), policies.get(&served)));
                        made.push((taken, kind.into(), device, name.clone()));
                        name
                    });
                    (input.node, input.output) = (name, None);
                    if kind == TO_DEVICE {
                        // Lost in front of the copy, nothing waits behind it.
                        let stream = input.policy.stream;
                        input.policy = EdgePolicy { capacity: Some(1), stream, ..EdgePolicy::default() };
                        input.places = Places::default();
                    }
                }
            }
        }
        spec.nodes.append(&mut added);
    }
}

/// Returns the nodes that keep their messages on a device. Those that only prefer it do if a
/// neighbour does.
fn residents(spec: &Spec, registry: &Registry) -> HashMap<String, DeviceUse> {
    let mut asked: HashMap<&str, DeviceUse> = HashMap::new();
    for node in &spec.nodes {
        let kind = registry.find(node);
        let with_constants = (!node.constants.is_empty()).then(|| node.with_constants().config);
        let config = with_constants.as_ref().unwrap_or(&node.config);
        if let Some(there) = kind.and_then(|kind| kind.device(config, registry.extensions())) {
            asked.insert(&node.name, there);
        }
    }
    if asked.is_empty() {
        return HashMap::new();
    }
    let mut beside: HashSet<&str> = HashSet::new();
    for node in &spec.nodes {
        for input in &node.inputs {
            let ends = [asked.get(&*input.node), asked.get(&*node.name)];
            let [Some(from), Some(to)] = ends else { continue };
            let meet = from.side != DeviceSide::Inputs && to.side != DeviceSide::Outputs && from.device == to.device;
            if meet {
                beside.extend([&*input.node, &*node.name]);
            }
        }
    }
    asked.retain(|node, there| !there.is_optional || beside.contains(node));
    asked.into_iter().map(|(node, there)| (node.to_string(), there)).collect()
}

/// Returns the name of a copy, which no other node has: `camera_to_wgpu`, `scores_to_host`.
fn new_name(of: &InputSpec, kind: &str, device: &str, names: &mut HashSet<String>) -> String {
    let port = of.output.as_ref().map(|port| format!("_{port}")).unwrap_or_default();
    let to = if kind == TO_DEVICE { device } else { "host" };
    let name = format!("{}{port}_to_{to}", of.node);
    let mut candidates = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}_{n}")));
    // The numbers do not end.
    let free = candidates.find(|name| !names.contains(name)).unwrap_or(name);
    names.insert(free.clone());
    free
}

/// The node of a copy, on the core of the node that it serves and with its `on_error`.
fn copy_node(name: &str, kind: &str, device: &str, input: InputSpec, served: Option<&NodeSpec>) -> NodeSpec {
    let place = input.place.clone();
    let key = Key { place: place.clone(), name: "device".into() };
    let value = Tree { place: place.clone(), value: Value::Text(device.into()) };
    let policy = served.map(|served| &served.policy);
    NodeSpec {
        name: name.into(),
        place: place.clone(),
        kind: Placed { value: kind.into(), place: place.clone() },
        config: Tree { place, value: Value::Map(vec![(key, value)]) },
        inputs: vec![input],
        constants: Vec::new(),
        core: served.and_then(|served| served.core.clone()),
        cpu: served.and_then(|served| served.cpu.clone()),
        policy: NodePolicy {
            on_error: policy.map(|policy| policy.on_error).unwrap_or_default(),
            restart: policy.map(|policy| policy.restart).unwrap_or_default(),
            criticality: policy.map(|policy| policy.criticality).unwrap_or_default(),
            ..NodePolicy::default()
        },
        places: Places::default(),
        deprecations: Vec::new(),
        in_doubt: false,
    }
}
