//! Sentences of NMEA 0183 that are written.

use super::sentence::{MOST_VALUES, Sentence};
use chrono::{Datelike, NaiveDate};
use limen::node::{NodeError, PlanErrors};
use limen_nodes_core::format::field::{Field, FieldPlace, FieldPort, places};
use limen_nodes_core::format::record::{Value, value_of};
use std::io::{Cursor, Write};

/// The most bytes of a sentence, with numbers that are as long as they may be.
pub(crate) const MOST: usize = 100;
/// Decimals of angles and speeds: with more of them a sentence has more than the 82 characters that
/// the standard allows.
const DECIMALS: usize = 2;
/// Hundredths of a second of a day.
const DAY: f64 = 8_640_000.0;
/// Kilometres of a nautical mile.
const MILE: f64 = 1.852;

/// Writes sentences of one type with the numbers of fields.
#[derive(Debug)]
pub(crate) struct SentenceWriter {
    sentence: Sentence,
    talker: String,
    /// Where each value is, in the order of the sentence's names; `None` for one without a field.
    places: [Option<FieldPlace>; MOST_VALUES],
}

impl SentenceWriter {
    /// Reports all errors of the config.
    pub(crate) fn new(
        sentence: Sentence,
        talker: Option<&str>,
        fields: &[Field],
        ports: &[FieldPort],
        errors: &mut PlanErrors,
    ) -> SentenceWriter {
        let talker = talker.unwrap_or("GP");
        let is_talker =
            talker.len() == 2 && talker.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        if !is_talker || talker.starts_with('P') {
            let message =
                format!("`talker` must be two capital letters or digits that do not start with `P`, got `{talker}`");
            errors.at("talker", message).help("write two capital letters or digits, such as `GP`, `GN`, `II` or `HE`");
        }
        let mut of_values = [None; MOST_VALUES];
        let mut owners = [None; MOST_VALUES];
        let values = sentence.values(fields, errors);
        for (i, (value, place)) in values.into_iter().zip(places(fields, ports)).enumerate() {
            let Some(value) = value else { continue };
            if let Some(owner) = owners[value].replace(i) {
                let owner: &Field = &fields[owner];
                let path = fields[i].path();
                let message = format!("expected one field for `{path}`, found a second field after `{}`", owner.name);
                errors.at(format!("fields[{i}]"), message).help(format!("remove `{}`", fields[i].name));
            }
            of_values[value] = Some(place);
        }
        SentenceWriter { sentence, talker: talker.to_string(), places: of_values }
    }

    /// Writes a sentence with its checksum, without what ends the line, and returns its length.
    /// There must be room for [`MOST`] bytes.
    ///
    /// # Errors
    /// A number that the sentence cannot say.
    pub(crate) fn write<'a>(&self, elements: impl Fn(usize) -> &'a [u8], to: &mut [u8]) -> Result<usize, NodeError> {
        let mut values = [None; MOST_VALUES];
        for (value, place) in values.iter_mut().zip(&self.places) {
            *value = place.and_then(|FieldPlace { port, offset, dtype, .. }| {
                match value_of(dtype, &elements(port)[offset..offset + dtype.size()]) {
                    Value::Whole(value) => Some(value as f64),
                    Value::Fraction(value) => (!value.is_nan()).then_some(value),
                    Value::Missing => None,
                }
            });
        }
        let values = SentenceValues { sentence: self.sentence, values };
        let mut line = Line(Cursor::new(to));
        line.text(format_args!("${}{}", self.talker, self.sentence.address()))?;
        values.write(&mut line)?;
        let end = line.0.position() as usize;
        let sum = line.0.get_ref()[1..end].iter().fold(0, |sum, byte| sum ^ byte);
        line.text(format_args!("*{sum:02X}"))?;
        Ok(line.0.position() as usize)
    }
}

/// The values of a sentence; `None` for one that is not known.
struct SentenceValues {
    sentence: Sentence,
    values: [Option<f64>; MOST_VALUES],
}

