//! A saved case: a folder with a script, the terms of its power cuts and its story.
//!
//! `script.hf` is the script, `before.hf` (if there is one) what prepared the
//! volume, `case.toml` everything else. A case is expected to hold: the promise
//! that it once broke, and all others, are kept in every image. Only the terms
//! decide what is done; story, cut and seed are for people.

use std::path::Path;
use std::{fs, io};

use holdfast_script::Script;
use serde::{Deserialize, Serialize};

use crate::{Failure, Ground, Stats, Terms};

/// A failure that was found once, to be looked for ever after.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What prepared the volume; power is not cut in it.
    pub before: Script,
    /// What ran when power was cut.
    pub script: Script,
    /// Everything else.
    pub facts: Facts,
}

/// `case.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// What happened, for people.
    pub story: String,
    /// The promise that was broken, P1 to P11.
    pub promise: String,
    /// What is to come out: `holds`.
    pub expect: String,
    /// What found it: a generator and its seed.
    #[serde(default)]
    pub found_by: String,
    /// The call behind which power was cut, and what was lost, when it was found.
    #[serde(default)]
    pub cut: String,
    /// How the volume was made and mounted, and which images were looked at.
    #[serde(default)]
    pub terms: Terms,
}

impl Case {
    /// The case of a failure of `script` on `ground`.
    pub fn of(failure: &Failure, script: &Script, ground: &Ground, found_by: &str) -> Case {
        let (event, image) = failure.place.unwrap_or_default();
        let facts = Facts {
            story: failure.what.clone(),
            promise: failure.promise().to_owned(),
            expect: "holds".into(),
            found_by: found_by.to_owned(),
            cut: format!("event {event}, image {image} {}", failure.lost),
            terms: Terms::of(ground.policy()),
        };
        Case { before: ground.before().clone(), script: script.clone(), facts }
    }

    /// Reads the case in `folder`. The error is a sentence that names the file.
    pub fn read(folder: &Path) -> Result<Case, String> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let script = |name: &str| {
            let wrong = |error| format!("{}: {error}", folder.join(name).display());
            read(name)?.parse().map_err(wrong)
        };
        let before = match folder.join("before.hf").exists() {
            true => script("before.hf")?,
            false => Script::default(),
        };
        let path = folder.join("case.toml");
        let facts: Facts = toml::from_str(&read("case.toml")?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        if facts.expect != "holds" {
            return Err(format!("{}: a case is expected to hold", path.display()));
        }
        Ok(Case { before, script: script("script.hf")?, facts })
    }

    /// Writes the case into `folder`, which is made if it does not exist.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("script.hf"), self.script.to_string())?;
        if !self.before.steps.is_empty() {
            fs::write(folder.join("before.hf"), self.before.to_string())?;
        }
        let facts = toml::to_string(&self.facts).map_err(io::Error::other)?;
        fs::write(folder.join("case.toml"), facts)
    }

    /// A name for its folder that hardly any other case has.
    pub fn name(&self) -> String {
        let text = format!("{}{}", self.before, self.script);
        let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        format!("{}-{:08x}", self.facts.promise.to_lowercase(), sum >> 32)
    }

    /// Cuts power in it as its terms say.
    pub fn run(&self) -> Result<Stats, Failure> {
        let policy = self.facts.terms.policy().map_err(|what| Failure {
            script: self.script.to_string(),
            place: None,
            lost: String::new(),
            seed: self.facts.terms.seed,
            what,
        })?;
        Ground::new(&self.before, &policy)?.power_cut(&self.script)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_was_written_and_runs() {
        let case = Case {
            before: "mkfile /a".parse().unwrap(),
            script: "write /a 0 100 1; fsync /a".parse().unwrap(),
            facts: Facts {
                story: "nothing:\n\"happened\"".into(),
                promise: "P1".into(),
                expect: "holds".into(),
                found_by: "family reuse, seed 3".into(),
                cut: String::new(),
                terms: Terms { sector: 4096, ..Terms::default() },
            },
        };
        let folder = std::env::temp_dir().join(format!("holdfast-case-{}", std::process::id()));
        case.write(&folder).unwrap();
        assert_eq!(Case::read(&folder), Ok(case.clone()));
        assert!(case.run().unwrap().images > 10);
        fs::remove_dir_all(&folder).unwrap();
        assert!(Case::read(&folder).unwrap_err().contains("case.toml"));
    }
}
