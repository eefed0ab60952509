//! GPUs by their names.

use std::sync::OnceLock;

/// What lists NVIDIA's GPUs, in the order of their numbers.
type ListGpus = fn() -> Option<Vec<String>>;

static NVIDIA_GPUS: OnceLock<ListGpus> = OnceLock::new();

/// Sets what lists the names of NVIDIA's GPUs, for runtimes that know them by their numbers: only
/// their driver knows the names.
pub fn set_nvidia_gpus(list: ListGpus) {
    let _ = NVIDIA_GPUS.set(list);
}

/// Returns the names of NVIDIA's GPUs; `None` if they are not known.
pub fn nvidia_gpus() -> Option<Vec<String>> {
    NVIDIA_GPUS.get().and_then(|list| list())
}

/// Returns the numbers of the GPUs that `wanted` means, by their names: that of the number, else
/// those whose names contain it, in any case, and a number only as a whole; all of them without it.
///
/// # Errors
/// That there is none, and which there are.
pub fn chosen(wanted: Option<&str>, names: &[String]) -> Result<Vec<usize>, String> {
    let Some(wanted) = wanted else { return Ok((0..names.len()).collect()) };
    if let Some(number) = wanted.parse().ok().filter(|number| *number < names.len()) {
        return Ok(vec![number]);
    }
    let part = wanted.to_lowercase();
    let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
    // `1` is no part of `A100`.
    let is_whole = |name: &str| name.split(|at: char| !at.is_ascii_digit()).any(|digits| digits == part);
    let contains = |name: &str| if is_number { is_whole(name) } else { name.to_lowercase().contains(&part) };
    let fits = |number: &usize| !part.is_empty() && contains(&names[*number]);
    let found: Vec<usize> = (0..names.len()).filter(fits).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let known = names.iter().enumerate().map(|(number, name)| format!("GPU {number} is `{name}`"));
    let known = known.collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "this machine lists no GPU".into() } else { known };
    Err(format!("GPU `{wanted}` (`--gpu`) was not found: {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_meant_by_its_number_or_a_part_of_its_name() {
        let names = ["NVIDIA GeForce RTX 4090", "llvmpipe (LLVM 15, 256 bits)", "nvidia T4"].map(String::from);
        for (wanted, found) in [
            (None, Ok(vec![0, 1, 2])),
            (Some("1"), Ok(vec![1])),
            (Some("nvidia"), Ok(vec![0, 2])),
            (Some("LLVMPIPE"), Ok(vec![1])),
            (Some("4090"), Ok(vec![0])),
            (Some("3"), Err("GPU `3` (`--gpu`) was not found")),
            (Some("40"), Err("GPU `40` (`--gpu`) was not found")),
            (Some("256"), Ok(vec![1])),
            (Some("-1"), Err("GPU `-1` (`--gpu`) was not found")),
            (Some("radeon"), Err("2 is `nvidia T4`")),
            (Some(""), Err("GPU `` (`--gpu`) was not found")),
        ] {
            match (chosen(wanted, &names), found) {
                (Ok(numbers), Ok(expected)) => assert_eq!(numbers, expected, "{wanted:?}"),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{wanted:?}: {why}"),
                (got, _) => panic!("{wanted:?}: {got:?}"),
            }
        }
        assert_eq!(chosen(None, &[]), Ok(vec![]));
        assert!(chosen(Some("0"), &[]).unwrap_err().contains("lists no GPU"));
    }
}
