//! Answers scrapes over HTTP: `GET /metrics`, and nothing else.
//!
//! Who may connect may read: names of volumes, directories and branches of the user who serves. So nothing listens unless
//! it is asked to, and where it is told to.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use prometheus_client::encoding::prometheus_text;
use tiny_http::{Header, Method, Request, Response, Server};

use super::{Form, all, text};
use crate::interrupt::Interrupt;

/// What OpenMetrics is called, by scrapers that know it and to them.
const OPEN_METRICS: &str = "application/openmetrics-text";
/// Scrapes that come sooner after one another get the same text: many scrapers ask the mounts no more than one.
const FRESH: Duration = Duration::from_secs(1);
/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// A server that listens.
pub(crate) struct Scrapes {
    server: Server,
    address: SocketAddr,
    last: [Option<(Stopwatch, String)>; 2],
}

impl Scrapes {
    /// Listens at `address`; port 0 is a free one.
    ///
    /// # Errors
    /// The address is in use, or is none of this machine.
    pub(crate) fn listen(address: SocketAddr) -> io::Result<Scrapes> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let server = Server::from_listener(listener, None).map_err(io::Error::other)?;
        Ok(Scrapes { server, address, last: [None, None] })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until a signal comes.
    ///
    /// # Errors
    /// No connection can be taken any more.
    pub(crate) fn run(&mut self, interrupt: &Interrupt) -> io::Result<()> {
        while !interrupt.has_come() {
            if let Some(request) = self.server.recv_timeout(LOOK)? {
                // A scraper that has gone is no matter.
                let _ = self.answer(request);
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: Request) -> io::Result<()> {
        let path = request.url().split('?').next().unwrap_or_default();
        match (request.method(), path) {
            (Method::Get | Method::Head, "/metrics") => {}
            (_, "/metrics") => return plain(request, 405, "ask by GET\n"),
            _ => return plain(request, 404, "the statistics are at /metrics\n"),
        }
        let form = form(&request);
        match self.text(form) {
            Ok(text) => {
                let of = Header::from_bytes("Content-Type", name(form)).expect("it is a header");
                request.respond(Response::from_string(text).with_header(of))
            }
            Err(error) => plain(request, 500, &format!("{error}\n")),
        }
    }

    fn text(&mut self, form: Form) -> io::Result<&str> {
        let last = &mut self.last[usize::from(form == Form::Prometheus)];
        let is_fresh = last.as_ref().is_some_and(|(since, _)| since.elapsed() < FRESH);
        if !is_fresh {
            let text = text(all()?, form);
            *last = Some((Stopwatch::start(), text));
        }
        Ok(last.as_ref().map_or("", |(_, text)| text))
    }
}

/// What a scraper wants. One that does not know OpenMetrics does not name it.
fn form(request: &Request) -> Form {
    let mut accepted = request.headers().iter().filter(|it| it.field.equiv("Accept"));
    match accepted.any(|it| it.value.as_str().contains(OPEN_METRICS)) {
        true => Form::OpenMetrics,
        false => Form::Prometheus,
    }
}

fn name(form: Form) -> &'static str {
    match form {
        Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        Form::Prometheus => prometheus_text::CONTENT_TYPE,
    }
}

fn plain(request: Request, code: u16, words: &str) -> io::Result<()> {
    request.respond(Response::from_string(words).with_status_code(code))
}
