//! Pairs of two sets that cost the least.

/// Finds, for each row of a matrix of costs, a column of its own, so that the sum of their costs is
/// the least: the Hungarian method (Kuhn, 1955) by shortest paths, in time of the third power.
/// There are at least as many columns as rows; costs are finite.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    /// The prices of rows and columns; the first is that of none, as in all of these.
    rows: Vec<f64>,
    columns: Vec<f64>,
    /// The row of each column, 0 for none.
    row_of: Vec<usize>,
    before: Vec<usize>,
    least: Vec<f64>,
    is_done: Vec<bool>,
}

impl Assignment {
    /// With room for so many rows and columns.
    pub(crate) fn new(most: usize) -> Assignment {
        let n = most + 1;
        Assignment {
            rows: Vec::with_capacity(n),
            columns: Vec::with_capacity(n),
            row_of: Vec::with_capacity(n),
            before: Vec::with_capacity(n),
            least: Vec::with_capacity(n),
            is_done: Vec::with_capacity(n),
        }
    }

    /// Solves it for a matrix of so many rows and columns, and returns the row of each column;
    /// `None` for those that no row has.
    pub(crate) fn solve(
        &mut self,
        n: usize,
        m: usize,
        cost: impl Fn(usize, usize) -> f64,
    ) -> impl Iterator<Item = Option<usize>> {
        let Assignment { rows, columns, row_of, before, least, is_done } = self;
        fill(rows, n + 1, 0.0);
        fill(columns, m + 1, 0.0);
        fill(row_of, m + 1, 0);
        fill(before, m + 1, 0);
        for row in 1..=n.min(m) {
            row_of[0] = row;
            fill(least, m + 1, f64::INFINITY);
            fill(is_done, m + 1, false);
            let mut at = 0;
            // Grows a tree of pairs that cost nothing more, until a free column is found.
            while row_of[at] != 0 {
                is_done[at] = true;
                let (from, mut step, mut next) = (row_of[at], f64::INFINITY, 0);
                for column in (1..=m).filter(|column| !is_done[*column]) {
                    let more = cost(from - 1, column - 1) - rows[from] - columns[column];
                    if more < least[column] {
                        (least[column], before[column]) = (more, at);
                    }
                    if least[column] < step || next == 0 {
                        (step, next) = (least[column], column);
                    }
                }
                for column in 0..=m {
                    if is_done[column] {
                        rows[row_of[column]] += step;
                        columns[column] -= step;
                    } else {
                        least[column] -= step;
                    }
                }
                at = next;
            }
            // Exchanges the pairs on the way back.
            while at != 0 {
                row_of[at] = row_of[before[at]];
                at = before[at];
            }
        }
        row_of[1..].iter().map(|row| row.checked_sub(1))
    }
}

fn fill<T: Clone>(of: &mut Vec<T>, len: usize, value: T) {
    of.clear();
    of.resize(len, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least sum, by trying all.
    fn least(costs: &[Vec<f64>], row: usize, taken: &mut Vec<bool>) -> f64 {
        if row == costs.len() {
            return 0.0;
        }
        let mut best = f64::INFINITY;
        for column in 0..taken.len() {
            if !taken[column] {
                taken[column] = true;
                best = best.min(costs[row][column] + least(costs, row + 1, taken));
                taken[column] = false;
            }
        }
        best
    }

    #[test]
    fn no_other_pairs_cost_less() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut assignment = Assignment::new(6);
        for _ in 0..2000 {
            let m = random.usize(1..=6);
            let n = random.usize(0..=m);
            // Equal costs, too.
            let costs: Vec<Vec<f64>> = (0..n).map(|_| (0..m).map(|_| f64::from(random.u8(0..6))).collect()).collect();
            let pairs: Vec<Option<usize>> = assignment.solve(n, m, |row, column| costs[row][column]).collect();
            let mut rows: Vec<usize> = pairs.iter().flatten().copied().collect();
            rows.sort_unstable();
            assert_eq!(rows, (0..n).collect::<Vec<_>>(), "{costs:?}");
            let sum: f64 = pairs.iter().enumerate().filter_map(|(column, row)| Some(costs[(*row)?][column])).sum();
            assert_eq!(sum, least(&costs, 0, &mut vec![false; m]), "{costs:?}");
        }
    }
}
