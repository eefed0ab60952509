//! Orientations within a message: where they are, and their interpolation on the sphere.

use super::label::Label;
use super::port_spec::{Dim, PortSpec};

/// Where the elements of a message are an orientation or an angle, whose mean is not the mean of
/// its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Orientation {
    /// All elements are plain numbers.
    #[default]
    None,
    /// Elements `at` to `at + 3` of a tensor `[of]` are a quaternion in the order x, y, z, w.
    Quaternion { at: u16, of: u16 },
    /// Some elements, which are not known.
    Somewhere,
    /// Some elements may be an angle by a name that is not in their label.
    Named,
}

impl Orientation {
    /// The same without its place.
    pub(crate) fn anywhere(self) -> Self {
        if self.is_declared() { Orientation::Somewhere } else { self }
    }

    fn is_declared(self) -> bool {
        matches!(self, Orientation::Quaternion { .. } | Orientation::Somewhere)
    }
}

/// What an angle is called that begins again after a turn.
const ANGLES: [&str; 5] = ["yaw", "heading", "course", "bearing", "azimuth"];
/// What else such a name says of another number: how fast the angle changes, how exact it is, or
/// its sine.
const NOT_ANGLES: [&str; 9] = ["rate", "speed", "velocity", "acc", "var", "std", "error", "sin", "cos"];
/// The units of angles.
const UNITS: [&str; 7] = ["deg", "degree", "degrees", "°", "rad", "radian", "radians"];

/// Returns whether a number of this name may be an angle whose mean is not the mean of its numbers:
/// that of 359 and 1 degrees is 0.
pub(crate) fn may_be_angle(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    has(&ANGLES) && !has(&NOT_ANGLES)
}

impl PortSpec {
    /// Returns whether the name and the unit of one of its numbers say that it is such an angle.
    pub fn has_named_angle(&self) -> bool {
        self.labels().iter().any(|label| may_be_angle(label.name()) && UNITS.contains(&label.unit()))
    }

    /// Returns whether a number without a unit may be such an angle by its name, or by that of a
    /// port if it has none.
    pub(crate) fn may_have_angle(&self, ports: [&str; 2]) -> bool {
        let is_angle = |label: &Label| label.unit().is_empty() && may_be_angle(label.name());
        let labels = self.labels();
        let is_port = labels.is_empty() && ports.into_iter().any(may_be_angle);
        self.orientation == Orientation::Named || labels.iter().any(is_angle) || is_port
    }

    /// Declares another name of one of its numbers, such as its place in a document, with the
    /// number's unit. Planning looks for angles in it as in the labels.
    #[must_use]
    pub fn with_other_label(mut self, label: &Label) -> Self {
        if !self.orientation.is_declared() && may_be_angle(label.name()) {
            self.orientation = match label.unit() {
                "" => Orientation::Named,
                unit if UNITS.contains(&unit) => Orientation::Somewhere,
                _ => self.orientation,
            };
        }
        self
    }

    /// Declares that some elements are an orientation or an angle in an unknown layout. Planning
    /// refuses `pick: interpolate` for them.
    #[must_use]
    pub fn with_orientation(mut self) -> Self {
        self.orientation = Orientation::Somewhere;
        self
    }

    /// Declares that elements `at` to `at + 3` of a tensor with one fixed dim are a quaternion in
    /// the order x, y, z, w, so that `pick: interpolate` interpolates it on the sphere. If the
    /// shape has no such elements, or changes afterwards, planning refuses `pick: interpolate`, as
    /// after [`PortSpec::with_orientation`].
    ///
    /// ```
    /// use limen::message::{DType, PortSpec};
    /// // A position and an orientation.
    /// let pose = PortSpec::fixed(DType::F64, [7]).with_quaternion(3);
    /// # assert_eq!(pose.to_string(), "f64[7]");
    /// ```
    #[must_use]
    pub fn with_quaternion(mut self, at: usize) -> Self {
        let of = if let [Dim::Fixed(of)] = self.shape[..] { of } else { 0 };
        self.orientation = match (u16::try_from(at), u16::try_from(of)) {
            (Ok(at), Ok(of)) if usize::from(at) + 4 <= usize::from(of) => Orientation::Quaternion { at, of },
            _ => Orientation::Somewhere,
        };
        self
    }