impl SentenceValues {
    fn write(&self, line: &mut Line<'_>) -> Result<(), NodeError> {
        match self.sentence {
            Sentence::Gga => {
                line.time(self.time()?)?;
                self.position(line)?;
                let quality = self.whole("quality", 0, 8)?.unwrap_or(u64::from(self.has_position()));
                line.text(format_args!(",{quality},"))?;
                if let Some(satellites) = self.whole("satellites", 0, 99)? {
                    line.text(format_args!("{satellites:02}"))?;
                }
                line.number(self.within("hdop", 0.0, 99.0)?, 2)?;
                for (name, most) in [("altitude", 99_999.0), ("geoid_separation", 999.0)] {
                    let height = self.within(name, -most, most)?;
                    line.number(height, 2)?;
                    line.text(format_args!(",M"))?;
                }
                // Age and station of a differential fix.
                line.text(format_args!(",,"))
            }
            Sentence::Gll => {
                self.position(line)?;
                line.time(self.time()?)?;
                self.valid(line)?;
                self.mode(self.is_valid(), line)
            }
            Sentence::Hdt => {
                line.number(self.angle("heading")?, DECIMALS)?;
                line.text(format_args!(",T"))
            }
            Sentence::Rmc => {
                line.time(self.time()?)?;
                self.valid(line)?;
                self.position(line)?;
                line.number(self.speed()?, DECIMALS)?;
                line.number(self.angle("course")?, DECIMALS)?;
                line.text(format_args!(","))?;
                if let Some(date) = self.date()? {
                    line.text(format_args!("{:02}{:02}{:02}", date.day(), date.month(), date.year() % 100))?;
                }
                let variation = self.within("magnetic_variation", -180.0, 180.0)?;
                line.number(variation.map(f64::abs), 1)?;
                line.side(variation, "E", "W")?;
                self.mode(self.is_valid(), line)
            }
            Sentence::Vtg => {
                let course = self.angle("course")?;
                line.number(course, DECIMALS)?;
                // The magnetic course is not known.
                line.text(format_args!(",T,,M"))?;
                let speed = self.speed()?;
                line.number(speed, DECIMALS)?;
                line.text(format_args!(",N"))?;
                line.number(speed.map(|speed| speed * MILE), DECIMALS)?;
                line.text(format_args!(",K"))?;
                self.mode(speed.or(course).is_some(), line)
            }
            Sentence::Zda => {
                line.time(self.time()?)?;
                match self.date()? {
                    Some(date) => {
                        line.text(format_args!(",{:02},{:02},{:04}", date.day(), date.month(), date.year()))?;
                    }
                    None => line.text(format_args!(",,,"))?,
                }
                match self.within("zone", -839.0, 839.0)? {
                    // The minutes have the sign of the hours.
                    Some(zone) => {
                        let (sign, minutes) = (if zone < 0.0 { "-" } else { "" }, zone.abs().round() as u64);
                        line.text(format_args!(",{sign}{:02},{:02}", minutes / 60, minutes % 60))
                    }
                    None => line.text(format_args!(",,")),
                }
            }
        }
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.sentence.names().iter().position(|other| *other == name).and_then(|at| self.values[at])
    }

    fn within(&self, name: &str, least: f64, most: f64) -> Result<Option<f64>, NodeError> {
        match self.get(name) {
            Some(value) if !(least..=most).contains(&value) => {
                Err(NodeError::input(name, format!("must be {least} to {most}, got {value}")))
            }
            value => Ok(value),
        }
    }

