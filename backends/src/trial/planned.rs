//! Plans a node with the result of a trial of its model.

use super::process::{decode, run_trial};
use super::program::program;
use super::record::RecordPlace;
use super::request::{AnyPath, Request, RequestedNode, Task};
use crate::base::BackendOptions;
use crate::plan::{Choice, Config, Recorded, choose, read_model};
use crate::steps::{Record, Steps};
use limen::infer::InferPlan;
use limen::node::{Connected, PlanErrors, Planning};
use std::path::{Path, PathBuf};

/// Plans a node that runs a model, after a trial of the model.
pub(crate) fn planned(
    config: &Config,
    model: &str,
    given: &Connected,
    cx: &Planning<'_>,
    recorded: Recorded,
) -> Result<InferPlan, PlanErrors> {
    let options = BackendOptions::of(cx);
    let program = match program(cx.trials) {
        Ok(program) => program,
        Err(why) => {
            return choose(config, model, given, cx, recorded, &Steps::default(), None).map(|plan| plan.note(why));
        }
    };
    let given_text = given.inputs().map(|(port, spec)| (port.to_string(), spec.map(ToString::to_string)));
    let others = config.verify.as_ref().map_or(0, |verify| u64::from(verify.against.is_some()))
        + u64::from(config.shadow.is_some());
    let all = config.backend == Choice::Auto || options.calibrate;
    let mut node = RequestedNode {
        config: config.to_json(),
        given: given_text.collect(),
        graph: AnyPath::new(&cx.folders.graph),
        allowed: cx.folders.allowed.iter().map(|folder| AnyPath::new(folder)).collect(),
        calibrate: options.calibrate,
        dead: Vec::new(),
        runtimes: others + if all { 3 } else { 1 },
        threads: config.threads.clamp(1, 256) as u64,
        items: config.batch.max as u64,
        item: given
            .inputs()
            .filter_map(|(_, spec)| spec?.max_bytes())
            .fold(0, |sum, bytes| sum.saturating_add(bytes as u64)),
    };
    let path = cx.folders.input(model).unwrap_or_default();
    let recordings =
        config.verify.as_ref().and_then(|verify| verify.case.as_deref()).into_iter().chain(config.trial_file());
    let recordings: Vec<PathBuf> = recordings.filter_map(|file| cx.folders.input(file).ok()).collect();
    let files: Vec<&Path> = std::iter::once(&path).chain(&recordings).map(PathBuf::as_path).collect();
    let mut is_again = false;
    loop {
        // If results are kept by content, the file is read here and passed on: the bytes looked up are the bytes that run.
        let file = if is_kept(options, &node) { Some(read_model(model, cx)?) } else { None };
        let place = RecordPlace::of(config, options, &node, &files, file.as_ref(), &recorded);
        let (record, note) = match place.find().filter(|_| !is_again) {
            Some((record, note)) => (record, note),
            None => match run_trial(&program, &Request::new(cx.trials, options, &path, Task::Plan(node.clone())))
                .and_then(decode)
            {
                Ok(found) => {
                    let found: Result<Record, PlanErrors> = found;
                    let record = found?;
                    place.keep(&record);
                    (record, None)
                }
                Err(died) => {
                    let sentence = died.sentence(&format!("`{model}`"));
                    let is_dead = |name: &String| node.dead.iter().any(|(dead, _)| dead == name);
                    match died.runtime.filter(|name| config.backend == Choice::Auto && !is_dead(name)) {
                        Some(runtime) => node.dead.push((runtime, sentence)),
                        None => {
                            let mut errors = PlanErrors::default();
                            errors.at("model", sentence).help(died.help);
                            return Err(errors);
                        }
                    }
                    continue;
                }
            },
        };
        let steps = Steps::replaying(record, node.dead.clone());
        let planned = choose(config, model, given, cx, recorded.clone(), &steps, file);
        if steps.is_changed() && !is_again {
            is_again = true;
            continue;
        }
        return planned.map(|plan| match note {
            Some(note) => plan.note(note),
            None => plan,
        });
    }
}

/// Whether the results for a node are cached by the content of its files: not when measuring, and not after a runtime has crashed,
/// which may not happen again.
fn is_kept(options: &BackendOptions, node: &RequestedNode) -> bool {
    options.cache.is_some() && !node.calibrate && node.dead.is_empty()
}
