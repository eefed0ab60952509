//! Messages of text or CBOR that are written: what is the same in all of them is made once.

use super::tree::Tree;
use cbor4ii::core::enc::{Encode, Write as CborWrite};
use cbor4ii::core::types;
use cbor4ii::core::utils::BufWriter;
use limen::message::DType;
use limen::node::PlanErrors;
use limen_nodes_core::format::field::{Field, FieldPlace, FieldPort, places};
use limen_nodes_core::format::record::{Value, value_of};
use limen_nodes_core::format::row;
use std::io::Write as _;

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notation {
    /// `null` for what JSON has no number for.
    Json,
    /// Columns with a character between them, empty ones for NaN.
    Row(u8),
    Cbor,
}

/// A message with places for numbers.
#[derive(Debug)]
pub(crate) struct Template {
    notation: Notation,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(Vec<u8>),
    Numbers(FieldPlace),
}

impl Template {
    /// Of an object with the fields at their paths.
    pub(crate) fn of_tree(
        notation: Notation,
        fields: &[Field],
        ports: &[FieldPort],
        tree: &Tree,
        errors: &mut PlanErrors,
    ) -> Template {
        let mut template = Template { notation, pieces: Vec::new() };
        template.tree(&places(fields, ports), tree, errors);
        template
    }

    /// Of a row with the fields in their columns, and empty ones between them.
    pub(crate) fn of_row(fields: &[Field], ports: &[FieldPort], delimiter: u8, errors: &mut PlanErrors) -> Template {
        let mut template = Template { notation: Notation::Row(delimiter), pieces: Vec::new() };
        row::check(fields, errors);
        let places = places(fields, ports);
        let mut order: Vec<(usize, usize)> = row::columns(fields).into_iter().zip(0..).collect();
        order.sort_unstable();
        let mut end = 0;
        for (at, (column, field)) in order.into_iter().enumerate().filter(|(_, (column, _))| *column <= row::MOST) {
            let empty = column.saturating_sub(end) + usize::from(at > 0);
            template.text(&vec![delimiter; empty]);
            template.pieces.push(Piece::Numbers(places[field]));
            end = column.saturating_add(fields[field].count());
        }
        template
    }

    pub(crate) fn is_text(&self) -> bool {
        self.notation != Notation::Cbor
    }

    fn tree(&mut self, places: &[FieldPlace], tree: &Tree, errors: &mut PlanErrors) {
        match tree {
            Tree::Field { field, is_array } => {
                let Some(place) = places.get(*field) else { return };
                if *is_array {
                    self.open(place.count, false);
                }
                self.pieces.push(Piece::Numbers(*place));
                if *is_array {
                    self.close(false);
                }
            }
            Tree::Object(entries) => {
                self.open(entries.len(), true);
                for (at, (key, tree)) in entries.iter().enumerate() {
                    self.key(key, at == 0);
                    self.tree(places, tree, errors);
                }
                self.close(true);
            }
            Tree::Array(entries) => {
                self.open(entries.len(), false);
                for (at, (index, tree)) in entries.iter().enumerate() {
                    if *index != at {
                        let message = format!("expected an element [{at}] in an array, found [{index}]");
                        errors
                            .at("fields", message)
                            .help("write a path for each element from [0] on, or write `repeat`");
                        return;
                    }
                    if at > 0 && self.notation == Notation::Json {
                        self.text(b",");
                    }
                    self.tree(places, tree, errors);
                }
                self.close(false);
            }
        }
    }

    /// Begins an object or an array.
    fn open(&mut self, len: usize, is_object: bool) {
        match (self.notation, is_object) {
            (Notation::Cbor, true) => self.cbor(|to| types::Map::bounded(len, to)),
            (Notation::Cbor, false) => self.cbor(|to| types::Array::bounded(len, to)),
            (_, true) => self.text(b"{"),
            (_, false) => self.text(b"["),
        }
    }

    fn close(&mut self, is_object: bool) {
        if self.notation == Notation::Json {
            self.text(if is_object { b"}" } else { b"]" });
        }
    }

    fn key(&mut self, key: &str, is_first: bool) {
        if self.notation == Notation::Cbor {
            return self.cbor(|to| key.encode(to));
        }
        if !is_first {
            self.text(b",");
        }
        // A string in memory can always be written.
        self.text(&serde_json::to_vec(key).unwrap_or_default());
        self.text(b":");
    }

    fn cbor<E>(&mut self, write: impl FnOnce(&mut BufWriter) -> Result<(), E>) {
        let mut bytes = BufWriter::new(Vec::new());
        // Writing to memory cannot fail.
        let _ = write(&mut bytes);
        self.text(bytes.buffer());
    }

    fn text(&mut self, text: &[u8]) {
        match self.pieces.last_mut() {
            Some(Piece::Text(last)) => last.extend_from_slice(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(Piece::Text(text.to_vec())),
        }
    }

    /// The most bytes that a message has.
    pub(crate) fn most(&self) -> usize {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Numbers(FieldPlace { count, dtype, .. }) => {
                let each = longest(self.notation, *dtype) + 1;
                count.saturating_mul(each)
            }
        };
        self.pieces.iter().map(piece).fold(0, usize::saturating_add)
    }

