//! Who reports which error.

use super::*;

#[test]
fn every_handle_that_was_open_reports_an_error_once() {
    let errors = ErrorSequence::default();
    let (first, second) = (errors.sample(), errors.sample());
    assert!(errors.check(&first).is_none());
    errors.record_error("the disk said no");
    errors.record_error("and again");
    let unseen = errors.sample();
    assert!(errors.check(&first).is_some());
    let late = errors.sample();
    assert!(errors.check(&first).is_none(), "once each");
    assert!(errors.check(&second).is_some());
    assert!(errors.check(&second).is_none());
    assert!(errors.check(&late).is_none(), "reported before it was opened");
    assert!(errors.check(&unseen).is_some(), "opened before anybody had seen it");
    errors.record_error("a new one");
    for cursor in [&first, &second, &late, &unseen] {
        assert!(errors.check(cursor).is_some());
        assert!(errors.check(cursor).is_none());
    }
}
