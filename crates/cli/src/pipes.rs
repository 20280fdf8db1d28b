//! What commands have of the pipes of work: standard input and output, and on a terminal how far it has come.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

use holdfast_daemon::dispatch::Pipes;
use holdfast_service::size;
use holdfast_stream::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Only standard output, for people: a reader that has gone is no failure.
pub(crate) fn out() -> Pipes<'static> {
    Pipes::to(io::stdout())
}

/// The same, for programs if they ask for JSON.
pub(crate) fn answer(json: bool) -> Pipes<'static> {
    Pipes { json, ..out() }
}

/// Shows how far work has come that counts `counts`, on a terminal.
pub(crate) fn progress(counts: &str) -> Option<Box<dyn FnMut(Progress)>> {
    let bar =
        Bar::new(true, &format!("{{wide_bar}} {{human_pos}}/{{human_len}} {counts}, {{msg}}"));
    let mut last = 0;
    Some(Box::new(move |at: Progress| {
        // A message for each file would cost more than the file.
        if at.bytes.saturating_sub(last) >= 1 << 20 || at.files.is_multiple_of(256) {
            last = at.bytes;
            bar.show(at.files, at.files_in_all.max(at.files), size::show(at.bytes));
        }
    }))
}

/// A bar on a terminal, which goes when this is dropped.
pub(crate) struct Bar(Option<ProgressBar>);

impl Bar {
    pub(crate) fn new(wanted: bool, template: &str) -> Bar {
        Bar((wanted && io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template(template);
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        }))
    }

    pub(crate) fn show(&self, done: u64, all: u64, message: impl Into<Cow<'static, str>>) {
        if let Some(bar) = &self.0 {
            bar.set_length(all);
            bar.set_position(done);
            bar.set_message(message);
        }
    }

    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}
