//! `--plan`: the plan of a graph, as text and as JSON.

use crate::text::escape::one_line;
use crate::text::number::count;
use crate::text::paragraph::paragraph;
use crate::text::reasons::{Reasons, floating};
use crate::text::table::Table;
use limen::Plan;
use limen::node::Cost;
use limen::plan::{NodePlan, Placement, WorkerPlan};
use limen::policy::{Criticality, OnError, Schedule, WhenFull};
use limen::unit::{show_bytes, show_ns};
use serde_json::{Value, json};
use std::fmt::Write;

/// Formats a plan as text: threads and their nodes, edges, pools, memory, paths, notes.
pub fn show_plan(plan: &Plan) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "graph `{}`: {}, {}, {}\n",
        one_line(plan.graph()),
        count(plan.nodes().len(), "node"),
        count(plan.edges().len(), "edge"),
        count(plan.workers().len(), "thread"),
    );
    workers(&mut text, plan);
    edges(&mut text, plan);
    pools(&mut text, plan);
    memory(&mut text, plan);
    paths(&mut text, plan);
    notes(&mut text, plan);
    text
}

/// Explains a plan: each node's thread, each edge's capacity, each pool's slots.
pub fn show_why(plan: &Plan) -> String {
    let mut text = String::new();
    for node in plan.nodes() {
        let worker = &plan.workers()[node.worker];
        let on = match (worker.is_helper(), worker.cpu()) {
            (false, Some(cpu)) => format!("on CPU {cpu}"),
            (true, Some(cpu)) => format!("on a helper thread on CPU {cpu}"),
            (_, None) => "on a helper thread that is not pinned".into(),
        };
        let inserted = node.inserted.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        let why = format!("{on}: {}{inserted}", why(plan, node));
        paragraph(&mut text, &format!("{}: ", one_line(&node.name)), &why);
    }
    let mut edges = Reasons::default();
    for edge in plan.edges() {
        let from = edge.from_name.split_once('/').map_or(&*edge.from_name, |(node, _)| node);
        let is_behind_copy =
            plan.nodes().iter().any(|node| node.name == from && node.kind == "to_device" && node.inserted.is_some());
        let why = if is_behind_copy {
            "an edge after an inserted copy to a device holds one message: further messages would wait where no policy can drop them"
        } else if edge.is_capacity_written() {
            "set in the graph"
        } else if edge.when_full() == WhenFull::Latest {
            "`latest` keeps one message"
        } else if edge.crossing {
            "four bursts between threads, fewer if messages are large (16 MiB in total)"
        } else {
            "one burst within a thread, fewer if messages are large (4 MiB in total)"
        };
        let name = format!("{} -> {}", one_line(&edge.from_name), one_line(&edge.to_name));
        edges.add(why, format!("{name}: holds {}", count(edge.capacity, "message")));
    }
    edges.write(&mut text);
    let mut pools = Reasons::default();
    let why = "a slot for each message that edges and nodes downstream can hold, and for each message being filled: the pool never runs out or grows";
    for node in plan.nodes() {
        for out in node.outputs.iter().filter(|out| out.slots > 0) {
            pools.add(why, format!("{}/{}: {}", one_line(&node.name), one_line(&out.name), count(out.slots, "slot")));
        }
    }
    pools.write(&mut text);
    text
}

/// Why a node is on its thread.
fn why(plan: &Plan, node: &NodePlan) -> String {
    let name = |at: usize| one_line(&plan.nodes()[at].name);
    match node.why {
        Placement::Cpu => "its `cpu:` names it".into(),
        Placement::Core => "its `core:` is an index into the CPUs of this run".into(),
        Placement::Helper => {
            "it may block in the kernel, which would delay every node on the same core; `core:` pins its thread".into()
        }
        Placement::Heavy => format!(
            "{}, and heavy nodes are spread over the cores in the order of the graph; `core:` or `budget:` changes that",
            if node.cost == Cost::Infer { "it runs a model" } else { "its calls are estimated at more than 50 µs" }
        ),
        Placement::Feeds(to) => format!("it is not heavy and shares the core of `{}`, which it feeds", name(to)),
        Placement::Takes(from) => {
            format!("it is not heavy and shares the core of `{}`, whose messages it reads", name(from))
        }
        Placement::Apart(to) => {
            format!(
                "`{}`, which it feeds, may be slow, and the lossy edge to it drops messages only between cores",
                name(to)
            )
        }
        Placement::First => "no neighbour has a core, so it runs on the first core".into(),
        // A placement of a later version.
        placement => format!("{placement:?}"),
    }
}

