//! Files of histograms with any bytes in them: read without a panic, and printed, drawn, converted
//! and compared if they can be read.

use limen_run::{Comparison, Plot, Profile, ProfileFormat, Stat, show_profiles};
use limen_tests::fuzz::{attack, damage, pick};

/// Files that can be read, to begin with.
const SEEDS: [&str; 4] = [
    "#[Histogram log format version 1.3]\n#[StartTime: 5.000 (s)]\nTag=a->b.e2e,0.127,1.007,2.769,HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZkKmcCAEf2CsI=\n\
     1.134,0.999,0.442,HISTFAAAAEJ42pNpmSzMwMAgxwABTBDKT4GBgdnNYMcCBvsPEBEWLj45FTExAT4pBSEBKa6UkAgBi1uM7xjfMMlwMDABAC0CCjM=\n",
    "       Value     Percentile TotalCount 1/(1-Percentile)\n\n 1.00 0.0 1 1.00\n 3.00 0.55 3 2.22\n 1003.00 1.0 4\n#[Buckets = 29, SubBuckets = 256]\n",
    "tag,begin_s,length_s,digits,value_ns,count\na.compute,0.0,1.0,2,100,3\na.compute,1.0,1.0,2,9223372036854775807,9223372036854775807\n",
    "{\"unit\":\"ns\",\"histograms\":[{\"tag\":\"a.x\",\"digits\":2,\"intervals\":[{\"begin_s\":0,\"length_s\":1,\"counts\":[[5,2],[7,18446744073709551615]]}]}]}",
];
/// Words that files have.
const WORDS: [&str; 12] = [
    "\n",
    ",",
    "0",
    "-1",
    "1e300",
    "nan",
    "18446744073709551615",
    "Tag=",
    "HIST",
    "Value Percentile TotalCount",
    "#[BaseTime: 1e18 ",
    "[[1,1],",
];

/// Damages a histogram behind its base64 and its compression, where a bit flipped outside hardly
/// reaches.
fn recoded(rng: &mut fastrand::Rng) -> String {
    let mut bytes: Vec<u8> = [0x1c84_9313u32, 12, 0, 3].iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.extend([1, 60_000_000_000, 1f64.to_bits()].iter().flat_map(|long: &u64| long.to_be_bytes()));
    bytes.extend([2, 0xff, 0xff, 0x03, 9, 200, 1, 7, 5, 4, 2, 2]);
    damage(rng, &mut bytes);
    format!("#[Histogram log format version 1.3]\n0.0,1.0,1.0,{}\n", data_encoding::BASE64.encode(&bytes))
}

/// Attack (histograms): damaged logs, percentile texts, tables and objects; expected: read, or
/// refused with the line
#[test]
fn any_file_of_histograms_is_read_or_refused() {
    attack("histograms", 400, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut bytes = pick(&mut rng, &SEEDS).as_bytes().to_vec();
        for _ in 0..rng.usize(..4) {
            let at = rng.usize(..=bytes.len());
            let word = *pick(&mut rng, &WORDS);
            bytes.splice(at..at, word.bytes());
        }
        if rng.bool() {
            damage(&mut rng, &mut bytes);
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if rng.u8(..3) == 0 {
            text = recoded(&mut rng);
        }
        let unit = rng.bool().then(|| rng.u64(1..1_000_000_000));
        let Ok(profile) = Profile::from_text("x", &text, unit) else { return Ok(false) };
        let all = [profile.clone()];
        show_profiles(&all);
        let plot = Plot::new(&all);
        if let Some(long) = plot.text().lines().find(|line| line.chars().count() > 80) {
            return Err(format!("too long a line: {long}"));
        }
        plot.svg();
        for format in [ProfileFormat::Hlog, ProfileFormat::Csv, ProfileFormat::Json, ProfileFormat::Hgrm] {
            let Ok(written) = profile.to_text(format) else { continue };
            let again = Profile::from_text("y", &written, Some(1));
            let is_empty = profile.series.iter().all(|series| series.intervals.is_empty());
            if let (Err(error), false) = (again, is_empty) {
                return Err(format!("what was written as {format:?} cannot be read: {error}\n{written}"));
            }
        }
        let stats = [Stat::Quantile(0.5), Stat::Mean];
        let compared = Comparison::new(&all, &[profile.clone(), profile], &stats);
        compared.map(|compared| compared.text()).map_err(|error| error.to_string())?;
        Ok(true)
    });
}
