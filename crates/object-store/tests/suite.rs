//! The suite that object_store has for its own stores, and what a volume promises beyond it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt};
use holdfast::device::{Device, MemoryDevice};
use holdfast::{CreateOptions, Volume, VolumeOptions};
use holdfast_object_store::HoldfastStore;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    integration,
};

/// What object_store does with the parts of an upload wants this executor; the store itself wants none.
fn run<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(task)
}

fn store() -> HoldfastStore {
    HoldfastStore::new(Arc::new(Volume::in_memory(256 << 20).unwrap()))
}

#[test]
fn the_suite_of_object_store() {
    run(async {
        let store = store();
        integration::put_get_delete_list(&store).await;
        integration::put_get_attributes(&store).await;
        integration::get_opts(&store).await;
        integration::put_opts(&store, true).await;
        integration::list_uses_directories_correctly(&store).await;
        integration::list_with_delimiter(&store).await;
        integration::rename_and_copy(&store).await;
        integration::copy_if_not_exists(&store).await;
        integration::copy_rename_nonexistent_object(&store).await;
        integration::multipart_race_condition(&store, true).await;
        integration::multipart_out_of_order(&store).await;
        integration::stream_get(&self::store()).await;
        let missing = integration::get_nonexistent_object(&store, None).await;
        assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    });
}

#[test]
fn the_suite_in_a_directory_and_without_flushes() {
    let volume = Arc::new(Volume::in_memory(256 << 20).unwrap());
    volume.write("beside", "not an object").unwrap();
    let store =
        HoldfastStore::in_directory(volume.clone(), "objects/of/one").unwrap().durable(false);
    run(async {
        integration::put_get_delete_list(&store).await;
        integration::put_opts(&store, true).await;
        integration::list_with_delimiter(&store).await;
        integration::rename_and_copy(&store).await;
    });
    assert_eq!(volume.read("beside").unwrap(), b"not an object");
}

/// What returned is there after a crash, as a whole, and what did not return is there as a whole or not at all.
#[test]
fn a_crash_takes_nothing_that_has_returned() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    CreateOptions::new().format(&device).unwrap();
    let volume = Arc::new(VolumeOptions::new().open_device(device.clone()).unwrap());
    let store = HoldfastStore::new(volume.clone());
    let large = vec![7; 3 << 20];
    run(async {
        store.put(&"a/b/put".into(), "1".into()).await.unwrap();
        store.put(&"a/b/put".into(), "2".into()).await.unwrap();
        store.put(&"a/from".into(), "moved".into()).await.unwrap();
        store.rename(&"a/from".into(), &"c/to".into()).await.unwrap();
        store.put(&"deleted/one".into(), "x".into()).await.unwrap();
        store.delete(&"deleted/one".into()).await.unwrap();
        store.copy(&"a/b/put".into(), &"copy".into()).await.unwrap();
        let mut upload = store.put_multipart(&"large".into()).await.unwrap();
        let parts = [
            upload.put_part(large[..2 << 20].to_vec().into()),
            upload.put_part(large[2 << 20..].to_vec().into()),
        ];
        try_join_all(parts).await.unwrap();
        upload.complete().await.unwrap();
    });
    drop(store);
    Arc::try_unwrap(volume).unwrap().abandon();

    let volume = VolumeOptions::new().open_device(device).unwrap();
    let mut paths: Vec<_> = volume
        .walk(".")
        .unwrap()
        .map(|entry| entry.unwrap().path().display().to_string())
        .collect();
    paths.sort();
    let expected = [
        "./.holdfast-object-store",
        "./a",
        "./a/b",
        "./a/b/put",
        "./c",
        "./c/to",
        "./copy",
        "./large",
    ];
    assert_eq!(paths, expected);
    assert_eq!(volume.read("a/b/put").unwrap(), b"2");
    assert_eq!(volume.read("copy").unwrap(), b"2");
    assert_eq!(volume.read("c/to").unwrap(), b"moved");
    assert!(volume.read("large").unwrap() == large);
}

/// One flush of the device for each change, as for each fsync.
#[test]
fn a_put_costs_one_flush() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    CreateOptions::new().format(&device).unwrap();
    // Nothing is committed beside it.
    let volume = VolumeOptions::new().commit_secs(0).open_device(device.clone()).unwrap();
    let store = HoldfastStore::new(Arc::new(volume));
    let flushes = |change: &mut dyn FnMut()| {
        let before = device.stats().flushes;
        change();
        device.stats().flushes - before
    };
    run(store.put(&"warm".into(), "x".into())).unwrap();
    assert_eq!(flushes(&mut || drop(run(store.put(&"new/one".into(), "1".into())).unwrap())), 1);
    assert_eq!(flushes(&mut || drop(run(store.put(&"new/one".into(), "2".into())).unwrap())), 1);
    assert_eq!(
        flushes(&mut || run(store.rename(&"new/one".into(), &"other/one".into())).unwrap()),
        1
    );
    assert_eq!(flushes(&mut || run(store.delete(&"other/one".into())).unwrap()), 1);
    let quick = store.durable(false);
    assert_eq!(flushes(&mut || drop(run(quick.put(&"new/one".into(), "1".into())).unwrap())), 0);
}

