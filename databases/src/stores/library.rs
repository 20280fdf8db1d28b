//! Holdfast as a library: an image, a file for each client, fdatasync. A key is the place in the file.

use anyhow::Result;
use holdfast::{CreateOptions, Volume};

use super::{Client, Commits, Place, ROOM};

pub(super) struct Library(Volume);

impl Library {
    pub(super) fn open(place: &Place<'_>, is_allocated: bool) -> Result<Library> {
        let options = CreateOptions::new().size(ROOM).allocate(is_allocated);
        Ok(Library(options.create(place.dir.join("image"))?))
    }
}

impl Commits for Library {
    fn client(&self, number: u64) -> Result<Client<'_>> {
        let file = self.0.create(format!("/client-{number}"))?;
        Ok(Box::new(move |key, value| {
            file.write_all_at(value, key * value.len() as u64)?;
            Ok(file.sync_data()?)
        }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}
