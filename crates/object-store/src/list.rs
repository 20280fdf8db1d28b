//! Which objects there are.

use std::io::{self, ErrorKind};
use std::path::Path as FilePath;
use std::sync::Arc;

use blocking::unblock;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use holdfast::{DirEntry, WalkDir};
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta, Result};

use crate::error::of_object;
use crate::inner::Inner;
use crate::object::{describe, is_reserved};

/// Entries that are looked at while a thread has the walk.
const BATCH: usize = 1000;

/// Where the objects below a prefix are.
fn directory(prefix: Option<&Path>) -> &FilePath {
    match prefix {
        Some(prefix) if !prefix.as_ref().is_empty() => FilePath::new(prefix.as_ref()),
        _ => FilePath::new("."),
    }
}

/// The place of a directory entry. `None`: no object and no prefix can have that name.
fn location(entry: &DirEntry) -> Option<Path> {
    let path = entry.path();
    let path = path.strip_prefix(".").unwrap_or(&path).to_str()?;
    Path::parse(path).ok().filter(|parsed| parsed.as_ref() == path)
}

/// Whether no object can be at or below it.
fn is_none(entry: &DirEntry) -> bool {
    location(entry).is_none_or(|location| is_reserved(&location))
}

/// The object at an entry; `None` if it is none, or is gone.
fn object(store: &Inner, entry: &DirEntry) -> Option<Result<ObjectMeta>> {
    if !entry.file_type().is_file() {
        return None;
    }
    let location = location(entry)?;
    // It may be replaced between two looks: then its path leads to what has replaced it.
    let found = entry.metadata().or_else(|error| match error.kind() {
        ErrorKind::NotFound => store.root.symlink_metadata(entry.path()),
        _ => Err(error),
    });
    match found {
        Ok(found) => found.is_file().then(|| Ok(describe(location, &found))),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(Err(of_object(&location, error))),
    }
}

/// A walk below a prefix; `None` if nothing is there.
fn walk(store: &Inner, prefix: Option<&Path>) -> Result<Option<WalkDir>> {
    if prefix.is_some_and(is_reserved) {
        return Ok(None);
    }
    match store.root.walk(directory(prefix)) {
        Ok(walk) => Ok(Some(walk)),
        Err(error) if is_nothing(&error) => Ok(None),
        Err(error) => Err(of_object(prefix.unwrap_or(&Path::default()), error)),
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The next objects of a walk, and the walk if it is not at its end.
fn batch(store: &Inner, mut walk: WalkDir) -> (Vec<Result<ObjectMeta>>, Option<WalkDir>) {
    let mut found = Vec::new();
    for _ in 0..BATCH {
        match walk.next() {
            None => return (found, None),
            Some(Ok(entry)) if is_none(&entry) => walk.skip_directory(),
            Some(Ok(entry)) => found.extend(object(store, &entry)),
            // A directory that went away.
            Some(Err(error)) if is_nothing(&error) => {}
            Some(Err(error)) => found.push(Err(of_object(&Path::default(), error))),
        }
    }
    (found, Some(walk))
}

/// All objects below a prefix, in no particular order.
pub(crate) fn list(
    store: Arc<Inner>,
    prefix: Option<&Path>,
) -> BoxStream<'static, Result<ObjectMeta>> {
    let prefix = prefix.cloned();
    let walked = store.clone();
    let first = unblock(move || walk(&walked, prefix.as_ref()));
    stream::once(first)
        .map_ok(move |walk| {
            let batches = stream::unfold((walk, store.clone()), |(walk, store)| async {
                let (walk, looked) = (walk?, store.clone());
                let (found, rest) = unblock(move || batch(&looked, walk)).await;
                Some((stream::iter(found), (rest, store)))
            });
            batches.flatten()
        })
        .try_flatten()
        .boxed()
}

/// The objects in one directory, and the directories in it.
pub(crate) fn list_one(store: &Inner, prefix: Option<&Path>) -> Result<ListResult> {
    let failed = |error| of_object(prefix.unwrap_or(&Path::default()), error);
    let mut listed = ListResult {
        common_prefixes: Vec::new(),
        objects: Vec::new(),
        extensions: Default::default(),
    };
    if prefix.is_some_and(is_reserved) {
        return Ok(listed);
    }
    let entries = match store.root.read_dir(directory(prefix)) {
        Ok(entries) => entries,
        Err(error) if is_nothing(&error) => return Ok(listed),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_dir() && !is_none(&entry) {
            listed.common_prefixes.extend(location(&entry));
        } else if let Some(object) = object(store, &entry) {
            listed.objects.push(object?);
        }
    }
    listed.common_prefixes.sort();
    listed.objects.sort_by(|one, other| one.location.cmp(&other.location));
    Ok(listed)
}
