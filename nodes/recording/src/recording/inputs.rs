//! Inputs of a node as topics with schemas.

use super::meaning::{Channel, Meaning, Scan, Schemas};
use limen::message::{DType, PortSpec};
use limen::node::{Building, Connected, NodeError, PlanErrors};
use limen_nodes_core::format::precision::READ_AS_F64;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Topic, meaning and frame of an input, and the geometry of a laser scan.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct TopicConfig {
    /// Topic of the input. Default: `/` and the input's name, with `/` in place of dots.
    pub topic: Option<String>,
    /// Meaning of the tensors. Default: `image` for tensors from cameras and image files, otherwise
    /// `values`.
    #[serde(rename = "as")]
    pub meaning: Option<Meaning>,
    /// Coordinate frame of images, points, poses and similar data. Default: empty.
    #[serde(default)]
    pub frame: String,
    /// For `as: scan`, required: the angles of the first and the last range in rad, such as
    /// `[-1.57, 1.57]`.
    pub angles: Option<[f32; 2]>,
    /// For `as: scan`: the minimum and maximum valid range in m. By default, every range is valid.
    pub ranges: Option<[f32; 2]>,
}

impl TopicConfig {
    fn scan(&self) -> Scan {
        let known = Scan::default();
        Scan { angles: self.angles.unwrap_or(known.angles), ranges: self.ranges.unwrap_or(known.ranges) }
    }

    /// Reports what is wrong with the keys of a scanner, of which `input` has the ranges.
    fn check_scan(&self, input: &str, errors: &mut PlanErrors) {
        let is_scan = self.meaning == Some(Meaning::Scan);
        for (key, _) in [("angles", self.angles), ("ranges", self.ranges)]
            .iter()
            .filter(|(_, is_given)| is_given.is_some() && !is_scan)
        {
            errors
                .at(format!("topics.{input}.{key}"), format!("`{key}` requires `as: scan`"))
                .help(format!("remove `{key}`, or write `as: scan`"));
        }
        let wrong = match self.angles {
            _ if !is_scan => None,
            None => Some("expected `angles` for a scan, found none".to_string()),
            // A scanner that turns several times has more than 2π.
            Some([first, last]) if !(first.abs() <= 100.0 && last.abs() <= 100.0) => {
                Some(format!("`angles` must be -100 to 100 rad, got [{first}, {last}]"))
            }
            Some([first, last]) if first == last => Some(format!("the two `angles` must differ, got {first} twice")),
            Some(_) => None,
        };
        if let Some(message) = wrong {
            errors
                .at(format!("topics.{input}.angles"), message)
                .help("write the angles of the first and the last range in rad: `angles: [-1.57, 1.57]`");
        }
        if let Some([least, most]) = self.ranges.filter(|[least, most]| !(0.0..=*most).contains(least)) {
            let message = format!("`ranges` must be [MIN, MAX] with 0 <= MIN <= MAX, got [{least}, {most}]");
            errors
                .at(format!("topics.{input}.ranges"), message)
                .help("write the least and the greatest range in m: `ranges: [0.1, 30]`");
        }
    }
}

/// How the inputs of a node become topics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputTopics<'a> {
    pub(crate) topics: &'a BTreeMap<String, TopicConfig>,
    pub(crate) schemas: Schemas,
}

impl InputTopics<'_> {
    fn topic(self, input: &str) -> String {
        let written = self.topics.get(input).and_then(|topic| topic.topic.clone());
        written.unwrap_or_else(|| format!("/{}", input.replace('.', "/")))
    }

    fn meaning(self, input: &str, spec: &PortSpec) -> Meaning {
        self.topics.get(input).and_then(|topic| topic.meaning).unwrap_or_else(|| Meaning::of(spec))
    }

    /// The greatest length of an input's message in bytes, but for a kilobyte; `usize::MAX` if
    /// there is no bound.
    pub(crate) fn largest(self, input: &str, spec: &PortSpec) -> usize {
        self.meaning(input, spec).largest(spec).unwrap_or(usize::MAX)
    }

    /// Checks that every topic is that of one input, and that its tensors can have their meaning.
    pub(crate) fn check(self, given: &Connected, errors: &mut PlanErrors) {
        for name in self.topics.keys() {
            if !given.inputs().any(|(input, _)| input == name) {
                let inputs: Vec<&str> = given.inputs().map(|(input, _)| input).collect();
                errors
                    .at(format!("topics.{name}"), format!("expected an input of this node, found `{name}`"))
                    .help(format!("write an input of this node: {}", inputs.join(", ")));
            }
        }
        let mut topics = BTreeSet::new();
        for (input, spec) in given.inputs() {
            let topic = self.topic(input);
            if topic.is_empty() {
                errors
                    .at(format!("topics.{input}.topic"), "expected a topic, found an empty `topic`")
                    .help("write a topic such as `/camera/image`");
            } else if !topics.insert(topic.clone()) {
                errors
                    .input(input, format!("two inputs have the topic `{topic}`"))
                    .help(format!("write `topics: {{ {input}: {{ topic: /another }} }}`"));
            }
            if let (Some(meaning), Some(spec)) = (self.topics.get(input).and_then(|topic| topic.meaning), spec)
                && let Err(expected) = meaning.check(spec)
            {
                let name = meaning.name();
                let is_rounded =
                    meaning == Meaning::Location && meaning.check(&spec.clone().with_dtype(DType::F64)).is_ok();
                errors
                    .at(format!("topics.{input}.as"), format!("`{name}` expects {expected}, found {spec} in `{input}`"))
                    .help(if is_rounded { READ_AS_F64 } else { "write another value for `as`, or remove `as`" });
            }
            if let Some(topic) = self.topics.get(input) {
                topic.check_scan(input, errors);
            }
        }
    }

    /// Returns the channel of every input, in the order in which messages are passed to the node.
    ///
    /// # Errors
    /// An input has no spec.
    pub(crate) fn channels(self, cx: &Building<'_>) -> Result<Vec<Channel>, NodeError> {
        let channel = |(input, spec): &(String, Option<PortSpec>)| {
            let unknown = || NodeError::input(&**input, "the shape is unknown during planning");
            let spec = spec.as_ref().ok_or_else(unknown)?;
            let config = self.topics.get(input);
            let frame = config.map(|topic| topic.frame.clone()).unwrap_or_default();
            let channel = Channel::new(self.topic(input), self.meaning(input, spec), self.schemas, frame, spec);
            Ok(channel.with_scan(config.map(TopicConfig::scan).unwrap_or_default()))
        };
        cx.inputs().iter().map(channel).collect()
    }
}
