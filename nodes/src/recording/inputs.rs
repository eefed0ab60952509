//! Inputs of a node as topics with schemas.

use super::meaning::{Channel, Meaning, Schemas};
use limen::message::PortSpec;
use limen::node::{Building, Connected, NodeError, PlanErrors};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Topic, meaning and frame of an input.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct TopicConfig {
    /// The topic; by default `/` and the input's name, with `/` for dots.
    pub topic: Option<String>,
    /// What its tensors mean; by default `image` for those of cameras and image files, otherwise `values`.
    #[serde(rename = "as")]
    pub meaning: Option<Meaning>,
    /// The frame of coordinates of images, points, poses and the like; empty by default.
    #[serde(default)]
    pub frame: String,
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

    /// The greatest length of an input's message in bytes, but for a kilobyte; `usize::MAX` if there is no bound.
    pub(crate) fn largest(self, input: &str, spec: &PortSpec) -> usize {
        self.meaning(input, spec).largest(spec).unwrap_or(usize::MAX)
    }

    /// Checks that every topic is that of one input, and that its tensors can have their meaning.
    pub(crate) fn check(self, given: &Connected, errors: &mut PlanErrors) {
        for name in self.topics.keys() {
            if !given.inputs().any(|(input, _)| input == name) {
                let inputs: Vec<&str> = given.inputs().map(|(input, _)| input).collect();
                errors
                    .at(format!("topics.{name}"), format!("there is no input `{name}`"))
                    .help(format!("name an input: {}", inputs.join(", ")));
            }
        }
        let mut topics = BTreeSet::new();
        for (input, spec) in given.inputs() {
            let topic = self.topic(input);
            if topic.is_empty() {
                errors
                    .at(format!("topics.{input}.topic"), "a topic has a name")
                    .help("write one such as `/camera/image`");
            } else if !topics.insert(topic.clone()) {
                errors
                    .input(input, format!("its topic `{topic}` is that of another input"))
                    .help(format!("write `topics: {{ {input}: {{ topic: /another }} }}`"));
            }
            if let (Some(meaning), Some(spec)) = (self.topics.get(input).and_then(|topic| topic.meaning), spec)
                && let Err(expected) = meaning.check(spec)
            {
                let name = meaning.name();
                errors
                    .at(format!("topics.{input}.as"), format!("`{input}` is {spec}, and `{name}` is {expected}"))
                    .help("choose another meaning, or leave out `as`");
            }
        }
    }

    /// Returns the channel of every input, in the order in which messages are passed to the node.
    ///
    /// # Errors
    /// An input has no spec.
    pub(crate) fn channels(self, cx: &Building<'_>) -> Result<Vec<Channel>, NodeError> {
        let channel = |(input, spec): &(String, Option<PortSpec>)| {
            let unknown = || NodeError::input(&**input, "its shape is not known while planning");
            let spec = spec.as_ref().ok_or_else(unknown)?;
            let frame = self.topics.get(input).map(|topic| topic.frame.clone()).unwrap_or_default();
            Ok(Channel::new(self.topic(input), self.meaning(input, spec), self.schemas, frame, spec))
        };
        cx.inputs().iter().map(channel).collect()
    }
}
