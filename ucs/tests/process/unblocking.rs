//! What an asynchronous context says when it is unblocked.

use ucs::async_context::{AsyncContext, Mode};

use crate::page::printed;

#[test]
fn an_unblock_of_what_was_not_blocked_is_an_error_in_the_log_and_no_other_is() {
    for mode in [Mode::Thread, Mode::Poll] {
        let context = AsyncContext::new(mode);
        assert_eq!(printed("error", || drop(context.block())), "");
        let page = printed("error", || context.unblock_raw());
        assert!(page.contains("unblocked by a thread that has not blocked it"), "{mode:?}: {page}");
    }
}