/// The plan as one object: `graph`, `threads[]`, `nodes[]`, `edges[]`, `memory` (bytes), `paths[]`,
/// `notes[]`. Times are nanoseconds. A value of `serde_json`, so that a program can pick from it
/// before it writes it.
pub fn plan_json(plan: &Plan) -> Value {
    let name = |at: usize| plan.nodes()[at].name.clone();
    let thread = |worker: &WorkerPlan| {
        json!({
            "name": worker.name,
            "cpu": worker.cpu(),
            "wait": worker.wait().name(),
            "schedule": worker.schedule.name(),
            "real_time": worker.real_time().map(|real_time| real_time.to_string()),
            "nodes": worker.nodes.iter().map(|at| name(*at)).collect::<Vec<_>>(),
        })
    };
    let node = |node: &NodePlan| {
        let outputs = node.outputs.iter().map(|out| {
            json!({
                "name": out.name,
                "carries": out.spec.as_ref().map(ToString::to_string),
                "slots": out.slots,
                "bytes": out.bytes,
                "device_bytes": out.device_bytes,
            })
        });
        json!({
            "name": node.name,
            "kind": node.kind,
            "role": node.role.name(),
            "cost": node.cost.name(),
            "thread": plan.workers()[node.worker].name,
            "why": why(plan, node),
            "on_error": node.on_error().name(),
            "criticality": node.criticality().name(),
            "inserted": node.inserted,
            "outputs": outputs.collect::<Vec<_>>(),
            "notes": node.notes,
        })
    };
    let edges = plan.edges().iter().map(|edge| {
        json!({
            "from": edge.from_name,
            "to": edge.to_name,
            "carries": edge.spec.as_ref().map(ToString::to_string),
            "capacity": edge.capacity,
            "when_full": edge.when_full().name(),
            "crossing": edge.crossing,
        })
    });
    let paths = plan.paths().iter().map(|path| {
        let (on_miss, criticality) = (path.on_miss.name(), path.criticality.name());
        json!({ "from": path.from, "to": path.to, "deadline": path.deadline, "on_miss": on_miss, "criticality": criticality })
    });
    let memory = plan.memory();
    json!({
        "graph": plan.graph(),
        "threads": plan.workers().iter().map(thread).collect::<Vec<_>>(),
        "nodes": plan.nodes().iter().map(node).collect::<Vec<_>>(),
        "edges": edges.collect::<Vec<_>>(),
        "memory": {
            "total": memory.total(),
            "limit": memory.limit,
            "pools": memory.pools,
            "edges": memory.edges,
            "nodes": memory.nodes,
            "histograms": memory.histograms,
            "windows": memory.windows,
            "events": memory.events,
            "files": memory.files,
            "devices": memory.devices,
        },
        "paths": paths.collect::<Vec<_>>(),
        "notes": plan.notes(),
    })
}

fn workers(text: &mut String, plan: &Plan) {
    let headings =
        ["<thread", "CPU", "<wait", "<node", "<kind", "<role", "<cost", "<schedule", "<on error", "<criticality"];
    let mut table = Table::new(headings).named_by(3);
    for worker in plan.workers() {
        let cpu = worker.cpu().map_or_else(|| "any".into(), |cpu| cpu.to_string());
        let mut thread = [worker.name.clone(), cpu, worker.wait().name().into(), schedule(worker)];
        for node in worker.nodes.iter().map(|i| &plan.nodes()[*i]) {
            // The thread is named once, beside its first node.
            let [name, cpu, wait, schedule] = std::mem::take(&mut thread);
            table.row([
                name,
                cpu,
                wait,
                node.name.clone(),
                node.kind.clone(),
                node.role.name().into(),
                node.cost.name().into(),
                schedule,
                if node.on_error() == OnError::Stop { String::new() } else { node.on_error().name().into() },
                if node.criticality() == Criticality::Normal {
                    String::new()
                } else {
                    node.criticality().name().into()
                },
            ]);
        }
    }
    table.write(text);
    floating(text, plan.workers().iter().map(|worker| (worker.name.as_str(), worker.floats())));
}

