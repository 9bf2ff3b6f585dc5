//! Remote memory in the flavour for any thread: several threads and tasks that use one connection, and futures that they drop.

use std::thread;

use crate::support::random::{Random, polled};
use crate::support::threads::pair;
use crate::support::{LIMIT, seed, transports};
use uct_core::Error as Status;
use uct_net::{Blocks, Memory, MemorySlice, Net, Operation, RemoteMemory, Stride, Transfer};

/// An operation that succeeds in time.
fn within<T: Send + 'static>(net: &Net, operation: Operation<T>) -> T {
    net.block_on(net.within(LIMIT, operation)).expect("it ends").expect("it succeeds")
}

#[test]
fn every_handle_of_memory_is_for_any_thread() {
    fn is_for_any_thread<T: Send + Sync + Clone + 'static>() {}
    is_for_any_thread::<Memory>();
    is_for_any_thread::<MemorySlice>();
    is_for_any_thread::<RemoteMemory>();
    fn may_move<T: Send + 'static>() {}
    may_move::<Transfer>();
}

#[test]
fn the_address_of_memory_is_where_its_bytes_are() {
    for transport in transports() {
        let (_left, here, _right, _there) = pair(&transport);
        let memory = here.allocate(4096).expect("memory");
        memory.write(100, &[7]);
        let place = memory.address().wrapping_add(100);
        // SAFETY: a byte of the memory, which nobody else uses.
        assert_eq!(unsafe { place.read() }, 7);
    }
}

#[test]
fn transfers_of_several_threads_move_their_blocks_and_notify_once_each() {
    const THREADS: usize = 3;
    const LENGTH: usize = 1 << 16;
    for transport in transports() {
        let (left, here, right, there) = pair(&transport);
        let memory = here.allocate(THREADS * LENGTH).expect("memory");
        within(&left, here.share(&memory));
        let remote = within(&right, there.shared());
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (net, connection, remote) = (right.clone(), there.clone(), remote.clone());
                thread::spawn(move || {
                    let local = connection.allocate(LENGTH).expect("memory");
                    local.write(0, &vec![number as u8 + 1; LENGTH]);
                    let blocks = Blocks::from(Stride {
                        count: 64,
                        length: 500,
                        local: 0,
                        local_stride: 1024,
                        remote: (number * LENGTH) as u64,
                        remote_stride: 1024,
                    });
                    let new = connection.put_blocks(&local, &remote, &blocks).notify(&[number as u8]);
                    let mut transfer = new.start().expect("it starts");
                    let receipt = net.block_on(net.within(LIMIT, &mut transfer)).expect("it ends");
                    assert_eq!(receipt.expect("it succeeds").bytes, 64 * 500);
                    transfer.again().expect("it is over");
                    net.block_on(net.within(LIMIT, transfer)).expect("it ends").expect("it succeeds");
                    let new = connection.get_blocks(&local, &remote, &blocks);
                    let cancelled = new.start().expect("it starts").cancel();
                    let moved = net.block_on(net.within(LIMIT, cancelled)).expect("it ends");
                    assert_eq!(moved.count() + moved.missing().count(), 64);
                })
            })
            .collect();
        let mut notices = [0; THREADS];
        for _ in 0..2 * THREADS {
            let notice = within(&left, here.notified());
            let number = usize::from(notice[0]);
            notices[number] += 1;
            let mut block = [0; 500];
            memory.read(number * LENGTH + 63 * 1024, &mut block);
            assert!(block.iter().all(|byte| *byte == notice[0] + 1), "notified early over {transport}");
        }
        assert_eq!(notices, [2; THREADS]);
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        right.block_on(there.close().within(LIMIT)).expect("it closes");
    }
}

#[test]
fn memory_that_a_side_shares_is_read_written_and_counted_by_threads_of_the_other() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 50;
    for transport in transports() {
        let (left, here, right, there) = pair(&transport);
        let memory = here.allocate(1 << 16).expect("memory");
        memory.write(100, b"from the server");
        within(&left, here.share(&memory));
        let remote = within(&right, there.shared());
        assert_eq!(remote.len(), memory.len() as u64);
        // The other side makes progress in a thread of its own.
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (net, connection, remote) = (right.clone(), there.clone(), remote.clone());
                thread::spawn(move || {
                    let local = connection.allocate(4096).expect("memory");
                    net.block_on(async {
                        connection.get(local.slice(..15), &remote, 100).await?;
                        assert_eq!(&local.to_vec()[..15], b"from the server");
                        let place = 4096 * (number + 1);
                        local.write(0, &[number as u8 + 1; 1000]);
                        connection.put(local.slice(..1000), &remote, place).await?;
                        for _ in 0..ROUNDS {
                            connection.fetch_add(&remote, 8, number + 1).await?;
                        }
                        connection.flush().await
                    })
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("a thread").expect("its operations");
        }
        assert_eq!(memory.load_u64(8), ROUNDS * (1..=THREADS).sum::<u64>(), "over {transport}");
        for number in 0..THREADS as usize {
            let mut there = [0; 1000];
            memory.read(4096 * (number + 1), &mut there);
            assert!(there.iter().all(|byte| usize::from(*byte) == number + 1), "over {transport}");
        }
        let beyond = right.block_on(there.fetch_add(&remote, remote.len() - 4, 1));
        assert_eq!(beyond.expect_err("beyond the end").status, Status::OUT_OF_RANGE);
        right.block_on(there.close().within(LIMIT)).expect("it closes");
    }
}

