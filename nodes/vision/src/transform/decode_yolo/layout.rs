//! The order of the numbers, from the shape of an output.

use super::DecodeYoloConfig;
use super::grid::Grid;
use limen::message::Dim;
use limen_nodes_core::tensor::boxes::ROW;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;

/// Layout of the output of a YOLO model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum YoloLayout {
    /// `f32[candidates,5+classes]`, as in YOLOv5, v6 and v7: centre x, centre y, width, height,
    /// objectness, one score per class. The score of a box is the class score times the objectness.
    V5,
    /// `f32[4+classes,candidates]`, as in YOLOv8, v9, v11 and v12: centre x, centre y, width,
    /// height, one score per class.
    V8,
    /// `f32[candidates,6]`, as in YOLOv10: x0, y0, x1, y1, score, class. A `v10` model already
    /// removes overlapping boxes.
    V10,
    /// `f32[candidates,5+classes]`, as in YOLOX. The numbers have the same order as in `v5`. The
    /// centre is relative to the candidate's cell, in units of the cell size. Width and height are
    /// the logarithms of the size in cells. The cell sizes are 8, 16 and 32 pixels, so an image of
    /// 640 × 640 pixels has 8400 candidates.
    Yolox,
}

impl YoloLayout {
    pub(super) const ALL: [YoloLayout; 4] = [YoloLayout::V5, YoloLayout::V8, YoloLayout::V10, YoloLayout::Yolox];

    /// Returns the dims of candidates and of the numbers of each.
    pub(super) fn dims(self) -> [usize; 2] {
        if self == YoloLayout::V8 { [1, 0] } else { [0, 1] }
    }

    /// Returns how many of a candidate's numbers are not scores of classes.
    pub(super) fn others(self) -> usize {
        match self {
            YoloLayout::V5 | YoloLayout::Yolox => 5,
            YoloLayout::V8 => 4,
            YoloLayout::V10 => ROW,
        }
    }

    /// Returns candidates and classes of a shape, 1 class for [`YoloLayout::V10`]; `None` if the
    /// shape has another layout.
    fn sizes(self, shape: &[Dim; 2], config: &DecodeYoloConfig) -> Option<Sizes> {
        let classes = config.classes;
        let [candidates, numbers] = self.dims().map(|dim| &shape[dim]);
        let Dim::Fixed(numbers) = numbers else { return None };
        let scores = numbers.checked_sub(self.others())?;
        let fits = match self {
            YoloLayout::V10 => scores == 0,
            _ => scores > 0 && classes.is_none_or(|classes| classes == scores),
        };
        let grid = match (self, candidates) {
            (YoloLayout::Yolox, Dim::Fixed(candidates)) => {
                Some(Grid::of(*candidates, config.width.zip(config.height).map(<[usize; 2]>::from))?)
            }
            (YoloLayout::Yolox, _) => return None,
            _ => None,
        };
        fits.then(|| Sizes { layout: self, candidates: candidates.max(), classes: scores.max(1), grid })
    }
}

/// The name as written in YAML.
impl fmt::Display for YoloLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            YoloLayout::V5 => "v5",
            YoloLayout::V8 => "v8",
            YoloLayout::V10 => "v10",
            YoloLayout::Yolox => "yolox",
        })
    }
}

/// What a shape says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) layout: YoloLayout,
    pub(super) candidates: Option<usize>,
    pub(super) classes: usize,
    /// The cells of [`YoloLayout::Yolox`].
    pub(super) grid: Option<Grid>,
}

impl Sizes {
    /// Returns the layouts that a shape can have, that of the config or any; without `classes`
    /// there must be more candidates than numbers.
    pub(super) fn of(config: &DecodeYoloConfig, shape: &[Dim; 2]) -> Vec<Sizes> {
        let is_likely = |sizes: &Sizes| {
            let numbers = sizes.layout.others() + sizes.classes;
            config.classes.is_some()
                || sizes.layout == YoloLayout::V10
                || sizes.candidates.is_none_or(|candidates| candidates > numbers)
        };
        let layouts = config.layouts().filter_map(|layout| layout.sizes(shape, config));
        layouts.filter(is_likely).collect()
    }
}

impl DecodeYoloConfig {
    /// Returns the layouts that the config allows.
    fn layouts(&self) -> impl Iterator<Item = YoloLayout> {
        YoloLayout::ALL.into_iter().filter(|layout| self.layout.is_none_or(|wanted| wanted == *layout))
    }

