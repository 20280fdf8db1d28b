//! What waits for a command: it, the end of the daemon, and a stranger's patience.

use std::io::{Read, Write};
use std::net::Shutdown;

use holdfast_service::work::In;

use super::*;

/// A command_stream, the command's side of it, and what stops the daemon.
fn command_stream() -> (CommandStream, UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (stop, stopper) = UnixStream::pair().unwrap();
    (CommandStream::new(ours, Arc::new(stop), None).unwrap(), theirs, stopper)
}

#[test]
fn inputs_come_one_behind_the_other_and_what_is_left_of_one_is_passed_over() {
    let (command_stream, mut command, _stop) = command_stream();
    for (kind, body) in [
        (Kind::Bytes, &b"one"[..]),
        (Kind::Bytes, b"more"),
        (Kind::EndOfInput, b""),
        (Kind::Bytes, b"two"),
        (Kind::EndOfInput, b""),
    ] {
        command.write_all(&frames::frame(kind, body)).unwrap();
    }
    let mut start = [0; 2];
    In(&command_stream, 0).read_exact(&mut start).unwrap();
    assert_eq!(&start, b"on");
    let mut second = String::new();
    In(&command_stream, 1).read_to_string(&mut second).unwrap();
    assert_eq!(second, "two");
    assert_eq!(In(&command_stream, 0).read(&mut start).unwrap(), 0, "it is over");
    // Without an end it is not whole.
    command.write_all(&frames::frame(Kind::Bytes, b"thr")).unwrap();
    drop(command);
    let error = In(&command_stream, 2).read_to_string(&mut second).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(second, "twothr");
}

#[test]
fn who_waits_for_a_command_wakes_up_when_it_or_the_daemon_ends() {
    for by_stop in [true, false] {
        let (command_stream, command, stop) = command_stream();
        let ended = std::thread::spawn(move || {
            let error = loop {
                if let Err(error) = command_stream.write(&[7; 4096]) {
                    break error;
                }
            };
            let kind = error.kind();
            let input = In(&command_stream, 0).read(&mut [0]).map_err(|error| error.kind());
            let checked = (0..LOOKS).try_for_each(|_| command_stream.check()).is_err();
            command_stream.end(Err(Failure::new(2, "broken")));
            (kind, input, checked)
        });
        // It reads nothing: the other side fills the pipe, and waits.
        let mut wanted = [PollFd::new(&command, PollFlags::IN)];
        poll(&mut wanted, None).unwrap();
        assert!(!ended.is_finished());
        if by_stop {
            stop.shutdown(Shutdown::Both).unwrap();
            // What was begun is sent whole, and then why.
            let mut all = Vec::new();
            (&command).read_to_end(&mut all).unwrap();
            let tail = String::from_utf8_lossy(&all[all.len() - 100..]).into_owned();
            assert!(tail.contains(ENDED) && tail.contains("\"code\":2"), "{tail}");
            let mut rest = &all[..];
            while let Some((start, behind)) = rest.split_first_chunk::<HEAD>() {
                let (_, length) = frames::head(*start).unwrap();
                rest = &behind[length..];
            }
            let aborted = io::ErrorKind::ConnectionAborted;
            assert_eq!(ended.join().unwrap(), (aborted, Err(aborted), true));
        } else {
            drop(command);
            let (kind, input, checked) = ended.join().unwrap();
            assert_eq!((kind, checked), (io::ErrorKind::BrokenPipe, true));
            assert_eq!(input, Err(io::ErrorKind::UnexpectedEof));
        }
    }
}

/// The frames that a command has got.
fn frames_of(mut bytes: &[u8]) -> Vec<(Kind, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((start, behind)) = bytes.split_first_chunk::<HEAD>() {
        let (kind, length) = frames::head(*start).unwrap();
        all.push((kind, behind[..length].to_vec()));
        bytes = &behind[length..];
    }
    all
}

