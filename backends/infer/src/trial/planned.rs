//! Plans a node with the result of a trial of its model.

use super::process::{decode, run_trial};
use super::program::program;
use super::record::RecordPlace;
use super::request::{AnyPath, GivenSpec, RequestedNode, TrialRequest, TrialTask};
use crate::base::BackendOptions;
use crate::plan::{AUTO, Candidate, InferConfig, OrtDevice, RecordedModel, Runtimes, choose, read_model};
use crate::steps::{TrialRecord, TrialSteps};
use limen::Folders;
use limen::files::{MemoryFiles, memory_name};
use limen::infer::InferPlan;
use limen::node::{Connected, PlanErrors, Planning};

/// Plans a node that runs a model, after a trial of the model.
pub(crate) fn planned(
    config: &InferConfig,
    model: &str,
    given: &Connected,
    cx: &Planning<'_>,
    recorded: RecordedModel,
) -> Result<InferPlan, PlanErrors> {
    let options = BackendOptions::of(cx);
    let (options, runtimes) = (&*options, Runtimes::of(cx.extensions));
    let program = match program(cx.trials) {
        Ok(program) => program,
        Err(why) => {
            return choose(config, model, given, cx, recorded, &TrialSteps::default(), None).map(|plan| plan.note(why));
        }
    };
    let given_specs = given.inputs().map(|(port, spec)| (port.to_string(), spec.map(GivenSpec::of)));
    let others = config.verify.as_ref().map_or(0, |verify| u64::from(verify.against.is_some()))
        + u64::from(config.shadow.is_some())
        + u64::from(config.fallback.is_some());
    let all = config.serving() == AUTO || options.calibrate;
    let considered = runtimes.considered(config, options);
    let mut node = RequestedNode {
        config: config.to_json(),
        given: given_specs.collect(),
        graph: AnyPath::new(&cx.folders.graph),
        allowed: cx.folders.allowed.iter().map(|folder| AnyPath::new(folder)).collect(),
        remote: cx
            .folders
            .remote
            .iter()
            .map(|(url, copy)| (url.to_string(), AnyPath::new(&copy.path), copy.size, copy.sha256.clone()))
            .collect(),
        calibrate: options.calibrate,
        dead: Vec::new(),
        runtimes: others + if all { considered.len() as u64 } else { 1 },
        threads: config.threads.clamp(1, 256) as u64,
        items: config.batch.max as u64,
        item: given
            .inputs()
            .filter_map(|(_, spec)| spec?.max_bytes())
            .fold(0, |sum, bytes| sum.saturating_add(bytes as u64)),
    };
    let recordings =
        config.verify.as_ref().and_then(|verify| verify.case.as_deref()).into_iter().chain(config.trial_file());
    let files: Vec<&str> = std::iter::once(model).chain(recordings).collect();
    let memory = needed(&files, config.manifest.as_deref(), &cx.folders.memory);
    let (stamps, size) =
        (files.iter().map(|file| stamp(file, cx.folders)).collect::<Vec<_>>(), size(model, cx.folders));
    let try_model = |request: &TrialRequest| run_trial(&program, request, &memory).and_then(decode);
    let mut is_again = false;
    loop {
        // If results are kept by content, the file is read here and passed on: the bytes looked up
        // are the bytes that run.
        let file = if is_kept(&considered, options, &node) { Some(read_model(model, cx)?) } else { None };
        let place = RecordPlace::of(config, &considered, options, &node, &stamps, file.as_ref(), &recorded);
        let (record, note) = match place.find().filter(|_| !is_again) {
            Some((record, note)) => (record, note),
            None => {
                match try_model(&TrialRequest::new(cx.trials, options, size, &memory, TrialTask::Plan(node.clone()))) {
                    Ok(found) => {
                        let found: Result<TrialRecord, PlanErrors> = found;
                        let record = found?;
                        place.keep(&record);
                        (record, None)
                    }
                    Err(died) => {
                        let sentence = died.sentence(&format!("`{model}`"));
                        let is_dead = |name: &String| node.dead.iter().any(|(dead, _)| dead == name);
                        // One that is only measured may crash, too.
                        let is_optional = |name: &String| all && config.serving() != name;
                        match died.runtime.filter(|name| is_optional(name) && !is_dead(name)) {
                            Some(runtime) => node.dead.push((runtime, sentence)),
                            None => {
                                let mut errors = PlanErrors::default();
                                errors.at("model", sentence).help(died.help);
                                return Err(errors);
                            }
                        }
                        continue;
                    }
                }
            }
        };
        let steps = TrialSteps::replaying(record, node.dead.clone());
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

/// Returns the files in memory that a trial may read: those that the node names and, if its model
/// is one of them, all, because the model says only when it is parsed which hold its weights.
fn needed(files: &[&str], manifest: Option<&str>, memory: &MemoryFiles) -> MemoryFiles {
    if files.first().is_some_and(|model| memory_name(model).is_some()) {
        return memory.clone();
    }
    let names: Vec<&str> = files.iter().copied().chain(manifest).filter_map(memory_name).collect();
    memory.only(|name| names.contains(&name))
}

/// Returns the size of a model's file in bytes.
fn size(model: &str, folders: &Folders) -> u64 {
    match memory_name(model) {
        Some(name) => folders.memory.get(name).map_or(0, |bytes| bytes.len() as u64),
        None => folders.input(model).and_then(|path| path.metadata().map_err(|e| e.to_string())).map_or(0, |m| m.len()),
    }
}

/// Returns what changes with a file's content, mostly: path, size and time. A result of a trial has
/// the checksums.
fn stamp(file: &str, folders: &Folders) -> String {
    if memory_name(file).is_some() {
        return format!("{file} {}", size(file, folders));
    }
    let path = folders.input(file).unwrap_or_default();
    let stamp = path.metadata().and_then(|about| Ok((about.len(), about.modified()?)));
    stamp.map_or_else(|_| String::new(), |(size, time)| format!("{} {size} {time:?}", path.display()))
}

/// Whether the results for a node are cached by the content of its files: not when measuring, and
/// not after a runtime has crashed, which may not happen again. Nor on a GPU: ONNX Runtime does not
/// say which driver computed them, and another one may fail.
fn is_kept(considered: &[Candidate<'_>], options: &BackendOptions, node: &RequestedNode) -> bool {
    let is_known = considered.iter().all(|candidate| candidate.device == OrtDevice::Cpu);
    options.cache.is_some() && !node.calibrate && node.dead.is_empty() && is_known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_gets_the_files_in_memory_that_it_may_read() {
        let mut memory = MemoryFiles::default();
        ["m", "m.data", "case", "manifest", "other"].into_iter().for_each(|name| memory.add(name, vec![0]));
        for (files, manifest, expected) in [
            (&["m"][..], None, ""),
            (&["m", "mem:case", "case"], None, "case"),
            (&["m"], Some("mem:manifest"), "manifest"),
            (&["mem:m", "case"], None, "case m m.data manifest other"),
        ] {
            let needed = needed(files, manifest, &memory);
            let names: Vec<&str> = needed.iter().map(|(name, _)| name).collect();
            assert_eq!(names.join(" "), expected, "{files:?}");
        }
    }
}
