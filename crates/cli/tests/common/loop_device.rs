//! A loop device over an image.

use std::process::Command;

/// It is detached however the test ends.
pub struct LoopDevice {
    pub path: String,
}

impl LoopDevice {
    /// `None`, and said, without the right to attach one or without a free one.
    pub fn over(image: &str) -> Option<LoopDevice> {
        let attached = Command::new("losetup").args(["--find", "--show", image]).output();
        let Some(attached) = attached.ok().filter(|it| it.status.success()) else {
            holdfast_base::skip::skipped("needs root, and a free loop device");
            return None;
        };
        Some(LoopDevice { path: String::from_utf8(attached.stdout).unwrap().trim().into() })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["--detach", &self.path]).status();
        println!("detached {}: {detached:?}", self.path);
    }
}