    /// Declares an orientation in an unknown layout if another spec has an orientation, or angles
    /// by labels that this one lacks, for results that are computed from its messages.
    #[must_use]
    pub fn with_orientation_of(self, other: &PortSpec) -> Self {
        let own: Vec<Label> = self.labels().to_vec();
        let lost = other.labels().iter().filter(|label| !own.contains(label));
        let spec = match other.orientation {
            Orientation::None => self,
            Orientation::Named if self.orientation.is_declared() => self,
            Orientation::Named => PortSpec { orientation: Orientation::Named, ..self },
            _ => self.with_orientation(),
        };
        lost.fold(spec, PortSpec::with_other_label)
    }

    /// Returns where its quaternion begins, if it has one and still has the shape that the
    /// quaternion was declared for.
    pub fn quaternion(&self) -> Option<usize> {
        match self.orientation {
            Orientation::Quaternion { at, of } if self.shape[..] == [Dim::Fixed(of.into())] => Some(at.into()),
            _ => None,
        }
    }

    /// Returns whether it has an orientation whose place is not known, which cannot be
    /// interpolated.
    pub fn has_unknown_orientation(&self) -> bool {
        self.orientation.is_declared() && self.quaternion().is_none()
    }
}

/// Interpolates between two quaternions along the shorter arc: `q` and `-q` are the same
/// orientation. The result has norm 1. It is NaN if one of the two is zero or has a NaN or an
/// infinity: such a quaternion is not an orientation.
pub(crate) fn slerp(before: [f64; 4], after: [f64; 4], part: f64) -> [f64; 4] {
    let (before, after) = (unit(before), unit(after));
    let dot: f64 = std::iter::zip(before, after).map(|(a, b)| a * b).sum();
    let angle = dot.abs().min(1.0).acos();
    // The sine of a small angle has too few digits to divide by; there the chord is as good as the
    // arc.
    let (of_before, of_after) =
        if angle < 1e-4 { (1.0 - part, part) } else { (((1.0 - part) * angle).sin(), (part * angle).sin()) };
    let of_after = of_after.copysign(dot);
    unit(std::array::from_fn(|at| before[at] * of_before + after[at] * of_after))
}

