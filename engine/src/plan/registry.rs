//! The registry of kinds. An explicit value, so that a program has exactly the kinds it registers and the linker drops
//! the others.

use crate::base::document::Tree;
use crate::base::error::{Place, PlanErrors, Problem, Problems, nearest, suggest};
use crate::exec::infer::{DeviceSide, DeviceUse, Infer, InferPlan};
use crate::exec::planned::{PlannedNode, StageParts};
use crate::exec::stage::{SinkStage, SourceStage, Stage, TransformStage, Trouble, build_node, guarded};
use crate::exec::worker::Cx;
use crate::file::spec::{NodeSpec, Spec};
use crate::handle::{InletConfig, InletPlan, OutletConfig, OutletPlan};
use crate::host::panic::catch_panic;
use crate::message::payload::Payload;
use crate::message::tensor::Tensor;
use crate::node::extensions::Extensions;
use crate::node::one_to_one::{InPlace, InPlaceNode, OneToOne, OneToOneNode};
use crate::node::planning::{Building, Connected, Planning};
use crate::node::ports::Ports;
use crate::node::{Node, PortType, Sink, Source, Transform};
use crate::plan::on_device::{CPU, DEVICE, OnDevice, plan_on_device};
use crate::port::emit::Emit;
use crate::port::error::NodeError;
use crate::port::intake::Intake;
use crate::port::intake::SealedInputs;
use crate::port::output::SealedOutputs;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;

/// The role of a node in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Role {
    /// Creates messages.
    Source,
    /// Makes messages from messages.
    Transform,
    /// Runs a model.
    Infer,
    /// Consumes messages.
    Sink,
}

impl Role {
    /// The word used in lists.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A kind of node, as lists show it.
pub struct Kind {
    /// Its name in YAML.
    pub name: String,
    /// Its role in a graph.
    pub role: Role,
    schema: fn() -> Schema,
    read: fn(&Tree, &mut Problems),
    plan: PlanFn,
    device: fn(&Tree, &Extensions) -> Option<DeviceUse>,
    /// The type that was registered: what runs on a device belongs to it.
    node: TypeId,
    /// The devices on which its nodes can run, beside the CPU.
    devices: Vec<&'static str>,
    /// Names that the program adds to lists of its schema, by the list's definition.
    names: Vec<(&'static str, &'static str)>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.role.name())
    }
}

/// The advice after a panic in a kind.
const PANIC_ADVICE: &str = "change its config, and report this to the author of the kind";

type PlanFn =
    fn(&Tree, &Connected, &mut Planning<'_>, &mut Problems) -> Option<Result<Box<dyn PlannedNode>, PlanErrors>>;

impl Kind {
    /// Returns the JSON schema of its `config:`, as `schemars` derives it.
    pub fn schema(&self) -> Schema {
        let mut schema = (self.schema)();
        for (list, name) in &self.names {
            let known = schema.pointer_mut(&format!("/$defs/{list}/oneOf")).and_then(|known| known.as_array_mut());
            known.into_iter().for_each(|known| known.push(json_schema!({ "const": name, "type": "string" }).into()));
        }
        if !self.devices.is_empty() {
            let about = "The device on which it runs, with its messages in the memory there, which need fixed shapes; `cpu` by default. \
                         The page about GPUs says which values of the other keys a device lacks.";
            let names: Vec<&str> = self.devices.iter().copied().chain([CPU]).collect();
            let device = json_schema!({ "description": about, "type": "string", "enum": names });
            let object = schema.ensure_object();
            let properties = object.entry("properties").or_insert_with(|| Schema::default().to_value());
            properties.as_object_mut().into_iter().for_each(|all| _ = all.insert(DEVICE.into(), device.clone().into()));
        }
        schema
    }

    /// Returns a description in one sentence: the documentation of its config.
    pub fn about(&self) -> String {
        let schema = self.schema();
        schema.get("description").and_then(|d| d.as_str()).unwrap_or_default().to_string()
    }

    /// Whether its config has a place for the values of constant inputs.
    pub(crate) fn takes_constants(&self) -> bool {
        let schema = (self.schema)();
        let properties = schema.get("properties").and_then(|properties| properties.as_object());
        self.role == Role::Infer || properties.is_some_and(|properties| properties.contains_key(NodeSpec::CONSTANTS))
    }

    /// Returns the device on which nodes of a config keep their messages. Problems of the config are reported by others.
    pub(crate) fn device(&self, config: &Tree, extensions: &Extensions) -> Option<DeviceUse> {
        quietly("config", || Ok((self.device)(config, extensions))).unwrap_or(None)
    }

    /// Returns a config without `device: cpu`, which a kind need not know.
    fn of_host<'a>(&self, config: &'a Tree) -> Cow<'a, Tree> {
        let is_written = config.get(DEVICE).and_then(Tree::as_text) == Some(CPU);
        if is_written && !self.devices.is_empty() { Cow::Owned(config.without(DEVICE)) } else { Cow::Borrowed(config) }
    }

    /// Reads a config and reports its problems.
    pub(crate) fn check(&self, config: &Tree, problems: &mut Problems) {
        let outcome = quietly("config", || {
            (self.read)(&self.of_host(config), problems);
            Ok(())
        });
        if let Err(trouble) = outcome {
            let message = format!("kind `{}` failed to read this config: it {}", self.name, trouble.text());
            problems.push(Problem::new("E0130", config.place.clone(), message).help(PANIC_ADVICE));
        }
    }

    pub(crate) fn plan(
        &self,
        config: &Tree,
        given: &Connected,
        cx: &mut Planning<'_>,
        problems: &mut Problems,
    ) -> Option<Result<Box<dyn PlannedNode>, PlanErrors>> {
        match quietly("ports", || Ok((self.plan)(&self.of_host(config), given, cx, problems))) {
            Ok(planned) => planned,
            Err(trouble) => {
                let mut errors = PlanErrors::default();
                let why = format!("kind `{}` failed to declare the node's ports: it {}", self.name, trouble.text());
                errors.node(why).help(PANIC_ADVICE);
                Some(Err(errors))
            }
        }
    }
}

