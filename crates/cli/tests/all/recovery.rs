//! The commands of docs/RECOVERY.md work as they stand there, from the first to the last.

use crate::common::{TestMount, can_mount};
use crate::document;

/// The mount that the document makes: it is gone when a command fails.
struct Place(TestMount);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.run(&["umount", &self.0.path("work/mnt")]);
    }
}

#[test]
fn what_helps_does_help() {
    if !can_mount() {
        return;
    }
    let place = Place(TestMount::new());
    let said = document::run("RECOVERY.md", &place.0);
    let of = |heading| document::under(&said, heading);
    assert!(of("A file is gone").contains("monday"), "{said}");
    assert!(of("The daemon has ended").ends_with("kept\n"), "{said}");
    assert!(of("A file does not read").contains("bytes missing at"), "{said}");
    assert!(of("The beginning was overwritten").contains("written back"), "{said}");
    assert!(of("fsck finds damage").contains("node-damaged"), "{said}");
    assert!(of("Nothing mounts").contains("no superblock"), "{said}");
    assert!(of("The device is too short").contains("the device ends"), "{said}");
}