    fn whole(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, NodeError> {
        match self.within(name, least as f64, most as f64)? {
            Some(value) if value.fract() != 0.0 => {
                Err(NodeError::input(name, format!("must be a whole number, got {value}")))
            }
            value => Ok(value.map(|value| value as u64)),
        }
    }

    /// Of any angle, the one from 0 to less than 360 degrees.
    fn angle(&self, name: &str) -> Result<Option<f64>, NodeError> {
        Ok(self.within(name, -1e6, 1e6)?.map(|angle| rounded(angle, DECIMALS).rem_euclid(360.0)))
    }

    fn speed(&self) -> Result<Option<f64>, NodeError> {
        self.within("speed", 0.0, 9_999.0)
    }

    /// Hundredths of a second of the day.
    fn time(&self) -> Result<Option<u64>, NodeError> {
        match self.get("time") {
            Some(time) if !(0.0..86_400.0).contains(&time) => {
                Err(NodeError::input("time", format!("must be a second of the day, from 0 to below 86400, got {time}")))
            }
            // The end of a day is not the beginning of the same.
            time => Ok(time.map(|time| (time * 1e2).round().min(DAY - 1.0) as u64)),
        }
    }

    fn date(&self) -> Result<Option<NaiveDate>, NodeError> {
        let Some(number) = self.whole("date", 0, 99_991_231)? else { return Ok(None) };
        let date =
            NaiveDate::from_ymd_opt((number / 10_000) as i32, (number / 100 % 100) as u32, (number % 100) as u32);
        date.map(Some).ok_or_else(|| NodeError::input("date", format!("expected a date YYYYMMDD, found {number}")))
    }

    fn has_position(&self) -> bool {
        self.get("latitude").is_some() && self.get("longitude").is_some()
    }

    fn position(&self, line: &mut Line<'_>) -> Result<(), NodeError> {
        for (name, most, width, plus, minus) in [("latitude", 90.0, 2, "N", "S"), ("longitude", 180.0, 3, "E", "W")] {
            let value = self.within(name, -most, most)?;
            line.text(format_args!(","))?;
            if let Some(value) = value {
                // Degrees and minutes, in units of a hundred-thousandth of a minute, so that 60 of
                // them never stay.
                let units = (value.abs() * 6e6).round() as u64;
                let (degrees, minutes) = (units / 6_000_000, units % 6_000_000);
                let (whole, rest) = (minutes / 100_000, minutes % 100_000);
                line.text(format_args!("{degrees:0width$}{whole:02}.{rest:05}"))?;
            }
            line.side(value, plus, minus)?;
        }
        Ok(())
    }

    /// Without a field, whether there is a position.
    fn is_valid(&self) -> bool {
        self.get("valid").map_or(self.has_position(), |valid| valid != 0.0)
    }

    fn valid(&self, line: &mut Line<'_>) -> Result<(), NodeError> {
        line.text(format_args!(",{}", if self.is_valid() { "A" } else { "V" }))
    }

    /// How the receiver works, which version 2.3 added: by itself, or not at all.
    fn mode(&self, is_valid: bool, line: &mut Line<'_>) -> Result<(), NodeError> {
        line.text(format_args!(",{}", if is_valid { "A" } else { "N" }))
    }
}

/// Returns a number with so many decimals; 0 is never -0.
fn rounded(value: f64, decimals: usize) -> f64 {
    let unit = 10f64.powi(decimals as i32);
    (value * unit).round() / unit + 0.0
}

/// A sentence that is being written.
struct Line<'a>(Cursor<&'a mut [u8]>);