#[test]
fn a_reader_keeps_what_it_has_begun_to_read() {
    let store = store();
    run(async {
        store.put(&"it".into(), vec![1; 4 << 20].into()).await.unwrap();
        let got = store.get(&"it".into()).await.unwrap();
        store.put(&"it".into(), "new".into()).await.unwrap();
        store.delete(&"it".into()).await.unwrap();
        let bytes = got.bytes().await.unwrap();
        assert!(bytes.len() == 4 << 20 && bytes.iter().all(|&byte| byte == 1));
    });
}

/// Directories come and go under puts and deletions in them.
#[test]
fn puts_beside_deletions_find_their_directories() {
    let store = store().durable(false);
    run(async {
        let works = (0..8).map(|one| {
            let store = &store;
            async move {
                for round in 0..50 {
                    let path = Path::from(format!("deep/er/still/{one}"));
                    store.put(&path, format!("{round}").into()).await?;
                    store.delete(&path).await?;
                }
                Ok::<_, Error>(())
            }
        });
        try_join_all(works).await.unwrap();
    });
    let left = run(store.list(None).try_collect::<Vec<_>>()).unwrap();
    assert!(left.is_empty(), "{left:?}");
    assert!(!store.volume().exists("deep").unwrap());
}

#[test]
fn what_cannot_be_is_refused() {
    let store = store();
    run(async {
        store.put(&"a".into(), "x".into()).await.unwrap();
        for path in ["a/b", "", ".holdfast-object-store/1"] {
            assert!(store.put(&path.into(), "x".into()).await.is_err(), "{path}");
        }
        store.put(&"d/e".into(), "x".into()).await.unwrap();
        assert!(store.put(&"d".into(), "x".into()).await.is_err(), "objects are below it");
        assert!(store.rename(&"d".into(), &"f".into()).await.is_err(), "a prefix is no object");
        assert!(store.delete(&"d".into()).await.is_err());
        let tags = object_store::TagSet::default();
        let mut tagged = PutOptions { tags, ..PutOptions::default() };
        tagged.tags.push("key", "value");
        assert!(matches!(
            store.put_opts(&"t".into(), "x".into(), tagged).await,
            Err(Error::NotSupported { .. })
        ));
        let versioned = GetOptions { version: Some("1".into()), ..GetOptions::default() };
        assert!(store.get_opts(&"a".into(), versioned).await.is_err());
        let long = Path::from("n".repeat(256));
        assert!(store.put(&long, "x".into()).await.is_err());
        let all: Vec<_> =
            store.list(None).map(|object| object.unwrap().location.to_string()).collect().await;
        assert_eq!(all.len(), 2, "{all:?}");
    });
}

/// What others made in the volume that is no object is passed.
#[test]
fn only_regular_files_are_objects() {
    let store = store();
    store.volume().symlink("nowhere", "link").unwrap();
    store.volume().create_dir("empty").unwrap();
    store.volume().write("file", "x").unwrap();
    let all = run(store.list(None).try_collect::<Vec<_>>()).unwrap();
    assert_eq!(all.iter().map(|it| it.location.as_ref()).collect::<Vec<_>>(), ["file"]);
    let missing = run(store.get(&"link".into()));
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    store.volume().symlink("file", "to-file").unwrap();
    assert!(
        run(store.get(&"to-file".into())).is_err() && run(store.delete(&"to-file".into())).is_err()
    );
}

#[test]
fn attributes_come_with_copies_and_conditions_hold() {
    let store = store();
    let mut attributes = Attributes::new();
    attributes.insert(Attribute::ContentType, "text/plain".into());
    attributes.insert(Attribute::Metadata("author".into()), "me".into());
    run(async {
        let options = PutOptions { attributes: attributes.clone(), ..PutOptions::default() };
        store.put_opts(&"a".into(), "x".into(), options).await.unwrap();
        store.copy(&"a".into(), &"b".into()).await.unwrap();
        store.rename(&"b".into(), &"c".into()).await.unwrap();
        assert_eq!(store.get(&"c".into()).await.unwrap().attributes, attributes);
        let stale = store.put(&"a".into(), "y".into()).await.unwrap();
        store.put(&"a".into(), "z".into()).await.unwrap();
        let update =
            store.put_opts(&"a".into(), "w".into(), PutMode::Update(stale.into()).into()).await;
        assert!(matches!(update, Err(Error::Precondition { .. })), "{update:?}");
    });
}

