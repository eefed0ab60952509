//! A kind of node: its name and role, the schema of its config, and how its nodes are planned.

use crate::base::document::Tree;
use crate::base::error::{PlanErrors, Problem, Problems};
use crate::exec::infer::DeviceUse;
use crate::exec::planned::PlannedNode;
use crate::exec::stage::{CallFailure, guarded};
use crate::file::spec::NodeSpec;
use crate::host::panic::catch_panic;
use crate::node::extensions::Extensions;
use crate::node::planning::{Connected, Planning};
use crate::plan::on_device::{CPU, DEVICE};
use crate::port::error::NodeError;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::borrow::Cow;

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
    pub(super) read: fn(&Tree, &mut Problems),
    plan: PlanFn,
    pub(super) device: fn(&Tree, &Extensions) -> Option<DeviceUse>,
    /// The type that was registered: what runs on a device belongs to it.
    pub(super) node: TypeId,
    /// The devices on which its nodes can run, beside the CPU.
    pub(super) devices: Vec<&'static str>,
    /// Names that the program adds to lists of its schema, by the list's definition.
    pub(super) names: Vec<(&'static str, &'static str)>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.role.name())
    }
}

/// The advice after a panic in a kind.
const PANIC_ADVICE: &str = "change `config`, and report the panic to the author of the kind";

pub(super) type PlanFn =
    fn(&Tree, &Connected, &mut Planning<'_>, &mut Problems) -> Option<Result<Box<dyn PlannedNode>, PlanErrors>>;

impl Kind {
    /// Creates a kind with the config `C`, whose nodes are of the type `N` and run on the CPU.
    pub(super) fn new<N: 'static, C: DeserializeOwned + JsonSchema>(name: &str, role: Role, plan: PlanFn) -> Self {
        Kind {
            name: name.into(),
            role,
            schema: schema_of::<C>,
            read: read::<C>,
            plan,
            device: |_, _| None,
            node: TypeId::of::<N>(),
            devices: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Returns the JSON schema of its `config:`, as `schemars` derives it.
    pub fn schema(&self) -> Schema {
        let mut schema = (self.schema)();
        for (list, name) in &self.names {
            let known = schema.pointer_mut(&format!("/$defs/{list}/oneOf")).and_then(|known| known.as_array_mut());
            known.into_iter().for_each(|known| known.push(json_schema!({ "const": name, "type": "string" }).into()));
        }
        if !self.devices.is_empty() {
            let about = "The device on which the node runs, with its messages in the memory of the device; `cpu` by default. \
                         Messages on a device must have fixed shapes. The GPU page lists the values of other keys that a device \
                         does not support.";
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

    /// Returns the device on which nodes of a config keep their messages. Problems of the config
    /// are reported by others.
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
        if let Err(failure) = outcome {
            let message = format!("kind `{}` failed to read the config: {}", self.name, failure.text());
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
            Err(failure) => {
                let mut errors = PlanErrors::default();
                let why = format!("kind `{}` failed to declare the ports: {}", self.name, failure.text());
                errors.node(why).help(PANIC_ADVICE);
                Some(Err(errors))
            }
        }
    }
}

/// [`guarded`] for threads not started by the engine.
fn quietly<R>(name: &'static str, call: impl FnOnce() -> Result<R, NodeError>) -> Result<R, CallFailure> {
    catch_panic(|| guarded(name, call)).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub(super) fn read<T: DeserializeOwned>(config: &Tree, problems: &mut Problems) {
    config.read_config::<T>(problems);
}

fn schema_of<T: JsonSchema>() -> Schema {
    root_schema(T::json_schema, T::schema_name)
}

/// As [`SchemaGenerator::into_root_schema_for`] with the default settings, but compiled once
/// instead of for every config. A config that contains itself refers to its definition, not to the
/// root.
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