    /// Returns advice for a shape that has no layout.
    pub(super) fn advice(&self, shape: &[Dim; 2]) -> String {
        let [rows, columns] = shape.clone();
        let is_swapped = !Sizes::of(self, &[columns.clone(), rows.clone()]).is_empty();
        let has_numbers = |classes: usize| columns.max() == Some(classes.saturating_add(YoloLayout::Yolox.others()));
        if self.layout == Some(YoloLayout::Yolox) && !is_swapped && self.classes.is_none_or(has_numbers) {
            return match rows {
                Dim::Fixed(_) => {
                    "write the `width` and `height` of the model's input image, which has a candidate per cell of 8, 16 and 32 \
                     pixels, or write `layout: v5` if the model produces pixels"
                }
                _ => "export the model with a fixed number of candidates, one per cell of 8, 16 and 32 pixels",
            }
            .into();
        }
        if let Some(layout) = self.layout {
            let others = Sizes::of(&DecodeYoloConfig { layout: None, ..self.clone() }, shape);
            let others: Vec<String> = others.iter().map(|sizes| format!("`layout: {}`", sizes.layout)).collect();
            if !others.is_empty() {
                let swapped = format!(
                    ", or add a `transpose` node with `order: [1, 0]` upstream for a {layout} model with swapped dims"
                );
                return format!("write {}{}", others.join(" or "), if is_swapped { &*swapped } else { "" });
            }
        }
        if is_swapped {
            return "add a `transpose` node with `order: [1, 0]` upstream, because the dims are swapped".into();
        }
        let longer = self.classes.and_then(|classes| {
            self.layouts().filter(|layout| *layout != YoloLayout::V10).find_map(|layout| {
                let ([candidates, numbers], wanted) = (layout.dims(), layout.others().saturating_add(classes));
                let [most, length] = [candidates, numbers].map(|dim| shape[dim].max());
                (length > Some(wanted) && most.is_none_or(|most| Some(most) > length)).then(|| {
                    format!(
                        "add a `slice` node with `dim: {numbers}` and `to: {wanted}` upstream, to keep only the box and the classes \
                         of a {layout} model"
                    )
                })
            })
        });
        longer.unwrap_or_else(|| {
            let hint = if self.classes.is_none() && self.layout != Some(YoloLayout::V10) {
                ", or write `classes` for a model with few candidates"
            } else {
                ""
            };
            format!(
                "connect f32[candidates,5+classes] (v5), f32[4+classes,candidates] (v8) or f32[candidates,6] (v10){hint}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(layout: Option<YoloLayout>, classes: Option<usize>) -> DecodeYoloConfig {
        serde_json::from_value(
            serde_json::json!({ "layout": layout.map(|layout| layout.to_string()), "classes": classes }),
        )
        .unwrap()
    }

    #[test]
    fn the_shape_decides_the_layout_unless_several_fit() {
        use YoloLayout::{V5, V8, V10, Yolox};
        for (shape, layout, classes, expected) in [
            ([25200, 85], None, None, &[(V5, 80)][..]),
            ([8400, 85], None, None, &[(V5, 80), (Yolox, 80)]),
            ([8400, 85], None, Some(80), &[(V5, 80), (Yolox, 80)]),
            ([8400, 85], Some(Yolox), None, &[(Yolox, 80)]),
            ([8401, 85], Some(Yolox), None, &[]),
            ([84, 8400], None, None, &[(V8, 80)]),
            ([5, 8400], None, None, &[(V8, 1)]),
            ([300, 6], None, None, &[(V5, 1), (V10, 1)]),
            ([300, 6], None, Some(80), &[(V10, 1)]),
            ([300, 6], Some(V10), None, &[(V10, 1)]),
            ([300, 6], Some(V5), Some(1), &[(V5, 1)]),
            ([300, 6], Some(V8), None, &[]),
            ([300, 6], Some(V8), Some(296), &[(V8, 296)]),
            ([20, 85], None, None, &[(V8, 16)]),
            ([20, 85], None, Some(80), &[(V5, 80)]),
            ([20, 20], None, None, &[]),
            ([84, 8400], None, Some(79), &[]),
            ([84, 8400], Some(V10), None, &[]),
            ([8400, 84], Some(V8), None, &[]),
            ([8400, 5], Some(V5), None, &[]),
            ([0, 0], None, None, &[]),
        ] {
            let found: Vec<_> = Sizes::of(&config(layout, classes), &shape.map(Dim::Fixed))
                .iter()
                .map(|s| (s.layout, s.classes))
                .collect();
            assert_eq!(found, expected, "{shape:?} {layout:?} {classes:?}");
        }
        assert_eq!(Sizes::of(&config(None, None), &[Dim::AtMost(300), Dim::AtMost(6)]), []);
    }

    #[test]
    fn the_advice_for_another_shape_names_the_node_that_helps() {
        use YoloLayout::{V5, V8, V10, Yolox};
        for (shape, layout, classes, expected) in [
            ([116, 8400], None, Some(80), "`dim: 0` and `to: 84`"),
            ([56, 8400], Some(V8), Some(1), "`dim: 0` and `to: 5`"),
            ([25200, 117], None, Some(80), "`dim: 1` and `to: 85`"),
            ([8400, 84], None, Some(80), "`transpose`"),
            (
                [8400, 84],
                Some(V8),
                None,
                "write `layout: v5` or `layout: yolox`, or add a `transpose` node with `order: [1, 0]` upstream for a v8 model",
            ),
            (
                [85, 25200],
                Some(V5),
                None,
                "write `layout: v8`, or add a `transpose` node with `order: [1, 0]` upstream for a v5 model",
            ),
            ([85, 25200], Some(V5), Some(80), "because the dims are swapped"),
            ([22, 2100], Some(V5), None, "write `layout: v8`"),
            ([5040, 85], Some(Yolox), Some(80), "write the `width` and `height`"),
            ([84, 8400], Some(Yolox), None, "upstream for a yolox model with swapped dims"),
            ([85, 8400], Some(Yolox), Some(80), "because the dims are swapped"),
            ([8400, 85], Some(Yolox), Some(90), "connect f32[candidates,5+classes]"),
            ([6, 300], Some(V10), None, "`transpose`"),
            ([84, 8400], None, Some(90), "connect f32[candidates,5+classes]"),
            ([20, 20], None, None, "write `classes` for"),
            ([84, 8400], None, Some(usize::MAX), "connect f32[candidates,5+classes]"),
        ] {
            let advice = config(layout, classes).advice(&shape.map(Dim::Fixed));
            assert!(advice.contains(expected), "{shape:?} {layout:?} {classes:?}: {advice}");
        }
        let varying = config(Some(Yolox), None).advice(&[Dim::AtMost(8400), Dim::Fixed(85)]);
        assert!(varying.starts_with("export the model with a fixed number"), "{varying}");
    }
}
