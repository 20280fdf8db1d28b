//! Ways to run a script: write down what happens, hold it against what the script expects, or
//! run it on two targets and stop at the first disagreement.

use std::fmt::{self, Display, Formatter};

use crate::branch::BranchOp;
use crate::op::{Op, Script};
use crate::outcome::Rules;
use crate::target::Target;

/// Runs `text` and writes down every operation with its answer: for tests that show what they expect.
///
/// ```
/// use holdfast_script::{Model, transcript};
///
/// let log = transcript("mkdir /a; mkdir /a; ls /", &mut Model::new()).unwrap();
/// assert_eq!(log, "mkdir /a -> ok\nmkdir /a -> EEXIST\nls / -> [a dir]\n");
/// ```
pub fn transcript(text: &str, target: &mut dyn Target) -> Result<String, crate::ParseError> {
    let script: Script = text.parse()?;
    Ok(script
        .ops()
        .map(|op| match op {
            // A tree takes many lines.
            Op::Tree | Op::Branch(BranchOp::Look { .. }) => {
                format!("{op} ->\n{}\n", target.apply(op))
            }
            op => format!("{op} -> {}\n", target.apply(op)),
        })
        .collect())
}

/// Runs a script and compares the answers with those written behind `->`.
pub fn verify(script: &Script, target: &mut dyn Target) -> Result<(), Mismatch> {
    for (index, step) in script.steps.iter().enumerate() {
        let answer = target.apply(&step.op).to_string();
        if let Some(expected) = &step.expect
            && *expected != answer
        {
            return Err(Mismatch::new(script, index, expected.clone(), answer));
        }
    }
    Ok(())
}

/// Where two targets disagreed.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// Number of the step, counted from 0.
    pub index: usize,
    /// What the first target answered, or the script expected.
    pub expected: String,
    /// What the target under test answered.
    pub found: String,
    /// The script up to and with the operation that was answered differently.
    pub script: Script,
    /// How to get the script again, if it was generated.
    pub seed: Option<u64>,
}

impl std::error::Error for Mismatch {}

impl Mismatch {
    fn new(script: &Script, index: usize, expected: String, found: String) -> Mismatch {
        let steps = script.steps.iter().take(index + 1).cloned().collect();
        Mismatch { index, expected, found, script: Script { steps }, seed: None }
    }

    /// Adds the seed that the script came from.
    pub fn from_seed(self, seed: u64) -> Mismatch {
        Mismatch { seed: Some(seed), ..self }
    }
}

impl Display for Mismatch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.script.steps.get(self.index) {
            Some(step) => writeln!(f, "step {}: {}", self.index + 1, step.op)?,
            None => writeln!(f, "after step {}", self.index)?,
        }
        writeln!(f, "  expected: {}\n  found:    {}", self.expected, self.found)?;
        if let Some(seed) = self.seed {
            writeln!(f, "again: seed {seed}, {} ops", self.script.steps.len())?;
        }
        let steps: Vec<String> = self.script.steps.iter().map(ToString::to_string).collect();
        write!(f, "script: {}", steps.join("; "))
    }
}

/// Runs a script on `model` and on `target`, and compares every answer and at the end all trees.
pub fn compare(
    script: &Script,
    model: &mut dyn Target,
    target: &mut dyn Target,
    rules: Rules,
) -> Result<(), Mismatch> {
    for (index, op) in script.ops().enumerate() {
        let (expected, found) = (model.apply(op), target.apply(op));
        if !expected.agrees(&found, op, rules) {
            return Err(Mismatch::new(script, index, expected.to_string(), found.to_string()));
        }
    }
    compare_trees(script, model, target)
}

/// Compares everything there is after `script`.
pub fn compare_trees(
    script: &Script,
    model: &mut dyn Target,
    target: &mut dyn Target,
) -> Result<(), Mismatch> {
    let end = script.steps.len();
    match (model.walk_all(), target.walk_all()) {
        (Ok(expected), Ok(found)) => {
            let differences = expected.differences(&found);
            if differences.is_empty() {
                return Ok(());
            }
            Err(Mismatch::new(
                script,
                end,
                "the same trees".into(),
                format!("\n{}", differences.join("\n")),
            ))
        }
        (Err(error), _) => Err(Mismatch::new(script, end, error, "the other tree".into())),
        (_, Err(error)) => Err(Mismatch::new(script, end, "a tree".into(), error)),
    }
}
