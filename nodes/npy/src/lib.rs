//! Reads and writes the headers of NumPy's `.npy` files, as
//! [numpy.lib.format](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html)
//! defines them.
//!
//! A header is a Python dictionary with three keys. A grammar for all of Python's literals, which
//! the crate npyz uses, recurses on hostile headers and takes eighteen crates; this reader accepts
//! the three keys and what NumPy writes for them.

use std::fmt;
use std::io::Read;

/// The longest header that is read, in bytes. That of an array of numbers needs a tenth of it; the
/// rest is padding.
pub const MAX_HEADER: usize = 4 << 10;

/// Bytes of a header that [`header`] returns, if it has up to seven dims: a multiple of 64 as in
/// NumPy.
pub const HEADER: usize = 256;

/// Returns the header of an array with elements of a type, such as `<f4`. Its length is [`HEADER`]
/// for up to seven dims, whatever their lengths, so that it can be overwritten when the array has
/// grown; a longer one takes more multiples of 64 bytes. NumPy has at most 64 dims.
///
/// ```
/// let bytes = limen_npy::header("<f4", [7, 480, 3]);
/// let read = limen_npy::NpyHeader::read(&mut &bytes[..]).unwrap();
/// assert_eq!((read.shape, read.start), (vec![7, 480, 3], limen_npy::HEADER));
/// ```
pub fn header(descriptor: &str, shape: impl IntoIterator<Item = u64>) -> Vec<u8> {
    // As Python writes tuples: a single length has a comma too.
    let shape: Vec<String> = shape.into_iter().map(|length| format!("{length},")).collect();
    let shape = shape.join(" ");
    let text = format!("{{'descr': '{descriptor}', 'fortran_order': False, 'shape': ({shape}), }}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    // Seven dims of twenty digits fit into the least length. The header ends with a newline.
    let length = (bytes.len() + 2 + text.len() + 1).next_multiple_of(64).max(HEADER);
    bytes.extend_from_slice(&((length - 10) as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(length - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// Returns the type of elements as NumPy writes it, from a name such as `f32`; `None` if NumPy has
/// no such type.
///
/// ```
/// assert_eq!(limen_npy::descriptor("f32").as_deref(), Some("<f4"));
/// assert_eq!(limen_npy::descriptor("u8").as_deref(), Some("|u1"));
/// assert_eq!(limen_npy::descriptor("bf16"), None);
/// ```
pub fn descriptor(number: &str) -> Option<String> {
    let (letter, bits) = number.split_at_checked(1)?;
    let bytes = bits.parse::<usize>().ok()? / 8;
    match (letter, bytes) {
        ("i" | "u", 1) => Some(format!("|{letter}1")),
        ("f" | "i" | "u", 2 | 4 | 8) => Some(format!("<{letter}{bytes}")),
        _ => None,
    }
}

/// The kind of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElementKind {
    /// Floating-point numbers.
    Float,
    /// Signed integers.
    Int,
    /// Unsigned integers.
    Uint,
    /// Bytes that are 0 or 1.
    Bool,
    /// Anything else: complex numbers, text, times, Python objects.
    Other,
}

/// The type of an array's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyElement {
    /// Their kind.
    pub kind: ElementKind,
    /// The number in the type: bytes, of text characters; 0 if there is none.
    pub size: usize,
    /// Whether its bytes are in big-endian order.
    pub is_big_endian: bool,
    text: String,
}

/// The type as NumPy writes it, such as `<f4`.
impl fmt::Display for NpyElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl NpyElement {
    fn of(text: &str) -> Option<Self> {
        let mut chars = text.chars();
        let order = chars.next().filter(|order| "<>|".contains(*order))?;
        let letter = chars.next()?;
        let kind = match letter {
            'f' => ElementKind::Float,
            'i' => ElementKind::Int,
            'u' => ElementKind::Uint,
            'b' => ElementKind::Bool,
            'c' | 'm' | 'M' | 'S' | 'a' | 'U' | 'O' | 'V' => ElementKind::Other,
            _ => return None,
        };
        let rest = chars.as_str();
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = &rest[..rest.len() - unit.len()];
        let size = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        let has_unit = unit.strip_prefix('[').and_then(|unit| unit.strip_suffix(']')).is_some_and(|unit| {
            matches!(letter, 'm' | 'M') && unit.len() < 16 && unit.chars().all(|c| c.is_ascii_alphanumeric())
        });
        let is_number = kind != ElementKind::Other;
        if !(unit.is_empty() || has_unit) || (is_number && (size == 0 || (order == '|' && size > 1))) {
            return None;
        }
        Some(NpyElement { kind, size, is_big_endian: order == '>', text: text.into() })
    }

    /// Returns the name of the type, such as `f32`; a bool is a `u8`. `None` if it is not a number
    /// of at most 64 bits.
    ///
    /// ```
    /// let header = limen_npy::NpyHeader::read(&mut &limen_npy::header("<i2", [3])[..]).unwrap();
    /// assert_eq!(header.element.number().as_deref(), Some("i16"));
    /// ```
    pub fn number(&self) -> Option<String> {
        match (self.kind, self.size) {
            (ElementKind::Float, 2 | 4 | 8) => Some(format!("f{}", 8 * self.size)),
            (ElementKind::Int, 1 | 2 | 4 | 8) => Some(format!("i{}", 8 * self.size)),
            (ElementKind::Uint, 1 | 2 | 4 | 8) | (ElementKind::Bool, 1) => Some(format!("u{}", 8 * self.size)),
            _ => None,
        }
    }
}

/// The header of an `.npy` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    /// The type of the elements.
    pub element: NpyElement,
    /// Whether the first index varies fastest: Fortran's order.
    pub is_fortran: bool,
    /// The dims, outermost first; none for a single value.
    pub shape: Vec<u64>,
    /// The offset of the first element in the file, in bytes.
    pub start: usize,
}

/// The reason that a header cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// There are fewer bytes than any header has.
    TooShort,
    /// It does not begin with `\x93NUMPY`.
    NotNpy,
    /// It has an unknown version of the format.
    Version(u8, u8),
    /// It ends within its header.
    Truncated,
    /// It announces a header of so many bytes, more than [`MAX_HEADER`].
    TooLong(usize),
    /// Its elements have fields.
    Fields,
    /// Its header is not one that NumPy writes: what was expected or found, and at which byte after
    /// the length.
    Malformed(&'static str, usize),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderError::TooShort => f.write_str("expected a `.npy` file, found fewer than 8 bytes"),
            HeaderError::NotNpy => {
                f.write_str("expected a `.npy` file that begins with `\\x93NUMPY`, found other bytes")
            }
            HeaderError::Version(major, minor) => {
                write!(f, "expected version 1.0, 2.0 or 3.0 of the format, found {major}.{minor}")
            }
            HeaderError::Truncated => f.write_str("expected a complete header, found the end of the file"),
            HeaderError::TooLong(length) => {
                write!(f, "the header must be at most {MAX_HEADER} bytes, got {length}")
            }
            HeaderError::Fields => f.write_str("expected numbers, found elements with fields"),
            HeaderError::Malformed(what, at) => write!(f, "the header is invalid: {what} at byte {at}"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl NpyHeader {
    /// Reads a header, and nothing after it: at most [`MAX_HEADER`] bytes and the twelve before
    /// them.
    ///
    /// # Errors
    /// If it is not a header, is truncated, or describes more than an array of one type. An error
    /// of the reader counts as the end.
    ///
    /// ```
    /// let text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (10, 3), }";
    /// let bytes = [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text].concat();
    /// let header = limen_npy::NpyHeader::read(&mut &bytes[..]).unwrap();
    /// assert_eq!((header.shape, header.element.size), (vec![10, 3], 4));
    /// ```
    pub fn read(from: &mut impl Read) -> Result<NpyHeader, HeaderError> {
        let mut magic = [0; 8];
        if read_all(from, &mut magic) < magic.len() {
            return Err(HeaderError::TooShort);
        }
        if !magic.starts_with(b"\x93NUMPY") {
            return Err(HeaderError::NotNpy);
        }
        let width = match magic[6..] {
            [1, 0] => 2,
            [2 | 3, 0] => 4,
            _ => return Err(HeaderError::Version(magic[6], magic[7])),
        };
        let mut length = [0; 4];
        if read_all(from, &mut length[..width]) < width {
            return Err(HeaderError::Truncated);
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER {
            return Err(HeaderError::TooLong(length));
        }
        let mut text = vec![0; length];
        if read_all(from, &mut text) < length {
            return Err(HeaderError::Truncated);
        }
        let start = magic.len() + width + length;
        let text = std::str::from_utf8(&text).map_err(|e| HeaderError::Malformed("expected UTF-8", e.valid_up_to()))?;
        HeaderParser { text, at: 0 }.header(start)
    }
}

/// Reads until `into` is full; returns how many bytes there were.
fn read_all(from: &mut impl Read, into: &mut [u8]) -> usize {
    let mut read = 0;
    while read < into.len() {
        match from.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    read
}

struct HeaderParser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> HeaderParser<'a> {
    fn wrong(&self, what: &'static str) -> HeaderError {
        HeaderError::Malformed(what, self.at)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips a token and the white space before it; false if something else follows.
    fn skip(&mut self, token: &str) -> bool {
        self.at = self.text.len() - self.rest().trim_ascii_start().len();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expect(&mut self, token: &str, what: &'static str) -> Result<(), HeaderError> {
        if self.skip(token) { Ok(()) } else { Err(self.wrong(what)) }
    }

    /// A text in either kind of quotes. NumPy writes no escapes.
    fn quoted(&mut self) -> Result<&'a str, HeaderError> {
        let quote = if self.skip("'") {
            '\''
        } else if self.skip("\"") {
            '"'
        } else {
            return Err(self.wrong("expected text in quotes"));
        };
        let end = self.rest().find(quote).ok_or_else(|| self.wrong("expected a closing quote"))?;
        let text = &self.rest()[..end];
        self.at += end + 1;
        Ok(text)
    }

    fn bool(&mut self) -> Result<bool, HeaderError> {
        match () {
            () if self.skip("True") => Ok(true),
            () if self.skip("False") => Ok(false),
            () => Err(self.wrong("expected `True` or `False`")),
        }
    }

    /// A tuple of lengths.
    fn shape(&mut self) -> Result<Vec<u64>, HeaderError> {
        self.expect("(", "expected a tuple such as `(10, 3)`")?;
        let mut dims = Vec::new();
        while !self.skip(")") {
            if self.skip("-") {
                return Err(self.wrong("a length must be at least 0, got a negative number"));
            }
            let digits = self.rest().find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest().len());
            if digits == 0 {
                return Err(self.wrong("expected a number"));
            }
            let dim =
                self.rest()[..digits].parse().map_err(|_| self.wrong("a length must fit into 64 bits, got more"))?;
            dims.push(dim);
            self.at += digits;
            // Python 2 marks long integers.
            self.skip("L");
            // A tuple of one has a comma too.
            if !self.skip(",") {
                self.expect(")", "expected a comma")?;
                if dims.len() == 1 {
                    return Err(self.wrong("expected a comma"));
                }
                break;
            }
        }
        Ok(dims)
    }

    fn header(&mut self, start: usize) -> Result<NpyHeader, HeaderError> {
        let (mut element, mut is_fortran, mut shape) = (None, None, None);
        self.expect("{", "expected a dictionary")?;
        while !self.skip("}") {
            let key = self.quoted()?;
            self.expect(":", "expected a colon")?;
            let is_new = match key {
                "descr" => {
                    if self.skip("[") || self.skip("(") {
                        return Err(HeaderError::Fields);
                    }
                    let text = self.quoted()?;
                    let found = NpyElement::of(text).ok_or_else(|| self.wrong("unknown element type"))?;
                    element.replace(found).is_none()
                }
                "fortran_order" => is_fortran.replace(self.bool()?).is_none(),
                "shape" => shape.replace(self.shape()?).is_none(),
                _ => return Err(self.wrong("unknown key")),
            };
            if !is_new {
                return Err(self.wrong("a key occurs twice"));
            }
            if !self.skip(",") {
                self.expect("}", "expected a comma or `}`")?;
                break;
            }
        }
        if !self.rest().trim_ascii().is_empty() {
            return Err(self.wrong("expected the end of the header"));
        }
        match (element, is_fortran, shape) {
            (Some(element), Some(is_fortran), Some(shape)) => Ok(NpyHeader { element, is_fortran, shape, start }),
            (None, ..) => Err(self.wrong("`descr` is missing")),
            (_, None, _) => Err(self.wrong("`fortran_order` is missing")),
            (.., None) => Err(self.wrong("`shape` is missing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((text.len() as u16).to_le_bytes()),
            _ => bytes.extend((text.len() as u32).to_le_bytes()),
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<NpyHeader, HeaderError> {
        NpyHeader::read(&mut &*bytes)
    }

    /// As NumPy 1, 2 and Python 2 wrote them.
    #[test]
    fn headers_of_numpy_are_read() {
        for (version, text, element, is_fortran, shape) in [
            (
                1,
                "{'descr': '<f4', 'fortran_order': False, 'shape': (10, 3), }   \n",
                (ElementKind::Float, 4, false),
                false,
                &[10, 3][..],
            ),
            (2, "{'descr': '>i8', 'fortran_order': True, 'shape': (7,), }\n", (ElementKind::Int, 8, true), true, &[7]),
            (3, "{'descr': '|b1', 'fortran_order': False, 'shape': (), }", (ElementKind::Bool, 1, false), false, &[]),
            (
                1,
                "{'shape': (2L, 3L), 'fortran_order': False, 'descr': '|u1'}",
                (ElementKind::Uint, 1, false),
                false,
                &[2, 3],
            ),
            (
                1,
                "{\"descr\":\"<M8[ns]\",\"fortran_order\":False,\"shape\":(0,)}",
                (ElementKind::Other, 8, false),
                false,
                &[0],
            ),
            (
                1,
                "{'descr': '|O', 'fortran_order': False, 'shape': (18446744073709551615,), }",
                (ElementKind::Other, 0, false),
                false,
                &[u64::MAX],
            ),
        ] {
            let bytes = file(version, text);
            let header = read(&bytes).unwrap();
            let found = (header.element.kind, header.element.size, header.element.is_big_endian);
            assert_eq!(
                (found, header.is_fortran, &header.shape[..], header.start),
                (element, is_fortran, shape, bytes.len())
            );
            // Whatever follows is not read, and every shorter file is refused.
            let mut rest = &[&bytes[..], b"numbers"].concat()[..];
            assert!(NpyHeader::read(&mut rest).is_ok() && rest == b"numbers");
            assert!((0..bytes.len()).all(|cut| read(&bytes[..cut]).is_err()));
        }
    }

    /// As long as an array of limen can get: the number of items, and six dims.
    #[test]
    fn a_header_has_one_length_however_long_the_dims_are() {
        for shape in [vec![], vec![0], vec![u64::MAX; 7], vec![1 << 40; 9], vec![u64::MAX; 64]] {
            let bytes = header("<f4", shape.clone());
            let found = read(&bytes).unwrap();
            assert_eq!((found.start, &found.shape), (bytes.len(), &shape));
            assert!(bytes.len() % 64 == 0 && (shape.len() > 7 || bytes.len() == HEADER), "{}", bytes.len());
        }
    }

    #[test]
    fn other_headers_are_refused() {
        use HeaderError::{Fields, Malformed, NotNpy, TooLong, TooShort, Truncated};
        let dict = |descr: &str, order: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n")
        };
        for (bytes, expected) in [
            (b"".to_vec(), TooShort),
            (b"\x93NUMPY".to_vec(), TooShort),
            (b"PK\x03\x04....".to_vec(), NotNpy),
            (b"\x93NUMPY\x01\x00".to_vec(), Truncated),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), TooLong(u32::MAX as usize)),
            (file(9, &dict("'<f4'", "False", "(1,)")), HeaderError::Version(9, 0)),
            (file(1, ""), Malformed("expected a dictionary", 0)),
            (file(1, "{}"), Malformed("`descr` is missing", 2)),
            (file(1, "\u{0}\u{1}"), Malformed("expected a dictionary", 0)),
            (file(1, &"(".repeat(4_000)), Malformed("expected a dictionary", 0)),
            (file(1, &dict(&"(".repeat(3_000), "False", "(1,)")), Fields),
            (file(1, &dict("[('a', '<f4'), ('b', '<i4')]", "False", "(10,)")), Fields),
            (file(1, &dict("'f4'", "False", "(1,)")), Malformed("unknown element type", 14)),
            (file(1, &dict("'<f'", "False", "(1,)")), Malformed("unknown element type", 14)),
            (file(1, &dict("'<f4", "False", "(1,)")), Malformed("unknown element type", 17)),
            (file(1, &dict("'<f4'", "0", "(1,)")), Malformed("expected `True` or `False`", 34)),
            (
                file(1, &dict("'<f4'", "False", "(-1, 3)")),
                Malformed("a length must be at least 0, got a negative number", 52),
            ),
            (file(1, &dict("'<f4'", "False", "(2, 3")), Malformed("expected a number", 57)),
            (
                file(1, &dict("'<f4'", "False", "(18446744073709551616,)")),
                Malformed("a length must fit into 64 bits, got more", 51),
            ),
            (file(1, &dict("'<f4'", "False", "(0xff,)")), Malformed("expected a comma", 52)),
            (file(1, &dict("'<f4'", "False", "7")), Malformed("expected a tuple such as `(10, 3)`", 50)),
            (file(1, "{'descr': '<f4', 'descr': '<f4'}"), Malformed("a key occurs twice", 31)),
            (file(1, "{'descr': '<f4', 'extra': 1}"), Malformed("unknown key", 25)),
            (file(1, &(dict("'<f4'", "False", "(1,)") + "{}")), Malformed("expected the end of the header", 57)),
        ] {
            assert_eq!(read(&bytes), Err(expected), "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(90)]));
        }
    }
}
