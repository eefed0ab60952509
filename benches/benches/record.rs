//! How fast `record` writes, beside bare sequential writes of as many bytes: `cargo bench -p
//! limen-benches --bench record [-- FOLDER] [BYTES]`. Files go to a new folder in FOLDER, by
//! default the system's for temporary files, and are removed. Rows take turns, and the median of
//! all rounds counts.
//!
//! There are two bare writes. `bare` reads its bytes from memory of the size that the messages lie
//! in, which is more than a core's cache for long messages: that is a bare write of the same bytes.
//! `block` writes one block of 1 MiB again and again, which stays in the cache: no program whose
//! bytes come from elsewhere is as fast.

#![allow(clippy::disallowed_methods, reason = "the files of a bench are its own")]

use limen::message::{DType, PortSpec};
use limen::node::{Building, Connected, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Source};
use limen::{Drain, Options, Plan, Registry, Spec, Tensor};
use limen_benches::{host, median};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of the file of a round, about: as many in every row, as the kernel slows down who has more
/// unwritten bytes than it likes.
const ROUND: u64 = 256 << 20;
/// What a recording has besides the bytes of a message, about.
const BESIDES: usize = 80;
const ROUNDS: usize = 5;
/// Bytes of a bare write.
const BLOCK: usize = 1 << 20;
/// What an input of `record` holds by default: messages, and bytes of them.
const HELD: usize = 4096;
const HELD_BYTES: usize = 64 << 20;

/// The length of each message.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Config {
    bytes: usize,
    count: u64,
}

/// Sends messages without writing into them, so that only recording takes time.
#[derive(Debug)]
struct Blank {
    left: u64,
}

impl Node for Blank {
    type Config = Config;

    fn ports(config: &Config, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().output("out", PortSpec::fixed(DType::U8, [config.bytes])))
    }

    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Blank { left: config.count })
    }
}

impl Source for Blank {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        let header = out.header(out.now());
        let tensor = out.loan(&header)?;
        out.send(tensor);
        self.left -= 1;
        Ok(if self.left == 0 { Next::Done } else { Next::More })
    }
}

/// How many messages a round has.
fn messages(bytes: usize) -> u64 {
    ROUND / (bytes + BESIDES) as u64
}

/// Records messages of a size, to the disk if `synced`; returns the bytes of the file and the
/// seconds.
fn record(folder: &Path, bytes: usize, synced: bool) -> (u64, f64) {
    let count = messages(bytes);
    let text = format!(
        "version: 1\nnodes:\n  s: {{ kind: blank, config: {{ bytes: {bytes}, count: {count} }} }}\n  \
         r: {{ kind: record, from: s, config: {{ path: r.mcap }} }}\n"
    );
    let registry =
        Registry::new().with(limen_nodes_core::register).with(limen_recording::register).source::<Blank>("blank");
    let mut spec = Spec::from_text(&text, "record.yaml").expect("the graph is well-formed");
    spec.folders.graph = folder.to_path_buf();
    let plan = Plan::with_options(spec, &registry, &Options::default()).expect("the graph can be planned");
    let mut running = plan.wire().expect("there is memory").start().expect("the nodes can be built");
    let begun = Instant::now();
    running.wait_for(Duration::from_secs(300));
    let file = folder.join("r.mcap");
    if synced {
        File::open(&file).and_then(|file| file.sync_all()).expect("the file can be synced");
    }
    let seconds = begun.elapsed().as_secs_f64();
    // The memory of the messages is given back after that, as that of a bare write is.
    let size = fs::metadata(&file).expect("the file is there").len();
    let report = running.stop(Drain::within(Duration::from_secs(10)));
    assert_eq!(fs::metadata(&file).expect("the file is there").len(), size, "the file was not complete");
    let recorded = report.nodes.iter().flat_map(|node| node.metrics.iter()).find(|(name, _)| *name == "recorded");
    assert_eq!(recorded.map(|(_, n)| n), Some(count as f64));
    remove(&file);
    (size, seconds)
}

