//! Every code of a problem: what it means, what to do, and a graph that has it.

/// A problem's code: what it means, what to do, and a graph that has it.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// As in `error[E0120]`.
    pub code: &'static str,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// Why that is a problem.
    pub cause: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// A graph that has it, where one file can show it.
    pub example: Option<&'static str>,
}

/// Every code, in order.
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
        cause: "There is no such file, it may not be read, it is a folder or a pipe, or it is not UTF-8.",
        remedy: "Check the path. A graph is an ordinary text file; save it as UTF-8.",
        example: None,
    },
    Code {
        code: "E0101",
        title: "too much YAML",
        cause: "A graph of more than 4 MiB is not read: 10,000 nodes take about one.",
        remedy: "Split the graph.",
        example: None,
    },
    Code {
        code: "E0102",
        title: "not readable as YAML",
        cause: "The text breaks the rules of YAML, has a key twice in one map, several documents, is nested more than 64 levels deep, or \
                has aliases that unfold into too much.",
        remedy: "Look at the place that is named; a tab, a missing space after a colon and an unclosed bracket are the usual reasons.",
        example: Some("version: 1\nnodes: { a: { kind: synthetic\n"),
    },
    Code {
        code: "E0103",
        title: "an unknown key",
        cause: "Unknown keys are never ignored: a misspelt one would silently do nothing.",
        remedy: "Write the key that is suggested, or remove it. `limen-run explain KIND` lists the keys of a kind's config.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter, rat: 10Hz } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0104",
        title: "a value of the wrong kind",
        cause: "A setting holds something else than it takes: text for a number, a bare number where a unit is needed, a word that is none \
                of the choices, or nothing where something is required.",
        remedy: "Write what is expected. Times, sizes and rates carry their unit: `10ms`, `4MiB`, `30Hz`.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter, rate: 10 } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0105",
        title: "the wrong shape",
        cause: "There is a list where a map belongs, or the other way round, or text where either does.",
        remedy: "`nodes`, `inputs`, `cores` and `run` are maps, `paths` is a list.",
        example: Some("version: 1\nnodes: [camera, model]\n"),
    },
    Code {
        code: "E0106",
        title: "a number out of range",
        cause: "A capacity, core, CPU or priority is not a whole number, or is one that cannot be.",
        remedy: "Write a number within the range that is named.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: { from: a, capacity: 0 } }\n"
        )),
    },
    Code {
        code: "E0110",
        title: "not a name",
        cause: "Names begin with a-z and go on with a-z, 0-9, `_` and `-`, at most 64 of them: they end up in file names and tags.",
        remedy: "Choose such a name.",
        example: Some(graph!(
            "  Camera: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: b2 }\n  b2: { kind: synthetic, config: { pattern: counter } }\n"
        )),
    },
    Code {
        code: "E0111",
        title: "the version is missing or unknown",
        cause: "A graph says for which version of the format it was written, so that a later program can read it as it was meant.",
        remedy: "Write `version: 1` at its top.",
        example: Some(
            "nodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a }\n",
        ),
    },
    Code {
        code: "E0112",
        title: "a node without a kind",
        cause: "`kind` says what a node does.",
        remedy: "Write `kind:`; `limen-run kinds` lists what there is.",
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
        title: "a connection that names nothing",
        cause: "What a node takes from is written `node`, `node/port`, or `{ from: node/port, .. }`.",
        remedy: "Name a node of this graph.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: { capacity: 4 } }\n"
        )),
    },
    Code {
        code: "E0117",
        title: "both `core` and `cpu`",
        cause: "`core: n` is the n-th CPU of the run, `cpu: n` the kernel's number; a node runs on one of them.",
        remedy: "Keep one. `core` works on any machine.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter }, core: 0, cpu: 0 }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0118",
        title: "a consequence without a deadline",
        cause: "`on_miss` says what becomes of messages that miss a path's deadline, and the path has none.",
        remedy: "Write `deadline: 10ms`.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a }\npaths: [{ from: a, to: b, on_miss: drop }]\n"
        )),
    },
    Code {
        code: "E0120",
        title: "there is no such node",
        cause: "A connection or a path names a node that the graph does not have.",
        remedy: "Write the name that is suggested, or add the node.",
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
        cause: "Once its edges are full, each node of the cycle waits for the next, for ever.",
        remedy: "Give one of its edges `when_full: latest` or `drop_oldest`.",
        example: Some(graph!(
            "  s: { kind: synthetic, config: { pattern: counter } }\n  a: { kind: merge, inputs: { s: s, b: b } }\n  b: { kind: pass, from: a }\n"
        )),
    },
    Code {
        code: "E0123",
        title: "there is no such port",
        cause: "A connection names an input or output that the node does not have, or names none where there are several.",
        remedy: "Write `node/port`. `limen-run explain KIND` says which ports a kind has.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a/image }\n"
        )),
    },
    Code {
        code: "E0124",
        title: "there is no such kind",
        cause: "This program does not know the kind of node.",
        remedy: "Write the kind that is suggested; `limen-run kinds` lists all. A program of your own knows the kinds you register.",
        example: Some(graph!("  a: { kind: camera }\n  b: { kind: \"null\", from: a }\n")),
    },
    Code {
        code: "E0125",
        title: "an input too few, or one too many",
        cause: "A node's input is not connected, or a source was given one.",
        remedy: "Write `from:` for a node's only input, `inputs: { port: node/port }` for several; remove them from a source.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: pass }\n  c: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0126",
        title: "an input connected twice",
        cause: "A port takes from one place.",
        remedy: "Put a `merge` before it, or use a kind with several inputs.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: pass, from: a, inputs: { in: a } }\n  c: { kind: \"null\", from: b }\n"
        )),
    },
    Code {
        code: "E0127",
        title: "payloads that do not fit",
        cause: "One node gives another type of value than the other takes. All stock nodes exchange tensors; programs may add payloads of their own.",
        remedy: "Put a node between them that turns one into the other.",
        example: None,
    },
    Code {
        code: "E0128",
        title: "tensors that do not fit",
        cause: "Element type, number of dims or their lengths differ between what one node gives and the other takes.",
        remedy: "The message names the node that would help: `to_tensor` and `resize` for images, `cast` for element types, `decode` for numbers in packets. Where none is named, no stock node makes one of the other.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: ramp, width: 64, height: 64 } }\n  b: { kind: normalize, config: { mean: [0.5], std: [0.5] }, from: a/image }\n  c: { kind: \"null\", from: b }\n"
        )),
    },
    Code {
        code: "E0129",
        title: "a size without a bound",
        cause: "Memory is had before the run begins, so every dim needs a bound.",
        remedy: "Write the key that is named in the node's config.",
        example: None,
    },
    Code {
        code: "E0130",
        title: "a config that a kind refuses",
        cause: "The settings can be read, but what they say, or what is connected, cannot work for this kind of node.",
        remedy: "The message says why, and names the setting.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: ramp } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0131",
        title: "a kind with more ports than its type has",
        cause: "The kind's code declares other ports than the type it takes and gives. This is a fault of the kind, not of the graph.",
        remedy: "Tell whoever wrote the kind.",
        example: None,
    },
    Code {
        code: "E0132",
        title: "claimed twice",
        cause: "Two nodes want the same file to write, or the same device; or a node would write a file that the graph reads: data, a model, or a part of the graph itself.",
        remedy: "Give one of them another.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: csv, config: { path: out/x.csv }, inputs: { v: a } }\n  c: { kind: csv, config: { path: out/x.csv }, inputs: { v: a } }\n"
        )),
    },
    Code {
        code: "E0133",
        title: "capacities and marks that cannot be",
        cause: "An edge holds fewer messages than move at once (what one call emits, a batch), or its marks contradict its policy or each other.",
        remedy: "Write at least what is named, or leave the key out.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: { from: a, when_full: latest, capacity: 4 } }\n"
        )),
    },
    Code {
        code: "E0134",
        title: "a join that could wait for ever",
        cause: "A node joins its inputs, and on the way to one of them messages may be lost that come on the other: their partners would be \
                waited for without end.",
        remedy: "Write `join: { patience: 16 }`: after so many messages a partner counts as lost. Or let nothing be lost on the way.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", inputs: { x: a, y: { from: a, when_full: drop_newest } } }\n"
        )),
    },
    Code {
        code: "E0135",
        title: "a pool that cannot be had",
        cause: "The messages of an output, times all the places where they can be at once, are more than can be addressed, or have too many dims.",
        remedy: "Make them smaller, or the capacities of the edges behind.",
        example: None,
    },
    Code {
        code: "E0136",
        title: "more memory than may be had",
        cause: "Pools, edges, what nodes take and histograms together are above `run.max_memory`, which is 80 % of the machine's or container's \
                unless it is written, or above what the process has addresses for (`ulimit -v`).",
        remedy: "Lower capacities and sizes, beginning with the pool or node that is named, or raise the limit. `--plan` shows all of them.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: { from: a, capacity: 100000 } }\nrun: { max_memory: 1MiB }\n"
        )),
    },
    Code {
        code: "E0137",
        title: "not a path",
        cause: "A path goes from a source to a sink that its messages reach.",
        remedy: "Name such a pair.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a }\npaths: [{ from: b, to: a, deadline: 1ms }]\n"
        )),
    },
    Code {
        code: "E0138",
        title: "a fault that cannot be planted",
        cause: "What `fault` asks for makes no sense, or not at this node.",
        remedy: "Calls count from 1, parts go from 0 to 1; see the chapter on policies.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter }, fault: { panic_at: 0 } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0139",
        title: "a join policy that cannot be meant",
        cause: "`join` is written for one input, or with a policy or a setting that does not go with the kind or with each other.",
        remedy: "`zip`, `by_time` and `sample` take messages together; `in_turn`, `oldest_first` and `priority` are for `merge`.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", inputs: { x: a, y: a }, join: { policy: by_time } }\n"
        )),
    },
    Code {
        code: "E0140",
        title: "CPUs that this process may not use",
        cause: "`--cores` names CPUs that do not exist, or that the container or `taskset` keeps from this process.",
        remedy: "Choose from those that are named.",
        example: None,
    },
    Code {
        code: "E0141",
        title: "a core that does not exist",
        cause: "A node asks for more cores than the run has (under `strict`), or for a CPU that is not among them.",
        remedy: "Write a core that exists. Without `strict`, a core that the machine has and the run has not (`--cores`) is folded onto those of the run.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter }, cpu: 1023 }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0142",
        title: "no core left to wait on",
        cause: "A node whose calls may wait in the kernel gets a thread of its own, and so does every call of a model with `in_flight:`; \
                the core it was given, or every core of the run, is kept busy by `wait: spin`.",
        remedy: "Give one core `wait: adaptive` or `park`, or leave out the node's `core:`.",
        example: None,
    },
    Code {
        code: "E0143",
        title: "real time that was not allowed, or for everybody",
        cause: "A thread that never lets go of its CPU can lock up a machine, so real time is asked for twice: by `rt` in the graph and by \
                `--allow-rt` on the command line. One CPU stays without.",
        remedy: "Add `--allow-rt`, remove `rt`, or leave one core without it.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter }, core: 0 }\n  b: { kind: \"null\", from: a, core: 0 }\ncores: { 0: { rt: { priority: 10 } } }\nrun: { strict: true }\n"
        )),
    },
    Code {
        code: "E0144",
        title: "a setting of sources at another node",
        cause: "`qos` and `clock` say what a source's messages begin with; other nodes' messages inherit it.",
        remedy: "Write it at the source.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a, qos: urgent }\n"
        )),
    },
    Code {
        code: "E0145",
        title: "a deadline that the graph itself exceeds",
        cause: "Nodes on the path hold every message back, or their calls take, for longer than its deadline allows: every one would miss it.",
        remedy: "Wait for less, take a faster model, or write a later deadline.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  d: { kind: delay, config: { by: 20ms }, from: a }\n  b: { kind: \"null\", from: d }\npaths: [{ from: a, to: b, deadline: 10ms }]\n"
        )),
    },
    Code {
        code: "E0146",
        title: "parts of nothing",
        cause: "`gather` puts together what `scatter` took apart: nothing before it did, or it makes more parts than fit, or takes apart what are \
                parts already.",
        remedy: "Put a `scatter` before it, with a `gather` between two; `window` makes one message of several.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  g: { kind: gather, config: { max: 4 }, from: a }\n  b: { kind: \"null\", from: g }\n"
        )),
    },
    Code {
        code: "E0147",
        title: "a restart that would begin a file anew",
        cause: "A node that is built again opens its file again, and what it had written is gone.",
        remedy: "Write `on_error: skip` or `detach`.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: csv, config: { path: out/x.csv }, inputs: { v: a }, on_error: restart }\n"
        )),
    },
    Code {
        code: "E0148",
        title: "a file that cannot be included",
        cause: "It is not there, lies outside of the graph's folder, is no ordinary file, includes itself, or there are more than 64 of them.",
        remedy: "Keep what belongs to a graph in its folder, or allow another with `--allow-path`.",
        example: Some(
            "version: 1\ninclude: [parts/eye.yaml]\nnodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: a }\n",
        ),
    },
    Code {
        code: "E0149",
        title: "two of one name",
        cause: "Two files make a node, a subgraph or a profile of the same name, or a subgraph unfolds to a node that is there already: which \
                of them is meant?",
        remedy: "Rename one. To change what another file says, use a profile or `--overlay`.",
        example: Some(
            "version: 1\nsubgraphs: { s: { nodes: { a: { kind: synthetic, config: { pattern: counter } } } } }\nnodes:\n  x: { subgraph: s }\n  x.a: { kind: synthetic, config: { pattern: counter } }\n  b: { kind: \"null\", from: x.a }\n",
        ),
    },
    Code {
        code: "E0150",
        title: "no such profile",
        cause: "`--profile` names what the graph's `profiles` do not have.",
        remedy: "Choose one that is there.",
        example: None,
    },
    Code {
        code: "E0151",
        title: "a variable without a value",
        cause: "`${NAME}` is not set and has no default, is neither a `LIMEN_` variable nor allowed, or is not closed.",
        remedy: "Set it, write `${NAME:-default}`, allow other names with `--env NAME`; `$${` is `${` itself.",
        example: Some(graph!(
            "  a: { kind: synthetic, config: { pattern: \"${HOME}\" } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0152",
        title: "a setting that sets nothing",
        cause: "`--set` takes `path=value`, and the path leads through what is neither a map nor a list.",
        remedy: "Write `--set nodes.camera.config.rate=30Hz`; `limen-run expand` shows what there is.",
        example: None,
    },
    Code {
        code: "E0153",
        title: "a subgraph that cannot be unfolded",
        cause: "There is none of that name, it is within itself, it has no such node, or it unfolds to too many nodes.",
        remedy: "Write the name of one of the graph's `subgraphs`.",
        example: Some(graph!("  a: { subgraph: eye }\n  b: { kind: \"null\", from: a }\n")),
    },
    Code {
        code: "E0154",
        title: "a subgraph's parameters",
        cause: "A node gives its subgraph a parameter that it does not have, or leaves out one that has no default.",
        remedy: "Give in `config` what the subgraph's `parameters` name.",
        example: Some(
            "version: 1\nsubgraphs: { s: { parameters: { rate: ~ }, outputs: { out: a }, nodes: { a: { kind: synthetic, config: { pattern: counter, rate: \"${rate}\" } } } } }\nnodes:\n  x: { subgraph: s }\n  b: { kind: \"null\", from: x }\n",
        ),
    },
    Code {
        code: "E0155",
        title: "a subgraph's ports",
        cause: "A node connects an input that its subgraph does not have or leaves one open, or something takes from an output that is not \
                there.",
        remedy: "Connect what the subgraph's `inputs` and `outputs` name.",
        example: Some(
            "version: 1\nsubgraphs: { s: { inputs: { in: any }, nodes: { p: { kind: pass, from: inputs/in }, z: { kind: \"null\", from: p } } } }\nnodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  x: { subgraph: s, inputs: { image: a } }\n",
        ),
    },
    Code {
        code: "E0156",
        title: "not what a subgraph promised",
        cause: "A subgraph says what its ports carry, and something else is connected to it or comes out of it.",
        remedy: "Convert it on the way, or change what the subgraph says.",
        example: Some(
            "version: 1\nsubgraphs: { s: { inputs: { in: \"u8[4,4,3]\" }, nodes: { z: { kind: \"null\", from: inputs/in } } } }\nnodes:\n  a: { kind: synthetic, config: { pattern: counter } }\n  x: { subgraph: s, from: a }\n",
        ),
    },
    Code {
        code: "E0157",
        title: "streams of different rates, taken together by number",
        cause: "A node takes the messages of two sources together by their numbers, and the sources begin them at different rates for ever: \
                the faster one is held back further and further, or its messages are lost.",
        remedy: "Write `join: { policy: by_time, within: 5ms }` for what began at the same time, `join: { policy: sample }` for the newest of each, \
                 or give both sources one rate.",
        example: Some(graph!(
            "  a: { kind: timer, config: { rate: 1kHz } }\n  b: { kind: timer, config: { rate: 30Hz } }\n  c: { kind: \"null\", inputs: { x: a, y: b } }\n"
        )),
    },
    Code {
        code: "E0158",
        title: "too many sources",
        cause: "Every message carries the number of its source, for which there are two bytes: a graph has at most 65,536 sources.",
        remedy: "Let one source send what several do, or run several graphs.",
        example: None,
    },
    Code {
        code: "E0160",
        title: "a restart of the program's own end",
        cause: "An inlet or an outlet is where a program takes part in its graph. The program has the other end of it, which cannot be made \
                anew while it runs.",
        remedy: "Write `on_error: skip`, `detach` or `stop`.",
        example: Some(graph!(
            "  a: { kind: inlet, config: { spec: \"u8[480,640,3]\" }, on_error: restart }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0161",
        title: "a port for other machines that was not allowed",
        cause: "A node listens where other machines reach it. Nothing that it does is authenticated or encrypted, so it is asked for twice: by \
                the address in the graph and by `--allow-public` on the command line.",
        remedy: "Add `--allow-public`, or listen on a port of this machine alone, such as `9000`, and lead a tunnel there.",
        example: Some(graph!(
            "  a: { kind: udp, config: { listen: \"0.0.0.0:9000\" } }\n  b: { kind: \"null\", from: a }\n"
        )),
    },
    Code {
        code: "E0169",
        title: "a graph that cannot be followed",
        cause: "Planning follows which sources reach each node, and back from each node that joins its inputs where messages may be lost on \
                the way. In this graph that would take minutes: there are thousands of nodes, and most depend on most of the others.",
        remedy: "Do what the problem's help says. Where there are many joins, write `join: { patience: 16 }` at each: a node with `patience` \
                 gives up a partner after so many messages, so it does not matter where one may be lost, and nothing is followed back from \
                 it. Where many nodes take from many sources, have fewer of them meet, or split the graph into several that send to each \
                 other by `udp` or `tcp`.",
        example: None,
    },
];
