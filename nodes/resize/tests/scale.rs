//! Images are scaled with the numbers of OpenCV and Pillow. These tests are not in the crate, whose
//! code would then be compiled twice.

use limen_resize::{Filter, Resizer, cut};

/// Levels that look random.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// The FNV-1a hash of all levels, so that one number stands for an image.
fn hash(levels: &[u8]) -> u32 {
    levels.iter().fold(0x811C_9DC5, |hash, level| (hash ^ u32::from(*level)).wrapping_mul(0x0100_0193))
}

fn scaled(filter: Filter, from: [usize; 3], [h, w]: [usize; 2]) -> Vec<u8> {
    let mut resizer = Resizer::new(filter);
    let mut scaled = |from: [usize; 3], to: [usize; 3]| {
        let mut out = vec![0; to.iter().product()];
        resizer.scale(from, &noise(from.iter().product()), to, &mut out).unwrap();
        out
    };
    // The buffers have been used for a smaller and for a larger image.
    scaled([9, 8, 1], [4, 3, 1]);
    scaled([3, 2, 4], [70, 300, 4]);
    scaled(from, [h, w, from[2]])
}

/// The expected hashes are those of `cv2.resize` (OpenCV 5.0.0 and 4.10.0 give the same) with
/// `INTER_LINEAR` and `INTER_AREA` for the same noise.
#[test]
fn every_level_is_that_of_opencv() {
    for (from, to, linear, area) in [
        ([7, 9, 3], [5, 4], 0xACE1_C381, 0x2117_6D98),
        ([7, 9, 1], [20, 31], 0x76B6_FA2C, 0x52F6_37EA),
        ([48, 64, 3], [24, 32], 0x21F1_7C54, 0x21F1_7C54),
        ([48, 64, 4], [17, 100], 0xE2C3_714A, 0x00F4_DE02),
        ([90, 120, 1], [30, 40], 0x5C8F_7A6C, 0xCA76_5C6A),
        ([1, 1, 3], [3, 5], 0xB24D_0AB8, 0xB24D_0AB8),
        ([45, 60, 4], [9, 20], 0xDE4B_F8AB, 0x8CA1_4AD0),
        ([5, 200, 3], [60, 7], 0x2D4A_626B, 0x1A28_DB8D),
        ([33, 47, 3], [33, 20], 0x1B4D_C10B, 0xC3CD_6DD9),
        ([300, 500, 3], [187, 311], 0xE646_9EB8, 0x95B3_8DB7),
    ] {
        for (filter, expected) in [(Filter::Linear, linear), (Filter::Area, area)] {
            assert_eq!(hash(&scaled(filter, from, to)), expected, "{filter:?} {from:?} to {to:?}");
        }
    }
}

/// The expected hashes are those of `cv2.getPerspectiveTransform` to
/// `[0, 0], [w, 0], [w, h], [0, h]`, `cv2.warpPerspective` with `INTER_CUBIC` and
/// `BORDER_REPLICATE` (OpenCV 5.0.0 on x86), and `numpy.rot90`, for the same noise.
#[test]
fn every_level_between_four_corners_is_that_of_opencv() {
    for (channels, corners, to, turned, expected) in [
        (1, [[5.5, 4.25], [45.2, 10.0], [43.0, 25.7], [3.1, 19.0]], [15, 40], false, 0x4340_2C8B),
        (3, [[20.0, 3.0], [30.0, 5.0], [25.0, 38.0], [15.0, 35.0]], [33, 10], true, 0x321D_6F0C),
        (4, [[-5.0, -4.0], [70.0, 2.0], [66.0, 50.0], [0.0, 45.0]], [49, 75], false, 0xF747_1460),
        (3, [[2.0, 2.0], [42.0, 2.0], [42.0, 22.0], [2.0, 22.0]], [20, 40], false, 0x161D_54FD),
        (2, [[10.5, 8.5], [50.1, 3.3], [52.9, 20.2], [12.4, 30.6]], [22, 41], false, 0xDB61_7148),
    ] {
        let mut part = vec![0; to[0] * to[1] * channels];
        let pixels = noise(40 * 60 * channels);
        cut([40, 60, channels], &pixels, corners, [to[0], to[1], channels], turned, &mut part).unwrap();
        assert_eq!(hash(&part), expected, "{corners:?}");
    }
}

