//! What commands have of the pipes of work: standard input and output, and on a terminal how far it has come.

use std::io::{self, IsTerminal};

use holdfast_daemon::dispatch::Pipes;
use holdfast_service::size;
use holdfast_stream::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Only standard output, for people: a reader that has gone is no failure.
pub(crate) fn out() -> Pipes<'static> {
    Pipes::to(io::stdout())
}

/// A bar on a terminal, which goes when this is dropped.
struct Bar {
    bar: ProgressBar,
    /// Bytes that it has shown last.
    last: u64,
}

/// Shows how far work has come that counts `counts`, if a person sees it.
pub(crate) fn bar(counts: &str) -> Option<Box<dyn FnMut(Progress)>> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let template = format!("{{wide_bar}} {{human_pos}}/{{human_len}} {counts}, {{msg}}");
    let style = ProgressStyle::with_template(&template);
    let bar =
        ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut shown = Bar { bar, last: 0 };
    Some(Box::new(move |at| shown.show(at)))
}

impl Bar {
    fn show(&mut self, at: Progress) {
        // A message for each file would cost more than the file.
        if at.bytes.saturating_sub(self.last) >= 1 << 20 || at.files.is_multiple_of(256) {
            self.last = at.bytes;
            self.bar.set_length(at.files_in_all.max(at.files));
            self.bar.set_position(at.files);
            self.bar.set_message(size::show(at.bytes));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
