//! Numbers in sentences of NMEA 0183, as satellite receivers send them.

use arrayvec::ArrayVec;
use chrono::{Datelike, NaiveDate, NaiveTime, Timelike};
use limen::message::DType;
use limen::node::PlanErrors;
use limen_nodes_core::format::field::Field;
use limen_nodes_core::format::record::{Fault, Record, Value};
use nmea::sentences::rmc::RmcStatusOfFix;
use nmea::sentences::{FixType, GgaData, GllData, HdtData, RmcData, VtgData, ZdaData};
use nmea::{Error, ParseResult, SENTENCE_MAX_LEN};
use schemars::JsonSchema;
use serde::Deserialize;
use std::io::Write;

/// Type of an NMEA 0183 sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sentence {
    /// Position and fix: `time`, `latitude`, `longitude`, `quality`, `satellites`, `hdop`,
    /// `altitude`, `geoid_separation`.
    Gga,
    /// Position as latitude and longitude: `time`, `latitude`, `longitude`, `valid`.
    Gll,
    /// True heading: `heading`.
    Hdt,
    /// Position, speed and date: `time`, `date`, `valid`, `latitude`, `longitude`, `speed`,
    /// `course`, `magnetic_variation`.
    Rmc,
    /// Course and speed over ground: `course`, `speed`.
    Vtg,
    /// Date and time: `time`, `date`, `zone`.
    Zda,
}

impl Sentence {
    /// The names of its values.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Sentence::Gga => {
                &["time", "latitude", "longitude", "quality", "satellites", "hdop", "altitude", "geoid_separation"]
            }
            Sentence::Gll => &["time", "latitude", "longitude", "valid"],
            Sentence::Hdt => &["heading"],
            Sentence::Rmc => {
                &["time", "date", "valid", "latitude", "longitude", "speed", "course", "magnetic_variation"]
            }
            Sentence::Vtg => &["course", "speed"],
            Sentence::Zda => &["time", "date", "zone"],
        }
    }

    /// Returns the unit of a value; empty for those that have none.
    fn unit(name: &str) -> &'static str {
        match name {
            "time" => "s",
            "latitude" | "longitude" | "heading" | "course" | "magnetic_variation" => "deg",
            "altitude" | "geoid_separation" => "m",
            "speed" => "kn",
            "zone" => "min",
            _ => "",
        }
    }

    /// Returns the fields with the units that the sentence gives, and reports those for which the
    /// graph says another.
    pub(crate) fn with_units(fields: &[Field], errors: &mut PlanErrors) -> Vec<Field> {
        let mut fields = fields.to_vec();
        for (i, field) in fields.iter_mut().enumerate() {
            let unit = Sentence::unit(field.path());
            match &field.unit {
                Some(written) if !unit.is_empty() && written.trim() != unit => {
                    let message =
                        format!("expected the unit `{unit}` for `{}`, found `{}`", field.path(), written.trim());
                    errors.at(format!("fields[{i}].unit"), message).help(
                        "remove `unit`, and convert with a `map` node: `{ formula: 'speed * 0.514444', unit: m/s }`",
                    );
                }
                Some(_) => {}
                None => field.unit = (!unit.is_empty()).then(|| unit.to_string()),
            }
        }
        fields
    }

    /// Returns what a value is that has more digits than a type holds, and the types that hold it.
    pub(crate) fn too_long(name: &str, dtype: DType) -> Option<(&'static str, &'static str)> {
        // 20261125 as an `f32` is the day before, 86399.99 is 2 ms earlier, and -122.4194155 is
        // half a metre away.
        let is_float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        match name {
            "date" if is_float || dtype.size() < 4 => Some(("a date such as 20261125", "write `type: f64`")),
            "time" if is_float => Some(("a time such as 86399.99", "write `type: f64`")),
            "latitude" | "longitude" if is_float => Some(("degrees such as -122.4194155", "write `type: f64`")),
            _ => None,
        }
    }

    /// Returns which value each field has; reports those that have none, and types that would
    /// change it.
    pub(crate) fn values(self, fields: &[Field], errors: &mut PlanErrors) -> Vec<Option<usize>> {
        let mut values = Vec::new();
        for (i, field) in fields.iter().enumerate() {
            field.allow(i, &["path"], "nmea", errors);
            if field.repeat.is_some() {
                let message = "`repeat` is not supported: a value of a sentence is one number";
                errors.at(format!("fields[{i}].repeat"), message).help("remove `repeat`");
            }
            if let Some((what, help)) = Sentence::too_long(field.path(), field.dtype) {
                let message = format!("{} cannot hold {what}", field.dtype);
                errors.at(format!("fields[{i}].type"), message).help(help);
            }
            let value = self.names().iter().position(|name| *name == field.path());
            values.push(value);
            if value.is_none() {
                let key = if field.path.is_some() { "path" } else { "name" };
                let message = format!("expected a value of the sentence, found `{}`", field.path());
                let help = format!("write one of the values `{}`", self.names().join("`, `"));
                errors.at(format!("fields[{i}].{key}"), message).help(help);
            }
        }
        values
    }

    /// The end of the address of such a sentence; what is before it is the talker, such as `GP`.
    pub(crate) fn address(self) -> &'static str {
        match self {
            Sentence::Gga => "GGA",
            Sentence::Gll => "GLL",
            Sentence::Hdt => "HDT",
            Sentence::Rmc => "RMC",
            Sentence::Vtg => "VTG",
            Sentence::Zda => "ZDA",
        }
    }

    /// Reads a sentence; `false` if it is one of another type.
    pub(crate) fn read(self, values: &[usize], message: &[u8], record: &mut Record) -> Result<bool, Fault> {
        record.clear();
        let text = str::from_utf8(message)
            .map_err(|_| Fault::Syntax("expected UTF-8 text, found other bytes".into()))?
            .trim_end();
        let address = checked(text).map_err(Fault::Syntax)?;
        // A maker's own begins with `P`, and has other letters behind it.
        if address.starts_with('P') || !address.ends_with(self.address()) {
            return Ok(false);
        }
        let mut longer = [0; 128];
        let has_quality = text.split(',').nth(QUALITY) != Some("");
        let text = repaired(self, text, &mut longer).unwrap_or(text);
        let found = match (self, nmea::parse_str(text)) {
            (Sentence::Gga, Ok(ParseResult::GGA(data))) => gga(&data, has_quality),
            (Sentence::Gll, Ok(ParseResult::GLL(data))) => gll(&data),
            (Sentence::Hdt, Ok(ParseResult::HDT(data))) => hdt(&data),
            (Sentence::Rmc, Ok(ParseResult::RMC(data))) => rmc(&data),
            (Sentence::Vtg, Ok(ParseResult::VTG(data))) => vtg(&data),
            // What the parser cannot read of the minutes it leaves out; a sign that differs from
            // that of the hours it takes.
            (Sentence::Zda, Ok(ParseResult::ZDA(data))) if has_minutes(text) => zda(&data),
            (_, Err(Error::SentenceLength(length))) => {
                return Err(Fault::Syntax(format!(
                    "a sentence must have at most {SENTENCE_MAX_LEN} characters, got {length}"
                )));
            }
            _ => return Err(Fault::Syntax(format!("expected the values of a {} sentence", self.address()))),
        };
        let outside = |name: &str, most: f64| {
            let value = self.names().iter().position(|other| *other == name).map(|at| found[at]);
            match value {
                Some(Value::Fraction(value)) if value.abs() > most => Some(value),
                _ => None,
            }
        };
        for (name, most) in [("latitude", 90.0), ("longitude", 180.0)] {
            if let Some(value) = outside(name, most) {
                return Err(Fault::Syntax(format!("`{name}` must be -{most} to {most} degrees, got {value}")));
            }
        }
        for (field, value) in values.iter().enumerate() {
            record.put(field, found[*value])?;
        }
        record.finish().map(|()| true)
    }
}