#[test]
fn corners_anywhere_are_harmless() {
    for value in [0.0, -1.0, 1e30, -1e30, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE] {
        for at in 0..8 {
            let mut corners = [[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [0.0, 3.0]];
            corners[at / 2][at % 2] = value;
            cut([3, 4, 1], &[9; 12], corners, [3, 4, 1], at > 3, &mut [0; 12]).unwrap();
        }
    }
}

/// The expected hashes are those of Pillow 13 with `NEAREST`, and of `cv2.resize` with
/// `INTER_NEAREST_EXACT`.
#[test]
fn every_nearest_pixel_is_that_of_pillow() {
    for (from, to, expected) in [
        ([7, 9, 3], [5, 4], 0xCF98_7A78),
        ([7, 9, 1], [20, 31], 0xFC92_979F),
        ([48, 64, 3], [24, 32], 0xCCDA_3580),
        ([90, 120, 1], [30, 40], 0x5C8F_7A6C),
        ([5, 200, 3], [60, 7], 0xCCE2_65ED),
        ([33, 47, 3], [33, 20], 0x01B0_08E1),
        ([7, 9, 2], [5, 4], 0x5EEF_8B72),
        ([33, 47, 2], [33, 20], 0x42F2_920A),
        ([5, 200, 2], [60, 7], 0x7A38_C435),
        ([45, 61, 4], [17, 100], 0x9757_D25C),
        ([45, 60, 4], [9, 20], 0xDE4B_F8AB),
    ] {
        assert_eq!(hash(&scaled(Filter::Nearest, from, to)), expected, "{from:?} to {to:?}");
    }
}

fn check(filter: Filter, from: [usize; 3], pixels: &[u8], to: [usize; 3], expected: &[u8]) {
    let mut out = vec![0; to.iter().product()];
    Resizer::new(filter).scale(from, pixels, to, &mut out).unwrap();
    let far = out.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(out.len() == expected.len() && far <= Some(1), "{filter:?} {from:?}: {out:?}, expected {expected:?}");
}

/// The expected numbers are those of Pillow 13.
#[test]
fn bilinear_matches_pillow() {
    let row = [0, 10, 20, 30, 40, 50, 60, 70];
    check(Filter::Bilinear, [1, 8, 1], &row, [1, 4, 1], &[7, 25, 45, 63]);
    check(Filter::Bilinear, [1, 8, 1], &row, [1, 3, 1], &[11, 35, 59]);
    check(Filter::Bilinear, [2, 1, 1], &[0, 100], [4, 1, 1], &[0, 25, 75, 100]);
    let colours = [255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];
    check(Filter::Bilinear, [2, 2, 3], &colours, [1, 1, 3], &[128, 128, 128]);
}

#[test]
fn shrinking_a_ramp_matches_pillow() {
    let pixel = |at: usize| {
        let (c, x, y) = (at % 3, at / 3 % 64, at / 3 / 64);
        ((x * (c + 1) / 2 + y * (3 - c) / 2 + 35) % 256) as u8
    };
    let pixels: Vec<u8> = (0..48 * 64 * 3).map(pixel).collect();
    let mut out = vec![0; 17 * 23 * 3];
    Resizer::new(Filter::Bilinear).scale([48, 64, 3], &pixels, [17, 23, 3], &mut out).unwrap();
    for (row, column, expected) in [(3, 5, [56, 59, 61]), (16, 22, [134, 143, 150]), (8, 11, [86, 91, 94])] {
        let at = (row * 23 + column) * 3;
        assert!(out[at..at + 3].iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 1), "{row} {column}");
    }
    let sum: i64 = out.iter().map(|v| i64::from(*v)).sum();
    assert!((sum - 105_219).abs() < out.len() as i64 / 10, "{sum}");
}

/// The invisible pixel does not count; the expected numbers are Pillow's, for `LA`.
#[test]
fn colours_are_weighted_by_alpha() {
    check(Filter::Bilinear, [1, 2, 2], &[10, 255, 200, 0], [1, 1, 2], &[9, 128]);
    check(Filter::Bilinear, [1, 4, 2], &[10, 255, 200, 0, 100, 128, 50, 64], [1, 2, 2], &[21, 128, 83, 82]);
    check(Filter::Nearest, [1, 4, 2], &[1, 2, 50, 51, 100, 0, 200, 9], [1, 2, 2], &[50, 51, 200, 9]);
}

#[test]
fn nearest_copies_pixels_unchanged() {
    check(Filter::Nearest, [1, 4, 1], &[1, 50, 100, 200], [1, 2, 1], &[50, 200]);
    check(Filter::Nearest, [1, 2, 1], &[1, 200], [1, 4, 1], &[1, 1, 200, 200]);
    check(Filter::Lanczos3, [1, 2, 1], &[7, 7], [3, 3, 1], &[7; 9]);
}

#[test]
fn the_buffers_are_as_large_as_announced() {
    for filter in [Filter::Bilinear, Filter::Nearest, Filter::Lanczos3, Filter::Linear, Filter::Area] {
        for (from, [h, w]) in
            [([40, 60, 3], [20, 30]), ([40, 60, 2], [90, 31]), ([7, 9, 4], [5, 40]), ([9, 8, 1], [9, 8])]
        {
            let to = [h, w, from[2]];
            let mut resizer = Resizer::new(filter);
            resizer.scale(from, &noise(from.iter().product()), to, &mut vec![0; to.iter().product()]).unwrap();
            let kept = resizer.kept();
            // The crate aligns its buffers.
            assert!(kept <= filter.bytes(from, to) + 64, "{filter:?} {from:?} to {to:?}: {kept}");
        }
        assert_eq!(filter.bytes([0; 3], [0; 3]), 0);
        filter.bytes([usize::MAX; 3], [usize::MAX; 3]);
    }
}

#[test]
fn unsupported_channels_and_wrong_sizes_are_errors() {
    for filter in [Filter::Bilinear, Filter::Nearest, Filter::Lanczos3, Filter::Linear, Filter::Area] {
        let mut resizer = Resizer::new(filter);
        for (from, pixels, to, room) in [
            ([1, 1, 5], 5, [1, 1, 5], 5),
            ([1, 1, 3], 3, [1, 1, 1], 1),
            ([2, 2, 1], 3, [1, 1, 1], 1),
            ([2, 2, 1], 4, [1, 2, 1], 1),
            ([2, 2, 2], 8, [1, 2, 2], 3),
            ([0, 2, 1], 4, [1, 1, 1], 1),
            ([2, 2, 1], 4, [0, 1, 1], 1),
            ([usize::MAX, 2, 1], 4, [1, 1, 1], 1),
            ([1 << 31, 1 << 31, 4], 4, [1, 1, 4], 4),
        ] {
            let result = resizer.scale(from, &vec![0; pixels], to, &mut vec![0; room]);
            assert!(result.is_err(), "{filter:?} {from:?} to {to:?}");
            let corners = [[0.0; 2]; 4];
            let result = cut(from, &vec![0; pixels], corners, to, true, &mut vec![0; room]);
            assert!(result.is_err(), "{from:?} to {to:?}");
        }
    }
}