#[test]
fn an_upload_that_is_dropped_leaves_nothing() {
    let store = store();
    let free = || store.volume().statfs().unwrap().blocks_free;
    store.volume().commit().unwrap();
    let before = free();
    let mut upload = run(store.put_multipart(&"a".into())).unwrap();
    run(upload.put_part(vec![1; 8 << 20].into())).unwrap();
    drop(upload);
    store.volume().commit().unwrap();
    store.volume().commit().unwrap();
    assert!(free() + 16 > before, "{} of {before}", free());
    assert!(run(store.head(&"a".into())).is_err());
    let all = run(store.list(None).try_collect::<Vec<_>>()).unwrap();
    assert!(all.is_empty(), "{all:?}");
}

/// Each object that a crash leaves is whole, also one whose put had not returned (P4).
#[test]
fn no_crash_leaves_a_part_of_an_object() {
    for (len, mode) in
        [(100, PutMode::Create), (20_000, PutMode::Overwrite), (3 << 20, PutMode::Create)]
    {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        CreateOptions::new().format(&device).unwrap();
        let volume = Arc::new(VolumeOptions::new().open_device(device.clone()).unwrap());
        let store = HoldfastStore::new(volume.clone()).durable(false);
        let bytes = vec![9; len];
        run(store.put_opts(&"object".into(), bytes.clone().into(), mode.into())).unwrap();
        // Its name becomes durable with that of another file.
        volume.create("beside").unwrap().sync_all().unwrap();
        drop(store);
        Arc::try_unwrap(volume).unwrap().abandon();
        let volume = VolumeOptions::new().open_device(device).unwrap();
        assert!(volume.read("object").unwrap() == bytes, "{len}");
    }
}

#[test]
fn an_upload_is_complete_with_all_its_parts() {
    let store = store();
    run(async {
        let mut upload = store.put_multipart(&"a".into()).await.unwrap();
        let first = upload.put_part(vec![1; 1 << 20].into());
        drop(upload.put_part(vec![2; 1 << 20].into()));
        upload.put_part(vec![3; 10].into()).await.unwrap();
        first.await.unwrap();
        let incomplete = upload.complete().await;
        assert!(incomplete.is_err(), "the second part was never written");
        assert!(store.head(&"a".into()).await.is_err());
        upload.abort().await.unwrap();
        let mut empty = store.put_multipart(&"empty".into()).await.unwrap();
        empty.complete().await.unwrap();
        assert_eq!(store.head(&"empty".into()).await.unwrap().size, 0);
    });
}

/// What is replaced all the time is there all the time, for reads, copies and lists of it.
#[test]
fn an_object_that_is_replaced_is_never_missing() {
    let store = store().durable(false);
    let it = Path::from("dir/it");
    run(store.put(&it, "0".into())).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..3000 {
                run(store.put(&it, format!("{round}").into())).unwrap();
            }
        });
        while !writer.is_finished() {
            run(async {
                store.get(&it).await.unwrap().bytes().await.unwrap();
                store.copy(&it, &"copy".into()).await.unwrap();
                let listed: Vec<_> = store.list(Some(&"dir".into())).try_collect().await.unwrap();
                assert_eq!(listed.len(), 1);
                let listed = store.list_with_delimiter(Some(&"dir".into())).await.unwrap();
                assert_eq!(listed.objects.len(), 1);
            });
        }
    });
}

/// A store that is not durable is the same store: one update replaces what another one has seen, or fails.
#[test]
fn updates_of_clones_are_one_after_the_other() {
    let durable = store();
    let it = Path::from("counter");
    run(durable.put(&it, "0".into())).unwrap();
    let quick = durable.clone().durable(false);
    let count = |store: &HoldfastStore| {
        let mut done = 0;
        while done < 50 {
            let got = run(store.get(&it)).unwrap();
            let version =
                object_store::UpdateVersion { e_tag: got.meta.e_tag.clone(), version: None };
            let number: u32 =
                String::from_utf8(run(got.bytes()).unwrap().to_vec()).unwrap().parse().unwrap();
            let next = format!("{}", number + 1);
            match run(store.put_opts(&it, next.into(), PutMode::Update(version).into())) {
                Ok(_) => done += 1,
                Err(Error::Precondition { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for store in [&durable, &quick, &durable, &quick] {
            scope.spawn(|| count(store));
        }
    });
    assert_eq!(run(run(durable.get(&it)).unwrap().bytes()).unwrap(), "200");
}

/// A put that fails leaves no directory, and removes none that it has not made.
#[test]
fn a_put_that_fails_leaves_directories_as_they_were() {
    let store = store();
    store.volume().create_dir_all("kept/empty").unwrap();
    let long = "n".repeat(256);
    for path in
        [format!("kept/empty/{long}"), format!("new/{long}/o"), ".snapshots/monday/o".into()]
    {
        assert!(run(store.put(&path.as_str().into(), "x".into())).is_err(), "{path}");
    }
    assert!(store.volume().exists("kept/empty").unwrap());
    assert!(
        !store.volume().exists("new").unwrap() && !store.volume().exists(".snapshots").unwrap()
    );
}