/// [`guarded`] for threads not started by the engine.
fn quietly<R>(name: &'static str, call: impl FnOnce() -> Result<R, NodeError>) -> Result<R, Trouble> {
    catch_panic(|| guarded(name, call)).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

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
    /// The words of the documentation of each kind, once an unknown kind was looked for.
    words: OnceLock<HashMap<String, HashSet<String>>>,
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
        self.words = OnceLock::new();
        let same = self.kinds.entry(kind.name.clone()).or_default();
        // A later registration replaces an earlier one of the same role, so that a program can replace stock kinds.
        same.retain(|k| (k.role == Role::Source) != (kind.role == Role::Source));
        same.push(kind);
        self.list_devices(&name);
        self
    }

    /// Adds a kind of source. A source and a sink may share a name: a node with inputs is the sink.
    #[must_use]
    pub fn source<N: Source>(self, name: &str) -> Self {
        self.add(Kind {
            name: name.into(),
            role: Role::Source,
            schema: schema_of::<N::Config>,
            read: read::<N::Config>,
            plan: |config, given, cx, problems| {
                plan_node::<N>(config, given, cx, problems, |p| Box::new(SourceNode(p)))
            },
            device: |_, _| None,
            node: TypeId::of::<N>(),
            devices: Vec::new(),
            names: Vec::new(),
        })
    }

    /// Adds a kind of transform.
    #[must_use]
    pub fn transform<N: Transform>(self, name: &str) -> Self {
        self.add(Kind {
            name: name.into(),
            role: Role::Transform,
            schema: schema_of::<N::Config>,
            read: read::<N::Config>,
            plan: |config, given, cx, problems| {
                plan_node::<N>(config, given, cx, problems, |p| Box::new(TransformNode(p)))
            },
            device: |_, _| None,
            node: TypeId::of::<N>(),
            devices: Vec::new(),
            names: Vec::new(),
        })
    }

    /// Adds a kind of sink.
    #[must_use]
    pub fn sink<N: Sink>(self, name: &str) -> Self {
        self.add(Kind {
            name: name.into(),
            role: Role::Sink,
            schema: schema_of::<N::Config>,
            read: read::<N::Config>,
            plan: |config, given, cx, problems| plan_node::<N>(config, given, cx, problems, |p| Box::new(SinkNode(p))),
            device: |_, _| None,
            node: TypeId::of::<N>(),
            devices: Vec::new(),
            names: Vec::new(),
        })
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
        self.add(Kind {
            name: name.into(),
            role: Role::Infer,
            schema: schema_of::<K::Config>,
            read: read::<K::Config>,
            plan: |config, given, cx, problems| {
                let config = config.read_config::<K::Config>(problems)?;
                Some(K::plan(config, given, cx).map(|plan| Box::new(plan) as Box<dyn PlannedNode>))
            },
            device: |config, extensions| {
                K::device(&config.read_config::<K::Config>(&mut Problems::default())?, extensions)
            },
            node: TypeId::of::<K>(),
            devices: Vec::new(),
            names: Vec::new(),
        })
    }

    /// Adds a kind of source whose messages a program sends through an [`Inlet`](crate::Inlet). The stock nodes have
    /// `inlet` for tensors; a program with its own payload type adds one for it.
    #[must_use]
    pub fn inlet<T: Payload>(self, name: &str) -> Self {
        self.add(Kind {
            name: name.into(),
            role: Role::Source,
            schema: schema_of::<InletConfig>,
            read: read::<InletConfig>,
            plan: |config, _, _, problems| {
                let config = config.read_config::<InletConfig>(problems)?;
                Some(InletPlan::<T>::new(&config).map(|plan| Box::new(plan) as Box<dyn PlannedNode>))
            },
            device: |_, _| None,
            node: TypeId::of::<InletPlan<T>>(),
            devices: Vec::new(),
            names: Vec::new(),
        })
    }

    /// Adds a kind of sink whose messages a program receives through an [`Outlet`](crate::Outlet). The stock nodes have
    /// `outlet` for tensors; a program with its own payload type adds one for it.
    #[must_use]
    pub fn outlet<T: Payload>(self, name: &str) -> Self {
        self.add(Kind {
            name: name.into(),
            role: Role::Sink,
            schema: schema_of::<OutletConfig>,
            read: read::<OutletConfig>,
            plan: |config, _, _, problems| {
                let config = config.read_config::<OutletConfig>(problems)?;
                Some(OutletPlan::<T>::new(&config).map(|plan| Box::new(plan) as Box<dyn PlannedNode>))
            },
            device: |_, _| None,
            node: TypeId::of::<OutletPlan<T>>(),
            devices: Vec::new(),
            names: Vec::new(),
        })
    }

    /// Lets the nodes of a kind run on a device, where their config says `device:`.
    #[must_use]
    pub fn on_device<D: OnDevice>(mut self, name: &str) -> Self {
        let variant = Kind {
            name: name.into(),
            role: Role::Infer,
            schema: schema_of::<<D::Node as Node>::Config>,
            read: |config, problems| read::<<D::Node as Node>::Config>(&config.without(DEVICE), problems),
            plan: |config, given, cx, problems| {
                let config = config.without(DEVICE).read_config::<<D::Node as Node>::Config>(problems)?;
                Some(plan_on_device::<D>(config, given, cx).map(|plan| Box::new(plan) as Box<dyn PlannedNode>))
            },
            device: |_, _| Some(DeviceUse { device: D::DEVICE.into(), side: DeviceSide::Both, is_optional: false }),
            node: TypeId::of::<D::Node>(),
            devices: Vec::new(),
            names: Vec::new(),
        };
        let of = self.on_devices.entry(name.into()).or_default();
        of.retain(|(device, _)| *device != D::DEVICE);
        of.push((D::DEVICE, variant));
        self.list_devices(name);
        self
    }

    /// Says how to get the device on which nodes of a kind run in other builds of this program: `build it with …`.
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

    /// Keeps the old name of a key in the configs of the kinds registered under a name: it is read as the new one, and a notice of the
    /// plan names that. A config with both has an unknown key.
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
        let Some(kind) = self.on_host(node) else { return };
        for (old, new) in self.old_keys.get(&kind.node).into_iter().flatten() {
            if node.config.rename(old, new) {
                let place = node.config.locate(new);
                node.notices.push(format!("has `{old}`, a deprecated name of `{new}`: write `{new}` ({place})"));
            }
        }
    }

    /// Adds a name to a list in the schema of a kind's config, for names that a program adds: `list` is the list's definition there.
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

    /// Returns the kind that fits a node: its name, whether it has inputs, and the device in its config.
    pub(crate) fn find(&self, node: &NodeSpec) -> Option<&Kind> {
        let kind = self.on_host(node)?;
        let written = node.config.get(DEVICE).and_then(Tree::as_text);
        let devices = self.on_devices.get(&kind.name).into_iter().flatten();
        // A program that replaces a kind has no stock device for its own.
        let there = { devices }.find(|(device, of)| Some(*device) == written && of.node == kind.node);
        Some(there.map_or(kind, |(_, there)| there))
    }

    fn on_host(&self, node: &NodeSpec) -> Option<&Kind> {
        let kinds = self.kinds.get(&node.kind.value)?;
        let has_inputs = !node.inputs.is_empty();
        kinds.iter().find(|k| (k.role != Role::Source) == has_inputs).or_else(|| kinds.first())
    }

    /// Describes a device in a config on which nodes of the kind do not run: its place, the problem and a way out.
    pub(crate) fn other_device(&self, node: &NodeSpec) -> Option<(Place, String, String)> {
        let (written, kind) = (node.config.get(DEVICE)?, self.on_host(node)?);
        let name = &kind.name;
        let not_built = self.not_built.get(name).filter(|_| kind.role == Role::Transform).into_iter().flatten();
        if let Some((device, way)) = not_built.copied().find(|(device, _)| written.as_text() == Some(device)) {
            let message = format!("`{name}` does not run on `{device}` in this program");
            return Some((written.place.clone(), message, format!("{way}, or leave `device` out for the CPU")));
        }
        let is_known = written.as_text().is_some_and(|text| text == CPU || kind.devices.contains(&text));
        if kind.devices.is_empty() || is_known {
            return None;
        }
        let devices: Vec<_> = kind.devices.iter().map(|device| format!("`{device}`")).collect();
        let what = written.value.describe();
        let message = format!("`{}` can run on `cpu` or {}; this is {what}", node.name, devices.join(", "));
        let help = format!("write {}, or leave `device` out for the CPU", devices.join(" or "));
        Some((written.place.clone(), message, help))
    }

    /// Reads the config of every node whose kind is known, so that each value substituted from outside the file (variables, settings) is
    /// known to be text or not: [`Spec::to_yaml`] then writes it the way its kind read it. Problems are ignored here; planning reports
    /// them.
    pub fn read_configs(&self, spec: &Spec) {
        for node in &spec.nodes {
            let mut node = node.clone();
            self.rename_keys(&mut node);
            if let Some(kind) = self.find(&node) {
                kind.check(&node.config, &mut Problems::default());
            }
        }
    }

    /// Returns at most five kinds that mention a word: first those with the word in their name, then those with the word in their
    /// documentation. Words of fewer than four letters, such as "the", are not searched in documentation.
    fn that_mention(&self, word: &str) -> Vec<String> {
        let word = word.to_lowercase();
        let (named, others): (Vec<_>, Vec<_>) =
            self.kinds.keys().partition(|name| words(name).any(|part| part == word));
        let described = self.words.get_or_init(|| {
            let of = |kinds: &[Kind]| kinds.iter().flat_map(|kind| words(&kind.about()).collect::<Vec<_>>()).collect();
            self.kinds.iter().map(|(name, kinds)| (name.clone(), of(kinds))).collect()
        });
        let is_long = word.chars().count() >= 4;
        let others =
            others.into_iter().filter(|name| is_long && described.get(*name).is_some_and(|has| has.contains(&word)));
        named.into_iter().chain(others).take(5).map(|name| format!("`{name}`")).collect()
    }

    /// Creates the problem of an unknown kind.
    pub(crate) fn unknown(&self, kind: &str, place: &Place) -> Problem {
        if let Some(way) = self.left_out.get(kind) {
            let message = format!("this program was built without the kind `{kind}`");
            return Problem::new("E0124", place.clone(), message).help(*way);
        }
        let names = self.kinds.keys().map(String::as_str);
        let help = match nearest(kind, names.clone()) {
            Some(_) => suggest(kind, names),
            None => match &self.that_mention(kind)[..] {
                [] => format!("{}; `limen-run kinds` describes each", suggest(kind, names)),
                some => {
                    format!("kinds that mention `{kind}`: {}; `limen-run explain KIND` describes one", some.join(", "))
                }
            },
        };
        Problem::new("E0124", place.clone(), format!("there is no kind `{kind}`")).help(help)
    }
}

