//! Kinds that are suggested for an unknown one: names like it, and kinds that mention it.

use super::kind::Kind;
use crate::base::error::{Place, Problem, nearest, suggest};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;

/// The words of the documentation of each kind, once an unknown kind was looked for.
#[derive(Debug, Default)]
pub(super) struct KindWords(OnceLock<HashMap<String, HashSet<String>>>);

impl KindWords {
    /// Returns at most five kinds that mention a word: first those with the word in their name,
    /// then those with the word in their documentation. Words of fewer than four letters, such as
    /// "the", are not searched in documentation.
    fn that_mention(&self, word: &str, kinds: &BTreeMap<String, Vec<Kind>>) -> Vec<String> {
        let word = word.to_lowercase();
        let (named, others): (Vec<_>, Vec<_>) = kinds.keys().partition(|name| words(name).any(|part| part == word));
        let described = self.0.get_or_init(|| {
            let of = |kinds: &[Kind]| kinds.iter().flat_map(|kind| words(&kind.about()).collect::<Vec<_>>()).collect();
            kinds.iter().map(|(name, kinds)| (name.clone(), of(kinds))).collect()
        });
        let is_long = word.chars().count() >= 4;
        let others =
            others.into_iter().filter(|name| is_long && described.get(*name).is_some_and(|has| has.contains(&word)));
        named.into_iter().chain(others).take(5).map(|name| format!("`{name}`")).collect()
    }

    /// Creates the problem of a kind that is none of `kinds`.
    pub(super) fn unknown(&self, kind: &str, place: &Place, kinds: &BTreeMap<String, Vec<Kind>>) -> Problem {
        let names = kinds.keys().map(String::as_str);
        let help = match nearest(kind, names.clone()) {
            Some(_) => suggest(kind, names),
            None => match &self.that_mention(kind, kinds)[..] {
                [] => format!("{} (`limen-run kinds` describes each kind)", suggest(kind, names)),
                some => {
                    format!("write one of {} (`limen-run explain KIND` describes each kind)", some.join(", "))
                }
            },
        };
        Problem::new("E0124", place.clone(), format!("unknown kind `{kind}`")).help(help)
    }
}

/// The words of a text in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase)
}
