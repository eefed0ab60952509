//! Image files: their headers, their pixels, and what a folder of them has in common.

pub mod image_file;
pub(crate) mod image_survey;
mod jpeg_scan;
