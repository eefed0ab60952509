//! Advice on what to put between two ports that do not fit.

use crate::message::port_spec::{Content, DType, Dim, Layout, PortSpec};
use crate::node::PlanErrors;

impl PlanErrors {
    /// Checks whether messages of `have` may enter the port `port`, whose spec is `want`, and
    /// reports it with a way out if they may not. For a kind that cannot go on to its ports then;
    /// the engine checks every port that a kind declares.
    ///
    /// ```
    /// use limen::message::{DType, Dim, PortSpec};
    /// use limen::node::PlanErrors;
    /// let mut errors = PlanErrors::default();
    /// let have = PortSpec::new(DType::U8, [480, 640, 3].map(Dim::Fixed));
    /// let want = PortSpec::new(DType::F32, [3, 480, 640].map(Dim::Fixed));
    /// assert!(!errors.check_port("image", &have, &want));
    /// assert!(errors.into_result(()).is_err());
    /// ```
    pub fn check_port(&mut self, port: &str, have: &PortSpec, want: &PortSpec) -> bool {
        match want.accepts(have) {
            Ok(()) => true,
            Err(why) => {
                self.misfit(port, [have.to_string(), want.to_string()], why).help(remedy(have, want));
                false
            }
        }
    }
}

/// Returns advice on what to put between two ports that do not fit, which must itself fit there.
pub(crate) fn remedy(have: &PortSpec, want: &PortSpec) -> String {
    let is_image = |spec: &PortSpec| spec.dtype == DType::U8 && spec.shape.len() == 3;
    let dtype = want.dtype;
    let shape_fits = want.accepts(&PortSpec { dtype, ..have.clone() }).is_ok();
    if let Some(advice) = recolouring(have, want) {
        advice
    } else if have.dtype == dtype
        && let Some((layout, order)) = reordering(have, want)
    {
        let transpose = format!("put a `transpose` node with `order: {order:?}` between the two nodes");
        // Bytes do not come from `to_tensor`.
        match dtype {
            DType::U8 => transpose,
            _ => format!("write `layout: {layout}` in the upstream `to_tensor` node, or {transpose}"),
        }
    } else if is_image(have) && dtype != DType::U8 && want.shape.len() == 3 {
        "put a `to_tensor` node between the two nodes (with `resize` or `letterbox` upstream if the sizes differ)"
            .into()
    } else if have.dtype == DType::U8 && dtype != DType::U8 && have.content != Content::Numbers {
        "put a `decode` node, which parses packets, between the two nodes".into()
    } else if have.dtype != dtype && shape_fits {
        format!("put a `cast` node with `dtype: {dtype}` between the two nodes")
    } else if let Some(nodes) = decoding(have, want) {
        format!("put {nodes} between the two nodes to convert YOLO candidates to boxes")
    } else if let Some(node) = reshaping(have, want) {
        format!("put a {node} between the two nodes")
    } else if have.shape.len() != want.shape.len() {
        format!("connect an output that produces {want}, or write a node that converts {have} to {want}")
    } else if is_image(have) && is_image(want) {
        "change the size at the upstream node, or put a `resize` or `letterbox` node between the two nodes".into()
    } else if have.dtype == dtype && have.layout.is_some() {
        "put a `resize` or `letterbox` node upstream of the `to_tensor` node".into()
    } else if have.dtype != dtype {
        format!(
            "change the size at the upstream node, and put a `cast` node with `dtype: {dtype}` between the two nodes"
        )
    } else {
        "change the size at the upstream node".into()
    }
}

/// Returns advice for images that differ in their channels only.
fn recolouring(have: &PortSpec, want: &PortSpec) -> Option<String> {
    let ([_, _, _], [_, _, _]) = (&have.shape[..], &want.shape[..]) else { return None };
    let (at, place) = match have.layout {
        Some(Layout::Chw) => (0, "upstream of the `to_tensor` node"),
        Some(Layout::Hwc) => (2, "upstream of the `to_tensor` node"),
        None if have.dtype == DType::U8 => (2, "between the two nodes"),
        None => return None,
    };
    let Dim::Fixed(channels) = want.shape[at] else { return None };
    let to = match channels {
        1 => "grey",
        3 => "rgb",
        4 => "rgba",
        _ => return None,
    };
    let mut recoloured = have.clone();
    recoloured.shape[at] = want.shape[at].clone();
    let is_image = matches!(have.shape[at], Dim::Fixed(1 | 3 | 4));
    (is_image && have.shape[at] != want.shape[at] && want.accepts(&recoloured).is_ok())
        .then(|| format!("write `channels: {channels}` at the source, or put a `colour` node with `to: {to}` {place}"))
}

