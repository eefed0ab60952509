//! Numbers in sentences of NMEA 0183, as satellite receivers send them.

use super::field::Field;
use super::record::{Fault, Record, Value};
use chrono::{Datelike, NaiveDate, NaiveTime, Timelike};
use limen::node::PlanErrors;
use nmea::sentences::rmc::RmcStatusOfFix;
use nmea::sentences::{FixType, GgaData, GllData, HdtData, RmcData, VtgData, ZdaData};
use nmea::{Error, ParseResult};
use schemars::JsonSchema;
use serde::Deserialize;

/// A type of sentence of NMEA 0183.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sentence {
    /// Position and fix: `time`, `latitude`, `longitude`, `quality`, `satellites`, `hdop`, `altitude`, `geoid_separation`.
    Gga,
    /// Position as latitude and longitude: `time`, `latitude`, `longitude`, `valid`.
    Gll,
    /// True heading: `heading`.
    Hdt,
    /// Position, speed and date: `time`, `date`, `valid`, `latitude`, `longitude`, `speed`, `course`, `magnetic_variation`.
    Rmc,
    /// Course and speed over ground: `course`, `speed`.
    Vtg,
    /// Date and time: `time`, `date`, `zone`.
    Zda,
}

impl Sentence {
    fn names(self) -> &'static [&'static str] {
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

    /// Returns which value each field has, and reports those that have none.
    pub(crate) fn values(self, fields: &[Field], errors: &mut PlanErrors) -> Vec<usize> {
        let mut values = Vec::new();
        for (i, field) in fields.iter().enumerate() {
            field.allow(i, &["path"], "nmea", errors);
            if field.repeat.is_some() {
                errors.at(format!("fields[{i}].repeat"), "a value of a sentence is one number").help("remove it");
            }
            match self.names().iter().position(|name| *name == field.path()) {
                Some(value) => values.push(value),
                None => {
                    let key = if field.path.is_some() { "path" } else { "name" };
                    let message = format!("the sentence has no value `{}`", field.path());
                    let help = format!("its values are `{}`", self.names().join("`, `"));
                    errors.at(format!("fields[{i}].{key}"), message).help(help);
                }
            }
        }
        values
    }

    /// Reads a sentence; `false` if it is one of another type.
    pub(crate) fn read(self, values: &[usize], message: &[u8], record: &mut Record) -> Result<bool, Fault> {
        record.clear();
        let text = str::from_utf8(message).map_err(|_| Fault::Syntax("it is not text".into()))?;
        let found = match (self, nmea::parse_str(text.trim_end())) {
            (Sentence::Gga, Ok(ParseResult::GGA(data))) => gga(&data),
            (Sentence::Gll, Ok(ParseResult::GLL(data))) => gll(&data),
            (Sentence::Hdt, Ok(ParseResult::HDT(data))) => hdt(&data),
            (Sentence::Rmc, Ok(ParseResult::RMC(data))) => rmc(&data),
            (Sentence::Vtg, Ok(ParseResult::VTG(data))) => vtg(&data),
            (Sentence::Zda, Ok(ParseResult::ZDA(data))) => zda(&data),
            // One of another type, or of a maker's own.
            (_, Ok(_) | Err(Error::DisabledSentence | Error::Unsupported(_) | Error::Unknown(_))) => return Ok(false),
            (_, Err(error)) => return Err(Fault::Syntax(says(&error))),
        };
        for (field, value) in values.iter().enumerate() {
            record.put(field, found[*value])?;
        }
        record.finish().map(|()| true)
    }
}

fn says(error: &Error<'_>) -> String {
    match error {
        Error::ChecksumMismatch { calculated, found } => {
            format!("its checksum is {found:02X}, that of its bytes {calculated:02X}")
        }
        error => error.to_string(),
    }
}

/// As many values as a sentence has at most.
type Values = [Value; 8];

fn values<const N: usize>(of: [Option<Value>; N]) -> Values {
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

fn gga(data: &GgaData) -> Values {
    let quality = data.fix_type.map(|fix| {
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

fn gll(data: &GllData) -> Values {
    values([time(data.fix_time), fraction(data.latitude), fraction(data.longitude), truth(data.valid)])
}

fn hdt(data: &HdtData) -> Values {
    values([fraction(data.heading)])
}

fn rmc(data: &RmcData) -> Values {
    values([
        time(data.fix_time),
        date(data.fix_date),
        truth(data.status_of_fix != RmcStatusOfFix::Invalid),
        fraction(data.lat),
        fraction(data.lon),
        fraction(data.speed_over_ground),
        fraction(data.true_course),
        fraction(data.magnetic_variation),
    ])
}

fn vtg(data: &VtgData) -> Values {
    values([fraction(data.true_course), fraction(data.speed_over_ground)])
}

fn zda(data: &ZdaData) -> Values {
    let minutes = i128::from(data.local_zone_hours.unwrap_or(0)) * 60;
    // The minutes have the sign of the hours.
    let more = i128::from(data.local_zone_minutes.unwrap_or(0)).abs();
    let zone = if minutes < 0 { minutes - more } else { minutes + more };
    values([time(data.utc_time), date(data.utc_date()), data.local_zone_hours.map(|_| Value::Whole(zone))])
}
