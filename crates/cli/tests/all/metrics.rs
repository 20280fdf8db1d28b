//! Statistics for machines: what is published of mounts, once and to scrapers, and what a mount that is dead does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use crate::common::{self, TestMount, can_mount, signal, wait_until_ended};

/// One series: its name and labels, as they are written.
type Series = BTreeMap<String, f64>;

/// Reads OpenMetrics, and fails where a scraper would.
fn open_metrics(text: &str) -> Series {
    series(text.strip_suffix("# EOF\n").expect("the end is marked"))
}

/// The same of the text of Prometheus.
fn series(text: &str) -> Series {
    let mut families = BTreeSet::new();
    let mut all = Series::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            assert!(families.insert(family.split(' ').next().unwrap()), "twice: {line}");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let family = name.split('{').next().unwrap();
        let ends = ["", "_total", "_sum", "_count", "_bucket"];
        let known = |end: &&str| family.strip_suffix(*end).is_some_and(|it| families.contains(it));
        assert!(ends.iter().any(known), "no family of {line}");
        assert!(all.insert(name.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
    }
    all
}

/// The value of the only series of this name that has all these labels.
fn value(all: &Series, name: &str, labels: &[&str]) -> f64 {
    let head = format!("{name}{{");
    let found: Vec<_> = all
        .iter()
        .filter(|(it, _)| it.starts_with(&head) && labels.iter().all(|label| it.contains(label)))
        .collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
    *found[0].1
}

#[test]
fn what_programs_did_is_published_of_each_mount_once() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    // A rate needs the zero before the first operation.
    let all = series(&place.run(&["metrics"]).fine());
    let (times, own) =
        ("holdfast_operation_duration_seconds", format!("volume=\"{}\"", place.image()));
    for kind in ["create", "fsync", "rename"].map(|kind| format!("operation=\"{kind}\"")) {
        assert_eq!(value(&all, &format!("{times}_count"), &[&own, &kind]), 0.0);
        assert_eq!(value(&all, &format!("{times}_bucket"), &[&own, &kind, "le=\"+Inf\""]), 0.0);
    }
    fs::write(place.dir.join("file"), vec![1; 300_000]).unwrap();
    fs::File::open(place.dir.join("file")).unwrap().sync_all().unwrap();
    let beside = place.path("beside");
    fs::create_dir(&beside).unwrap();
    place.run(&["fork", place.dir(), "work"]).fine();
    place.run(&["mount", &format!("{}:work", place.image()), &beside]).fine();
    let all = series(&place.run(&["metrics"]).fine());
    let volume = format!("volume=\"{}\"", place.image());
    let main = format!("directory=\"{}\"", place.dir());
    let work = format!("directory=\"{beside}\"");
    assert_eq!(value(&all, "holdfast_up", &[&main]), 1.0);
    assert_eq!(value(&all, "holdfast_stopped", &[&work, "branch=\"work\""]), 0.0);
    assert!(value(&all, "holdfast_written_bytes_total", &[&main]) >= 300_000.0);
    assert_eq!(value(&all, "holdfast_written_bytes_total", &[&work]), 0.0);
    assert!(value(&all, "holdfast_fsyncs_total", &[&main]) >= 1.0);
    let fsync = "operation=\"fsync\"";
    let count = value(&all, &format!("{times}_count"), &[&main, fsync]);
    assert!(count >= 1.0 && value(&all, &format!("{times}_sum"), &[&main, fsync]) > 0.0);
    let last = value(&all, &format!("{times}_bucket"), &[&main, fsync, "le=\"+Inf\""]);
    assert_eq!(last, count);
    // What the mounts share is told once.
    assert_eq!(value(&all, "holdfast_branches", &[&volume]), 2.0);
    assert!(value(&all, "holdfast_device_flushes_total", &[&volume]) >= 1.0);
    let size = fs::metadata(place.image()).unwrap().len() as f64;
    let told = value(&all, "holdfast_size_bytes", &[&volume]);
    assert!(told > size * 0.5 && told <= size, "{told} of {size}");
    assert!(value(&all, "holdfast_recovery_limit_seconds", &[&volume]) > 0.0);
    assert!(value(&all, "holdfast_internal_fsyncs_total", &[&volume]) >= 1.0);
    // The same of one mount alone.
    let one = place.run(&["stats", "--format", "prometheus", &beside]).fine();
    // Its help has the unit of a value.
    let helps = one.lines().filter(|line| line.starts_with("# HELP holdfast_internal_"));
    let helps: Vec<&str> = helps.filter(|line| line.contains("_seconds")).collect();
    assert!(helps.iter().any(|it| it.contains("_early_groups_seconds")), "{helps:?}");
    assert!(helps.iter().all(|it| !it.to_lowercase().contains("nanoseconds")), "{helps:?}");
    let one = series(&one);
    assert_eq!(value(&one, "holdfast_up", &[&work]), 1.0);
    assert!(!one.keys().any(|it| it.contains(&main)), "{one:?}");
    place.run(&["stats", "--format", "prometheus", "--watch", &beside]).fails(2, "--listen");
    place.run(&["umount", &beside]).fine();
    place.umount();
}

