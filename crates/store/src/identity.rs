//! What a superblock says beside the trees: the id and the label of the volume, and what was found damaged.
//!
//! It changes with a checkpoint like everything else that a superblock says, so power may fail at any write: one of the two
//! slots counts, and each leads to whole trees. Ids and labels are written into both slots before the call returns. In
//! between the slots differ in them, and the newer counts; nothing on the disk but the guard is tied to the id.

use holdfast_base::clock::Timestamp;
use holdfast_device::Device;
use holdfast_format::Superblock;
use holdfast_format::superblock::FoundDamage;
use uuid::Uuid;

use crate::{Inner, Result, StoreError, superblock};

/// What to change about a volume; `None` stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Id of the volume.
    pub uuid: Option<Uuid>,
    /// Label, at most 64 bytes.
    pub label: Option<String>,
    /// Forget what was found damaged.
    pub clear_fault: bool,
}

impl Inner {
    /// Changes the id or the label of the volume, or forgets what was found damaged; it is durable, in both superblocks, when
    /// this returns. After a crash meanwhile the volume has the old ones or the new ones.
    pub fn change_identity(&self, to: &Identity) -> Result<()> {
        self.check_running()?;
        self.expect_rings()?;
        let _one = self.lock_checkpoints()?;
        for _slot in 0..2 {
            let mut journal = self.journal.lock();
            {
                let mut now = self.superblock.lock();
                now.uuid = to.uuid.unwrap_or(now.uuid);
                if let Some(label) = &to.label {
                    now.label.clone_from(label);
                }
            }
            if to.clear_fault {
                *self.fault.lock() = None;
            }
            self.checkpoint_at_once(&mut journal)?;
            let epoch = self.superblock.lock().epoch;
            let step = self.step("a checkpoint");
            step.check(journal.say_left_out(&*self.device, epoch))?;
            step.end();
        }
        Ok(())
    }

    /// Says with the next superblock that something was found damaged, unless one says so already.
    pub fn found_damage(&self, reason: &str) {
        let mut fault = self.fault.lock();
        if fault.is_none() && !self.read_only {
            *fault = Some(FoundDamage { time: Timestamp::now(), reason: reason.to_owned() });
        }
    }

    /// Whether a superblock has to say what no superblock says yet.
    pub(crate) fn hides_damage(&self) -> bool {
        *self.fault.lock() != self.superblock.lock().fault
    }
}

/// Writes the far copy of the superblock into its slot, where both slots are lost, or the newer one. What it leads to was
/// judged by the caller. Fails, and writes nothing, if a slot counts that is as new or the far copy is not valid. Power may
/// fail at any moment: the slot is as lost as before, or back.
pub fn restore_superblock(device: &dyn Device) -> Result<Superblock> {
    let Some(found) = superblock::far(device)? else {
        let places = superblock::search(device).places();
        let places: Vec<String> = places.iter().map(ToString::to_string).collect();
        return Err(StoreError::Refused(format!(
            "there is no superblock at block {} either",
            places.join(" or ")
        )));
    };
    superblock::restore(device, &found)?;
    Ok(found)
}
