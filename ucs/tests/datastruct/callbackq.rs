//! Slots and spill, removal from inside, one-shots, and changes from other threads.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use proptest::prelude::*;
use ucs::datastruct::callbackq::{CallbackId, CallbackQ, CallbackQHandle, FAST_SLOTS, Oneshot, QueueClosed};

use crate::page::printed;
use crate::watched;

/// Calls the closure that its argument points to.
unsafe extern "C" fn call<F: Fn() -> u32>(argument: *mut c_void) -> u32 {
    // SAFETY: `add` passes a pointer to a closure of this type, which outlives the queue in every test.
    let closure = unsafe { &*argument.cast::<F>() };
    closure()
}

fn add<F: Fn() -> u32>(queue: &CallbackQ, closure: &F) -> CallbackId {
    // SAFETY: the tests declare their closures before their queue, or keep them as long.
    unsafe { queue.add(call::<F>, ptr::from_ref(closure).cast_mut().cast()) }
}

/// Counts the calls in the `AtomicU32` that its argument points to; answers 1.
unsafe extern "C" fn tally(argument: *mut c_void) -> u32 {
    // SAFETY: the tests pass a pointer to an atomic that outlives the registration.
    unsafe { &*argument.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    1
}

fn pointer(counter: &AtomicU32) -> *mut c_void {
    ptr::from_ref(counter).cast_mut().cast()
}

fn add_tally(queue: &CallbackQ, counter: &AtomicU32) -> CallbackId {
    // SAFETY: counters outlive the queue.
    unsafe { queue.add(tally, pointer(counter)) }
}

fn add_tally_by_handle(handle: &CallbackQHandle, counter: &AtomicU32) -> Result<CallbackId, QueueClosed> {
    // SAFETY: counters outlive the queue.
    unsafe { handle.add(tally, pointer(counter)) }
}

fn read(counter: &AtomicU32) -> u32 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn a_queue_warns_of_the_callbacks_it_is_dropped_with() {
    for callbacks in [0, 1, FAST_SLOTS + 1] {
        let counter = AtomicU32::new(0);
        let queue = CallbackQ::new();
        for _ in 0..callbacks {
            add_tally(&queue, &counter);
        }
        assert_eq!(queue.is_empty(), callbacks == 0);
        let warnings = printed("warn", || drop(queue));
        let expected = format!("callbacks={callbacks}");
        assert_eq!(warnings.contains(&expected), callbacks > 0, "{callbacks}: {warnings}");
        assert_eq!(warnings.is_empty(), callbacks == 0, "{warnings}");
    }
}

#[test]
fn an_empty_queue_does_nothing() {
    let queue = CallbackQ::new();
    assert_eq!(queue.dispatch(), 0);
    assert!(queue.is_empty());
}

#[test]
fn every_callback_runs_once_a_dispatch_however_many_there_are() {
    let counters: Vec<_> = (0..if cfg!(miri) { 10 } else { 40 }).map(|_| AtomicU32::new(0)).collect();
    for count in 0..counters.len() {
        let queue = CallbackQ::new();
        for counter in &counters {
            counter.store(0, Ordering::Relaxed);
        }
        let ids: Vec<_> = counters[..count].iter().map(|counter| add_tally(&queue, counter)).collect();
        assert_eq!(queue.len(), count);
        for round in 1..4 {
            assert_eq!(queue.dispatch(), u32::try_from(count).unwrap());
            assert!(counters[..count].iter().all(|counter| read(counter) == round));
        }
        for (id, counter) in ids.into_iter().zip(&counters) {
            assert_eq!(queue.remove(id), Some(pointer(counter)));
            assert_eq!(queue.remove(id), None);
        }
        assert_eq!(queue.dispatch(), 0);
        assert!(queue.is_empty());
    }
}

#[test]
fn fast_callbacks_run_in_the_order_in_which_they_were_added() {
    let order = RefCell::new(Vec::new());
    let closures: Vec<_> = (0..FAST_SLOTS)
        .map(|number| {
            let order = &order;
            move || {
                order.borrow_mut().push(number);
                1
            }
        })
        .collect();
    let queue = CallbackQ::new();
    let ids: Vec<_> = closures.iter().map(|closure| add(&queue, closure)).collect();
    queue.dispatch();
    assert_eq!(order.take(), (0..FAST_SLOTS).collect::<Vec<_>>());
    queue.remove(ids[2]);
    queue.remove(ids[5]);
    queue.dispatch();
    assert_eq!(order.take(), (0..FAST_SLOTS).filter(|slot| ![2, 5].contains(slot)).collect::<Vec<_>>());
    for id in ids {
        queue.remove(id);
    }
}

#[test]
fn ids_are_never_used_twice() {
    let counter = AtomicU32::new(0);
    let queue = CallbackQ::new();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..100 {
        let id = add_tally(&queue, &counter);
        assert!(seen.insert(id));
        assert_eq!(CallbackId::new(id.get()), Some(id));
        queue.remove(id);
    }
    assert_eq!(CallbackId::new(0), None);
}

#[test]
fn counts_add_up_without_overflow() {
    let huge = || u32::MAX;
    let two = || 2;
    let queue = CallbackQ::new();
    let ids = [add(&queue, &huge), add(&queue, &two)];
    assert_eq!(queue.dispatch(), 1);
    ids.into_iter().for_each(|id| assert!(queue.remove(id).is_some()));
}

#[test]
fn a_callback_may_remove_itself() {
    for others in [0, 6, FAST_SLOTS - 1, FAST_SLOTS, 40] {
        let queue = Rc::new(CallbackQ::new());
        let counters: Vec<_> = (0..others).map(|_| AtomicU32::new(0)).collect();
        let ids: Vec<_> = counters.iter().map(|counter| add_tally(&queue, counter)).collect();
        let own_id = Cell::new(None);
        let calls = Cell::new(0);
        let remove_self = {
            let (queue, own_id, calls) = (queue.clone(), &own_id, &calls);
            move || {
                calls.set(calls.get() + 1);
                assert!(queue.remove(own_id.get().unwrap()).is_some());
                0
            }
        };
        own_id.set(Some(add(&queue, &remove_self)));
        for round in 1..4 {
            assert_eq!(queue.dispatch() as usize, others);
            assert!(counters.iter().all(|counter| read(counter) == round));
        }
        assert_eq!(calls.get(), 1);
        assert_eq!(queue.len(), others);
        ids.into_iter().for_each(|id| assert!(queue.remove(id).is_some()));
    }
}

#[test]
fn what_a_callback_removes_is_not_called_again_not_even_in_this_dispatch() {
    // The remover is first, last, and between; the victim before it or behind it, fast or spilled.
    const COUNT: usize = FAST_SLOTS + if cfg!(miri) { 1 } else { 5 };
    for remover in 0..COUNT {
        for victim in (0..COUNT).filter(|victim| *victim != remover) {
            let queue = Rc::new(CallbackQ::new());
            let counters: Vec<_> = (0..COUNT).map(|_| AtomicU32::new(0)).collect();
            let ids = Rc::new(RefCell::new(Vec::new()));
            let at_removal = Cell::new(None);
            let remove_victim = || {
                queue.remove(ids.borrow()[victim]);
                at_removal.set(at_removal.get().or(Some(read(&counters[victim]))));
                1
            };
            for (index, counter) in counters.iter().enumerate() {
                let id =
                    if index == remover { add(&queue, &remove_victim) } else { add_tally(&queue, counter) };
                ids.borrow_mut().push(id);
            }
            queue.dispatch();
            queue.dispatch();
            assert_eq!(at_removal.get(), Some(read(&counters[victim])), "{remover} removes {victim}");
            for (index, counter) in counters.iter().enumerate() {
                assert!(
                    read(counter) == 2 || [remover, victim].contains(&index),
                    "{remover} {victim} {index}"
                );
            }
            ids.take().into_iter().for_each(|id| _ = queue.remove(id));
        }
    }
}

#[test]
fn what_a_callback_adds_runs_by_the_next_dispatch() {
    for others in [0, 5, FAST_SLOTS - 1, FAST_SLOTS, 40] {
        let queue = Rc::new(CallbackQ::new());
        let counters: Vec<_> = (0..others).map(|_| AtomicU32::new(0)).collect();
        let added = AtomicU32::new(0);
        let new_id = Cell::new(None);
        let adder = || {
            if new_id.get().is_none() {
                new_id.set(Some(add_tally(&queue, &added)));
            }
            0
        };
        let mut ids = vec![add(&queue, &adder)];
        ids.extend(counters.iter().map(|counter| add_tally(&queue, counter)));
        queue.dispatch();
        let before = read(&added);
        assert!(before <= 1);
        queue.dispatch();
        assert_eq!(read(&added), before + 1);
        assert!(counters.iter().all(|counter| read(counter) == 2));
        ids.extend(new_id.get());
        ids.into_iter().for_each(|id| assert!(queue.remove(id).is_some()));
    }
}

#[test]
fn a_callback_may_replace_itself_for_ever() {
    let queue = Rc::new(CallbackQ::new());
    let calls = AtomicU32::new(0);
    let id = Cell::new(None);
    let replace = |argument: *mut c_void| {
        queue.remove(id.get().unwrap());
        // SAFETY: the counter outlives the queue.
        id.set(Some(unsafe { queue.add(tally, argument) }));
        0
    };
    let closure = || replace(pointer(&calls));
    id.set(Some(add(&queue, &closure)));
    queue.dispatch();
    for _ in 0..10 {
        queue.dispatch();
    }
    assert!((10..=11).contains(&read(&calls)));
    assert_eq!(queue.len(), 1);
    queue.remove(id.get().unwrap());
}

#[test]
fn a_callback_may_dispatch_again() {
    watched(|| {
        let queue = Rc::new(CallbackQ::new());
        let counters: Vec<_> = (0..12).map(|_| AtomicU32::new(0)).collect();
        let depth = Cell::new(0);
        let nested = || {
            if depth.replace(1) == 0 {
                queue.dispatch();
            }
            1
        };
        let mut ids = vec![add(&queue, &nested)];
        ids.extend(counters.iter().map(|counter| add_tally(&queue, counter)));
        queue.dispatch();
        assert!(counters.iter().all(|counter| read(counter) >= 1));
        ids.into_iter().for_each(|id| _ = queue.remove(id));
    });
}

#[test]
fn a_spilled_callback_moves_up_when_a_fast_slot_is_free() {
    let counters: Vec<_> = (0..FAST_SLOTS + 2).map(|_| AtomicU32::new(0)).collect();
    let queue = CallbackQ::new();
    let ids: Vec<_> = counters.iter().map(|counter| add_tally(&queue, counter)).collect();
    queue.dispatch();
    queue.remove(ids[0]);
    queue.remove(ids[3]);
    for round in 2..5 {
        // Spilled callbacks are called by a dispatch that checks the pending work, and by no other.
        let count = if round == 2 { queue.dispatch() } else { queue.dispatch_fast() };
        assert_eq!(count as usize, FAST_SLOTS);
        assert!(
            ids.iter().zip(&counters).all(|(id, counter)| {
                read(counter) == if [ids[0], ids[3]].contains(id) { 1 } else { round }
            })
        );
    }
    // Ids hold wherever their callbacks are now.
    for (index, id) in ids.iter().enumerate() {
        assert_eq!(queue.remove(*id).is_some(), ![0, 3].contains(&index));
    }
}

#[test]
fn a_oneshot_runs_once_and_counts() {
    let queue = CallbackQ::new();
    let calls = Rc::new(Cell::new(0));
    let counter = AtomicU32::new(0);
    let closure = {
        let calls = calls.clone();
        move || {
            calls.set(calls.get() + 1);
            5
        }
    };
    queue.add_oneshot(1, closure);
    // SAFETY: the counter outlives the queue.
    unsafe { queue.add_oneshot_raw(1, tally, pointer(&counter)) };
    assert_eq!(queue.dispatch(), 6);
    assert_eq!(queue.dispatch(), 0);
    assert_eq!((calls.get(), read(&counter)), (1, 1));
}

#[test]
fn oneshots_run_in_order_and_new_ones_wait_for_the_next_dispatch() {
    watched(|| {
        let queue = Rc::new(CallbackQ::new());
        let order = Rc::new(RefCell::new(Vec::new()));
        fn chain(queue: &Rc<CallbackQ>, order: &Rc<RefCell<Vec<u32>>>, number: u32) {
            let (again, order) = (queue.clone(), order.clone());
            queue.add_oneshot(7, move || {
                order.borrow_mut().push(number);
                if number < 30 {
                    chain(&again, &order, number + 10);
                }
                1
            });
        }
        chain(&queue, &order, 1);
        chain(&queue, &order, 2);
        for expected in [vec![1, 2], vec![11, 12], vec![21, 22], vec![31, 32], vec![]] {
            assert_eq!(queue.dispatch() as usize, expected.len());
            assert_eq!(order.take(), expected);
        }
    });
}

#[test]
fn oneshots_are_removed_by_key() {
    let queue = Rc::new(CallbackQ::new());
    let ran = Rc::new(RefCell::new(Vec::new()));
    let add_one = |key: usize, number: u32| {
        let ran = ran.clone();
        queue.add_oneshot(key, move || {
            ran.borrow_mut().push(number);
            1
        });
    };
    add_one(1, 10);
    add_one(2, 20);
    add_one(1, 11);
    add_one(3, 30);
    assert_eq!(queue.remove_oneshots(1), 2);
    assert_eq!(queue.remove_oneshots(1), 0);
    assert_eq!(queue.remove_oneshots(9), 0);
    assert_eq!(queue.dispatch(), 2);
    assert_eq!(ran.take(), [20, 30]);
}

#[test]
fn a_predicate_chooses_among_the_oneshots_of_a_key_and_may_change_the_queue() {
    let queue = CallbackQ::new();
    let counters = [const { AtomicU32::new(0) }; 4];
    for counter in &counters {
        // SAFETY: the counters outlive what is done with the queue.
        unsafe { queue.add_oneshot_raw(5, tally, pointer(counter)) };
    }
    queue.add_oneshot(5, || 100);
    let removed = queue.remove_oneshots_if(5, |oneshot| {
        queue.add_oneshot(6, || 1000);
        match oneshot {
            Oneshot::Raw(raw) => {
                raw.argument == pointer(&counters[1]) || raw.argument == pointer(&counters[2])
            }
            Oneshot::Boxed(_) => false,
        }
    });
    assert_eq!(removed, 2);
    assert_eq!(queue.dispatch(), 1 + 1 + 100 + 5 * 1000);
    assert_eq!(counters.each_ref().map(read), [1, 0, 0, 1]);
}

#[test]
fn a_oneshot_may_remove_those_behind_it() {
    let queue = Rc::new(CallbackQ::new());
    let again = queue.clone();
    queue.add_oneshot(1, move || again.remove_oneshots(2) as u32);
    queue.add_oneshot(2, || panic!("it was removed"));
    queue.add_oneshot(2, || panic!("it was removed"));
    assert_eq!(queue.dispatch(), 2);
    assert_eq!(queue.dispatch(), 0);
}

#[test]
fn a_panic_of_a_oneshot_reaches_the_caller_of_dispatch() {
    let queue = CallbackQ::new();
    queue.add_oneshot(0, || std::panic::resume_unwind(Box::new("a planted failure")));
    queue.add_oneshot(0, || 3);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| queue.dispatch())).unwrap_err();
    assert_eq!(queue.dispatch(), 3);
}

