//! Exit codes of `limen-run`.

use super::gate::GateVerdict;
use limen::Report;

/// A node failed, or something could not be written.
pub(crate) const FAILED: u8 = 1;
/// Bad arguments, or a graph that was refused.
pub(crate) const REFUSED: u8 = 2;
/// A gate tripped.
pub(crate) const GATE: u8 = 3;

/// Returns the exit code of a run and its gates: the report's own if it is not 0, else 3 if a gate
/// tripped.
pub fn exit_code(report: &Report, verdicts: &[GateVerdict]) -> u8 {
    match report.exit_code() {
        0 if verdicts.iter().any(|v| v.tripped) => GATE,
        code => code,
    }
}