#[test]
fn the_end_comes_behind_all_that_was_said_however_slowly_that_is_taken() {
    for is_stopped in [false, true] {
        let (command_stream, mut command, stop) = command_stream();
        // So small that the end does not fit behind what was said.
        rustix::net::sockopt::set_socket_send_buffer_size(&command_stream.stream, 4096).unwrap();
        while send(&command_stream.stream, &[7; 64], SendFlags::NOSIGNAL).is_ok() {}
        let ended = std::thread::spawn(move || command_stream.end(Ok(3)));
        if is_stopped {
            // It gets a moment, and no more: there is no reader.
            stop.shutdown(Shutdown::Both).unwrap();
            ended.join().unwrap();
            continue;
        }
        // Longer than that moment.
        let later = Deadline::after(FAREWELL + Duration::from_millis(200));
        while !later.is_over() {
            std::thread::sleep(later.left());
        }
        assert!(!ended.is_finished(), "it waits for the command");
        let mut all = Vec::new();
        command.read_to_end(&mut all).unwrap();
        ended.join().unwrap();
        let end = frames::frame(Kind::End, &Ended::from(Ok(3)).body());
        assert!(all.ends_with(&end), "{} bytes", all.len());
    }
}

#[test]
fn pages_are_asked_for_behind_whatever_the_command_has_sent() {
    let (command_stream, mut command, _stop) = command_stream();
    for (kind, body) in [
        (Kind::Bytes, &b"an end, and padding"[..]),
        (Kind::Bytes, b"more of it"),
        (Kind::EndOfInput, b""),
        (Kind::Go, b""),
    ] {
        command.write_all(&frames::frame(kind, body)).unwrap();
    }
    In(&command_stream, 0).read_exact(&mut [0; 6]).unwrap();
    let at = At { dir: holdfast_control::Name(b"/mnt".into()), device: "0:53".into() };
    command_stream.hand_over_pages(std::slice::from_ref(&at)).unwrap();
    assert_eq!(In(&command_stream, 0).read(&mut [0]).unwrap(), 0, "the input is over");
    // One that is killed meanwhile has handed over nothing.
    command.write_all(&frames::frame(Kind::Bytes, b"x")).unwrap();
    command.shutdown(Shutdown::Write).unwrap();
    let error = command_stream.hand_over_pages(&[at]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    drop(command_stream);
    let mut all = Vec::new();
    command.read_to_end(&mut all).unwrap();
    let asked = frames_of(&all);
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|(kind, body)| {
        let mounted: Vec<At> = serde_json::from_slice(body).unwrap();
        *kind == Kind::Pages && mounted[0].device == "0:53"
    }));
}

#[test]
fn what_was_done_is_told_also_while_the_daemon_ends() {
    let (command_stream, mut command, stop) = command_stream();
    stop.shutdown(Shutdown::Both).unwrap();
    assert!(command_stream.write(b"x").is_err());
    command_stream.last(b"done");
    command_stream.end(Ok(0));
    drop(command_stream);
    let mut all = Vec::new();
    command.read_to_end(&mut all).unwrap();
    let frames = frames_of(&all);
    assert_eq!(frames[0], (Kind::Bytes, b"done".to_vec()));
    assert_eq!(frames.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [Kind::Bytes, Kind::End]);
}

#[test]
fn a_stranger_that_takes_and_sends_nothing_is_waited_for_only_so_long() {
    let (mut command_stream, _command, _stop) = command_stream();
    command_stream.patience = Some(Duration::from_millis(10));
    let read = In(&command_stream, 0).read(&mut [0]).unwrap_err();
    let written = loop {
        if let Err(error) = command_stream.write(&[7; 4096]) {
            break error;
        }
    };
    assert_eq!([read.kind(), written.kind()], [io::ErrorKind::TimedOut; 2]);
    // Nor is that said to it for longer.
    command_stream.end(Ok(0));
}

#[test]
fn who_says_nothing_is_not_waited_for_when_the_daemon_ends() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let (stop, _stopper) = UnixStream::pair().unwrap();
    let stranger =
        CommandStream::new(ours, Arc::new(stop), Some(Duration::from_millis(1))).unwrap();
    assert_eq!(stranger.hand_over_pages(&[]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    let (command_stream, mut command, stop) = command_stream();
    // It may come whenever it wants behind the begin of its work; before that bytes gain it no time.
    let time = Duration::from_millis(50);
    std::thread::scope(|scope| {
        let begins = scope.spawn(|| command_stream.begin(&[], time));
        for byte in frames::frame(Kind::Bytes, &[7; 4096]) {
            if begins.is_finished() {
                break;
            }
            command.write_all(&[byte]).unwrap();
            std::thread::sleep(time / 10);
        }
        assert_eq!(begins.join().unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    });
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| command_stream.hand_over_pages(&[]));
        stop.shutdown(Shutdown::Both).unwrap();
        let error = waits.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    });
}