/// A server that ends with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(address: &str, request: &str, head: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    // In one piece: what makes no sense is answered before it is whole.
    let text = format!("{request} HTTP/1.1\r\nHost: here\r\n{head}Connection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn body(answer: &str) -> String {
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn scrapers_are_answered_until_a_signal_comes_also_beside_a_mount_that_is_dead() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let mut command = place.command(&["metrics", "--listen", "127.0.0.1:0"]);
    let mut served = Served(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(served.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let main = format!("directory=\"{}\"", place.dir());
    let answer = ask(address, "GET /metrics", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("text/plain; version=0.0.4"), "{answer}");
    assert_eq!(value(&series(&body(&answer)), "holdfast_up", &[&main]), 1.0);
    let answer = ask(address, "GET /metrics", "Accept: application/openmetrics-text;q=0.9\r\n");
    assert!(answer.contains("application/openmetrics-text; version=1.0.0"), "{answer}");
    assert_eq!(value(&open_metrics(&body(&answer)), "holdfast_up", &[&main]), 1.0);
    assert!(ask(address, "GET /", "").starts_with("HTTP/1.1 404"));
    let refused = ask(address, "POST /metrics", "");
    assert!(refused.starts_with("HTTP/1.1 405") && refused.contains("Allow: GET, HEAD"));
    let head = ask(address, "HEAD /metrics", "");
    assert!(head.starts_with("HTTP/1.1 200") && body(&head).is_empty(), "{head}");
    // Lengths that are claimed are not believed, and clients that say nothing hold up no others.
    let claimed = "Content-Length: 18446744073709551615\r\n";
    assert!(ask(address, "GET /metrics", claimed).starts_with("HTTP/1.1 200"));
    assert!(ask(address, "GET / HTTP/2.0", "").starts_with("HTTP/1.1 400"));
    let half = || {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX:");
        stream
    };
    let _halves: Vec<_> = (0..300).map(|_| half()).collect();
    assert!(ask(address, "GET /metrics", "").starts_with("HTTP/1.1 200"));
    let daemon = place.daemon();
    signal(daemon, "KILL");
    wait_until_ended(daemon);
    // No text is older than a second.
    let is_down = || {
        let all = series(&body(&ask(address, "GET /metrics", "")));
        value(&all, "holdfast_up", &[&main]) == 0.0
    };
    common::wait_for("the mount to be down", is_down);
    signal(served.0.id(), "TERM");
    assert_eq!(served.0.wait().unwrap().code(), Some(0));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let _held = TcpListener::bind(&taken).unwrap();
    place.run(&["metrics", "--listen", &taken]).fails(1, &taken);
    place.run(&["umount", place.dir()]).fine();
}