/// Returns the layout that an image lacks, and the order of dims that gives it. A port that does
/// not declare its layout has the other one if the dims fit then.
fn reordering(have: &PortSpec, want: &PortSpec) -> Option<(&'static str, [usize; 3])> {
    let (layout, name, order) = match have.layout? {
        Layout::Chw => (Layout::Hwc, "hwc", [1, 2, 0]),
        Layout::Hwc => (Layout::Chw, "chw", [2, 0, 1]),
    };
    let reordered = || {
        let shape = order.iter().map(|at| have.shape.get(*at).cloned()).collect::<Option<Vec<Dim>>>()?;
        want.accepts(&PortSpec { shape, layout: None, ..have.clone() }).ok()
    };
    let is_other = want.layout.map_or_else(|| have.shape.len() == 3 && reordered().is_some(), |want| want == layout);
    is_other.then_some((name, order))
}

/// At least so many candidates tell the output of a YOLO model from other numbers.
const MANY: usize = 301;

/// Returns the nodes that make boxes of the output of a YOLO model, whose shape tells it: 4 numbers
/// and the scores of the classes by candidates, or candidates by 5 numbers and the scores.
fn decoding(have: &PortSpec, want: &PortSpec) -> Option<String> {
    let takes_boxes = want.dtype == DType::F32 && matches!(want.shape[..], [_, Dim::Fixed(6)]);
    let (rows, columns) = match have.fixed_shape()?[..] {
        [rows, columns] | [1, rows, columns] => (rows, columns),
        _ => return None,
    };
    let decode = match (rows, columns) {
        (5..=300, MANY..) => "a `decode_yolo` node",
        (MANY.., 6..=300) => "a `decode_yolo` node with `layout: v5`, or `layout: yolox` for YOLOX,",
        _ => return None,
    };
    let is_batch = have.shape.len() == 3;
    let reshape =
        if is_batch { format!("a `reshape` node with `shape: [{rows}, {columns}]` and ") } else { String::new() };
    (takes_boxes && have.dtype == DType::F32).then(|| reshape + decode)
}

/// Returns the shape of a `reshape` that gives the elements of one spec to another, if they differ
/// only in dims of length 1.
fn without_ones(have: &PortSpec, want: &PortSpec) -> Option<Vec<i64>> {
    let is_one = |dim: &&Dim| **dim == Dim::Fixed(1);
    let mut lengths = have.shape.iter().filter(|dim| !is_one(dim));
    let to = want.shape.iter().map(|dim| if is_one(&dim) { Some(dim) } else { lengths.next() });
    let to = to.collect::<Option<Vec<&Dim>>>()?;
    let reshaped = PortSpec { shape: to.iter().copied().cloned().collect(), layout: None, ..have.clone() };
    if lengths.next().is_some() || want.accepts(&reshaped).is_err() {
        return None;
    }
    let length = |dim: &&Dim| if let Dim::Fixed(length) = dim { i64::try_from(*length).ok() } else { Some(-1) };
    let to = to.iter().map(length).collect::<Option<Vec<i64>>>()?;
    (to.iter().filter(|length| **length == -1).count() <= 1).then_some(to)
}