#[test]
fn changes_by_handle_hold_from_the_next_dispatch_on_in_their_order() {
    let counter = AtomicU32::new(0);
    let queue = CallbackQ::new();
    let handle = queue.handle();
    let id = add_tally_by_handle(&handle, &counter).unwrap();
    assert_eq!(queue.dispatch(), 1);
    handle.remove(id).unwrap();
    assert_eq!(queue.dispatch(), 0);
    let id = add_tally_by_handle(&handle, &counter).unwrap();
    handle.remove(id).unwrap();
    assert_eq!(queue.dispatch(), 0);
    handle.add_oneshot(4, || 7).unwrap();
    handle.add_oneshot(5, || 70).unwrap();
    handle.remove_oneshots(4).unwrap();
    // SAFETY: the counter outlives the queue.
    unsafe { handle.add_oneshot_raw(4, tally, pointer(&counter)) }.unwrap();
    assert_eq!(queue.dispatch(), 71);
    assert_eq!(read(&counter), 2);
    assert_eq!(queue.dispatch(), 0);
}

#[test]
fn what_was_added_by_handle_can_be_removed_at_once_by_the_queue() {
    let counter = AtomicU32::new(0);
    let queue = CallbackQ::new();
    let id = add_tally_by_handle(&queue.handle(), &counter).unwrap();
    assert_eq!(queue.remove(id), Some(pointer(&counter)));
    queue.handle().add_oneshot(3, || 9).unwrap();
    assert_eq!(queue.remove_oneshots(3), 1);
    assert_eq!(queue.dispatch(), 0);
}

