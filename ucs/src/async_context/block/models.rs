//! Models of the lock: every interleaving of blockers and of the thread that notes events, within loom's memory model.
//! Built on the lock and on loom.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A number that no two living threads of a model share; not 0.
pub(in super::super) fn thread_token() -> usize {
    let mut hasher = DefaultHasher::new();
    loom::thread::current().id().hash(&mut hasher);
    hasher.finish() as usize | 1
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::*;
    use crate::sync::Arc;
    use crate::sync::cell::UnsafeCell;

    /// The context reduced to its protocol: handlers count in `handled`, which the lock protects.
    struct Model {
        block: Block,
        missed: Mutex<VecDeque<u32>>,
        handled: UnsafeCell<u32>,
    }

    impl Model {
        fn new() -> Arc<Model> {
            let missed = Mutex::new(VecDeque::new());
            Arc::new(Model { block: Block::new(), missed, handled: UnsafeCell::new(0) })
        }

        fn handle(&self, event: u32) {
            // SAFETY: called with the block entered only, which loom checks.
            self.handled.with_mut(|handled| unsafe { *handled += event });
        }

        fn replay(&self) {
            loop {
                let next = self.missed.lock().unwrap().pop_front();
                let Some(event) = next else { return };
                self.handle(event);
            }
        }

        fn unblock(&self) {
            assert!(self.block.leave(|| self.replay()));
        }

        /// What the context's thread does with an event.
        fn deliver(&self, event: u32) {
            if self.block.try_enter() {
                self.handle(event);
                self.unblock();
                return;
            }
            self.missed.lock().unwrap().push_back(event);
            if self.block.note_missed() && self.block.try_enter() {
                self.unblock();
            }
        }

        fn blocked_section(&self) {
            self.block.enter();
            self.handle(0);
            self.unblock();
        }

        fn handled(&self) -> u32 {
            self.block.enter();
            // SAFETY: the block is entered.
            let handled = self.handled.with(|handled| unsafe { *handled });
            self.unblock();
            handled
        }
    }

    fn no_event_is_lost(blockers: usize, events: u32) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let model = Model::new();
            let threads: Vec<_> = (1..blockers)
                .map(|_| {
                    let model = model.clone();
                    loom::thread::spawn(move || model.blocked_section())
                })
                .collect();
            let server = {
                let model = model.clone();
                loom::thread::spawn(move || (0..events).for_each(|event| model.deliver(1 << event)))
            };
            model.blocked_section();
            server.join().unwrap();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            // There are no further calls of unblock: what is not handled now never would be.
            assert_eq!(model.handled(), (1 << events) - 1);
            assert!(model.missed.lock().unwrap().is_empty());
        });
    }

    #[test]
    fn no_event_is_lost_with_one_blocker() {
        no_event_is_lost(1, 2);
    }

    #[test]
    fn no_event_is_lost_with_two_blockers() {
        no_event_is_lost(2, 1);
    }
}
