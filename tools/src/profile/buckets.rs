//! `.csv`: a row for each value of each interval, for spreadsheets and data frames.

use super::{Profile, ProfileReader, Wrong};
use limen::report::Counts;
use std::fmt::Write;

/// The columns. Only value and count are needed in a file that is read; values without a unit are
/// in a column `value`.
const COLUMNS: [&str; 6] = ["tag", "begin_s", "length_s", "digits", "value_ns", "count"];

/// Whether a line has the headings of columns that can be read.
pub(super) fn is_heading(line: &str) -> bool {
    let has = |name: &str| line.split(',').any(|column| column.trim() == name);
    has("count") && (has("value_ns") || has("value"))
}

/// Reads rows; those of an interval follow each other.
pub(super) fn read(text: &str, profile: &mut Profile) -> Result<(), Wrong> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let (at, heading) = lines.next().unwrap_or_default();
    let names: Vec<&str> = heading.split(',').map(str::trim).collect();
    let column = |name: &str| names.iter().position(|column| *column == name);
    profile.has_unit = column(COLUMNS[4]).is_some();
    let (Some(value), Some(count)) = (column(COLUMNS[4]).or(column("value")), column(COLUMNS[5])) else {
        let why = format!("expected names of columns with `value` and `count`, found `{heading}`");
        return Err((Some(at + 1), why));
    };
    let [tag, begin, length, digits] = [COLUMNS[0], COLUMNS[1], COLUMNS[2], COLUMNS[3]].map(column);
    let mut reading = ProfileReader::new(profile);
    let mut rows: Vec<(u64, u64)> = Vec::new();
    // The columns before the value, as text: those of the interval.
    let mut interval: Option<(usize, [&str; 4])> = None;
    let mut end = |of: Option<(usize, [&str; 4])>, rows: Vec<(u64, u64)>| -> Result<(), Wrong> {
        let Some((at, [tag, begin, length, digits])) = of else { return Ok(()) };
        let wrong = |why: String| (Some(at + 1), why);
        let seconds = |text: &str| match text {
            "" => Ok(0.0),
            text => text.parse::<f64>().map_err(|_| wrong(format!("expected a number of seconds, found `{text}`"))),
        };
        let digits = match digits {
            "" => 3,
            text => text
                .parse::<u8>()
                .ok()
                .filter(|digits| *digits <= Counts::MAX_DIGITS)
                .ok_or_else(|| wrong(format!("`digits` must be 0 to {}, got {text}", Counts::MAX_DIGITS)))?,
        };
        reading.add(tag, seconds(begin)?, seconds(length)?, Counts::of(digits, rows)).map_err(wrong)
    };
    for (at, line) in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let wrong = |why: String| (Some(at + 1), why);
        if cells.len() != names.len() {
            return Err(wrong(format!("expected {} columns, found {}", names.len(), cells.len())));
        }
        let number = |column: usize| {
            cells[column]
                .parse::<u64>()
                .map_err(|_| wrong(format!("expected a whole number, found `{}`", cells[column])))
        };
        let its = [tag, begin, length, digits].map(|column| column.map_or("", |column| cells[column]));
        if interval.is_none_or(|(_, before)| before != its) {
            end(interval, std::mem::take(&mut rows))?;
            interval = Some((at, its));
        }
        rows.push((number(value)?, number(count)?));
    }
    end(interval, rows)
}

/// The rows of every interval.
pub(super) fn text(profile: &Profile) -> String {
    let mut names = COLUMNS;
    if !profile.has_unit {
        names[4] = "value";
    }
    let mut text = names.join(",") + "\n";
    for series in &profile.series {
        for interval in &series.intervals {
            for (value, count) in interval.counts.iter() {
                let (begin, length, digits) = (interval.begin, interval.length, interval.counts.digits());
                let _ = writeln!(
                    text,
                    "{},{begin:.3},{length:.3},{digits},{value},{count}",
                    crate::dump::hlog::clean(&series.tag)
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profile, String> {
        Profile::from_text("a.csv", text, None).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_read_back_as_written() {
        let text = "tag,begin_s,length_s,digits,value_ns,count\na->b.e2e,0.000,1.000,2,100,3\na->b.e2e,0.000,1.000,2,2015,1\n\
                    a->b.e2e,1.000,1.000,2,100,7\nn.batch,1.000,1.000,2,4,1\n";
        let profile = read(text).unwrap();
        assert!(profile.has_unit);
        assert_eq!(profile.series[0].intervals.len(), 2);
        assert_eq!(super::text(&profile), text);
        let least = read("count,value\n3,10\n2,5\n").unwrap();
        assert!(!least.has_unit);
        assert_eq!(least.series[0].sum().iter().collect::<Vec<_>>(), [(5, 2), (10, 3)]);
    }

    #[test]
    fn deprecated_names_of_terms_are_read_as_the_new_ones() {
        let mut profile = read("tag,value_ns,count\nz.closure,5,2\nz.residual,7,1\nhold.hold,3,1\n").unwrap();
        let tags = |profile: &Profile| profile.series.iter().map(|one| one.tag.clone()).collect::<Vec<_>>();
        assert_eq!(tags(&profile), ["z.residual", "hold.wait"]);
        profile.select(&["hold.hold".into()]).unwrap();
        assert_eq!(tags(&profile), ["hold.wait"]);
        // A file of another program, whose values have no known unit.
        assert_eq!(tags(&read("tag,value,count\nz.hold,5,2\n").unwrap()), ["z.hold"]);
    }

    #[test]
    fn malformed_rows_are_named() {
        for (row, expected) in [
            ("a,0,1,3,5", ":2: expected 6 columns, found 5"),
            ("a,0,1,3,5,-1", ":2: expected a whole number, found `-1`"),
            ("a,0,1,3,5.5,1", "expected a whole number, found `5.5`"),
            ("a,x,1,3,5,1", ":2: expected a number of seconds, found `x`"),
            ("a,inf,1,3,5,1", "invalid interval"),
            ("a,0,1,6,5,1", "`digits` must be 0 to 5, got 6"),
        ] {
            let error = read(&format!("tag,begin_s,length_s,digits,value_ns,count\n{row}\n")).unwrap_err();
            assert!(error.contains(expected), "{row}: {error}");
        }
    }
}