#[test]
fn a_callback_may_use_a_handle_of_its_own_queue() {
    let counter = AtomicU32::new(0);
    let queue = CallbackQ::new();
    let handle = queue.handle();
    let once = Cell::new(true);
    let closure = || {
        if once.take() {
            add_tally_by_handle(&handle, &counter).unwrap();
        }
        0
    };
    let id = add(&queue, &closure);
    assert_eq!(queue.dispatch(), 0);
    assert_eq!(queue.dispatch(), 1);
    queue.remove(id);
}

#[test]
fn after_remove_then_the_callback_is_never_called_again() {
    let counter = AtomicU32::new(0);
    let queue = CallbackQ::new();
    let id = add_tally(&queue, &counter);
    queue.dispatch();
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    queue.handle().remove_then(id, move || tell.store(true, Ordering::Relaxed)).unwrap();
    assert!(!told.load(Ordering::Relaxed));
    queue.dispatch();
    assert!(told.load(Ordering::Relaxed));
    assert_eq!(read(&counter), 1);
}

#[test]
fn a_dropped_queue_finishes_removals_and_refuses_changes() {
    let counter = AtomicU32::new(0);
    let queue = CallbackQ::new();
    let id = add_tally(&queue, &counter);
    let handle = queue.handle();
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    handle.remove_then(id, move || tell.store(true, Ordering::Relaxed)).unwrap();
    let alive = Arc::new(());
    let held = alive.clone();
    handle
        .add_oneshot(0, move || {
            drop(held);
            panic!("nobody dispatches it");
        })
        .unwrap();
    drop(queue);
    assert!(told.load(Ordering::Relaxed));
    assert_eq!(Arc::strong_count(&alive), 1);
    assert_eq!(handle.remove(id), Err(QueueClosed));
    assert_eq!(add_tally_by_handle(&handle, &counter), Err(QueueClosed));
    assert_eq!(handle.add_oneshot(0, || 0), Err(QueueClosed));
    assert_eq!(read(&counter), 0);
}