/// The words of a text in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase)
}

fn read<T: DeserializeOwned>(config: &Tree, problems: &mut Problems) {
    config.read_config::<T>(problems);
}

fn schema_of<T: JsonSchema>() -> Schema {
    root_schema(T::json_schema, T::schema_name)
}

/// As [`SchemaGenerator::into_root_schema_for`] with the default settings, but compiled once instead of for every config. A config
/// that contains itself refers to its definition, not to the root.
fn root_schema(schema: fn(&mut SchemaGenerator) -> Schema, name: fn() -> Cow<'static, str>) -> Schema {
    let mut generator = SchemaGenerator::default();
    let mut schema = schema(&mut generator);
    let definitions = generator.take_definitions(false);
    let object = schema.ensure_object();
    object.entry("title").or_insert_with(|| name().into());
    if let Some(dialect) = &generator.settings().meta_schema {
        object.insert("$schema".into(), dialect.as_ref().into());
    }
    if !definitions.is_empty() {
        object.insert("$defs".into(), definitions.into());
    }
    schema
}

struct PlannedConfig<N: Node> {
    config: N::Config,
    ports: Ports,
}

fn plan_node<N: Node>(
    config: &Tree,
    given: &Connected,
    cx: &mut Planning<'_>,
    problems: &mut Problems,
    erase: fn(PlannedConfig<N>) -> Box<dyn PlannedNode>,
) -> Option<Result<Box<dyn PlannedNode>, PlanErrors>> {
    let config = config.read_config::<N::Config>(problems)?;
    Some(N::ports(&config, given, cx).map(|ports| erase(PlannedConfig { config, ports })))
}