/// Writes and removes a file of a round's length. A hypervisor takes pages back that are free for
/// seconds, and the first write to each of them then costs ten times as much: no row is to be the
/// one that gets them.
fn touch_pages(folder: &Path) {
    let path = folder.join("touched");
    let block = vec![7; BLOCK];
    let mut file = File::create(&path).expect("the folder can be written");
    for _ in 0..(ROUND + ROUND / 2) / BLOCK as u64 {
        file.write_all(&block).expect("there is room");
    }
    drop(file);
    remove(&path);
}

/// Removes a file that the disk has: otherwise what is still to be written slows down the next one.
fn remove(path: &Path) {
    File::open(path).and_then(|file| file.sync_all()).expect("the file can be synced");
    fs::remove_file(path).expect("the file can be removed");
}

/// Writes bytes as fast as possible from memory of some size, to the disk if `synced`; returns the
/// seconds.
fn bare(folder: &Path, bytes: u64, memory: usize, synced: bool) -> f64 {
    let memory = vec![7; memory.next_multiple_of(BLOCK)];
    let path = folder.join("bare");
    let begun = Instant::now();
    let mut file = File::create(&path).expect("the folder can be written");
    let mut left = bytes;
    for block in memory.chunks(BLOCK).cycle() {
        let now = left.min(BLOCK as u64);
        file.write_all(&block[..now as usize]).expect("there is room");
        left -= now;
        if left == 0 {
            break;
        }
    }
    if synced {
        file.sync_all().expect("the file can be synced");
    }
    let seconds = begun.elapsed().as_secs_f64();
    drop(file);
    remove(&path);
    seconds
}

fn main() {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let only = words.iter().find_map(|word| word.parse::<usize>().ok());
    let folder = words.iter().find(|word| word.parse::<usize>().is_err());
    let folder =
        folder.map_or_else(std::env::temp_dir, Into::into).join(format!("limen-record-{}", std::process::id()));
    fs::create_dir(&folder).expect("the folder can be made");
    println!("{}", host());
    println!("bytes of a message  synced  record MB/s  bare MB/s  ratio  block MB/s  ratio  spread  messages/s");
    let sizes = only.map_or(vec![64, 1 << 10, 64 << 10, 1280 * 720 * 3], |bytes| vec![bytes]);
    let rows: Vec<(usize, bool)> =
        [false, true].iter().flat_map(|synced| sizes.iter().map(|bytes| (*bytes, *synced))).collect();
    let mut rates = vec![[const { Vec::new() }; 4]; rows.len()];
    for _ in 0..ROUNDS {
        for ((bytes, synced), rates) in rows.iter().zip(&mut rates) {
            touch_pages(&folder);
            let (size, seconds) = record(&folder, *bytes, *synced);
            let held = (bytes * HELD).min(HELD_BYTES);
            let [bare, block] = [held, BLOCK].map(|memory| {
                touch_pages(&folder);
                bare(&folder, size, memory, *synced)
            });
            let rate = |seconds: f64| size as f64 / seconds / 1e6;
            let messages = messages(*bytes) as f64 / seconds;
            let row = [rate(seconds), rate(bare), rate(block), messages];
            rates.iter_mut().zip(row).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    for ((bytes, synced), [recorded, bare, block, messages]) in rows.iter().zip(rates) {
        let ratio = |to: &[f64]| median(recorded.iter().zip(to).map(|(a, b)| a / b).collect());
        let ((of_bare, spread), (of_block, _)) = (ratio(&bare), ratio(&block));
        let [recorded, bare, block, messages] = [recorded, bare, block, messages].map(|figures| median(figures).0);
        println!(
            "{bytes:18}  {synced:6}  {recorded:11.0}  {bare:9.0}  {of_bare:5.2}  {block:10.0}  {of_block:5.2}  {spread:6.2}  {messages:10.0}"
        );
    }
    fs::remove_dir(&folder).expect("the folder is empty");
}