#[test]
fn threads_add_and_remove_while_another_dispatches() {
    watched(|| {
        let threads: u32 = if cfg!(miri) { 2 } else { 4 };
        let rounds = if cfg!(miri) { 5 } else { 500 };
        let queue = CallbackQ::new();
        let oneshots = Arc::new(AtomicU32::new(0));
        let removed = Arc::new(AtomicU32::new(0));
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let handle = queue.handle();
                let (oneshots, removed) = (oneshots.clone(), removed.clone());
                thread::spawn(move || {
                    for round in 0..rounds {
                        // Freed by what runs after the removal: an early call or a late one is a use after free.
                        let counter = Box::into_raw(Box::new(AtomicU32::new(0)));
                        // SAFETY: the counter lives until the removal has taken effect.
                        let id = unsafe { handle.add(tally, counter.cast()) }.unwrap();
                        let oneshots = oneshots.clone();
                        let ran = move || oneshots.fetch_add(1, Ordering::Relaxed);
                        handle.add_oneshot(round, ran).unwrap();
                        let (removed, address) = (removed.clone(), counter.expose_provenance());
                        let free = move || {
                            removed.fetch_add(1, Ordering::Relaxed);
                            let counter = ptr::with_exposed_provenance_mut::<AtomicU32>(address);
                            // SAFETY: it was leaked above, and its callback is not called any more.
                            drop(unsafe { Box::from_raw(counter) });
                        };
                        handle.remove_then(id, free).unwrap();
                    }
                })
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            queue.dispatch();
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        queue.dispatch();
        let expected = threads * u32::try_from(rounds).unwrap();
        assert_eq!(oneshots.load(Ordering::Relaxed), expected);
        assert_eq!(removed.load(Ordering::Relaxed), expected);
        assert!(queue.is_empty());
        assert_eq!(queue.dispatch(), 0);
    });
}

