//! What a program of edits makes of a golden volume.
//!
//! [`Edited::of`] carries a program of [`edit`]s out on copies of some of the structures and then repairs checksums
//! ([`seal`]), those of the chains included, so that the damage is found by judgement, not by a sum. Knows nothing of
//! what is damage.

use std::collections::BTreeMap;

use holdfast_device::{Device, MemoryDevice};

use crate::golden::golden;
use crate::image::{Image, edit, seal};
use crate::program::Program;

/// What a program of edits makes of a golden volume.
#[derive(Debug)]
pub struct Edited {
    /// The volume that was edited.
    pub golden: &'static Image,
    /// Bytes of the device: may be more than those of the content.
    pub len: u64,
    /// What was done, for people.
    pub story: Vec<String>,
    content: MemoryDevice,
}

/// Edits of one program.
const EDITS_MAX: usize = 24;

impl Edited {
    /// Carries a program out: which volume, how long the device is, edits.
    pub fn of(program: &mut Program<'_>) -> Edited {
        let golden = golden(program.below(256));
        let how = program.byte();
        let len = match how & 7 {
            5 => 1 << 30,
            6 => 1 << 40,
            7 => 1 << 50,
            _ => golden.len(),
        };
        let mut story = vec![format!("volume {:?}, {len} bytes", golden.name)];
        let mut touched = BTreeMap::new();
        let mut pokes = Vec::new();
        for _ in 0..EDITS_MAX {
            if program.is_over() {
                break;
            }
            edit::carry_out(golden, program, &mut touched, &mut pokes, &mut story);
        }
        // Sums that do not match are found at once: the rarer way.
        if how < 0xf0 {
            seal::repair(golden, &mut touched);
        } else {
            story.push("no checksum is repaired".into());
        }
        let content = golden.snapshot();
        for (index, bytes) in &touched {
            let at = golden.structures[*index].at;
            content.write(at, bytes).expect("a structure lies on its device");
        }
        for (at, bytes) in pokes {
            content.write(at, &bytes).expect("a sector lies on its device");
        }
        Edited { golden, len, story, content }
    }

    /// A device with the bytes.
    pub fn snapshot(&self) -> MemoryDevice {
        self.content.snapshot()
    }

    /// Whether the device is as long as its content.
    pub fn is_small(&self) -> bool {
        self.len == self.content.len()
    }
}
