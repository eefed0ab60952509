//! The codes of problems: cause, remedy, and a graph that has the problem.

/// A problem's code with its cause, its remedy, and a graph that has the problem.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// As in `error[E0120]`.
    pub code: &'static str,
    /// The problem in a few words.
    pub title: &'static str,
    /// Why the graph is refused.
    pub cause: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// A graph that has the problem, if one file can show it.
    pub example: Option<&'static str>,
}

/// Returns all codes, in order.
pub fn codes() -> &'static [Code] {
    CODES
}

/// Wraps nodes into a graph.
macro_rules! graph {
    ($nodes:literal) => {
        concat!("version: 1\nnodes:\n", $nodes)
    };
}

/// All codes, in order.
pub(crate) const CODES: &[Code] = &[
    Code {
        code: "E0100",
        title: "the file cannot be read",
        cause: "There is no such file, the graph may not read it, it is a folder or a pipe, or it is not UTF-8.",
        remedy: "Check the path. A graph is a regular text file; save it as UTF-8.",
        example: None,
    },
    Code {
        code: "E0101",
        title: "too much YAML",
        cause: "A graph file may have 4 MiB; 10,000 nodes take about one.",
        remedy: "Split the graph.",
        example: None,
    },
    Code {
        code: "E0102",
        title: "malformed YAML",
        cause: "The text is not valid YAML, has a duplicate key in a map, has several documents, is nested more than 64 levels deep, or \
                has aliases that expand to too much.",
        remedy: "Look at the line and column in the message; a tab, a missing space after a colon and an unclosed bracket are the usual causes.",
        example: Some("version: 1\nnodes: { a: { kind: synthetic\n"),
    },
    Code {
        code: "E0103",
        title: "an unknown key",
        cause: "Unknown keys are errors, because a misspelt key would silently have no effect.",
        remedy: "Write the suggested key, or remove it. `limen-run explain KIND` lists the keys of a kind's config.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter, rat: 10Hz } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0104",
        title: "a value of the wrong type",
        cause: "A setting has a value of another type than it takes: text instead of a number, a number without its unit, a word that is not \
                one of the choices, or no value where one is required.",
        remedy: "Write what the message says is expected. Times, sizes and rates carry their unit: `10ms`, `4MiB`, `30Hz`.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter, rate: 10 } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0105",
        title: "the wrong shape",
        cause: "There is a list instead of a map, a map instead of a list, or text instead of either.",
        remedy: "`nodes`, `inputs`, `cores` and `run` are maps, `paths` is a list.",
        example: Some("version: 1\nnodes: [camera, model]\n"),
    },
    Code {
        code: "E0106",
        title: "a number out of range",
        cause: "A capacity, core, CPU or priority is not a whole number, or is outside its range.",
        remedy: "Write a number within the range in the message.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: { from: a, capacity: 0 } }\n"
        )),
    },
    Code {
        code: "E0110",
        title: "an invalid name",
        cause: "A name begins with a-z, continues with a-z, 0-9, `_` and `-`, and has at most 64 characters: names become file names and tags.",
        remedy: "Choose a valid name.",
        example: Some(graph!(
            "  Camera: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: b2 }\n  b2: { kind: synthetic, config: { pattern: counter } }\n"
        )),
    },
    Code {
        code: "E0111",
        title: "the version is missing or unknown",
        cause: "A graph names the version of the format it was written for, so that later programs read it correctly.",
        remedy: "Write `version: 1` at the top.",
        example: Some(
            "nodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a }\n",
        ),
    },
    Code {
        code: "E0112",
        title: "a node without a kind",
        cause: "`kind` says what a node does.",
        remedy: "Write `kind:`; `limen-run kinds` lists the kinds.",
        example: Some(graph!(
            "  a: { config: { pattern: counter } }\n  b: { kind: synthetic, config: { pattern: counter } }\n  c: { kind: \"null\", from: b }\n"
        )),
    },
    Code {
        code: "E0113",
        title: "no nodes",
        cause: "The file is empty, or has no nodes.",
        remedy: "A graph has at least a source and a sink.",
        example: Some("version: 1\nnodes: {}\n"),
    },
    Code {
        code: "E0114",
        title: "a connection without a node",
        cause: "A connection is written `node`, `node/port`, or `{ from: node/port, .. }`.",
        remedy: "Name a node of this graph.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: { capacity: 4 } }\n"
        )),
    },
    Code {
        code: "E0117",
        title: "both `core` and `cpu`",
        cause: "`core: n` is the n-th CPU of the run, `cpu: n` the kernel's number; a node can have only one of the two.",
        remedy: "Keep one. `core` works on any machine.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter }, core: 0, cpu: 0 }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0118",
        title: "`on_miss` without a deadline, or `on_gap` without `expect_every`",
        cause: "`on_miss` says what happens to messages that miss a path's deadline, and `on_gap` what happens after a longer silence than `expect_every`. The deadline, or `expect_every`, is missing.",
        remedy: "Write `deadline: 10ms`, or `expect_every: 1s`.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a }\npaths: [{ from: a, to: b, on_miss: drop }]\n"
        )),
    },
    Code {
        code: "E0120",
        title: "there is no such node",
        cause: "A connection or a path names a node that the graph does not have.",
        remedy: "Write the suggested name, or add the node.",
        example: Some(graph!(
            "  camera: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: camrea }\n"
        )),
    },
    Code {
        code: "E0121",
        title: "a node that takes from itself",
        cause: "It would wait for its own output.",
        remedy: "Take from another node. A loop over several nodes needs one edge that may lose messages.",
        example: Some(graph!("  a: { kind: pass, from: a }\n")),
    },
    Code {
        code: "E0122",
        title: "a cycle in which every edge blocks",
        cause: "Once its edges are full, each node of the cycle waits for the next: a deadlock.",
        remedy: "Give one of its edges `when_full: latest` or `drop_oldest`.",
        example: Some(graph!(
            "  s: { kind: synthetic, config: { pattern: counter } }\n  a: { kind: merge, inputs: { s: s, b: b } }\n  b: { kind: pass, from: a }\n"
        )),
    },
    Code {
        code: "E0123",
        title: "there is no such port",
        cause: "A connection names an input or output that the node does not have, or does not say which of several.",
        remedy: "Write `node/port`. `limen-run explain KIND` describes the ports of a kind.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a/image }\n"
        )),
    },
    Code {
        code: "E0124",
        title: "there is no such kind",
        cause: "This program does not know this kind of node, or was built without it.",
        remedy: "Write the suggested kind, or build the program with the feature that the help names; `limen-run kinds` lists all. A program of your own knows the kinds that you register.",
        example: Some(graph!("  a: { kind: camera }\n  b: { kind: \"null\", from: a }\n")),
    },
    Code {
        code: "E0125",
        title: "a missing input, or an extra one",
        cause: "A node's input is not connected, or a source has an input.",
        remedy: "Write `from:` for a node with one input, `inputs: { port: node/port }` for several; remove both from a source.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: pass }\n  c: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0126",
        title: "an input connected twice",
        cause: "An input takes from one output.",
        remedy: "Put a `merge` before the input, or use a kind with several inputs.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: pass, from: a, inputs: { in: a } }\n  c: { kind: \"null\", from: b }\n"
        )),
    },
    Code {
        code: "E0127",
        title: "payload types that do not match",
        cause: "An output and the input it is connected to have different payload types. All stock nodes exchange tensors; programs may add payloads of their own.",
        remedy: "Put a node between them that converts one into the other.",
        example: None,
    },
    Code {
        code: "E0128",
        title: "tensors that do not match",
        cause: "An output and the input it is connected to differ in element type, number of dims, or length of a dim.",
        remedy: "The message names the node that converts: `to_tensor` and `resize` for images, `cast` for element types, `decode` for numbers in packets. If it names none, no stock node converts one into the other.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: ramp, width: 64, height: 64 } }\n  b: { kind: normalize, config: { mean: [0.5], std: [0.5] }, from: a/image }\n  c: { kind: \"null\", from: b }\n"
        )),
    },
    Code {
        code: "E0129",
        title: "a size without a bound",
        cause: "All memory is allocated before the run, so every dim needs an upper bound.",
        remedy: "Write the key that the message names in the node's config.",
        example: None,
    },
    Code {
        code: "E0130",
        title: "a config that a kind refuses",
        cause: "Each setting is valid by itself, but this kind of node cannot work with these settings or connections. Frequent causes: a \
                file that is missing, damaged or of another type; two settings that exclude each other, or one that needs another; a \
                number outside of its range; an input whose type or shape the kind cannot use; a model that no backend of this program \
                runs, or whose outputs differ from its recorded case.",
        remedy: "The message names the node, the setting and what is wrong with it, and the help below it says what to write instead. \
                 `limen-run explain KIND` describes every setting of the kind; `limen-run inspect MODEL` the inputs, outputs and \
                 operators of a model.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: ramp } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0131",
        title: "a kind whose ports do not match its types",
        cause: "The ports that the kind's code declares do not match its input and output types. This is a bug of the kind, not of the graph.",
        remedy: "Report it to the author of the kind.",
        example: None,
    },
    Code {
        code: "E0132",
        title: "a file or device used twice",
        cause: "Two nodes write the same file or use the same device, or a node would write a file that the graph reads: data, a model, or a part of the graph itself.",
        remedy: "Give one of them another file or device.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: csv, config: { path: out/x.csv }, inputs: { v: a } }\n  c: { kind: csv, config: { path: out/x.csv }, inputs: { v: a } }\n"
        )),
    },
    Code {
        code: "E0133",
        title: "impossible capacities or watermarks",
        cause: "An edge holds fewer messages than move at once (the messages of one call, a batch) or than the `patience` of its join, or its watermarks contradict its policy or each other.",
        remedy: "Write at least the number in the message, or leave the key out.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: { from: a, when_full: latest, capacity: 4 } }\n"
        )),
    },
    Code {
        code: "E0134",
        title: "a join that could wait for ever",
        cause: "A node joins its inputs, and a message may be lost on the way to one input while its partner arrives at the other: the join \
                would wait for it for ever.",
        remedy: "Write `join: { patience: 16 }`: after that many messages a partner counts as lost. Or make every edge on the way lossless.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", inputs: { x: a, y: { from: a, when_full: drop_newest } } }\n"
        )),
    },
    Code {
        code: "E0135",
        title: "a pool that is too large",
        cause: "The size of an output's messages, times the number that can exist at once, is more than can be addressed; or they have too many dims.",
        remedy: "Make the messages smaller, or the capacities of the edges downstream.",
        example: None,
    },
    Code {
        code: "E0136",
        title: "more memory than allowed",
        cause: "Pools, edges, nodes and histograms together need more than `run.max_memory` (by default 80 % of the memory of the machine or \
                container), or more than the process's address space (`ulimit -v`).",
        remedy: "Lower capacities and sizes, beginning with the pool or node in the message, or raise the limit. `--plan` shows all of them.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: { from: a, capacity: 100000 } }\nrun: { max_memory: 1MiB }\n"
        )),
    },
    Code {
        code: "E0137",
        title: "an impossible path",
        cause: "A path leads from a source to a sink that its messages reach.",
        remedy: "Name such a source and sink.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a }\npaths: [{ from: b, to: a, deadline: 1ms }]\n"
        )),
    },
    Code {
        code: "E0138",
        title: "a fault that cannot be injected",
        cause: "A setting of `fault` is out of range, or does not apply to this node.",
        remedy: "Calls count from 1, fractions go from 0 to 1; see the chapter on policies.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter }, fault: { panic_at: 0 } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0139",
        title: "a contradictory join policy",
        cause: "The node has one input, or the policy or a setting of `join` does not fit the kind or the other settings.",
        remedy: "`zip`, `by_time` and `sample` combine messages; `in_turn`, `oldest_first` and `priority` are for `merge`. `pick: interpolate` needs `f32` or `f64` of a fixed shape, and cannot interpolate an orientation whose place in the message is not known.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", inputs: { x: a, y: a }, join: { policy: by_time } }\n"
        )),
    },
    Code {
        code: "E0140",
        title: "CPUs that this process may not use",
        cause: "`--cores` names CPUs that do not exist, or that the container or `taskset` does not let this process use.",
        remedy: "Choose from the CPUs in the message.",
        example: None,
    },
    Code {
        code: "E0141",
        title: "a core that does not exist",
        cause: "A node asks for a core that the run does not have (under `strict`), or for a CPU that is not one of the run's.",
        remedy: "Write a core that exists. Without `strict`, a core of the machine that is not in the run (`--cores`) is mapped to one of the run's.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter }, cpu: 1023 }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0142",
        title: "no core for a helper thread",
        cause: "A node whose calls may block in the kernel gets a thread of its own, and so does every call of a model with `in_flight:`; \
                the core of that node, or every core of the run, is kept busy by `wait: spin`.",
        remedy: "Give one core `wait: adaptive` or `park`, or leave out the node's `core:`.",
        example: None,
    },
    Code {
        code: "E0143",
        title: "real time without permission, or on every CPU",
        cause: "A real-time thread that never yields can lock up a machine, so real time needs both `rt` in the graph and `--allow-rt` on the \
                command line, and one CPU must stay without it.",
        remedy: "Add `--allow-rt`, remove `rt`, or leave one core without it.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter }, core: 0 }\n  b: { kind: \"null\", from: a, core: 0 }\ncores: { 0: { rt: { priority: 10 } } }\nrun: { strict: true }\n"
        )),
    },
    Code {
        code: "E0144",
        title: "a setting for sources on another node",
        cause: "`qos` and `clock` set properties of a source's messages; the messages of other nodes inherit them.",
        remedy: "Write it at the source.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a, qos: urgent }\n"
        )),
    },
    Code {
        code: "E0145",
        title: "an impossible deadline",
        cause: "The nodes on the path delay each message, by holding it or by their calls, for longer than the deadline: every message would miss it.",
        remedy: "Shorten the delays, use a faster model, or write a later deadline.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  d: { kind: delay, config: { by: 20ms }, from: a }\n  b: { kind: \"null\", from: d }\npaths: [{ from: a, to: b, deadline: 10ms }]\n"
        )),
    },
    Code {
        code: "E0146",
        title: "`gather` without a matching `scatter`",
        cause: "`gather` reassembles the parts that `scatter` made: there is no `scatter` upstream, it makes more parts than `gather` takes, or it \
                splits messages that are parts already.",
        remedy: "Put a `scatter` upstream, and a `gather` between two of them; `window` makes one message of several.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  g: { kind: gather, config: { max: 4 }, from: a }\n  b: { kind: \"null\", from: g }\n"
        )),
    },
    Code {
        code: "E0147",
        title: "a restart that would overwrite a file",
        cause: "A restarted node opens its file again and would overwrite what it has written.",
        remedy: "Write `on_error: skip` or `detach`.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: csv, config: { path: out/x.csv }, inputs: { v: a }, on_error: restart }\n"
        )),
    },
    Code {
        code: "E0148",
        title: "a file that cannot be included",
        cause: "The file does not exist, is outside the graph's folder, is not a regular file, or includes itself; or there are more than 64 files.",
        remedy: "Keep the files of a graph in its folder, or allow another folder with `--allow-path`.",
        example: Some(
            "version: 1\ninclude: [parts/eye.yaml]\nnodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a }\n",
        ),
    },
    Code {
        code: "E0149",
        title: "a duplicate name",
        cause: "Two files define a node, a subgraph or a profile of the same name, or a subgraph expands to a node that exists already.",
        remedy: "Rename one. To override the settings of another file, use a profile or `--overlay`.",
        example: Some(
            "version: 1\nsubgraphs: { s: { nodes: { a: { kind: synthetic, config: { pattern: counter } } } } }\nnodes:\n  x: { subgraph: s }\n  x.a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: x.a }\n",
        ),
    },
    Code {
        code: "E0150",
        title: "no such profile",
        cause: "`--profile` names a profile that is not one of the graph's `profiles`.",
        remedy: "Choose one of the graph's profiles.",
        example: None,
    },
    Code {
        code: "E0151",
        title: "a variable without a value",
        cause: "`${NAME}` is not set and has no default, is neither a `LIMEN_` variable nor allowed, or has no closing brace.",
        remedy: "Set it, write `${NAME:-default}`, or allow it with `--env NAME`; `$${` is a literal `${`.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: \"${HOME}\" } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0152",
        title: "a wrong `--set`",
        cause: "`--set` takes `path=value`, and every step of the path is a key of a map or an index into a list.",
        remedy: "Write `--set nodes.camera.config.rate=30Hz`; `limen-run expand` prints the graph with its paths.",
        example: None,
    },
    Code {
        code: "E0153",
        title: "a subgraph that cannot be expanded",
        cause: "There is no subgraph of that name, it contains itself, it has no such node, or it expands to too many nodes.",
        remedy: "Write the name of one of the graph's `subgraphs`.",
        example: Some(graph!("  a: { subgraph: eye }\n  b: { kind: \"null\", from: a }\n")),
    },
    Code {
        code: "E0154",
        title: "wrong parameters of a subgraph",
        cause: "`config` has a key that is not a parameter of the subgraph, or lacks a parameter that has no default.",
        remedy: "Write the subgraph's `parameters` in `config`.",
        example: Some(
            "version: 1\nsubgraphs: { s: { parameters: { rate: ~ }, outputs: { out: a }, nodes: { a: { kind: synthetic, config: { pattern: counter, rate: \"${rate}\" } } } } }\nnodes:\n  x: { subgraph: s }\n  b: { kind: \"null\", from: x }\n",
        ),
    },
    Code {
        code: "E0155",
        title: "wrong ports of a subgraph",
        cause: "A connection names an input or output that the subgraph does not have, or an input of the subgraph is not connected.",
        remedy: "Connect the ports in the subgraph's `inputs` and `outputs`.",
        example: Some(
            "version: 1\nsubgraphs: { s: { inputs: { in: any }, nodes: { p: { kind: pass, from: inputs/in }, z: { kind: \"null\", from: p } } } }\nnodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  x: { subgraph: s, inputs: { image: a } }\n",
        ),
    },
    Code {
        code: "E0156",
        title: "a port of a subgraph that carries another type",
        cause: "A subgraph declares what its ports carry, and the connected output or its own output carries something else.",
        remedy: "Convert the messages, or change the declaration.",
        example: Some(
            "version: 1\nsubgraphs: { s: { inputs: { in: \"u8[4,4,3]\" }, nodes: { z: { kind: \"null\", from: inputs/in } } } }\nnodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  x: { subgraph: s, from: a }\n",
        ),
    },
    Code {
        code: "E0157",
        title: "streams of different rates, joined by number",
        cause: "A node joins the messages of two sources by their sequence numbers, and the sources run at different rates: the faster one is \
                delayed further and further, or its messages are lost.",
        remedy: "Write `join: { policy: by_time, within: 5ms }` to join messages that began at the same time, `join: { policy: sample }` for the \
                 newest of each, or give both sources one rate.",
        example: Some(graph!(
            "  a: { kind: timer, config: { rate: 1kHz } }\n  b: { kind: timer, config: { rate: 30Hz } }\n  c: { kind: \"null\", inputs: { x: a, y: b } }\n"
        )),
    },
    Code {
        code: "E0158",
        title: "too many sources",
        cause: "Every message carries its source's number in two bytes: a graph has at most 65,536 sources.",
        remedy: "Let one source send the messages of several, or run several graphs.",
        example: None,
    },
    Code {
        code: "E0160",
        title: "a restart of an inlet or outlet",
        cause: "The embedding program holds the other end of an inlet or outlet, which cannot be created again while the graph runs.",
        remedy: "Write `on_error: skip`, `detach` or `stop`.",
        example: Some(graph!(
            "  a: { kind: inlet, config: { spec: \"u8[480,640,3]\" }, on_error: restart }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0161",
        title: "a public port without permission",
        cause: "A node listens on an address that other machines can reach. Nothing is authenticated or encrypted, so this needs both the \
                address in the graph and `--allow-public` on the command line.",
        remedy: "Add `--allow-public`, or listen on a local port, such as `9000`, and reach it through a tunnel.",
        example: Some(graph!(
            "  a: { kind: udp, config: { listen: \"0.0.0.0:9000\" } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0162",
        title: "a model with a state whose stream is not known",
        cause: "A model with `state:` keeps a state for each stream: the messages of one source. This one takes messages of several sources \
                together, and nothing says to which of them its state belongs; or `stream: true` is where it has no meaning.",
        remedy: "Write `stream: true` at the input whose messages are the stream: `inputs: { sound: { from: mic, stream: true }, gain: knob }`. \
                 The `trigger` of a `sample` join and the `anchor` of a join by time are the stream without it.",
        example: None,
    },
    Code {
        code: "E0163",
        title: "a constant input that is not possible",
        cause: "`inputs: { rate: { value: 16000 } }` gives an input of a model the same value in every call, and a formula of `map` a name \
                for it. Other kinds take their settings from `config`. An input has one value, which stands either there or in `config: { constants: … }`.",
        remedy: "Connect a node to the input, or set a key of the node's config. Write the value of an input once.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  t: { kind: pass, inputs: { in: { value: 1 } } }\n  \
             b: { kind: \"null\", from: t }\n"
        )),
    },
    Code {
        code: "E0167",
        title: "a sampling join of a source that does not wait for a clock",
        cause: "`join: { policy: sample }` takes the message of each input that arrived last. A source with `pace: max`, and one that reads a \
                file or makes up data without a `rate`, sends as fast as the graph takes its messages. Which one arrived last is then up to \
                the threads, and differs from run to run. A source that sends one message, such as a table of constants, is not refused. \
                A source is also accepted if an upstream join pairs its messages with those of a slower source.",
        remedy: "Write a `rate` in the config of the source (`real_time: true` for `wav`). For a recording write `pace: original`. To run \
                 the graph faster than that, use `--simulated`: the clock then jumps to what is due next, so an hour takes only as long as \
                 its computation, and the join takes what it would take at the real rate.",
        example: Some(graph!(
            "  camera: { kind: timer, config: { rate: 30Hz } }\n  pose: { kind: synthetic, config: { pattern: counter, count: 9 } }\n  \
             both: { kind: \"null\", inputs: { a: camera, b: pose }, join: { policy: sample, trigger: a } }\n"
        )),
    },
    Code {
        code: "E0169",
        title: "a graph that takes too long to plan",
        cause: "Planning finds which sources reach each node, and searches back from each join for edges where messages may be lost. In this \
                graph that would take minutes: there are thousands of nodes, and most depend on most of the others.",
        remedy: "Do what the problem's help says. For many joins, write `join: { patience: 16 }` at each: a join with `patience` gives up a \
                 partner after that many messages, so planning does not search back from it. If many nodes take from many sources, combine \
                 fewer of them, or split the graph into several that send to each other by `udp` or `tcp`.",
        example: None,
    },
];