#[test]
fn operations_that_threads_drop_keep_their_memory() {
    let seed = seed::printed() | 1;
    for transport in transports() {
        let (left, here, right, there) = pair(&transport);
        let memory = here.allocate(1 << 16).expect("memory");
        memory.write(0, &[3; 1 << 16]);
        within(&left, here.share(&memory));
        let remote = within(&right, there.shared());
        let threads: Vec<_> = (1..=2)
            .map(|number: u64| {
                let (net, connection, remote) = (right.clone(), there.clone(), remote.clone());
                thread::spawn(move || {
                    let mut random = Random(seed ^ number << 8);
                    for _ in 0..150 {
                        let local = connection.allocate(1 << 12).expect("memory");
                        local.write(0, &[3; 1 << 12]);
                        let length = 1 + random.below(1 << 12) as usize;
                        let (slice, polls) = (local.slice(..length), random.below(3));
                        drop(local);
                        net.block_on(async {
                            let operation = match random.below(4) {
                                0 => connection.get(slice, &remote, 0),
                                1 => connection.put(slice, &remote, 0),
                                2 => {
                                    return polled(polls, connection.fetch_add(&remote, 0, 0))
                                        .await
                                        .map(|old| old.map(drop));
                                }
                                _ => connection.flush(),
                            };
                            polled(polls, operation).await
                        })
                        .transpose()
                        .expect("it lives");
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("a thread");
        }
        within(&right, there.flush());
        assert!(memory.to_vec().iter().all(|byte| *byte == 3), "over {transport}");
    }
}

#[test]
fn threads_send_slices_of_memory_as_messages() {
    const THREADS: u8 = 3;
    /// Of `send_slice`, which the peer reads in place where it can.
    const LARGE: usize = 300_000;
    for transport in transports() {
        let (left, here, right, there) = pair(&transport);
        let threads: Vec<_> = (1..=THREADS)
            .map(|number| {
                let (net, connection) = (right.clone(), there.clone());
                thread::spawn(move || {
                    let memory = connection.allocate(LARGE).expect("memory");
                    memory.write(0, &vec![number; LARGE]);
                    for length in [LARGE, 100, LARGE - 1] {
                        within(&net, connection.send_slice(memory.slice(..length)));
                    }
                })
            })
            .collect();
        let mut lengths = Vec::new();
        for _ in 0..3 * THREADS {
            let message = left.block_on(here.recv().within(LIMIT)).expect("a message");
            assert!(message.iter().all(|byte| *byte == message[0]), "over {transport}");
            lengths.push((message[0], message.len()));
        }
        for thread in threads {
            thread.join().expect("a thread");
        }
        lengths.sort_by_key(|(number, _)| *number);
        let expected =
            (1..=THREADS).flat_map(|number| [LARGE, 100, LARGE - 1].map(|length| (number, length)));
        assert_eq!(lengths, expected.collect::<Vec<_>>(), "over {transport}");
    }
}

#[test]
fn memory_of_another_net_is_refused_with_the_reason() {
    let (_left, here, right, there) = pair("posix");
    let foreign = here.allocate(64).expect("memory");
    for refused in [there.share(&foreign), there.send_slice(foreign.slice(..))] {
        let error = right.block_on(refused).expect_err("of the other side");
        assert_eq!(error.status, Status::INVALID_PARAM);
        assert!(error.to_string().contains("another Net"), "{error}");
    }
}

#[test]
fn a_range_that_is_outside_panics_in_the_thread_that_asks_for_it_alone() {
    let (left, here, _right, _there) = pair("posix");
    let memory = here.allocate(64).expect("memory");
    let length = memory.len();
    for wrong in [length + 1, usize::MAX] {
        let memory = memory.clone();
        let outcome = thread::spawn(move || memory.read(wrong, &mut [0; 2])).join();
        assert!(outcome.is_err(), "{wrong}");
    }
    memory.write(length - 1, &[7]);
    left.block_on(left.sleep(std::time::Duration::ZERO));
    assert_eq!(memory.to_vec()[length - 1], 7);
}

#[test]
fn tasks_of_a_runtime_count_in_memory_of_a_peer() {
    const TASKS: u64 = 8;
    const ROUNDS: u64 = 40;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().expect("a runtime");
    for transport in transports() {
        let (left, here, _right, there) = pair(&transport);
        let memory = here.allocate(8).expect("memory");
        within(&left, here.share(&memory));
        runtime.block_on(async {
            let remote = there.shared().await.expect("what the peer shared");
            let tasks: Vec<_> = (0..TASKS)
                .map(|_| {
                    let (connection, remote) = (there.clone(), remote.clone());
                    tokio::spawn(async move {
                        for _ in 0..ROUNDS {
                            connection.fetch_add(&remote, 0, 1).await?;
                        }
                        connection.flush().await
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("a task").expect("its operations");
            }
        });
        assert_eq!(memory.load_u64(0), TASKS * ROUNDS, "over {transport}");
    }
}