    /// Writes a message with the numbers of the ports, and returns its length. There must be room
    /// for the most bytes.
    pub(crate) fn write<'a>(&self, elements: impl Fn(usize) -> &'a [u8], to: &mut [u8]) -> usize {
        let room = to.len();
        let mut rest = Slice(to);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => rest.put(text),
                Piece::Numbers(FieldPlace { port, offset, count, dtype }) => {
                    let width = dtype.size();
                    let numbers = elements(*port)[*offset..].chunks_exact(width).take(*count);
                    for (at, number) in numbers.enumerate() {
                        match self.notation {
                            Notation::Json if at > 0 => rest.put(b","),
                            Notation::Row(delimiter) if at > 0 => rest.put(&[delimiter]),
                            _ => {}
                        }
                        self.number(*dtype, number, &mut rest);
                    }
                }
            }
        }
        room - rest.0.len()
    }

    fn number(&self, dtype: DType, bytes: &[u8], to: &mut Slice<'_>) {
        let value = value_of(dtype, bytes);
        // There is room for the longest number, so writing cannot fail.
        let _ = match (self.notation, value) {
            (Notation::Cbor, Value::Whole(value)) => cbor_whole(value, to).map_err(drop),
            (Notation::Cbor, Value::Fraction(value)) if dtype == DType::F64 => value.encode(to).map_err(drop),
            (Notation::Cbor, Value::Fraction(value)) => (value as f32).encode(to).map_err(drop),
            (Notation::Row(_), Value::Fraction(value)) if value.is_nan() => Ok(()),
            (Notation::Row(_), Value::Fraction(value)) if value.is_infinite() => write!(to, "{value}").map_err(drop),
            (_, Value::Whole(value)) => serde_json::to_writer(&mut *to, &value).map_err(drop),
            // Each type with as many digits as tell it from its neighbours.
            (_, Value::Fraction(value)) if dtype == DType::F64 => serde_json::to_writer(&mut *to, &value).map_err(drop),
            (_, Value::Fraction(value)) => serde_json::to_writer(&mut *to, &(value as f32)).map_err(drop),
            (_, Value::Missing) => Ok(()),
        };
    }
}

/// The most bytes of a number.
fn longest(notation: Notation, dtype: DType) -> usize {
    match (notation, dtype) {
        (Notation::Cbor, _) => 1 + dtype.size().max(4),
        // -1.7976931348623157e+308
        (_, DType::F64) => 24,
        // -3.4028235e+38, and without an exponent as many digits before or behind the point.
        (_, DType::F32 | DType::F16 | DType::BF16) => 20,
        (_, DType::I64 | DType::U64) => 20,
        _ => 11,
    }
}

fn cbor_whole(value: i128, to: &mut Slice<'_>) -> Result<(), cbor4ii::core::enc::Error<NoRoom>> {
    match u64::try_from(value) {
        Ok(value) => value.encode(to),
        Err(_) => i64::try_from(value).unwrap_or(i64::MIN).encode(to),
    }
}

/// What is left of a message that is written.
struct Slice<'a>(&'a mut [u8]);

impl Slice<'_> {
    fn put(&mut self, bytes: &[u8]) {
        // There is room for the most bytes.
        let _ = std::io::Write::write_all(&mut self.0, bytes);
    }
}

impl std::io::Write for Slice<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A message that is longer than planned.
#[derive(Debug)]
struct NoRoom;

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the message is full")
    }
}

impl std::error::Error for NoRoom {}

impl CborWrite for Slice<'_> {
    type Error = NoRoom;

    fn push(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        std::io::Write::write_all(&mut self.0, bytes).map_err(|_| NoRoom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_longer_than_planned() {
        let template = |notation| Template { notation, pieces: Vec::new() };
        let floats = |bits: &[u32]| bits.iter().map(|bits| f32::from_bits(*bits).to_ne_bytes()).collect::<Vec<_>>();
        let mut random = fastrand::Rng::with_seed(1);
        let mut bits = vec![1, 0x8000_0001, f32::MIN.to_bits(), f32::MAX.to_bits(), f32::NAN.to_bits(), 0xff80_0000];
        bits.extend((0..100_000).map(|_| random.u32(..)));
        let wide: Vec<u64> = [1, 0x8000_0000_0000_0001, f64::MIN.to_bits(), u64::MAX, 1 << 63, 0xfff0_0000_0000_0000]
            .into_iter()
            .chain((0..100_000).map(|_| random.u64(..)))
            .collect();
        for notation in [Notation::Json, Notation::Row(b','), Notation::Cbor] {
            let template = template(notation);
            let check = |dtype: DType, bytes: &[u8]| {
                let (mut room, most) = ([0; 64], longest(notation, dtype));
                let mut slice = Slice(&mut room);
                template.number(dtype, bytes, &mut slice);
                let len = 64 - slice.0.len();
                assert!(len <= most, "{notation:?} {dtype} {bytes:?}: {len} bytes");
            };
            floats(&bits).iter().for_each(|bytes| check(DType::F32, bytes));
            for number in &wide {
                for dtype in [DType::F64, DType::I64, DType::U64] {
                    check(dtype, &number.to_ne_bytes());
                }
                check(DType::I32, &number.to_ne_bytes()[..4]);
                check(DType::F16, &number.to_ne_bytes()[..2]);
                check(DType::BF16, &number.to_ne_bytes()[..2]);
                check(DType::I8, &number.to_ne_bytes()[..1]);
            }
        }
    }
}
