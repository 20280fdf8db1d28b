//! What a command that has to wait shows of that: nothing in the first second, nothing elsewhere than on a terminal, and
//! then what is left; and after some seconds, wherever that leads, what it waits for, if it knows. No thread: the waiter calls
//! it between two looks.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_daemon::{ask, report};
use holdfast_service::size;
use indicatif::{ProgressBar, ProgressStyle};

use crate::outcome::complain;

/// What is over by then is not worth a line that comes and goes.
const SILENT: Duration = Duration::from_secs(1);
/// What takes so long may be worth a line, also to scripts and their logs.
const LONG: Duration = Duration::from_secs(5);
/// Makes a line of what has been waited for so long, once it is worth one.
type Line = Box<dyn Fn(Duration) -> Option<String>>;

/// A line on a terminal, which goes when this is dropped.
pub(crate) struct Waiting {
    /// `None`: it has no reader.
    from: Option<Deadline>,
    bar: Option<ProgressBar>,
    /// The most that was left at any time.
    most: u64,
    /// What is said when it has taken long, and since when that is counted.
    line: Option<(Stopwatch, Line)>,
}

impl Waiting {
    /// Begins to wait.
    pub(crate) fn new(quiet: bool) -> Waiting {
        let shown = !quiet && io::stderr().is_terminal();
        Waiting { from: shown.then(|| Deadline::after(SILENT)), bar: None, most: 0, line: None }
    }

    /// The same; when it has taken long, `line` stays on the standard error.
    pub(crate) fn naming(line: impl Fn(Duration) -> Option<String> + 'static) -> Waiting {
        let mut waiting = Waiting::new(false);
        waiting.line = Some((Stopwatch::start(), Box::new(line)));
        waiting
    }

    /// Looks whether it has taken long by now.
    pub(crate) fn look(&mut self) {
        let Some((since, line)) = &self.line else { return };
        let waited = since.elapsed();
        if waited >= LONG
            && let Some(line) = line(waited)
        {
            self.line = None;
            self.next();
            complain(&line);
        }
    }

    /// Whether anything would be shown now.
    pub(crate) fn is_due(&self) -> bool {
        self.from.is_some_and(Deadline::is_over)
    }

    /// So many bytes are left to do; they may become more while others write.
    pub(crate) fn left(&mut self, bytes: u64, what: &str) {
        self.most = self.most.max(bytes);
        // Where nothing was left, nothing is shown: the answer alone takes its time.
        if !self.is_due() || self.most == 0 {
            return;
        }
        let most = self.most;
        let bar = self.bar();
        bar.set_length(most.max(1));
        bar.set_position(most.max(1) - bytes.min(most.max(1)));
        bar.set_message(format!("{} {what}", size::show(bytes)));
    }

    /// It is unknown how much is left.
    pub(crate) fn says(&mut self, what: &'static str) {
        self.look();
        if self.is_due() {
            let bar = self.bar();
            bar.set_message(what);
            bar.tick();
        }
    }

    /// Makes everything in a mount durable by its daemon, in `patience`, and shows what is left.
    ///
    /// # Errors
    /// What the daemon answered; `TimedOut`.
    pub(crate) fn sync(&mut self, dir: &Path, patience: Duration) -> io::Result<()> {
        let mut meanwhile = || {
            self.look();
            if !self.is_due() {
                return;
            }
            match report::dirty_bytes(dir) {
                Some(bytes) => self.left(bytes, "of files still to write"),
                None => self.says("writing"),
            }
        };
        ask::sync(dir, patience, &mut meanwhile)
    }

    /// A step of another kind begins.
    pub(crate) fn next(&mut self) {
        self.most = 0;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn bar(&mut self) -> &ProgressBar {
        self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{wide_bar} {msg}, {elapsed}");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_in_the_first_second() {
        let now = Deadline::after(Duration::ZERO);
        let mut late = Waiting { from: Some(now), bar: None, most: 0, line: None };
        let later = Deadline::after(Duration::from_secs(3600));
        let mut soon = Waiting { from: Some(later), bar: None, most: 0, line: None };
        for waiting in [&mut late, &mut soon] {
            waiting.left(10 << 20, "to write");
            waiting.left(4 << 20, "to write");
        }
        assert!(soon.bar.is_none());
        let bar = late.bar.as_ref().unwrap();
        assert_eq!((bar.position(), bar.length()), (6 << 20, Some(10 << 20)));
        assert_eq!(bar.message(), "4.0 MiB to write");
        // Others have written meanwhile.
        late.left(12 << 20, "to write");
        let bar = late.bar.as_ref().unwrap();
        assert_eq!((bar.position(), bar.length()), (0, Some(12 << 20)));
        late.next();
        assert!(late.bar.is_none());
    }
}
