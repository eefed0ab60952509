//! The registry of kinds. An explicit value, so that a program has exactly the kinds it registers
//! and the linker drops the others.

use super::kind::{Kind, Role, read};
use super::kind_words::KindWords;
use super::planned_node::{SinkNode, SourceNode, TransformNode, plan_node};
use crate::base::deprecation::Deprecation;
use crate::base::document::Tree;
use crate::base::error::{Place, Problem, Problems};
use crate::exec::infer::{DeviceSide, DeviceUse, Infer};
use crate::exec::planned::PlannedNode;
use crate::file::spec::{NodeSpec, Spec};
use crate::handle::{InletConfig, InletPlan, OutletConfig, OutletPlan};
use crate::message::payload::Payload;
use crate::node::extensions::Extensions;
use crate::node::one_to_one::{InPlace, InPlaceNode, OneToOne, OneToOneNode};
use crate::node::{Node, Sink, Source, Transform};
use crate::plan::on_device::{CPU, DEVICE, OnDevice, plan_on_device};
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};

/// Kinds by name.
///
/// ```
/// let registry = limen::Registry::new();
/// assert_eq!(registry.kinds().count(), 0);
/// ```
#[derive(Debug, Default)]
pub struct Registry {
    kinds: BTreeMap<String, Vec<Kind>>,
    /// By kind: how its nodes run on a device, for each.
    on_devices: HashMap<String, Vec<(&'static str, Kind)>>,
    /// By kind: names that lists of its schema have in this program.
    names: HashMap<String, Vec<(&'static str, &'static str)>>,
    /// By kind: devices that this program has not, and how to get them.
    not_built: HashMap<String, Vec<(&'static str, &'static str)>>,
    /// Kinds that this program has not, and how to get them.
    left_out: HashMap<&'static str, &'static str>,
    /// By type of a kind: old names of keys, and their names.
    old_keys: HashMap<TypeId, Vec<(&'static str, &'static str)>>,
    extensions: Extensions,
    words: KindWords,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Registry::default()
    }

    /// Adds the kinds of a crate: `.with(limen_nodes_core::register)`.
    #[must_use]
    pub fn with(self, register: impl FnOnce(Registry) -> Registry) -> Self {
        register(self)
    }

    /// Adds a value that every kind can read, replacing an earlier one of the same type.
    #[must_use]
    pub fn with_extension<T: Any + Send + Sync>(self, value: T) -> Self {
        Registry { extensions: self.extensions.with(value), ..self }
    }