/// Returns the address of a sentence whose checksum is right, such as `GPGGA`.
fn checked(text: &str) -> Result<&str, String> {
    let body = text.strip_prefix(['$', '!']).ok_or("expected `$` at the beginning, found other text")?;
    let (body, checksum) = body.rsplit_once('*').ok_or("expected a checksum (`*hh`) at the end, found none")?;
    let sum = body.bytes().fold(0, |sum, byte| sum ^ byte);
    match u8::from_str_radix(checksum, 16) {
        Ok(found) if found == sum && checksum.len() == 2 => Ok(body.split(',').next().unwrap_or(body)),
        _ => Err(format!("expected the checksum `{sum:02X}`, found `{checksum}`")),
    }
}

/// Whether the minutes of a zone are from 0 to 59, or left out.
fn has_minutes(text: &str) -> bool {
    let minutes = text.rsplit_once('*').and_then(|(body, _)| body.rsplit(',').next()).unwrap_or("");
    minutes.is_empty()
        || (minutes.bytes().all(|byte| byte.is_ascii_digit()) && minutes.parse().is_ok_and(|minutes: u32| minutes < 60))
}

/// Returns a sentence with the differences between receivers and the parser removed, and a checksum
/// for it; `None` if it has none of them.
fn repaired<'a>(sentence: Sentence, text: &str, to: &'a mut [u8]) -> Option<&'a str> {
    let (body, _) = text.get(1..)?.rsplit_once('*')?;
    let mut fields = ArrayVec::<&str, MOST_FIELDS>::new();
    for field in body.split(',') {
        fields.try_push(field).ok()?;
    }
    match sentence {
        // Before version 2.3 of the standard it ends without a mode.
        Sentence::Gll if fields.len() == 7 => fields.try_push("").ok()?,
        // The parser asks for a quality; `gga` leaves it out again.
        Sentence::Gga if fields.get(QUALITY) == Some(&"") => fields[QUALITY] = "0",
        // A variation of zero, without a meaningful direction.
        Sentence::Rmc if fields.get(11).is_some_and(|direction| !matches!(*direction, "E" | "W" | "")) => {
            (fields[10], fields[11]) = ("", "");
        }
        Sentence::Zda => {
            let [.., hours, minutes] = fields.as_mut_slice() else { return None };
            // The minutes have the sign of the hours, with or without writing it.
            let sign = if hours.starts_with('-') { '-' } else { '+' };
            let bare = (hours.trim_start_matches('+'), minutes.strip_prefix(sign).unwrap_or(minutes));
            if bare == (*hours, *minutes) {
                return None;
            }
            (*hours, *minutes) = bare;
        }
        _ => return None,
    }
    let room = to.len();
    let mut rest = &mut *to;
    write!(rest, "$").ok()?;
    for (at, field) in fields.iter().enumerate() {
        write!(rest, "{}{field}", if at > 0 { "," } else { "" }).ok()?;
    }
    let end = room - rest.len();
    let sum = to[1..end].iter().fold(0, |sum, byte| sum ^ byte);
    write!(&mut to[end..], "*{sum:02X}").ok()?;
    str::from_utf8(&to[..end + 3]).ok()
}

