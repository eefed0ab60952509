//! Facts grouped by their reason, which is printed once.

use super::escape::one_line;
use super::paragraph::paragraph;

/// Facts grouped by their reason.
#[derive(Default)]
pub(crate) struct Reasons(Vec<(&'static str, Vec<String>)>);

impl Reasons {
    pub(crate) fn add(&mut self, why: &'static str, fact: String) {
        match self.0.iter_mut().find(|(known, _)| *known == why) {
            Some((_, facts)) => facts.push(fact),
            None => self.0.push((why, vec![fact])),
        }
    }

    pub(crate) fn write(&self, text: &mut String) {
        for (why, facts) in &self.0 {
            text.push('\n');
            facts.iter().for_each(|fact| paragraph(text, "", fact));
            paragraph(text, "    ", why);
        }
    }
}

/// Writes which threads are not pinned to a CPU, and why.
pub(crate) fn floating<'a>(text: &mut String, threads: impl Iterator<Item = (&'a str, Option<&'static str>)>) {
    let mut reasons = Reasons::default();
    threads.for_each(|(name, why)| {
        if let Some(why) = why {
            reasons.add(why, one_line(name).to_string());
        }
    });
    for (why, names) in &reasons.0 {
        text.push('\n');
        let verb = if names.len() == 1 { "floats" } else { "float" };
        paragraph(text, "", &format!("{} {verb}: {why}", names.join(", ")));
    }
}