    /// Returns the values that every kind can read.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    fn add(mut self, kind: Kind) -> Self {
        let name = kind.name.clone();
        self.words = KindWords::default();
        let same = self.kinds.entry(kind.name.clone()).or_default();
        // A later registration replaces an earlier one of the same role, so that a program can
        // replace stock kinds.
        same.retain(|k| (k.role == Role::Source) != (kind.role == Role::Source));
        same.push(kind);
        self.list_devices(&name);
        self
    }

    /// Adds a kind of source. A source and a sink may share a name: a node with inputs is the sink.
    #[must_use]
    pub fn source<N: Source>(self, name: &str) -> Self {
        self.add(Kind::new::<N, N::Config>(name, Role::Source, |config, given, cx, problems| {
            plan_node::<N>(config, given, cx, problems, |p| Box::new(SourceNode(p)))
        }))
    }

    /// Adds a kind of transform.
    #[must_use]
    pub fn transform<N: Transform>(self, name: &str) -> Self {
        self.add(Kind::new::<N, N::Config>(name, Role::Transform, |config, given, cx, problems| {
            plan_node::<N>(config, given, cx, problems, |p| Box::new(TransformNode(p)))
        }))
    }

    /// Adds a kind of sink.
    #[must_use]
    pub fn sink<N: Sink>(self, name: &str) -> Self {
        self.add(Kind::new::<N, N::Config>(name, Role::Sink, |config, given, cx, problems| {
            plan_node::<N>(config, given, cx, problems, |p| Box::new(SinkNode(p)))
        }))
    }

    /// Adds a kind of transform that modifies tensors in place.
    #[must_use]
    pub fn in_place<N: InPlace>(self, name: &str) -> Self {
        self.transform::<InPlaceNode<N>>(name)
    }

    /// Adds a kind of transform that computes one tensor from each.
    #[must_use]
    pub fn one_to_one<N: OneToOne>(self, name: &str) -> Self {
        self.transform::<OneToOneNode<N>>(name)
    }

    /// Adds a kind whose nodes run models.
    #[must_use]
    pub fn infer<K: Infer>(self, name: &str) -> Self {
        let mut kind = Kind::new::<K, K::Config>(name, Role::Infer, |config, given, cx, problems| {
            let config = config.read_config::<K::Config>(problems)?;
            Some(K::plan(config, given, cx).map(|plan| Box::new(plan) as Box<dyn PlannedNode>))
        });
        kind.device =
            |config, extensions| K::device(&config.read_config::<K::Config>(&mut Problems::default())?, extensions);
        self.add(kind)
    }

    /// Adds a kind of source whose messages a program sends through an [`Inlet`](crate::Inlet). The
    /// stock nodes have `inlet` for tensors; a program with its own payload type adds one for it.
    #[must_use]
    pub fn inlet<T: Payload>(self, name: &str) -> Self {
        self.add(Kind::new::<InletPlan<T>, InletConfig>(name, Role::Source, |config, _, _, problems| {
            let config = config.read_config::<InletConfig>(problems)?;
            Some(InletPlan::<T>::new(&config).map(|plan| Box::new(plan) as Box<dyn PlannedNode>))
        }))
    }

    /// Adds a kind of sink whose messages a program receives through an [`Outlet`](crate::Outlet).
    /// The stock nodes have `outlet` for tensors; a program with its own payload type adds one for
    /// it.
    #[must_use]
    pub fn outlet<T: Payload>(self, name: &str) -> Self {
        self.add(Kind::new::<OutletPlan<T>, OutletConfig>(name, Role::Sink, |config, _, _, problems| {
            let config = config.read_config::<OutletConfig>(problems)?;
            Some(OutletPlan::<T>::new(&config).map(|plan| Box::new(plan) as Box<dyn PlannedNode>))
        }))
    }

    /// Lets the nodes of a kind run on a device, where their config says `device:`.
    #[must_use]
    pub fn on_device<D: OnDevice>(mut self, name: &str) -> Self {
        let mut variant =
            Kind::new::<D::Node, <D::Node as Node>::Config>(name, Role::Infer, |config, given, cx, problems| {
                let config = config.without(DEVICE).read_config::<<D::Node as Node>::Config>(problems)?;
                Some(plan_on_device::<D>(config, given, cx).map(|plan| Box::new(plan) as Box<dyn PlannedNode>))
            });
        variant.read = |config, problems| read::<<D::Node as Node>::Config>(&config.without(DEVICE), problems);
        variant.device =
            |_, _| Some(DeviceUse { device: D::DEVICE.into(), side: DeviceSide::Both, is_optional: false });
        let of = self.on_devices.entry(name.into()).or_default();
        of.retain(|(device, _)| *device != D::DEVICE);
        of.push((D::DEVICE, variant));
        self.list_devices(name);
        self
    }

    /// Says how to get the device on which nodes of a kind run in other builds of this program:
    /// `build it with …`.
    #[must_use]
    pub fn without_device(mut self, name: &str, device: &'static str, way: &'static str) -> Self {
        self.not_built.entry(name.into()).or_default().push((device, way));
        self
    }

    /// Says how to get kinds that other builds of this program have: `build it with …`.
    #[must_use]
    pub fn without_kinds(mut self, names: &[&'static str], way: &'static str) -> Self {
        self.left_out.extend(names.iter().map(|name| (*name, way)));
        self
    }

    /// Keeps the old name of a key in the configs of the kinds registered under a name: it is read
    /// as the new one, and a notice of the plan names that. A config with both has an unknown key.
    ///
    /// ```
    /// # use limen::Registry;
    /// fn register(registry: Registry) -> Registry {
    ///     // `.source::<Camera>("camera")` comes first.
    ///     registry.renamed_key("camera", "device", "path")
    /// }
    /// ```
    #[must_use]
    pub fn renamed_key(mut self, kind: &str, old: &'static str, new: &'static str) -> Self {
        for kind in self.kinds.get(kind).into_iter().flatten() {
            self.old_keys.entry(kind.node).or_default().push((old, new));
        }
        self
    }

    /// Gives the keys in a node's config that have old names the new ones.
    pub(crate) fn rename_keys(&self, node: &mut NodeSpec) {
        for deprecation in self.deprecated_in(&node.kind.value, !node.inputs.is_empty(), &node.config) {
            node.config.rename(&deprecation);
            node.deprecations.push(deprecation);
        }
    }

    /// Returns the deprecated keys of a config.
    pub(super) fn deprecated_in(&self, kind: &str, has_inputs: bool, config: &Tree) -> Vec<Deprecation> {
        let old_keys = self.named(kind, has_inputs).and_then(|kind| self.old_keys.get(&kind.node));
        old_keys.into_iter().flatten().filter_map(|(old, new)| config.deprecated(old, new)).collect()
    }

    /// Adds a name to a list in the schema of a kind's config, for names that a program adds:
    /// `list` is the list's definition there.
    #[must_use]
    pub fn with_name(mut self, kind: &str, list: &'static str, name: &'static str) -> Self {
        let names = self.names.entry(kind.into()).or_default();
        if !names.contains(&(list, name)) {
            names.push((list, name));
        }
        self.list_devices(kind);
        self
    }

    /// Lets the kinds of a name say on which devices they run, and which names they know.
    fn list_devices(&mut self, name: &str) {
        let devices = self.on_devices.get(name).map_or(&[][..], Vec::as_slice);
        for kind in self.kinds.get_mut(name).into_iter().flatten() {
            let own = devices.iter().filter(|(_, variant)| variant.node == kind.node);
            kind.devices = own.map(|(device, _)| *device).collect();
            kind.names = self.names.get(name).cloned().unwrap_or_default();
        }
    }

    /// Returns every kind, sorted by name.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.values().flatten()
    }

    /// Returns the kind that fits a node: its name, whether it has inputs, and the device in its
    /// config.
    pub(crate) fn find(&self, node: &NodeSpec) -> Option<&Kind> {
        let kind = self.on_host(node)?;
        let written = node.config.get(DEVICE).and_then(Tree::as_text);
        let devices = self.on_devices.get(&kind.name).into_iter().flatten();
        // A program that replaces a kind has no stock device for its own.
        let there = { devices }.find(|(device, of)| Some(*device) == written && of.node == kind.node);
        Some(there.map_or(kind, |(_, there)| there))
    }

    fn on_host(&self, node: &NodeSpec) -> Option<&Kind> {
        self.named(&node.kind.value, !node.inputs.is_empty())
    }

    fn named(&self, kind: &str, has_inputs: bool) -> Option<&Kind> {
        let kinds = self.kinds.get(kind)?;
        kinds.iter().find(|k| (k.role != Role::Source) == has_inputs).or_else(|| kinds.first())
    }

    /// Describes a device in a config on which nodes of the kind do not run: its place, the problem
    /// and a way out.
    pub(crate) fn other_device(&self, node: &NodeSpec) -> Option<(Place, String, String)> {
        let (written, kind) = (node.config.get(DEVICE)?, self.on_host(node)?);
        let name = &kind.name;
        let not_built = self.not_built.get(name).filter(|_| kind.role == Role::Transform).into_iter().flatten();
        if let Some((device, way)) = not_built.copied().find(|(device, _)| written.as_text() == Some(device)) {
            let message = format!("this program does not support `device: {device}` for `{name}`");
            return Some((written.place.clone(), message, format!("{way}, or remove `device` to use the CPU")));
        }
        let is_known = written.as_text().is_some_and(|text| text == CPU || kind.devices.contains(&text));
        if kind.devices.is_empty() || is_known {
            return None;
        }
        let devices: Vec<_> = kind.devices.iter().map(|device| format!("`{device}`")).collect();
        let what = written.value.describe();
        let devices = devices.join(", ");
        let message = format!("`device` must be one of `cpu`, {devices}, got {what}");
        let help = format!("write one of {devices}, or remove `device` to use the CPU");
        Some((written.place.clone(), message, help))
    }

    /// Reads the config of every node whose kind is known, so that each value substituted from
    /// outside the file (variables, settings) is known to be text or not: [`Spec::to_yaml`] then
    /// writes it the way its kind read it. Problems are ignored here; planning reports them.
    pub fn read_configs(&self, spec: &Spec) {
        for node in &spec.nodes {
            let mut node = node.clone();
            self.rename_keys(&mut node);
            if let Some(kind) = self.find(&node) {
                kind.check(&node.config, &mut Problems::default());
            }
        }
    }

    /// Creates the problem of an unknown kind.
    pub(crate) fn unknown(&self, kind: &str, place: &Place) -> Problem {
        if let Some(way) = self.left_out.get(kind) {
            let message = format!("this program was built without the kind `{kind}`");
            return Problem::new("E0124", place.clone(), message).help(*way);
        }
        self.words.unknown(kind, place, &self.kinds)
    }
}
