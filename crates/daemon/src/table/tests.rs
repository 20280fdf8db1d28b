//! Mounts of one branch that meet.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;

use super::*;

#[test]
fn a_head_for_a_branch_that_is_just_being_mounted_waits_for_that() {
    let table = Table::new(channel().0, None);
    let placed = table.place(Some(7), None, Asks::Writer, Duration::ZERO);
    let (place, shared) = (placed.unwrap(), &table);
    std::thread::scope(|scope| {
        let head = NewHead::Snapshot { to: b"monday".into(), keep: None };
        let given = scope.spawn(move || shared.give_head(7, head, || Ok(Told::All)));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!given.is_finished());
        drop(place);
        assert_eq!(given.join().unwrap(), Ok(Told::All));
    });
    // And no caller mounts it meanwhile.
    let place = || table.place(Some(7), None, Asks::Writer, Duration::ZERO).map(drop);
    let given = table.give_head(7, NewHead::Snapshot { to: b"monday".into(), keep: None }, || {
        assert_eq!(place(), Err(Taken::Busy));
        Ok(Told::All)
    });
    assert_eq!((given, place()), (Ok(Told::All), Ok(())));
}

#[test]
fn readers_that_are_about_to_mount_give_way_to_who_may_write_and_to_the_end() {
    let (told, events) = channel();
    let table = Table::new(told, None);
    let long = Duration::from_secs(60);
    let place = |asks, patience| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        table.place(Some(7), Some(ours), asks, patience).map(|place| (place, theirs))
    };
    // As a thread that answers a caller: it hears from the connection that it is over.
    let is_over = |stream: &mut UnixStream| stream.read(&mut [0]).unwrap() == 0;
    let (reader, mut of_reader) = place(Asks::Reader, Duration::ZERO).unwrap();
    assert_eq!(place(Asks::Reader, Duration::ZERO).map(drop), Err(Taken::Busy));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| place(Asks::Writer, long));
        assert!(is_over(&mut of_reader));
        // No other caller is faster.
        assert_eq!(place(Asks::Reader, Duration::ZERO).map(drop), Err(Taken::Busy));
        drop(reader);
        assert!(waits.join().unwrap().is_ok());
    });
    let (reader, mut of_reader) = place(Asks::Reader, Duration::ZERO).unwrap();
    assert!(!table.lock().goes_on() && !table.is_over());
    assert!(is_over(&mut of_reader));
    assert_eq!(place(Asks::Writer, Duration::ZERO).map(drop), Err(Taken::Ending));
    drop(reader);
    assert!(table.is_over());
    drop(events);
}