impl Line<'_> {
    fn text(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), NodeError> {
        self.0.write_fmt(text).map_err(NodeError::other)
    }

    /// A comma, and a number if it is known.
    fn number(&mut self, value: Option<f64>, decimals: usize) -> Result<(), NodeError> {
        match value {
            Some(value) => self.text(format_args!(",{:.decimals$}", rounded(value, decimals))),
            None => self.text(format_args!(",")),
        }
    }

    /// Hundredths of a second of the day.
    fn time(&mut self, time: Option<u64>) -> Result<(), NodeError> {
        let Some(time) = time else { return self.text(format_args!(",")) };
        let (seconds, rest) = (time / 100, time % 100);
        self.text(format_args!(",{:02}{:02}{:02}.{rest:02}", seconds / 3600, seconds / 60 % 60, seconds % 60))
    }

    /// On which side a value is.
    fn side(&mut self, value: Option<f64>, plus: &str, minus: &str) -> Result<(), NodeError> {
        let side = value.map_or("", |value| if value.is_sign_negative() { minus } else { plus });
        self.text(format_args!(",{side}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen_nodes_core::format::field::ports;
    use limen_nodes_core::format::record::Record;

    /// Fields of these names, all of them numbers of type `f64`.
    fn fields(names: &[&str]) -> Vec<Field> {
        let field = |name: &&str| serde_json::json!({"name": name, "type": "f64"});
        names.iter().map(|name| serde_json::from_value(field(name)).unwrap()).collect()
    }

    fn written(sentence: Sentence, names: &[&str], numbers: &[f64]) -> Result<String, String> {
        let (fields, mut errors) = (fields(names), PlanErrors::default());
        let ports = ports(&fields, &mut errors);
        let writer = SentenceWriter::new(sentence, None, &fields, &ports, &mut errors);
        assert_eq!(errors.messages().collect::<Vec<_>>(), [""; 0]);
        let bytes: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_ne_bytes()).collect();
        let mut to = [0; MOST];
        let len = writer.write(|port| &bytes[port], &mut to).map_err(|error| error.to_string())?;
        Ok(str::from_utf8(&to[..len]).unwrap().to_string())
    }

    #[test]
    fn sentences_have_the_numbers_of_their_fields() {
        let nan = f64::NAN;
        let position = ["latitude", "longitude"];
        let cases: [(Sentence, &[&str], &[f64], &str); 17] = [
            (
                Sentence::Gga,
                Sentence::Gga.names(),
                &[45319.0, 48.1173, 11.516_666_667, 1.0, 8.0, 0.9, 545.4, 46.9],
                "$GPGGA,123519.00,4807.03800,N,01131.00000,E,1,08,0.90,545.40,M,46.90,M,,*59",
            ),
            (Sentence::Gga, &position, &[-0.5, -179.999_999_999], "$GPGGA,,0030.00000,S,18000.00000,W,1,,,,M,,M,,*59"),
            (Sentence::Gga, &position, &[nan, 1.0], "$GPGGA,,,,00100.00000,E,0,,,,M,,M,,*0C"),
            (Sentence::Gll, &position, &[90.0, 0.0], "$GPGLL,9000.00000,N,00000.00000,E,,A,A*4E"),
            (Sentence::Gll, &["valid", "time"], &[0.0, 86_399.999_9], "$GPGLL,,,,,235959.99,V,N*4B"),
            (Sentence::Hdt, &["heading"], &[-90.0], "$GPHDT,270.00,T*00"),
            (
                Sentence::Rmc,
                Sentence::Rmc.names(),
                &[45319.0, 19_940_323.0, 1.0, 48.1173, 11.516_666_667, 22.4, 84.4, -3.1],
                "$GPRMC,123519.00,A,4807.03800,N,01131.00000,E,22.40,84.40,230394,3.1,W,A*29",
            ),
            (Sentence::Hdt, &["heading"], &[-360.0], "$GPHDT,0.00,T*05"),
            (Sentence::Hdt, &["heading"], &[359.996], "$GPHDT,0.00,T*05"),
            (Sentence::Hdt, &["heading"], &[-1e-20], "$GPHDT,0.00,T*05"),
            (Sentence::Vtg, &["course"], &[1.0], "$GPVTG,1.00,T,,M,,N,,K,A*3C"),
            (Sentence::Rmc, &["speed"], &[0.0], "$GPRMC,,V,,,,,0.00,,,,,N*4D"),
            (Sentence::Vtg, &["course", "speed"], &[54.7, 5.5], "$GPVTG,54.70,T,,M,5.50,N,10.19,K,A*32"),
            (
                Sentence::Zda,
                &["time", "date", "zone"],
                &[57_612.71, 20_040_311.0, -330.0],
                "$GPZDA,160012.71,11,03,2004,-05,30*4A",
            ),
            (Sentence::Zda, &["zone"], &[-30.0], "$GPZDA,,,,,-00,30*66"),
            (Sentence::Zda, &["date"], &[20_261_128.0], "$GPZDA,,28,11,2026,,*44"),
            (Sentence::Zda, &["date"], &[nan], "$GPZDA,,,,,,*48"),
        ];
        for (sentence, names, numbers, expected) in cases {
            assert_eq!(written(sentence, names, numbers).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn numbers_that_a_sentence_cannot_say_are_errors() {
        for (sentence, name, number, expected) in [
            (Sentence::Gga, "latitude", 90.1, "latitude: must be -90 to 90, got 90.1"),
            (Sentence::Gga, "altitude", f64::INFINITY, "altitude: must be -99999 to 99999, got inf"),
            (Sentence::Gga, "quality", 1.5, "quality: must be a whole number, got 1.5"),
            (Sentence::Gga, "satellites", 100.0, "satellites: must be 0 to 99, got 100"),
            (Sentence::Gll, "time", 86_400.0, "time: must be a second of the day"),
            (Sentence::Rmc, "speed", -1.0, "speed: must be 0 to 9999, got -1"),
            (Sentence::Zda, "date", 20_260_230.0, "date: expected a date YYYYMMDD, found 20260230"),
            (Sentence::Zda, "zone", 840.0, "zone: must be -839 to 839, got 840"),
        ] {
            let found = written(sentence, &[name], &[number]);
            assert!(found.as_ref().is_err_and(|found| found.contains(expected)), "{found:?}, expected {expected}");
        }
    }

    /// What the crate `nmea` reads is what was written, as far as the decimals go; no sentence is
    /// too long for it.
    #[test]
    fn sentences_read_back() {
        let mut random = fastrand::Rng::with_seed(25);
        let range = |name: &str| match name {
            "time" => (0.0, 86_399.0, 0.006),
            "latitude" => (-90.0, 90.0, 2e-7),
            "longitude" => (-180.0, 180.0, 2e-7),
            "quality" => (0.0, 8.0, 0.0),
            "valid" => (0.0, 1.0, 0.0),
            "satellites" => (0.0, 99.0, 0.0),
            "hdop" => (0.0, 99.0, 0.006),
            "altitude" => (-9_999.0, 99_999.0, 0.01),
            "geoid_separation" => (-106.0, 85.0, 0.01),
            "speed" => (0.0, 9_999.0, 0.006),
            "magnetic_variation" => (-180.0, 180.0, 0.06),
            "zone" => (-780.0, 780.0, 0.0),
            _ => (0.0, 359.0, 0.006),
        };
        for sentence in [Sentence::Gga, Sentence::Gll, Sentence::Hdt, Sentence::Rmc, Sentence::Vtg, Sentence::Zda] {
            let names = sentence.names();
            for _ in 0..1000 {
                let numbers: Vec<f64> = names
                    .iter()
                    .map(|name| {
                        let (least, most, off) = range(name);
                        let number = least + random.f64() * (most - least);
                        match *name {
                            "date" => {
                                f64::from(random.u32(2000..2060) * 10_000 + random.u32(1..13) * 100 + random.u32(1..29))
                            }
                            _ if off == 0.0 => number.round(),
                            _ => number,
                        }
                    })
                    .collect();
                let text = written(sentence, names, &numbers).unwrap();
                // With what ends the line, the standard has 82 characters at most.
                assert!(text.len() <= 80, "{} characters: {text}", text.len());
                let (fields, mut errors) = (fields(names), PlanErrors::default());
                let mut record = Record::new(&fields, &ports(&fields, &mut errors));
                let values: Vec<usize> = sentence.values(&fields, &mut errors).into_iter().flatten().collect();
                assert_eq!(sentence.read(&values, text.as_bytes(), &mut record), Ok(true), "{text}");
                for (port, (name, number)) in names.iter().zip(&numbers).enumerate() {
                    let found = f64::from_ne_bytes(record.port(port).try_into().unwrap());
                    let is_near = match *name {
                        // RMC has two digits of the year.
                        "date" => found as u64 % 1_000_000 == *number as u64 % 1_000_000,
                        "valid" | "quality" | "satellites" | "zone" => found == *number,
                        name => (found - number).abs() <= range(name).2,
                    };
                    assert!(is_near, "{name} {number}: {found} in {text}");
                }
            }
        }
    }
}