/// What the property test does to a queue and to its model.
#[derive(Clone, Debug)]
enum Step {
    Add { by_handle: bool },
    Remove { which: usize, by_handle: bool },
    Oneshot { key: usize, by_handle: bool },
    RemoveOneshots { key: usize },
    Dispatch,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(|by_handle| Step::Add { by_handle }),
        3 => (0..30usize, any::<bool>()).prop_map(|(which, by_handle)| Step::Remove { which, by_handle }),
        2 => (0..3usize, any::<bool>()).prop_map(|(key, by_handle)| Step::Oneshot { key, by_handle }),
        1 => (0..3usize).prop_map(|key| Step::RemoveOneshots { key }),
        3 => Just(Step::Dispatch),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 512 }, ..crate::property::config() })]

    #[test]
    fn it_does_what_a_set_of_callbacks_does(steps in proptest::collection::vec(step(), 1..200)) {
        let counters: Vec<_> = (0..steps.len()).map(|_| AtomicU32::new(0)).collect();
        let queue = CallbackQ::new();
        let handle = queue.handle();
        // What is registered once all changes are applied: id, counter, expected calls.
        let mut model: Vec<(CallbackId, usize, u32)> = Vec::new();
        let mut oneshots: Vec<usize> = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            match *step {
                Step::Add { by_handle } => {
                    let counter = &counters[index];
                    let id = if by_handle { add_tally_by_handle(&handle, counter).unwrap() } else { add_tally(&queue, counter) };
                    model.push((id, index, 0));
                }
                Step::Remove { which, by_handle } => {
                    if model.is_empty() {
                        continue;
                    }
                    let (id, counter, calls) = model.remove(which % model.len());
                    if by_handle {
                        handle.remove(id).unwrap();
                    } else {
                        prop_assert_eq!(queue.remove(id), Some(pointer(&counters[counter])));
                    }
                    prop_assert_eq!(read(&counters[counter]), calls);
                }
                Step::Oneshot { key, by_handle } => {
                    oneshots.push(key);
                    if by_handle {
                        handle.add_oneshot(key, || 1).unwrap();
                    } else {
                        queue.add_oneshot(key, || 1);
                    }
                }
                Step::RemoveOneshots { key } => {
                    let before = oneshots.len();
                    oneshots.retain(|owner| *owner != key);
                    prop_assert_eq!(queue.remove_oneshots(key), before - oneshots.len());
                }
                Step::Dispatch => {
                    prop_assert_eq!(queue.dispatch() as usize, model.len() + std::mem::take(&mut oneshots).len());
                    prop_assert_eq!(queue.len(), model.len());
                    for (_, counter, calls) in &mut model {
                        *calls += 1;
                        prop_assert_eq!(read(&counters[*counter]), *calls);
                    }
                }
            }
        }
        for (id, ..) in model {
            prop_assert!(queue.remove(id).is_some());
        }
    }
}