/// Scales to norm 1. All numbers are NaN if the norm is zero or not finite.
fn unit(quaternion: [f64; 4]) -> [f64; 4] {
    let norm = quaternion.iter().map(|number| number * number).sum::<f64>().sqrt();
    let scale = if norm > 0.0 && norm.is_finite() { norm } else { f64::NAN };
    quaternion.map(|number| number / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::DType;

    /// A rotation by so many degrees around z.
    fn yaw(degrees: f64) -> [f64; 4] {
        let half = degrees.to_radians() / 2.0;
        [0.0, 0.0, half.sin(), half.cos()]
    }

    #[test]
    fn orientations_turn_along_the_shorter_arc() {
        let negative = |quaternion: [f64; 4]| quaternion.map(|number| -number);
        let half = std::f64::consts::FRAC_1_SQRT_2;
        for (name, before, after, part, expected) in [
            ("179 to -179 degrees", yaw(179.0), yaw(-179.0), 0.5, yaw(180.0)),
            ("-179 to 179 degrees", yaw(-179.0), yaw(179.0), 0.25, yaw(-179.5)),
            ("359 to 1 degrees", yaw(359.0), yaw(1.0), 0.5, yaw(0.0)),
            ("a half of 90 degrees", yaw(0.0), yaw(90.0), 0.5, yaw(45.0)),
            ("a third of 90 degrees", yaw(0.0), yaw(90.0), 1.0 / 3.0, yaw(30.0)),
            ("q to -q", yaw(30.0), negative(yaw(30.0)), 0.5, yaw(30.0)),
            ("q to the negative of another", yaw(30.0), negative(yaw(50.0)), 0.5, yaw(40.0)),
            ("the start", yaw(10.0), yaw(100.0), 0.0, yaw(10.0)),
            ("the end", yaw(10.0), yaw(100.0), 1.0, yaw(100.0)),
            ("nearly parallel", yaw(10.0), yaw(10.000_001), 0.5, yaw(10.000_000_5)),
            ("another axis", [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], 0.5, [half, half, 0.0, 0.0]),
            ("norms of 3 and 0.5", yaw(0.0).map(|n| n * 3.0), yaw(90.0).map(|n| n * 0.5), 0.5, yaw(45.0)),
        ] {
            let found = slerp(before, after, part);
            let norm = found.iter().map(|number| number * number).sum::<f64>().sqrt();
            let dot: f64 = std::iter::zip(found, expected).map(|(a, b)| a * b).sum();
            assert!(
                (norm - 1.0).abs() < 1e-12 && (dot.abs() - 1.0).abs() < 1e-12,
                "{name}: {found:?}, expected {expected:?}"
            );
        }
        for nothing in [[0.0; 4], [f64::NAN, 0.0, 0.0, 1.0], [f64::INFINITY, 0.0, 0.0, 1.0]] {
            for (before, after) in [(nothing, yaw(10.0)), (yaw(10.0), nothing), (nothing, nothing)] {
                let found = slerp(before, after, 0.5);
                assert!(found.iter().all(|number| number.is_nan()), "{before:?} {after:?}: {found:?}");
            }
        }
    }

    #[test]
    fn angles_are_told_by_their_names() {
        for (name, expected) in [
            ("yaw", true),
            ("Heading", true),
            ("pose_yaw", true),
            ("course_over_ground", true),
            ("yawRate", false),
            ("heading_accuracy", false),
            ("sin_yaw", false),
            ("altitude", false),
            ("", false),
        ] {
            assert_eq!(may_be_angle(name), expected, "{name}");
        }
        let spec = |labels: &[(&str, &str)]| {
            let labels: Vec<Label> = labels.iter().map(|(name, unit)| Label::of(name, unit)).collect();
            PortSpec::fixed(DType::F64, [labels.len()]).with_labels(labels)
        };
        let renamed = |name: &str, unit: &str| spec(&[("p", unit)]).with_other_label(&Label::of(name, unit));
        for (spec, port, expected) in [
            (spec(&[("x", "m"), ("yaw", "rad")]), "pose", (true, false)),
            (spec(&[("x", "m"), ("yaw", "")]), "pose", (false, true)),
            (spec(&[("yaw", "deg/s")]), "yaw", (false, false)),
            (PortSpec::fixed(DType::F64, []), "heading", (false, true)),
            (PortSpec::fixed(DType::F64, []), "speed", (false, false)),
            (renamed("yaw", ""), "p", (false, true)),
            (renamed("yaw", "m"), "p", (false, false)),
            (renamed("yaw_rate", ""), "p", (false, false)),
            (spec(&[("x", ""), ("y", "")]).with_orientation_of(&renamed("yaw", "")), "p", (false, true)),
            (renamed("yaw", "").without_units(), "p", (false, true)),
        ] {
            assert!(!spec.has_unknown_orientation(), "{spec}");
            assert_eq!((spec.has_named_angle(), spec.may_have_angle(["d", port])), expected, "{spec}");
        }
    }

    #[test]
    fn a_quaternion_lies_within_the_declared_shape() {
        let spec = |shape: &[usize]| PortSpec::fixed(DType::F64, shape.iter().copied());
        let mut longer = spec(&[7]).with_quaternion(3);
        longer.shape = spec(&[8]).shape;
        for (spec, expected, is_refused) in [
            (spec(&[7]), None, false),
            (spec(&[7]).with_quaternion(3), Some(3), false),
            (spec(&[7]).with_quaternion(3).with_dtype(DType::F32), Some(3), false),
            (spec(&[4]).with_quaternion(0), Some(0), false),
            (spec(&[3]).with_quaternion(0), None, true),
            (spec(&[7]).with_quaternion(usize::MAX), None, true),
            (spec(&[1, 7]).with_quaternion(3), None, true),
            (spec(&[3]).with_orientation(), None, true),
            (spec(&[3]).with_other_label(&Label::of("yaw", "rad")), None, true),
            (spec(&[7]).with_quaternion(3).with_other_label(&Label::of("yaw", "")), Some(3), false),
            (longer, None, true),
            (spec(&[7]).with_quaternion(3).without_units(), None, true),
            (spec(&[7]).without_units(), None, false),
            (spec(&[8]).with_orientation_of(&spec(&[7])), None, false),
            (spec(&[8]).with_orientation_of(&spec(&[7]).with_quaternion(3)), None, true),
        ] {
            assert_eq!((spec.quaternion(), spec.has_unknown_orientation()), (expected, is_refused), "{spec}");
        }
    }
}
