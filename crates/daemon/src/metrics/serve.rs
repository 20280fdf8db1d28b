//! Answers scrapes over HTTP: `GET /metrics` and its `HEAD`, and nothing else.
//!
//! A user who may connect may read: names of volumes, directories and branches of the user who serves. So nothing listens unless
//! it is asked to, and where it is told to. And such a user may send anything, slowly, or nothing: a connection has a few
//! seconds and a few kilobytes, one request, and no body of it is read. Where all places are taken, the one goes that has said least for
//! longest, of the address that has most of them: a scraper asks at once.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use holdfast_base::clock::{Deadline, Stopwatch};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{TextForm, all, text};
use crate::interrupt::Interrupt;

/// What OpenMetrics is called, by scrapers that know it and to them.
const OPEN_METRICS: &str = "application/openmetrics-text";
/// Scrapes that come sooner after one another get the same text: many scrapers ask the mounts no more than one.
const FRESH: Duration = Duration::from_secs(1);
/// How long a client may take to send its request.
const ASKING: Duration = Duration::from_secs(2);
/// And to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest head of a request, in bytes, and most lines of it.
const HEAD: usize = 8192;
const LINES: usize = 64;
/// Clients that have a place, beyond which one goes for each that comes; and threads of clients, while those that have to go do. Then
/// others wait before they are accepted.
const CLIENTS: usize = 128;
const THREADS: usize = 2 * CLIENTS;
/// Until another connection is tried when none could be accepted.
const REST: Duration = Duration::from_millis(100);

/// A server that listens.
pub struct Scrapes {
    listener: TcpListener,
    texts: Arc<Texts>,
}

/// A client that has a place.
struct Client {
    number: u64,
    from: IpAddr,
    stream: TcpStream,
    has_asked: bool,
}

/// Those that have one, the oldest first.
#[derive(Default)]
struct Places(Mutex<Vec<Client>>);

impl Places {
    /// A place for one more.
    fn take(
        self: &Arc<Self>,
        number: u64,
        from: IpAddr,
        stream: &TcpStream,
    ) -> io::Result<ClientSlot> {
        let stream = stream.try_clone()?;
        let mut all = self.0.lock();
        if all.len() >= CLIENTS {
            // It reads the end, or cannot write.
            let goes = goes(&all);
            let _ = all.remove(goes).stream.shutdown(Shutdown::Both);
        }
        all.push(Client { number, from, stream, has_asked: false });
        Ok(ClientSlot { places: Arc::clone(self), number })
    }
}

/// Which of the clients goes.
fn goes(all: &[Client]) -> usize {
    let mut of = HashMap::new();
    for client in all {
        *of.entry(client.from).or_insert(0) += 1;
    }
    // The first of those that are equal is the oldest.
    let least = |client: &Client| (Reverse(of[&client.from]), client.has_asked);
    (0..all.len()).min_by_key(|at| least(&all[*at])).unwrap_or_default()
}

/// The place of a client until this is dropped.
struct ClientSlot {
    places: Arc<Places>,
    number: u64,
}

impl ClientSlot {
    fn has_asked(&self) {
        let mut all = self.places.0.lock();
        if let Some(client) = all.iter_mut().find(|it| it.number == self.number) {
            client.has_asked = true;
        }
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.places.0.lock().retain(|it| it.number != self.number);
    }
}

/// The last text of each form, and when it was begun.
type Last = [Option<(Stopwatch, Arc<str>)>; 2];

#[derive(Default)]
struct Texts(Mutex<Last>);

impl Texts {
    fn get(&self, form: TextForm) -> io::Result<Arc<str>> {
        // Held meanwhile: others get what this one collects.
        let last = &mut self.0.lock()[usize::from(form == TextForm::Prometheus)];
        if let Some((since, text)) = last
            && since.elapsed() < FRESH
        {
            return Ok(Arc::clone(text));
        }
        let samples = all()?;
        let text: Arc<str> = text(samples, form).into();
        *last = Some((Stopwatch::start(), Arc::clone(&text)));
        Ok(text)
    }
}

