//! What the threads of a volume log about work that fails again and again.

use crate::Result;

/// The last message that was logged.
#[derive(Debug, Default)]
pub(crate) struct LastMessage(String);

impl LastMessage {
    /// Logs that `what` failed, unless that was the last message: a host may be full for hours, and every try fails.
    pub(crate) fn once(&mut self, what: &str, done: Result<()>) {
        if let Some(why) = self.news(what, done) {
            tracing::warn!("{why}");
        }
    }

    /// The message to log.
    fn news(&mut self, what: &str, done: Result<()>) -> Option<&str> {
        let Err(error) = done else {
            if self.0.starts_with(what) {
                self.0.clear();
            }
            return None;
        };
        let why = format!("{what}: {error}");
        let is_news = self.0 != why;
        self.0 = why;
        is_news.then_some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsError;

    #[test]
    fn what_fails_each_time_is_said_once_until_it_works_or_fails_otherwise() {
        let mut last = LastMessage::default();
        let mut said = |what: &str, why: Option<&str>| {
            let done = why.map_or(Ok(()), |why| Err(FsError::Io(why.into())));
            last.news(what, done).is_some()
        };
        assert!(!said("a write", None));
        assert!(said("a write", Some("full")));
        for _ in 0..1000 {
            assert!(!said("a write", Some("full")));
        }
        assert!(said("a write", Some("broken")));
        assert!(!said("a commit", None), "that is another thing");
        assert!(!said("a write", Some("broken")));
        assert!(!said("a write", None));
        assert!(said("a write", Some("broken")), "it worked in between");
    }
}