struct SourceNode<N: Source>(PlannedConfig<N>);
struct TransformNode<N: Transform>(PlannedConfig<N>);
struct SinkNode<N: Sink>(PlannedConfig<N>);

impl<N: Source> PlannedNode for SourceNode<N> {
    fn ports(&self) -> &Ports {
        &self.0.ports
    }
    fn input_types(&self) -> Vec<PortType> {
        Vec::new()
    }
    fn output_types(&self) -> Vec<PortType> {
        N::Out::types(self.0.ports.outputs.len())
    }
    fn counts(&self) -> (Option<usize>, Option<usize>) {
        (Some(0), <N::Out as SealedOutputs>::COUNT)
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        building: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let node: N = build_node(self.0.config, building)?;
        Ok(Box::new(SourceStage::new(node, parts, building.descriptors(), cx)))
    }
}

impl<N: Transform> PlannedNode for TransformNode<N> {
    fn ports(&self) -> &Ports {
        &self.0.ports
    }
    fn input_types(&self) -> Vec<PortType> {
        N::In::types(self.0.ports.inputs.len())
    }
    fn output_types(&self) -> Vec<PortType> {
        N::Out::types(self.0.ports.outputs.len())
    }
    fn counts(&self) -> (Option<usize>, Option<usize>) {
        (<N::In as SealedInputs>::COUNT, <N::Out as SealedOutputs>::COUNT)
    }
    fn writes(&self) -> bool {
        N::In::WRITES
    }
    fn merges(&self) -> bool {
        N::In::MERGES
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        building: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let node: N = build_node(self.0.config, building)?;
        Ok(Box::new(TransformStage::new(node, parts, cx)))
    }
}

