//! One moment of a run, and what each of its trees looks like from outside.
//!
//! A tree that an operation has left alone is looked at once for all the states that have it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use holdfast_script::{FileRef, Model, Path, Target, Tree, VolumeModel};

use super::stat;

/// What a tree looks like.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) tree: Tree,
    pub(super) inodes: BTreeMap<Path, u64>,
}

/// A tree of a state.
#[derive(Clone, Debug)]
struct Shown {
    model: Arc<Model>,
    view: Arc<OnceLock<View>>,
}

/// The volume at one moment.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    pub(super) volume: VolumeModel,
    shown: BTreeMap<u64, Shown>,
}

impl Moment {
    /// The state before everything.
    pub(super) fn first(volume: VolumeModel) -> Moment {
        Moment { volume: VolumeModel::new(), shown: BTreeMap::new() }.next(volume)
    }

    /// The state that an operation makes of this one.
    pub(super) fn next(&self, volume: VolumeModel) -> Moment {
        let shown = volume.trees().map(|(_, number, model)| {
            let known = self.shown.get(&number).filter(|shown| Arc::ptr_eq(&shown.model, model));
            let new = || Shown { model: Arc::clone(model), view: Arc::default() };
            (number, known.cloned().unwrap_or_else(new))
        });
        let shown = shown.collect();
        Moment { volume, shown }
    }

    /// What the tree with this number looks like, if the state has it.
    pub(super) fn view(&self, number: u64) -> Option<&View> {
        let shown = self.shown.get(&number)?;
        Some(shown.view.get_or_init(|| {
            let mut model = Model::clone(&shown.model);
            let tree = model.walk().expect("the model refuses nothing that it has listed");
            let inode = |path: &Path| {
                let found = stat(&mut model, &FileRef::Path(path.clone()));
                (path.clone(), found.expect("the path was just walked").inode)
            };
            let inodes = tree.0.keys().map(inode).collect();
            View { tree, inodes }
        }))
    }
}