/// Returns the kind that gives the elements of one spec the shape of another, and its config.
fn reshaping(have: &PortSpec, want: &PortSpec) -> Option<String> {
    if have.dtype != want.dtype || have.layout.is_some() {
        return None;
    }
    if let Some(to) = without_ones(have, want) {
        return Some(format!("`reshape` node with `shape: {to:?}`"));
    }
    let to = want.fixed_shape().filter(|to| !to.is_empty())?;
    let Some(from) = have.fixed_shape() else {
        let most = have.shape.iter().map(Dim::max);
        let fits = have.shape.len() == to.len() && std::iter::zip(most, &to).all(|(most, to)| most <= Some(*to));
        return fits.then(|| format!("`pad` node with `to: {to:?}`"));
    };
    let sorted = |shape: &[usize]| {
        let mut shape = shape.to_vec();
        shape.sort_unstable();
        shape
    };
    let elements = |shape: &[usize]| shape.iter().try_fold(1, |n: usize, length| n.checked_mul(*length));
    if sorted(&from) == sorted(&to) {
        Some("`transpose` node (`order:`)".into())
    } else if elements(&from) == elements(&to) {
        Some(format!("`reshape` node with `shape: {to:?}`"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_for_ports_that_do_not_fit_is_accepted() {
        let spec = |text: &str| text.parse::<PortSpec>().unwrap_or_else(|why| panic!("{why}"));
        let image = |sides: [&str; 3]| PortSpec::new(DType::U8, sides.map(|name| Dim::Symbol(name.into())));
        let packet = spec("u8[<=64]").with_content(Content::Bytes);
        let line = spec("u8[<=64]").with_content(Content::Text);
        let symbols =
            |names: &[&str]| PortSpec::new(DType::F32, names.iter().map(|name| Dim::Symbol(name.to_string())));
        let boxes = PortSpec::new(DType::F32, [Dim::Symbol("n".into()), Dim::Fixed(6)]);
        for (have, want, says, never) in [
            (spec("i32[10]"), spec("f32[10]"), "put a `cast` node with `dtype: f32`", "size"),
            (spec("u8[<=64]"), spec("f32[<=64]"), "`cast`", "decode"),
            (packet.clone(), spec("f32[6]"), "put a `decode`", "cast"),
            (packet, spec("f32[<=64]"), "put a `decode`", "cast"),
            (line, spec("u64"), "put a `decode`", "cast"),
            (spec("u64"), image(["h", "w", "c"]), "connect an output that produces u8[h,w,c]", "cast"),
            (spec("u8[480,640,3]"), spec("f32[3,224,224]"), "`to_tensor`", "cast"),
            (spec("u8[480,640,3]"), spec("f32[1000]"), "connect an output that produces f32[1000]", "to_tensor"),
            (spec("u8[480,640,3]"), spec("u8[64,64,3]"), "`resize`", "cast"),
            (
                spec("f32[3,8,8]").with_layout(Layout::Chw),
                spec("f32[1,8,8]"),
                "write `channels: 1` at the source, or put a `colour` node with `to: grey` upstream of the `to_tensor` node",
                "resize",
            ),
            (spec("f32[8,8,1]").with_layout(Layout::Hwc), spec("f32[8,8,3]"), "`to: rgb`", "resize"),
            (spec("u8[8,8,3]"), spec("u8[8,8,1]"), "a `colour` node with `to: grey` between the two nodes", "resize"),
            (spec("f32[3,8,8]").with_layout(Layout::Chw), spec("f32[1,9,9]"), "`resize`", "colour"),
            (
                spec("f32[3,<=480,<=640]").with_layout(Layout::Chw),
                spec("f32[3,224,224]"),
                "upstream of the `to_tensor` node",
                "cast",
            ),
            (
                spec("u8[3,48,64]").with_layout(Layout::Chw),
                image(["h", "w", "c"]).with_layout(Layout::Hwc),
                "`transpose` node with `order: [1, 2, 0]`",
                "`resize`",
            ),
            (
                spec("f32[48,64,3]").with_layout(Layout::Hwc),
                spec("f32[3,48,64]").with_layout(Layout::Chw),
                "`transpose` node with `order: [2, 0, 1]`",
                "`resize`",
            ),
            (
                spec("f32[32,32,3]").with_layout(Layout::Hwc),
                spec("f32[3,32,32]"),
                "write `layout: chw` in the upstream `to_tensor` node, or put a `transpose` node with `order: [2, 0, 1]`",
                "`resize`",
            ),
            (spec("f32[32,32,3]").with_layout(Layout::Hwc), spec("f32[3,64,64]"), "`resize`", "layout"),
            (spec("f32[4]"), spec("f32[6]"), "change the size at the upstream node", "resize"),
            (spec("f32[4,1]"), spec("f32[4]"), "`reshape` node with `shape: [4]`", "resize"),
            (spec("f32[4,1]"), spec("f32[1,4]"), "`reshape` node with `shape: [1, 4]`", "transpose"),
            (spec("f32[1,4,3]"), spec("f32[4,3]"), "`reshape` node with `shape: [4, 3]`", "transpose"),
            (spec("f32[4,1]"), symbols(&["n"]), "`reshape` node with `shape: [4]`", "connect an output"),
            (spec("f32[<=9,1]"), symbols(&["n"]), "`reshape` node with `shape: [-1]`", "connect an output"),
            (spec("f32[<=9,1]"), spec("f32[<=9]"), "`reshape` node with `shape: [-1]`", "connect an output"),
            (spec("f32[1]"), spec("f32"), "`reshape` node with `shape: []`", "connect an output"),
            (spec("f32[<=9,1,<=4]"), symbols(&["a", "b"]), "connect an output that produces f32[a,b]", "reshape"),
            (spec("f32[2,6]"), spec("f32[3,4]"), "`reshape` node with `shape: [3, 4]`", "transpose"),
            (spec("f32[84,8400]"), boxes.clone(), "put a `decode_yolo` node between the two nodes", "classes"),
            (spec("f32[25200,85]"), boxes.clone(), "put a `decode_yolo` node with `layout: v5`", "reshape"),
            // Both layouts have this shape, and the same number of classes.
            (spec("f32[8400,85]"), boxes.clone(), "or `layout: yolox` for YOLOX, between the two nodes", "classes: "),
            (
                spec("f32[1,84,8400]"),
                boxes.clone(),
                "put a `reshape` node with `shape: [84, 8400]` and a `decode_yolo` node between",
                "connect",
            ),
            (spec("f32[4,8400]"), boxes.clone(), "change the size", "decode_yolo"),
            (spec("f32[100,12]"), boxes.clone(), "change the size", "decode_yolo"),
            (spec("f32[84,8400]"), spec("f32[5]"), "connect an output that produces f32[5]", "decode_yolo"),
            (spec("f32[4,3]"), spec("f32[3,4]"), "`transpose` node (`order:`)", "resize"),
            (spec("f32[<=9]"), spec("f32[16]"), "`pad` node with `to: [16]`", "resize"),
            (spec("f32[<=20]"), spec("f32[16]"), "change the size at the upstream node", "`pad`"),
            (spec("f64[4]"), spec("f32[6]"), "change the size at the upstream node, and put a `cast`", "resize"),
        ] {
            let remedy = remedy(&have, &want);
            assert!(remedy.contains(says) && !remedy.contains(never), "{have} into {want}: {remedy}");
        }
    }
}
