//! Runs one chain and prints one JSON object in the format of the comparison of engines:
//! `limen-chain k=8 payload=64 form=handle rate=0 secs=1 cores=1 wait=adaptive telemetry=auto`.

use limen::policy::Telemetry;
use limen_benches::{Chain, cpu_seconds, peak_kib};
use std::collections::BTreeMap;

fn main() {
    let args: BTreeMap<String, String> = std::env::args()
        .skip(1)
        .filter_map(|a| a.split_once('=').map(|(k, v)| (k.to_string(), v.to_string())))
        .collect();
    let text = |name: &str, default: &str| args.get(name).cloned().unwrap_or_else(|| default.to_string());
    let number = |name: &str, default: f64| args.get(name).map_or(Some(default), |v| v.parse::<f64>().ok());
    let (Some(k), Some(payload), Some(rate), Some(secs), Some(cores)) =
        (number("k", 1.0), number("payload", 64.0), number("rate", 0.0), number("secs", 1.0), number("cores", 1.0))
    else {
        eprintln!("expected numbers for k, payload, rate, secs and cores");
        std::process::exit(2);
    };
    let form = text("form", if payload <= 64.0 { "value" } else { "handle" });
    if form == "value" && payload > 64.0 {
        eprintln!("form=value takes at most 64 bytes: use form=handle");
        std::process::exit(2);
    }
    let wait = match text("wait", "adaptive").as_str() {
        "spin" => "spin",
        "park" => "park",
        _ => "adaptive",
    };
    let telemetry = match text("telemetry", "auto").as_str() {
        "full" => Telemetry::Full,
        "sampled" => Telemetry::Sampled,
        "off" => Telemetry::Off,
        _ => Telemetry::Auto,
    };
    let capacity = number("capacity", 0.0).filter(|c| *c > 0.0).map(|c| c as usize);
    let chain = Chain {
        k: k as usize,
        bytes: (form == "handle").then_some(payload as usize),
        rate,
        cores: cores as usize,
        wait,
        telemetry,
        capacity,
        seconds: secs,
    };
    let before = cpu_seconds();
    let figures = chain.run();
    let cpu = cpu_seconds() - before;
    let mode = if form == "handle" { "handle" } else { "inline" };
    let bench = if rate > 0.0 { "latency" } else { "throughput" };
    let single = if capacity == Some(1) { ", single messages" } else { "" };
    let policy = format!("{cores} core, {wait}, telemetry {}{single}", text("telemetry", "auto"));
    print!(
        "{{\"bench\":\"{bench}\",\"engine\":\"limen\",\"k\":{k},\"payload\":{payload},\"rate\":{rate},\"mode\":\"{mode}\",\
         \"policy\":\"{policy}\",\"n\":{},\"msgs_per_s\":{:.1},\"cpu_pct\":{:.2},\"cpu_ns_per_msg\":{:.2},\"peak_kib\":{}",
        figures.n,
        figures.rate,
        figures.cpu * 100.0,
        cpu * 1e9 / figures.n.max(1) as f64,
        peak_kib()
    );
    if let Some([p50, p99, p999, max]) = figures.latency {
        print!(",\"p50_ns\":{p50},\"p99_ns\":{p99},\"p999_ns\":{p999},\"max_ns\":{max}");
    }
    println!("}}");
}