impl Scrapes {
    /// Listens at `address`; port 0 is a free one.
    ///
    /// # Errors
    /// The address is in use, or is none of this machine.
    pub fn listen(address: SocketAddr) -> io::Result<Scrapes> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Scrapes { listener, texts: Arc::default() })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until a signal comes.
    ///
    /// # Errors
    /// The system does not let it wait.
    pub fn run(&self, interrupt: &Interrupt) -> io::Result<()> {
        let places = Arc::<Places>::default();
        let mut number = 0;
        while !interrupt.has_come() {
            if Arc::strong_count(&places) > THREADS {
                let _ = interrupt.wait(REST);
                continue;
            }
            match self.listener.accept() {
                Ok((client, from)) => {
                    number += 1;
                    // Without a descriptor or a thread it is turned away: the next scrape comes by itself.
                    let _ = places
                        .take(number, from.ip(), &client)
                        .and_then(|place| self.serve(client, place));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let wanted = &mut [
                        PollFd::new(&self.listener, PollFlags::IN),
                        PollFd::new(interrupt, PollFlags::IN),
                    ];
                    match poll(wanted, None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                // There are no descriptors, or it has gone.
                Err(_) => drop(interrupt.wait(REST)),
            }
        }
        Ok(())
    }

    fn serve(&self, client: TcpStream, place: ClientSlot) -> io::Result<()> {
        let texts = Arc::clone(&self.texts);
        let started = thread::Builder::new().name("holdfast-scrape".into()).spawn(move || {
            // A scraper that has gone is no matter.
            let _ = answer(&client, &texts, &place);
        });
        started.map(drop)
    }
}

/// One request and its answer.
fn answer(mut client: &TcpStream, texts: &Texts, place: &ClientSlot) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let Asked { wanted, is_head } = request(client)?;
    place.has_asked();
    let (code, kind, body) = match wanted {
        Wanted::Text(form) => match texts.get(form) {
            Ok(text) => ("200 OK", name(form), text),
            Err(error) => ("500 Internal Server Error", PLAIN, format!("{error}\n").into()),
        },
        Wanted::Other => ("404 Not Found", PLAIN, "the statistics are at /metrics\n".into()),
        Wanted::Change => ("405 Method Not Allowed", PLAIN, "ask by GET or HEAD\n".into()),
        Wanted::Nonsense => ("400 Bad Request", PLAIN, "this is no request\n".into()),
    };
    let allow = if matches!(wanted, Wanted::Change) { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\n{allow}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let until = Deadline::after(PATIENCE);
    let body = if is_head { "" } else { &*body };
    for mut part in [head.as_bytes(), body.as_bytes()] {
        while !part.is_empty() {
            client.set_write_timeout(Some(left(until)?))?;
            match client.write(part) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => part = &part[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    client.shutdown(Shutdown::Write)
}

/// What is left of the time of a client.
fn left(until: Deadline) -> io::Result<Duration> {
    let left = until.left();
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// What a client asks for, and whether it wants the head of the answer alone.
struct Asked {
    wanted: Wanted,
    is_head: bool,
}

impl From<Wanted> for Asked {
    fn from(wanted: Wanted) -> Asked {
        Asked { wanted, is_head: false }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Text(TextForm),
    Other,
    Change,
    Nonsense,
}

/// Reads the head of a request.
fn request(mut client: impl Read + SetTimeout) -> io::Result<Asked> {
    let until = Deadline::after(ASKING);
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        if let Some(asked) = asked(&head) {
            return Ok(asked);
        }
        if head.len() >= HEAD {
            return Ok(Wanted::Nonsense.into());
        }
        client.set_timeout(left(until)?)?;
        match client.read(&mut part) {
            Ok(0) => return Ok(Wanted::Nonsense.into()),
            Ok(len) => head.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A read of it ends in time.
trait SetTimeout {
    fn set_timeout(&self, time: Duration) -> io::Result<()>;
}

impl SetTimeout for &TcpStream {
    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

/// What a head asks for; `None`: it goes on.
fn asked(head: &[u8]) -> Option<Asked> {
    let mut lines = [httparse::EMPTY_HEADER; LINES];
    let mut request = httparse::Request::new(&mut lines);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some(Wanted::Nonsense.into()),
    }
    let is_head = request.method == Some("HEAD");
    let mut path = request.path.unwrap_or_default();
    // As to a proxy, which every server has to understand.
    if let Some(rest) = path.strip_prefix("http://") {
        path = rest.find('/').map_or("/", |at| &rest[at..]);
    }
    if path.split('?').next() != Some("/metrics") {
        return Some(Asked { wanted: Wanted::Other, is_head });
    }
    if !is_head && request.method != Some("GET") {
        return Some(Wanted::Change.into());
    }
    let mut accepted =
        request.headers.iter().filter(|line| line.name.eq_ignore_ascii_case("Accept"));
    let knows = accepted.any(|line| String::from_utf8_lossy(line.value).contains(OPEN_METRICS));
    let form = if knows { TextForm::OpenMetrics } else { TextForm::Prometheus };
    Some(Asked { wanted: Wanted::Text(form), is_head })
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn name(form: TextForm) -> &'static str {
    match form {
        TextForm::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        TextForm::Prometheus => prometheus_client::encoding::prometheus_text::CONTENT_TYPE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl SetTimeout for &[u8] {
        fn set_timeout(&self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_has_said_least_for_longest_of_where_most_come_from_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let clients = [
            (1, 1, true),
            (2, 9, false),
            (3, 9, true),
            (4, 9, false),
            (5, 9, false),
            (6, 1, false),
        ];
        let client = |(number, end, has_asked)| Client {
            number,
            from: IpAddr::from([10, 0, 0, end]),
            stream: TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
            has_asked,
        };
        let mut all: Vec<Client> = clients.map(client).into();
        let mut gone = Vec::new();
        while !all.is_empty() {
            gone.push(all.remove(goes(&all)).number);
        }
        assert_eq!(gone, [2, 4, 5, 6, 1, 3]);
    }

    /// Without an answer, and however much of its time is left.
    #[test]
    fn the_oldest_goes_where_all_places_are_taken() {
        let (listener, places) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::default());
        let mut clients = Vec::new();
        let taken = (0..=CLIENTS as u64).map(|number| {
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let (stream, from) = listener.accept().unwrap();
            Places::take(&places, number, from.ip(), &stream).unwrap()
        });
        let _taken: Vec<ClientSlot> = taken.collect();
        assert_eq!(clients[0].read(&mut [0]).unwrap(), 0);
        clients[1].set_nonblocking(true).unwrap();
        let stays = clients[1].read(&mut [0]).unwrap_err();
        assert_eq!(stays.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_head_asks_for_a_text_or_is_told_what_is_wrong() {
        let asked = |text: &str| request(text.as_bytes()).unwrap();
        let of = |text: &str| asked(text).wanted;
        let end = "\r\n\r\n";
        assert_eq!(of(&format!("GET /metrics HTTP/1.1{end}")), Wanted::Text(TextForm::Prometheus));
        let knows =
            "GET /metrics?x=1 HTTP/1.0\r\naccept: a/b, application/openmetrics-text; version=1.0.0";
        assert_eq!(of(&format!("{knows}{end}")), Wanted::Text(TextForm::OpenMetrics));
        let head = asked(&format!("HEAD /metrics HTTP/1.1{end}"));
        assert!(head.is_head && head.wanted == Wanted::Text(TextForm::Prometheus));
        assert!(asked(&format!("HEAD / HTTP/1.1{end}")).is_head);
        let whole = of(&format!("GET http://here:1/metrics HTTP/1.1{end}"));
        assert_eq!(whole, Wanted::Text(TextForm::Prometheus));
        assert_eq!(of(&format!("GET / HTTP/1.1{end}")), Wanted::Other);
        // Whatever length it claims to have.
        let long = "POST /metrics HTTP/1.1\r\nContent-Length: 18446744073709551615";
        assert_eq!(of(&format!("{long}{end}")), Wanted::Change);
        let many = "x: y\r\n".repeat(LINES + 1);
        let endless = format!("GET /metrics HTTP/1.1\r\nx: {}", "y".repeat(2 * HEAD));
        for nonsense in ["", "GET", "\0\0\0\0", "GET /metrics HTTP/1.1\r\n", &endless] {
            assert_eq!(of(nonsense), Wanted::Nonsense, "{nonsense:.20}");
        }
        assert_eq!(of(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n")), Wanted::Nonsense);
    }
}
