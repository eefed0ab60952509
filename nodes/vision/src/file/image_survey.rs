//! Surveys of image files: the sizes of all, from their headers alone.

use crate::file::image_file::{self, MatchedFile, Size};
use limen::message::Dim;
use limen::node::NodeError;

/// What the headers of some files say.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The files that can be read, by their number, and their sizes.
    pub(crate) sizes: Vec<(usize, Size)>,
    /// How many others there are.
    pub(crate) unreadable: usize,
    /// Why the first of those cannot be read.
    pub(crate) why: Option<NodeError>,
}

impl Survey {
    /// Reads the headers of all files.
    pub(crate) fn of(files: &[MatchedFile]) -> Self {
        let mut survey = Survey::default();
        for (at, file) in files.iter().enumerate() {
            match image_file::size_of_file(file) {
                Ok(size) => survey.sizes.push((at, size)),
                Err(why) => {
                    survey.unreadable += 1;
                    survey.why.get_or_insert(why);
                }
            }
        }
        survey
    }

    /// Returns the length of a side: fixed if it is that of all images, else at most that of the
    /// largest.
    pub(crate) fn dim(&self, side: fn(&Size) -> usize) -> Dim {
        let sides = || self.sizes.iter().map(|(_, size)| side(size));
        let (least, most) = (sides().min().unwrap_or(0), sides().max().unwrap_or(0));
        if least == most { Dim::Fixed(most) } else { Dim::AtMost(most) }
    }

    /// Returns the channels of all images.
    ///
    /// # Errors
    /// A list of those that differ.
    pub(crate) fn channels(&self, files: &[MatchedFile]) -> Result<usize, String> {
        let mut found = Vec::new();
        for channels in [1, 3, 4] {
            let mut with = self.sizes.iter().filter(|(_, size)| size.channels == channels);
            if let Some((first, _)) = with.next() {
                let text = format!("{channels} in `{}`", files[*first].path.display());
                found.push((channels, text));
            }
        }
        match &found[..] {
            [(channels, _)] => Ok(*channels),
            _ => {
                let texts: Vec<_> = found.into_iter().map(|(_, text)| text).collect();
                Err(format!("expected files with the same number of channels, found {}", texts.join(" and ")))
            }
        }
    }
}