/// The schedule and the real-time policy of a worker; empty for the defaults.
fn schedule(worker: &WorkerPlan) -> String {
    match worker.real_time() {
        Some(real_time) => format!("{}, {real_time}", worker.schedule.name()),
        None if worker.schedule == Schedule::default() => String::new(),
        None => worker.schedule.name().into(),
    }
}

fn edges(text: &mut String, plan: &Plan) {
    let mut table = Table::new(["<from", "<to", "<carries", "capacity", "<when full", "<crosses"]);
    for edge in plan.edges() {
        table.row([
            edge.from_name.clone(),
            edge.to_name.clone(),
            edge.spec.as_ref().map_or_else(|| "a plain value".into(), ToString::to_string),
            edge.capacity.to_string(),
            edge.when_full().name().into(),
            if edge.crossing { "threads".into() } else { String::new() },
        ]);
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
}

fn pools(text: &mut String, plan: &Plan) {
    let mut table = Table::new(["<pool of", "<holds", "slots", "of", "bytes"]);
    for node in plan.nodes() {
        for out in node.outputs.iter().filter(|o| o.slots > 0) {
            table.row([
                format!("{}/{}", node.name, out.name),
                out.spec.as_ref().map_or_else(String::new, ToString::to_string),
                out.slots.to_string(),
                show_bytes((if out.device_bytes > 0 { out.device_bytes } else { out.bytes } / out.slots) as u64),
                match out.device_bytes {
                    0 => show_bytes(out.bytes as u64),
                    bytes => format!("{} on the device", show_bytes(bytes as u64)),
                },
            ]);
        }
    }
    if !table.is_empty() {
        text.push('\n');
        table.write(text);
    }
}

fn memory(text: &mut String, plan: &Plan) {
    let memory = plan.memory();
    let bytes = |n: usize| show_bytes(n as u64);
    let files = if memory.files > 0 { format!(", files in memory {}", bytes(memory.files)) } else { String::new() };
    let sum = format!(
        "{} of the {} allowed: pools {}, edges {}, nodes {}, histograms {}, copies of histograms {}, events {}{files}",
        bytes(memory.total()),
        bytes(memory.limit),
        bytes(memory.pools),
        bytes(memory.edges),
        bytes(memory.nodes),
        bytes(memory.histograms),
        bytes(memory.windows),
        bytes(memory.events),
    );
    text.push('\n');
    paragraph(text, "memory: ", &sum);
    if memory.devices > 0 {
        paragraph(text, "memory on devices: ", &bytes(memory.devices));
    }
}

fn paths(text: &mut String, plan: &Plan) {
    for path in plan.paths() {
        let deadline = path.deadline.map_or_else(|| "no deadline".into(), |ns| format!("deadline {}", show_ns(ns)));
        let criticality = match path.criticality {
            Criticality::Normal => String::new(),
            other => format!(", {}", other.name()),
        };
        paragraph(text, "path: ", &format!("{} -> {}, {deadline}{criticality}", path.from, path.to));
    }
}

/// Notes of the nodes (backends and why, copies), then those of the planner.
fn notes(text: &mut String, plan: &Plan) {
    for node in plan.nodes() {
        node.inserted.iter().for_each(|why| paragraph(text, &format!("{}: ", one_line(&node.name)), why));
        node.notes.iter().for_each(|note| paragraph(text, &format!("{}: ", one_line(&node.name)), note));
    }
    plan.notes().iter().for_each(|note| paragraph(text, "note: ", note));
}