impl<N: Sink> PlannedNode for SinkNode<N> {
    fn ports(&self) -> &Ports {
        &self.0.ports
    }
    fn input_types(&self) -> Vec<PortType> {
        N::In::types(self.0.ports.inputs.len())
    }
    fn output_types(&self) -> Vec<PortType> {
        Vec::new()
    }
    fn counts(&self) -> (Option<usize>, Option<usize>) {
        (<N::In as SealedInputs>::COUNT, Some(0))
    }
    fn merges(&self) -> bool {
        N::In::MERGES
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        building: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let node: N = build_node(self.0.config, building)?;
        Ok(Box::new(SinkStage::new(node, parts, building.descriptors(), cx)))
    }
}

impl PlannedNode for InferPlan {
    fn ports(&self) -> &Ports {
        &self.ports
    }
    fn input_types(&self) -> Vec<PortType> {
        vec![PortType::of::<Tensor>(); self.ports.inputs.len()]
    }
    fn output_types(&self) -> Vec<PortType> {
        vec![PortType::of::<Tensor>(); self.ports.outputs.len()]
    }
    fn counts(&self) -> (Option<usize>, Option<usize>) {
        (Some(self.ports.inputs.len()), Some(self.ports.outputs.len()))
    }
    fn batch(&self) -> usize {
        self.batch.max
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        _: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let intake = Intake::build(parts.intake);
        let emit = Emit::new(parts.outputs, parts.begin, cx.clock().clone());
        self.stage(parts.common, intake, emit, cx)
    }
}