/// More fields than any sentence has that is read.
const MOST_FIELDS: usize = 32;
/// Which field of a GGA is its quality.
const QUALITY: usize = 6;

/// As many values as a sentence has at most.
pub(crate) const MOST_VALUES: usize = 8;
type SentenceNumbers = [Value; MOST_VALUES];

fn values<const N: usize>(of: [Option<Value>; N]) -> SentenceNumbers {
    std::array::from_fn(|at| of.get(at).copied().flatten().unwrap_or(Value::Missing))
}

fn fraction(value: Option<impl Into<f64>>) -> Option<Value> {
    value.map(|value| Value::Fraction(value.into()))
}

/// Seconds of the day.
fn time(time: Option<NaiveTime>) -> Option<Value> {
    time.map(|time| Value::Fraction(f64::from(time.num_seconds_from_midnight()) + f64::from(time.nanosecond()) / 1e9))
}

/// Year, month and day as one number: 20261125.
fn date(date: Option<NaiveDate>) -> Option<Value> {
    date.map(|date| Value::Whole(i128::from(date.year()) * 10_000 + i128::from(date.month() * 100 + date.day())))
}

fn truth(value: bool) -> Option<Value> {
    Some(Value::Whole(value.into()))
}

fn gga(data: &GgaData, has_quality: bool) -> SentenceNumbers {
    let quality = data.fix_type.filter(|_| has_quality).map(|fix| {
        Value::Whole(match fix {
            FixType::Invalid => 0,
            FixType::Gps => 1,
            FixType::DGps => 2,
            FixType::Pps => 3,
            FixType::Rtk => 4,
            FixType::FloatRtk => 5,
            FixType::Estimated => 6,
            FixType::Manual => 7,
            FixType::Simulation => 8,
        })
    });
    values([
        time(data.fix_time),
        fraction(data.latitude),
        fraction(data.longitude),
        quality,
        data.fix_satellites.map(|count| Value::Whole(count.into())),
        fraction(data.hdop),
        fraction(data.altitude),
        fraction(data.geoid_separation),
    ])
}

fn gll(data: &GllData) -> SentenceNumbers {
    values([time(data.fix_time), fraction(data.latitude), fraction(data.longitude), truth(data.valid)])
}

fn hdt(data: &HdtData) -> SentenceNumbers {
    values([fraction(data.heading)])
}

fn rmc(data: &RmcData) -> SentenceNumbers {
    // The parser begins the years of the 20th century with 83. Before their first fix, receivers
    // send the epoch of GPS, in 1980.
    let is_epoch = |date: &NaiveDate| (2080..=2082).contains(&date.year());
    let day = data
        .fix_date
        .map(|date| if is_epoch(&date) { date.with_year(date.year() - 100).unwrap_or(date) } else { date });
    values([
        time(data.fix_time),
        date(day),
        truth(data.status_of_fix != RmcStatusOfFix::Invalid),
        fraction(data.lat),
        fraction(data.lon),
        fraction(data.speed_over_ground),
        fraction(data.true_course),
        fraction(data.magnetic_variation),
    ])
}

fn vtg(data: &VtgData) -> SentenceNumbers {
    values([fraction(data.true_course), fraction(data.speed_over_ground)])
}

fn zda(data: &ZdaData) -> SentenceNumbers {
    // Both have the sign of the zone.
    let zone = i128::from(data.local_zone_hours.unwrap_or(0)) * 60 + i128::from(data.local_zone_minutes.unwrap_or(0));
    values([time(data.utc_time), date(data.utc_date()), data.local_zone_hours.map(|_| Value::Whole(zone))])
}
