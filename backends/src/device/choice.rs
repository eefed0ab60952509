//! Which of several GPUs is taken, and the device that belongs to it.

use super::api::Api;
use super::shared::SharedDevice;
use limen::backend::BackendError;
use std::sync::{Arc, Mutex, PoisonError};

/// Returns the numbers of the GPUs that `wanted` means, by their names: that of the number, else those whose names contain it, in any
/// case, and a number only as a whole; all of them without it.
///
/// # Errors
/// That there is none, and which there are.
pub(crate) fn chosen(wanted: Option<&str>, names: &[String]) -> Result<Vec<usize>, String> {
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
    let known = names.iter().enumerate().map(|(number, name)| format!("{number} is `{name}`"));
    let known = known.collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "there is none at all".into() } else { known };
    Err(format!("there is no GPU `{wanted}` (`--gpu`): {known}"))
}

/// Returns the reason alone: what is unavailable is said by those who ask.
fn reason(error: BackendError) -> String {
    match error {
        BackendError::Unavailable(why) => why,
        error => error.to_string(),
    }
}

/// The devices of an API that the nodes of a process share, by their numbers.
pub(crate) struct SharedDevices<A: Api> {
    /// The number of the first one among all devices of a process.
    first: u8,
    known: Mutex<Vec<Option<Arc<SharedDevice<A>>>>>,
}

impl<A: Api> SharedDevices<A> {
    pub(crate) const fn new(first: u8) -> Self {
        SharedDevices { first, known: Mutex::new(Vec::new()) }
    }

    /// Returns the device of a number, which `open` opens. If it is not known which one is meant, what is returned says why when it is used.
    pub(crate) fn get(
        &self,
        number: Result<usize, BackendError>,
        open: fn(usize) -> Result<A, BackendError>,
    ) -> Arc<SharedDevice<A>> {
        let number = match number {
            Ok(number) => number,
            Err(error) => {
                let why = reason(error);
                return Arc::new(SharedDevice::new(self.first, move || Err(why.clone())));
            }
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() <= number {
            known.resize_with(number + 1, || None);
        }
        let apart = u8::try_from(number).unwrap_or(u8::MAX);
        let make =
            || Arc::new(SharedDevice::new(self.first.saturating_add(apart), move || open(number).map_err(reason)));
        known[number].get_or_insert_with(make).clone()
    }
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
            (Some("3"), Err("there is no GPU `3`")),
            (Some("40"), Err("there is no GPU `40`")),
            (Some("256"), Ok(vec![1])),
            (Some("-1"), Err("there is no GPU `-1`")),
            (Some("radeon"), Err("2 is `nvidia T4`")),
            (Some(""), Err("there is no GPU ``")),
        ] {
            match (chosen(wanted, &names), found) {
                (Ok(numbers), Ok(expected)) => assert_eq!(numbers, expected, "{wanted:?}"),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{wanted:?}: {why}"),
                (got, _) => panic!("{wanted:?}: {got:?}"),
            }
        }
        assert_eq!(chosen(None, &[]), Ok(vec![]));
        assert!(chosen(Some("0"), &[]).unwrap_err().contains("none at all"));
    }
}
