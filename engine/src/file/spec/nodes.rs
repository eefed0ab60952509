//! Reading the nodes of a graph file and their connections.

use super::{InputSpec, NodeSpec, Placed, Places, SpecReader, is_name};
use crate::base::deprecation::Deprecation;
use crate::base::document::{Key, Tree, Value};
use crate::base::error::{Place, Problem};
use crate::base::policy::{ClockOffset, Criticality, EdgePolicy, FaultSpec, NodePolicy, OnError, OnGap, RestartSpec};
use crate::base::unit::{Offset, Span, show_ns};
use std::collections::HashMap;

/// The largest number of messages an edge may hold.
pub(crate) const MAX_CAPACITY: usize = 1 << 24;

/// Returns the deprecated key of a join.
pub(crate) fn deprecated_in_join(join: &Tree) -> Option<Deprecation> {
    join.deprecated("hold", "wait")
}

impl SpecReader<'_> {
    pub(super) fn nodes(&mut self, tree: &Tree) -> Vec<NodeSpec> {
        let Value::Map(entries) = &tree.value else {
            let message = format!("`nodes` must be a map of nodes by name, got {}", tree.value.describe());
            self.problem("E0105", &tree.place, message, "write `nodes: { camera: { kind: .. } }`");
            return Vec::new();
        };
        // YAML refuses duplicate keys, but an expanded subgraph may produce the name of another
        // node.
        let mut seen: HashMap<&str, &Place> = HashMap::new();
        self.misnamed.extend(entries.iter().map(|(key, _)| &key.name).filter(|name| !is_name(name)).cloned());
        let mut nodes = Vec::new();
        for (key, value) in entries {
            let before = self.problems.0.len();
            let mut node = self.node(key, value);
            let unread = |problem: &Problem| matches!(problem.code, "E0103" | "E0105" | "E0112" | "E0114");
            node.in_doubt = self.problems.0[before..].iter().any(unread);
            match seen.get(&*key.name) {
                None => {
                    seen.insert(&key.name, &key.place);
                    nodes.push(node);
                }
                Some(first) => {
                    let message = format!("duplicate node `{}`, also defined at {first}", key.name);
                    self.problem("E0149", &key.place, message, format!("rename one of the two nodes `{}`", key.name));
                }
            }
        }
        nodes
    }

    fn node(&mut self, key: &Key, tree: &Tree) -> NodeSpec {
        self.name(key, "a node");
        let known = [
            "kind",
            "config",
            "from",
            "inputs",
            "core",
            "cpu",
            "on_error",
            "criticality",
            "join",
            "budget",
            "fault",
            "qos",
            "clock",
        ];
        let mut node = NodeSpec {
            name: key.name.clone(),
            place: key.place.clone(),
            kind: Placed { value: String::new(), place: tree.place.clone() },
            config: Tree { place: tree.place.clone(), value: Value::Null },
            inputs: Vec::new(),
            constants: Vec::new(),
            core: None,
            cpu: None,
            policy: NodePolicy::default(),
            places: Places::default(),
            deprecations: Vec::new(),
            in_doubt: false,
        };
        let before = self.problems.0.len();
        let entries = self.map(tree, &format!("node `{}`", key.name), &known);
        node.places = Places::of(entries);
        let policy = &mut node.policy;
        for (key, value) in entries {
            match key.name.as_str() {
                "kind" => {
                    let kind = self.text(value, "kind").unwrap_or_default();
                    node.kind = Placed { value: kind, place: value.place.clone() };
                }
                "config" => node.config = value.clone(),
                "from" => node.inputs.extend(self.input(None, value)),
                "inputs" => match &value.value {
                    Value::Map(inputs) => {
                        for (port, value) in inputs {
                            self.name(port, "an input");
                            if let Some(constant) = value.get("value") {
                                self.map(value, "a constant input", &["value"]);
                                node.constants.push((port.clone(), constant.clone()));
                                continue;
                            }
                            node.inputs.extend(self.input(Some(port.name.clone()), value));
                        }
                    }
                    other => {
                        let message =
                            format!("`inputs` must be a map of `node/port` by input, got {}", other.describe());
                        let help = match value.as_text() {
                            // A single input needs no name.
                            Some(text) => format!("write `from: {text}`"),
                            None => "write `inputs: { image: camera/image }`".into(),
                        };
                        self.problem("E0105", &value.place, message, help);
                    }
                },
                "core" => node.core = self.number(value, "core", 0..=1023),
                "cpu" => node.cpu = self.number(value, "cpu", 0..=1023),
                "on_error" => (policy.on_error, policy.restart) = self.on_error(value),
                "criticality" => policy.criticality = value.read(self.problems).unwrap_or_default(),
                "qos" => policy.qos = value.read(self.problems),
                "clock" => policy.clock = self.clock(value).unwrap_or_default(),
                "join" => {
                    let mut join = value.clone();
                    if let Some(found) = deprecated_in_join(&join) {
                        join.rename(&found);
                        node.deprecations.push(found);
                    }
                    policy.join = join.read(self.problems);
                }
                "budget" => policy.budget = value.read(self.problems),
                "fault" => policy.fault = self.fault(value),
                _ => {}
            }
        }
        if node.policy.criticality == Criticality::BestEffort {
            match node.places.get("on_error").cloned() {
                None => node.policy.on_error = OnError::Detach,
                Some(place) if node.policy.on_error == OnError::Stop => {
                    let message = format!("`{}` is `best_effort`, but its failure would end the run", key.name);
                    self.problem("E0170", &place, message, "write `on_error: detach`, or `criticality: normal`");
                }
                Some(_) => {}
            }
        }
        if node.core.is_some() && node.cpu.is_some() {
            self.problem("E0117", &node.place, "expected `core` or `cpu`, found both", "remove `core` or `cpu`");
        }
        let is_map = matches!(tree.value, Value::Map(_));
        if is_map && node.places.get("kind").is_none() && !tree.has_misspelt("kind", &self.problems.0[before..]) {
            let message = format!("`kind` is missing in node `{}`", key.name);
            self.problem("E0112", &key.place, message, "add `kind: ..` with a kind from `limen-run kinds`");
        }
        node
    }

    /// `skip`, or `{ restart: { max: 3, backoff: 100ms } }`.
    fn on_error(&mut self, tree: &Tree) -> (OnError, RestartSpec) {
        if matches!(tree.value, Value::Map(_)) {
            let entries = self.map(tree, "`on_error`", &["restart"]);
            let restart = entries.iter().find(|(key, _)| key.name == "restart");
            let spec: RestartSpec = restart.and_then(|(_, value)| value.read(self.problems)).unwrap_or_default();
            let longest = spec.backoff.as_nanos().saturating_mul((1u64 << spec.max.min(40)) - 1);
            if entries.is_empty() {
                self.problem(
                    "E0105",
                    &tree.place,
                    "`on_error` must be a word or a map with `restart`, got an empty map",
                    "write `on_error: { restart: { max: 3 } }`",
                );
            } else if let Some(within) = spec.within.map(Span::as_nanos).filter(|within| *within <= longest) {
                let (longest, within) = (show_ns(longest), show_ns(within));
                let message = format!(
                    "`within` must be longer than the backoff of {} restarts ({longest}), got {within}",
                    spec.max
                );
                let help = format!("write `within:` above {longest}");
                self.problem("E0106", &tree.place, message, help);
            }
            if spec.max == 0 {
                self.problem(
                    "E0106",
                    &tree.place,
                    "`max` must be at least 1, got 0",
                    "write `max: 1`, or `on_error: stop`",
                );
            }
            return (OnError::Restart, spec);
        }
        (tree.read(self.problems).unwrap_or_default(), RestartSpec::default())
    }

    fn fault(&mut self, tree: &Tree) -> Option<FaultSpec> {
        let fault: Option<FaultSpec> = tree.read(self.problems);
        if let Some((message, help)) = fault.as_ref().and_then(FaultSpec::problem) {
            self.problem("E0138", &tree.place, message, help);
        }
        fault
    }

    /// `{ offset: -3ms }`, or `{ offset: auto }`.
    fn clock(&mut self, tree: &Tree) -> Option<ClockOffset> {
        let entries = self.map(tree, "`clock`", &["offset"]);
        let Some((_, offset)) = entries.iter().find(|(key, _)| key.name == "offset") else {
            if matches!(tree.value, Value::Map(_)) && !tree.has_misspelt("offset", &self.problems.0) {
                self.problem(
                    "E0105",
                    &tree.place,
                    "`offset` is missing in `clock`",
                    "write `clock: { offset: -3ms }` or `clock: { offset: auto }`",
                );
            }
            return None;
        };
        if offset.as_text() == Some("auto") {
            return Some(ClockOffset::Auto);
        }
        Some(ClockOffset::By(offset.read::<Offset>(self.problems)?.0))
    }

    /// `camera`, `camera/image`, or `{ from: camera/image, capacity: 64, when_full: latest }`.
    fn input(&mut self, port: Option<String>, tree: &Tree) -> Option<InputSpec> {
        let mut places = Places::default();
        let (from, policy) = match &tree.value {
            Value::Map(entries) => {
                places = Places::of(entries);
                self.connection(tree)?
            }
            _ => (tree, EdgePolicy::default()),
        };
        if let (Some(port), Value::Int(_) | Value::Float(_) | Value::Bool(_)) = (&port, &from.value) {
            let value = from.value.scalar().unwrap_or_default();
            let message = format!("input `{port}` must be a node, got {}", from.value.describe());
            let help = format!("write `{port}: {{ value: {value} }}` for a constant");
            self.problem("E0105", &from.place, message, help);
            return None;
        }
        let text = self.text(from, "from")?;
        let (node, output) = match text.split_once('/') {
            Some((node, output)) => (node.to_string(), Some(output.to_string())),
            None => (text.clone(), None),
        };
        let node = self.meant(node);
        let is_node = is_name(&node) || self.misnamed.contains(&node);
        if !is_node || !output.as_deref().is_none_or(is_name) {
            let message = format!("expected `node` or `node/port`, found `{text}`");
            // A port of a topic has dots where the topic has slashes.
            let dotted =
                output.filter(|output| is_name(&node) && output.contains('/')).map(|output| output.replace('/', "."));
            let help = dotted.filter(|dotted| is_name(dotted)).map_or_else(
                || "write the name of a node of this graph".to_string(),
                |dotted| format!("write `{node}/{dotted}`, with `.` instead of `/` in the port"),
            );
            self.problem("E0114", &from.place, message, help);
            return None;
        }
        Some(InputSpec { port, place: from.place.clone(), node, output, policy, places })
    }

    /// Reads a connection that is a map: its producer and the policy of its edge.
    fn connection<'t>(&mut self, tree: &'t Tree) -> Option<(&'t Tree, EdgePolicy)> {
        type Read = fn(&mut SpecReader<'_>, &Tree, &mut EdgePolicy);
        let keys: [(&str, Read); 12] = [
            ("from", |_, _, _| {}),
            ("capacity", |reader, value, policy| policy.capacity = reader.capacity("capacity", value)),
            ("when_full", |reader, value, policy| policy.when_full = value.read(reader.problems).unwrap_or_default()),
            ("soft_capacity", |reader, value, policy| policy.soft_capacity = reader.capacity("soft_capacity", value)),
            ("max_bytes", |reader, value, policy| policy.max_bytes = value.read(reader.problems)),
            ("soft_bytes", |reader, value, policy| policy.soft_bytes = value.read(reader.problems)),
            ("soft_evict", |reader, value, policy| policy.soft_evict = value.read(reader.problems)),
            ("urgent_capacity", |reader, value, policy| {
                policy.urgent_capacity = reader.capacity("urgent_capacity", value)
            }),
            ("max_age", |reader, value, policy| policy.max_age = value.read(reader.problems)),
            ("expect_every", |reader, value, policy| policy.expect_every = value.read(reader.problems)),
            ("on_gap", |reader, value, policy| policy.on_gap = value.read(reader.problems).unwrap_or_default()),
            ("stream", |reader, value, policy| policy.stream = value.read(reader.problems).unwrap_or_default()),
        ];
        let (from, mut policy) = (tree.get("from"), EdgePolicy::default());
        let before = self.problems.0.len();
        for (key, value) in self.map(tree, "a connection", &keys.map(|(key, _)| key)) {
            if let Some((_, read)) = keys.iter().find(|(known, _)| *known == key.name) {
                read(self, value, &mut policy);
            }
        }
        if policy.on_gap != OnGap::Count && tree.get("expect_every").is_none() {
            let message = format!("`on_gap: {}` requires `expect_every`", policy.on_gap.name());
            self.problem("E0118", &tree.locate("on_gap"), message, "add `expect_every: 1s`");
        }
        if from.is_none() && !tree.has_misspelt("from", &self.problems.0[before..]) {
            let message = "`from` is missing in the connection";
            self.problem("E0114", &tree.place, message, "add `from: node/port`");
        }
        Some((from?, policy))
    }

    fn capacity(&mut self, key: &str, tree: &Tree) -> Option<usize> {
        self.number(tree, key, 1..=MAX_CAPACITY as i128).map(|number| number.value)
    }
}
