//! Hostile peers: what they can make an interface spend, and that an honest peer beside them is served throughout.
//!
//! The attacker is a socket of the test that has the address of its victim, or none. Each case measures what it costs the victim and
//! holds that against the limit that docs/tcp.md names. Sizes are small unless `UCT_TEST_HOSTILE` is a factor that multiplies them.

use std::cell::{OnceCell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::alone::is_alone;
use crate::support::{
    Failures, Greeting, HELLO, ID, LIMIT, Side, drive, forged, frame, frame_header, id_of, key_of, play_peer,
    read_frame, resident, send,
};
use crate::victim::{HONEST, LOGGED, MIB, Scene, descriptors};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uct_conformance::random::Random;
use uct_core::{Access, Completion, Ep, Error, Memory, SendFlags};

const PING: u8 = 34;
const PONG: u8 = 35;
const REQUEST: u8 = 32;
const RESPONSE: u8 = 33;

fn factor() -> usize {
    std::env::var("UCT_TEST_HOSTILE")
        .map_or(1, |factor| factor.parse().expect("UCT_TEST_HOSTILE is a number"))
}

/// The largest frame of a request for memory of the victim's, as an honest interface sends it.
fn request_for(memory: &Memory) -> Vec<u8> {
    let initiator = Side::new(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ep, _failures) = initiator.connect(&forged(&initiator, &listener));
    let mut stream = play_peer(&initiator, &listener);
    let key = initiator.iface.memory_domain().unpack(&memory.packed_key().unwrap()).unwrap();
    let completion = Completion::new(&initiator.worker);
    let get = || ep.get_bcopy(8192, memory.address(), &key, &completion, |_: &[u8]| {});
    drive(&[&initiator], || get().is_ok());
    frame(REQUEST, &read_frame(&initiator, &mut stream, REQUEST))
}

#[test]
fn a_flood_of_pings_by_a_peer_that_reads_nothing_is_held_up() {
    if !is_alone() {
        return;
    }
    let mut scene = Scene::new(&[]);
    let pings = frame_header(PING, 0).repeat(8192);
    // One that reads its answers is held up by nothing. Others connect all the same.
    let mut reader = scene.enter(2);
    let (mut asked, mut answered, mut bytes) = (0, 0, vec![0; 1 << 16]);
    let mut ask_and_read = || {
        asked += reader.write(&pings[asked % pings.len()..]).unwrap_or(0);
        answered += reader.read(&mut bytes).unwrap_or(0);
        answered
    };
    drive(&[&scene.victim], || ask_and_read() > MIB);
    scene.serves_another_while(|| {
        ask_and_read();
    });
    let mut peer = scene.enter(1);
    let sent = scene.flood(&mut peer, &pings, 64 * MIB * factor());
    assert!(sent < 32 * MIB, "{sent} bytes were read from a peer that reads nothing");
    let before = ask_and_read();
    scene.serves_another_while(|| {
        ask_and_read();
    });
    assert!(ask_and_read() > before, "the flood went on meanwhile");
    scene.serve();
    scene.report("pings", 3 * MIB, Duration::from_secs(2));
    scene.report_descriptors_and_log("pings", 4);

    // Once it reads it gets each answer, and the rest of what it has sent is read.
    let sent = sent / 8 * 8;
    let (mut pongs, mut bytes) = (0, vec![0; 1 << 16]);
    let end = Instant::now() + LIMIT;
    while pongs < sent {
        scene.progress();
        match peer.read(&mut bytes) {
            Ok(received @ 1..) => {
                let first = bytes[..received].iter().find(|&&byte| byte != 0 && byte != PONG);
                assert_eq!(first, None, "no pong");
                pongs += received;
            }
            _ => assert!(Instant::now() < end, "{pongs} of {sent} bytes of answers"),
        }
    }
    scene.serve();
}

#[test]
fn a_flood_of_requests_by_a_peer_that_reads_nothing_is_held_up() {
    if !is_alone() {
        return;
    }
    let mut scene = Scene::new(&[]);
    let memory = scene.victim.iface.memory_domain().register(vec![7; 8192], Access::ALL).unwrap();
    let request = request_for(&memory);
    let mut peer = scene.enter(1);
    // Each byte asks for two hundred.
    let sent = scene.flood(&mut peer, &request.repeat(4096), 64 * MIB * factor());
    assert!(sent < 32 * MIB, "{sent} bytes were read from a peer that reads nothing");
    scene.report("requests", 3 * MIB, Duration::from_secs(2));
    let (mut answers, mut bytes) = (0, vec![0; 1 << 18]);
    let expected = 4096 * 8;
    drive(&[&scene.victim], || {
        if let Ok(received @ 1..) = peer.read(&mut bytes) {
            assert!(answers > 0 || bytes[0] == RESPONSE);
            answers += received;
        }
        answers >= expected
    });
}

#[test]
fn large_messages_that_are_announced_cost_nothing_until_they_come() {
    if !is_alone() {
        return;
    }
    let mut scene = Scene::new(&[]);
    let giants = 40;
    let mut peers: Vec<TcpStream> = (0..giants).map(|number| scene.enter(number)).collect();
    for peer in &mut peers {
        peer.write_all(&frame_header(ID.get(), 64 << 20)).unwrap();
        for _ in 0..10 {
            scene.progress();
        }
        scene.serve();
    }
    scene.report("announced giants", 0, Duration::from_secs(1));
    // There is room for one that comes: those that bring nothing end.
    let large = vec![5; 64 << 20];
    let mut honest = scene.enter(100);
    let before = scene.victim.count.get();
    let mut message = frame_header(ID.get(), large.len()).to_vec();
    message.extend_from_slice(&large);
    let mut done = 0;
    let end = Instant::now() + LIMIT;
    while scene.victim.count.get() == before {
        if done < message.len() {
            done += honest.write(&message[done..]).unwrap_or(0);
        }
        scene.progress();
        assert!(Instant::now() < end, "{done} bytes are out, and the message has not come");
    }
    scene.serve();
    scene.serves_another();
    scene.report_descriptors_and_log("announced giants", 2 * (giants as usize + 1));
}

/// Attackers of as many sources as there are messages: none takes more than its share, and together they take no more than the sum.
#[test]
fn large_messages_of_many_sources_take_no_more_memory_than_their_sum_may() {
    if !is_alone() {
        return;
    }
    const LARGE: usize = 4 * MIB;
    const ATTACKERS: u8 = 12;
    let most = [("max_message", "4m"), ("max_announced", "8m"), ("max_announced_per_source", "4m")];
    let mut scene = Scene::new(&most);
    let message = [&frame_header(ID.get(), LARGE)[..], &vec![5; LARGE]].concat();
    // All but the last byte comes, so that what may begin stays.
    let without_end = message.len() - 1;
    let mut attackers = Vec::new();
    for number in 0..ATTACKERS {
        attackers.push((scene.try_to_enter([127, 0, 1, number + 1], number.into()).unwrap(), 0));
    }
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(200) {
        for (attacker, sent) in &mut attackers {
            let written = attacker.write(&message[*sent..without_end]).unwrap_or(0);
            if written > 0 {
                (*sent, last) = (*sent + written, Instant::now());
            }
        }
        scene.progress();
    }
    scene.serve();
    let whole = attackers.iter().filter(|(_, sent)| *sent == without_end).count();
    assert!(whole >= 2, "two may come at once");
    scene.report("the sum of large messages", 8 * MIB, Duration::from_secs(1));

    let before = scene.victim.count.get();
    let mut honest = (scene.try_to_enter([127, 0, 0, 2], 100).unwrap(), 0);
    for _ in 0..1000 {
        honest.1 += honest.0.write(&message[honest.1..]).unwrap_or(0);
        scene.progress();
    }
    assert_eq!(scene.victim.count.get(), before, "there was room for a third one");
    // Half of them go, and half of them end their messages: either gives the room to those that wait.
    let go = usize::from(ATTACKERS / 2);
    drop(attackers.drain(..go));
    attackers.push(honest);
    let expected = before + attackers.len() as u64;
    let end = Instant::now() + LIMIT;
    while scene.victim.count.get() < expected {
        for (stream, sent) in &mut attackers {
            *sent += stream.write(&message[*sent..]).unwrap_or(0);
        }
        scene.progress();
        assert!(Instant::now() < end, "{} of {expected} messages", scene.victim.count.get());
    }
    scene.serve();
    scene.report("the sum of large messages", 8 * MIB, Duration::from_secs(1));
    scene.report_descriptors_and_log("the sum of large messages", 2 * (usize::from(ATTACKERS) + 1));
}

#[test]
fn giants_of_one_source_that_trickle_leave_room_for_other_sources() {
    if !is_alone() {
        return;
    }
    /// More than what is too slow.
    const RATE: f64 = 96.0 * 1024.0;
    let mut scene = Scene::new(&[]);
    let mut giants: Vec<(TcpStream, usize)> = (0..40).map(|number| (scene.enter(number), 0)).collect();
    for (giant, _) in &mut giants {
        giant.write_all(&frame_header(ID.get(), 64 << 20)).unwrap();
    }
    let start = Instant::now();
    let bytes = vec![0; 64 << 10];
    let mut trickle = |scene: &mut Scene| {
        let due = (start.elapsed().as_secs_f64() * RATE) as usize;
        for (giant, sent) in &mut giants {
            // One whose message waits takes no more than its system does.
            *sent += giant.write(&bytes[..due.saturating_sub(*sent).min(bytes.len())]).unwrap_or(0);
        }
        scene.progress();
    };
    // As long as one that is too slow would have.
    while start.elapsed() < Duration::from_millis(1500) {
        trickle(&mut scene);
    }
    let mut honest = scene.try_to_enter([127, 0, 0, 2], 100).unwrap();
    let message = [&frame_header(ID.get(), 64 << 20)[..], &vec![5; 64 << 20]].concat();
    let (before, asked) = (scene.victim.count.get(), Instant::now());
    let mut sent = 0;
    while scene.victim.count.get() == before {
        if sent < message.len() {
            sent += honest.write(&message[sent..]).unwrap_or(0);
        }
        trickle(&mut scene);
        assert!(asked.elapsed() < Duration::from_secs(20), "the large message of another source waits");
    }
    println!("served after {:?}", asked.elapsed());
    scene.serve();
}

#[test]
fn large_messages_of_one_source_alone_arrive_in_the_order_in_which_they_were_announced() {
    if !is_alone() {
        return;
    }
    const LARGE: usize = 64 << 10;
    const PEERS: u64 = 12;
    // Two of them fit, and one of a source.
    let mut scene = Scene::new(&[("rx_seg_size", "16k"), ("max_message", "64k"), ("max_announced", "64k")]);
    let order = Rc::new(RefCell::new(Vec::new()));
    let arrived = Rc::clone(&order);
    scene.victim.iface.set_am_handler(HONEST, move |message| {
        assert_eq!(message.to_vec().len(), LARGE);
        arrived.borrow_mut().push(message.header().unwrap());
    });
    let mut peers: Vec<TcpStream> = (0..PEERS).map(|number| scene.enter(number)).collect();
    for (number, peer) in (0..).zip(&mut peers) {
        let number: u64 = number;
        peer.write_all(&[&frame_header(HONEST.get(), LARGE)[..], &number.to_le_bytes()].concat()).unwrap();
        for _ in 0..64 {
            scene.progress();
        }
    }
    // The last one first: it has to wait all the same.
    let start = Instant::now();
    for peer in peers.iter_mut().rev() {
        peer.write_all(&[3; LARGE - 8][..32 << 10]).unwrap();
    }
    for peer in peers.iter_mut() {
        peer.write_all(&[3; LARGE - 8][32 << 10..]).unwrap();
        for _ in 0..64 {
            scene.progress();
        }
    }
    drive(&[&scene.victim], || order.borrow().len() as u64 == PEERS);
    println!("all after {:?}", start.elapsed());
    assert_eq!(*order.borrow(), (0..PEERS).collect::<Vec<_>>());
    scene.serve();
}

#[test]
fn unauthenticated_connections_cost_a_bounded_amount() {
    if !is_alone() {
        return;
    }
    const HALF_OPEN: usize = 128;
    let mut scene = Scene::new(&[]);
    let (before, logged) = (descriptors(), LOGGED.load(Ordering::Relaxed));
    let start = Instant::now();
    let mut kept = std::collections::VecDeque::new();
    let mut random = Random::new(7);
    let connections = 3000 * factor();
    let mut most = 0;
    for number in 0..connections {
        let mut stream = TcpStream::connect(scene.victim.socket()).unwrap();
        let hello = Greeting { key: random.next(), ..Greeting::default() }.bytes();
        let other_version = [&b"UCTt\x63\x00"[..], &hello[6..]].concat();
        let bytes = match number % 5 {
            0 => &hello[..],
            1 => &other_version,
            2 => &hello[..random.below(HELLO)],
            3 => &random.bytes(200),
            _ => &[],
        };
        let _ = stream.write_all(bytes);
        kept.push_back(stream);
        if kept.len() > 250 {
            kept.pop_front();
        }
        scene.progress();
        if number % 100 == 0 {
            scene.serve();
            most = most.max(descriptors().saturating_sub(before + kept.len()));
            assert!(scene.victim.counter("half_open") <= HALF_OPEN as u64);
        }
        if number % 1000 == 500 {
            scene.serves_another();
        }
    }
    scene.report("unauthenticated connections", 0, Duration::from_secs(1));
    let logged = LOGGED.load(Ordering::Relaxed) - logged;
    let seconds = start.elapsed().as_secs() as usize + 1;
    println!("{connections} connections: {most} descriptors at most, {logged} bytes of log in {seconds} s");
    assert!(most <= HALF_OPEN + 16, "{most} descriptors");
    assert!(logged <= 2048 * seconds, "{logged} bytes of log in {seconds} s");
}

#[test]
fn a_peer_that_opens_all_the_connections_it_can_leaves_room_for_others() {
    if !is_alone() {
        return;
    }
    const MOST: u64 = 64;
    let limits = [("max_connections", "64"), ("max_connections_per_source", "64"), ("unused_timeout", "1s")];
    let mut scene = Scene::new(&limits);
    let (before, logged) = (descriptors(), LOGGED.load(Ordering::Relaxed));
    let mut streams = Vec::new();
    let mut refused = 0;
    for number in 0..200 * factor() as u64 {
        match scene.try_to_enter([127, 0, 0, 1], 1000 + number) {
            Ok(stream) => streams.push(stream),
            Err(refusal) => {
                assert_eq!(refusal, 5, "there is no room");
                refused += 1;
            }
        }
        assert!(scene.victim.counter("connections") <= MOST);
        if number % 50 == 0 {
            scene.serve();
        }
    }
    assert!(refused > 0 && streams.len() >= MOST as usize - 1, "{} let in, {refused} refused", streams.len());
    // Each connection has a descriptor here as well.
    let taken = descriptors() - before;
    println!("{taken} descriptors on both sides, {refused} refused");
    assert!(taken <= 2 * streams.len() + 16, "{taken} descriptors for {} connections", streams.len());
    // An honest peer waits until one of those that carry nothing may be ended.
    scene.serves_another();
    scene.serve();
    scene.report("connections", 0, Duration::from_secs(1));
    let logged = LOGGED.load(Ordering::Relaxed) - logged;
    assert!(logged < 16 << 10, "{logged} bytes of log");
}

/// Sets the number of descriptors that the process may have, and sets it back at its end.
struct Descriptors(Rlimit);

impl Descriptors {
    fn limit(most: usize) -> Descriptors {
        let limits = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(most as u64), ..limits }).unwrap();
        Descriptors(limits)
    }
}

/// Descriptors with numbers below `most` that are free. The system gives the lowest; the process may have inherited higher ones.
fn free_below(most: usize) -> usize {
    let names = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().file_name());
    let numbers = names.map(|name| name.to_str().unwrap().parse::<usize>().unwrap());
    // One is that of the directory.
    most + 1 - numbers.filter(|number| *number < most).count()
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).unwrap();
    }
}

#[test]
fn connections_of_peers_leave_the_reserved_descriptors_free() {
    if !is_alone() {
        return;
    }
    const RESERVED: usize = 64;
    const CONNECTIONS: usize = 30;
    let mut scene = Scene::new(&[("reserved_descriptors", "64"), ("max_connections", "1000")]);
    let lowest = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as usize;
    // Each connection has a descriptor on either side.
    let most = lowest + RESERVED + 2 * CONNECTIONS;
    let limit = Descriptors::limit(most);
    let (mut streams, mut refused) = (Vec::new(), 0);
    for number in 0..2 * CONNECTIONS as u64 {
        match scene.try_to_enter([127, 0, 0, 1], number) {
            Ok(stream) => streams.push(stream),
            Err(refusal) => {
                assert_eq!(refusal, 5, "there is no room");
                refused += 1;
            }
        }
        let free = free_below(most);
        assert!(free >= RESERVED, "{free} descriptors are free, {} connections", streams.len());
    }
    println!("{} let in, {refused} refused, {} descriptors free", streams.len(), free_below(most));
    assert!(refused > 0 && streams.len() >= CONNECTIONS - 2, "{} let in, {refused} refused", streams.len());
    let files: Vec<_> = (0..RESERVED).map(|_| std::fs::File::open("/dev/null")).collect();
    assert!(files.iter().all(Result::is_ok), "the application has its descriptors");
    drop(files);
    scene.serve();
    // Once some go there is room again.
    streams.truncate(CONNECTIONS / 2);
    drive(&[&scene.victim], || scene.victim.counter("connections") <= streams.len() as u64 + 1);
    scene.serves_another();
    drop(limit);
}

/// What a sender has queued is what it has accepted and its system does not have: the peer reads that, and no more is sent meanwhile.
#[test]
fn a_peer_that_reads_nothing_holds_its_sender_up_before_long() {
    if !is_alone() {
        return;
    }
    const QUEUE: usize = 64 << 10;
    let settings = [("tx_queue_size", "64k"), ("tx_buf_size", "16k"), ("sndbuf", "64k")];
    let mut scene = Scene::new(&settings);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ep, failures) = scene.victim.connect(&forged(&scene.victim, &listener));
    let mut peer = play_peer(&scene.victim, &listener);
    let mut sent = 0;
    let mut turns = 0;
    // It is full once it is full although its system had time to take more.
    while turns < 200 {
        match ep.am_bcopy(ID, SendFlags::empty(), |buffer| buffer.len()) {
            Ok(length) => (sent, turns) = (sent + frame_header(0, 0).len() + length.next_multiple_of(8), 0),
            Err(error) => {
                assert_eq!(error, Error::NO_RESOURCE);
                turns += 1;
            }
        }
        assert!(sent < 64 * MIB, "{sent} bytes are on the way to a peer that reads nothing");
        scene.progress();
    }
    scene.serve();
    scene.report("a peer that reads nothing", QUEUE, Duration::from_secs(1));
    scene.report_descriptors_and_log("a peer that reads nothing", 3);
    // Until 100 ms have brought nothing; the sender makes no progress.
    let (mut read, mut bytes, mut last) = (0, vec![0; 1 << 16], Instant::now());
    while last.elapsed() < Duration::from_millis(100) {
        if let Ok(received @ 1..) = peer.read(&mut bytes) {
            (read, last) = (read + received, Instant::now());
        }
    }
    println!("{} of {sent} bytes were queued", sent - read);
    assert!(sent - read <= QUEUE, "{} bytes were queued", sent - read);
    assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());
}

#[test]
fn connections_of_one_source_that_are_in_use_leave_room_for_other_sources() {
    if !is_alone() {
        return;
    }
    let mut scene = Scene::new(&[("max_connections", "40"), ("unused_timeout", "10ms")]);
    let mut streams = Vec::new();
    let mut message = frame_header(ID.get(), 8).to_vec();
    // More than the signs of life of a connection that is not in use.
    message.extend_from_slice(&[0; 8]);
    let message = message.repeat(8);
    for number in 0..60 {
        let expected = scene.victim.count.get() + 8;
        let Ok(mut stream) = scene.try_to_enter([127, 0, 0, 2], number) else { continue };
        stream.write_all(&message).unwrap();
        streams.push(stream);
        drive(&[&scene.victim], || scene.victim.count.get() == expected);
    }
    assert_eq!(streams.len(), 30, "three quarters of all");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(scene.try_to_enter([127, 0, 0, 2], 100).err(), Some(5));
    scene.serves_another();
    scene.serve();
    // None of them was ended for it.
    for stream in &mut streams {
        let read = stream.read(&mut [0; 8]);
        assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    }
}

#[test]
fn a_peer_that_keeps_the_connections_that_its_victim_opened_keeps_a_bounded_number() {
    if !is_alone() {
        return;
    }
    let mut scene = Scene::new(&[("max_connections_per_source", "8")]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut streams = Vec::new();
    for _ in 0..30 {
        let (ep, _) = scene.victim.connect(&forged(&scene.victim, &listener));
        // It accepts, and says that it has endpoints on the connection.
        streams.push(play_peer(&scene.victim, &listener));
        send(&[&scene.victim], &ep, 1);
        drop(ep);
        for _ in 0..64 {
            scene.progress();
        }
    }
    let kept = scene.victim.counter("connections");
    assert!(kept <= 8, "{kept} of 30 connections that no endpoint uses");
    scene.serve();
}

#[test]
fn connections_of_peers_count_also_when_the_victim_used_them_in_between() {
    if !is_alone() {
        return;
    }
    const MOST: u64 = 8;
    let scene = Scene::new(&[("max_connections_per_source", "8")]);
    let clients: Vec<Side> = (0..12).map(|_| Side::new(&[])).collect();
    let mut kept = Vec::new();
    for client in &clients {
        let sides = [&scene.victim, client];
        let (ep, failures) = client.connect(&scene.victim.address());
        ep.am_short(ID, 1, b"").unwrap();
        let (before, end) = (scene.victim.count.get(), Instant::now() + Duration::from_millis(200));
        drive(&sides, || scene.victim.count.get() > before || Instant::now() > end);
        assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());
        if scene.victim.count.get() > before {
            let (back, _) = scene.victim.connect(&client.address());
            send(&sides, &back, 1);
            drive(&sides, || client.count.get() == 1);
        }
        kept.push((ep, failures));
    }
    assert_eq!(scene.victim.counter("connections"), MOST, "of 12 clients and an honest peer");
    let served = clients.iter().filter(|client| client.count.get() == 1).count() as u64;
    assert_eq!(served, MOST - 1);
}

#[test]
fn a_peer_whose_requests_are_refused_too_often_ends_its_connection() {
    if !is_alone() {
        return;
    }
    let mut scene = Scene::new(&[("max_refused", "20")]);
    let memory = scene.victim.iface.memory_domain().register(vec![7; 8192], Access::ALL).unwrap();
    let mut request = request_for(&memory);
    drop(memory);
    let memory = scene.victim.iface.memory_domain().register(vec![7; 8192], Access::ALL).unwrap();
    let mut answers: Vec<[u8; 16]> = Vec::new();
    let mut peer = scene.enter(1);
    let mut bytes = Vec::new();
    let end = Instant::now() + LIMIT;
    for guess in 0..30_u8 {
        // A key of the past, and numbers near it: whichever word of the request is the key, another answer would tell.
        for byte in &mut request[16..24] {
            *byte = byte.wrapping_add(guess);
        }
        let _ = peer.write_all(&request);
        for _ in 0..20 {
            scene.progress();
            let mut chunk = [0; 4096];
            if let Ok(received @ 1..) = peer.read(&mut chunk) {
                bytes.extend_from_slice(&chunk[..received]);
            }
        }
        assert!(Instant::now() < end);
    }
    for answer in bytes.chunks_exact(24) {
        assert_eq!(answer[0], RESPONSE);
        answers.push(answer[8..24].try_into().unwrap());
    }
    assert_eq!(answers.len(), 21, "as many answers as may be refused, and the one that is too many");
    for answer in &answers {
        assert_eq!((answer[0], &answer[8..]), (4, &answers[0][8..]), "one and the same refusal");
    }
    drop(memory);
    scene.serve();
}

/// What an attacker says next: frames that are right, wrong or cut, in any order.
fn anything(random: &mut Random, request: &[u8], hello: &[u8; HELLO]) -> Vec<u8> {
    let mut bytes = match random.below(9) {
        0 => hello.to_vec(),
        1 => request.to_vec(),
        2 => {
            let length = random.below(300);
            let mut message = frame_header(random.below(64) as u8, length).to_vec();
            message.extend(random.bytes(length.next_multiple_of(8)));
            message
        }
        3 => frame_header(random.below(256) as u8, random.next() as u32 as usize).to_vec(),
        4 => frame_header(ID.get(), 1 << (10 + random.below(16))).to_vec(),
        5 => frame_header([PING, PONG, 36, 37][random.below(4)], 0).to_vec(),
        6 => {
            let size = 1 + random.below(8192);
            random.bytes(size)
        }
        7 => request.repeat(1 + random.below(50)),
        _ => frame_header(PING, 0).repeat(1 + random.below(500)),
    };
    match random.below(4) {
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 if !bytes.is_empty() => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        _ => {}
    }
    bytes
}

#[test]
fn an_honest_peer_is_served_beside_one_that_sends_random_frames() {
    if !is_alone() {
        return;
    }
    let seed = std::env::var("UCT_TEST_SEED").ok().map(|seed| {
        let digits = seed.trim_start_matches("0x");
        u64::from_str_radix(digits, if digits.len() < seed.len() { 16 } else { 10 })
            .expect("UCT_TEST_SEED is a number")
    });
    let seed = seed.unwrap_or_else(Random::fresh_seed);
    println!("UCT_TEST_SEED={seed:#x}");
    let mut random = Random::new(seed);
    let limits = [("max_connections", "32"), ("unused_timeout", "100ms"), ("hello_timeout", "200ms")];
    let mut scene = Scene::new(&limits);
    let memory = scene.victim.iface.memory_domain().register(vec![7; 8192], Access::ALL).unwrap();
    let request = request_for(&memory);
    let key = key_of(&scene.victim.address());
    let honest = id_of(&scene.honest.address());
    let mut streams: Vec<TcpStream> = Vec::new();
    let end = Instant::now() + Duration::from_secs(3) * factor() as u32;
    let mut steps = 0_u64;
    while Instant::now() < end {
        steps += 1;
        if streams.len() < 20 && random.below(4) == 0 {
            let stream = TcpStream::connect(scene.victim.socket()).unwrap();
            stream.set_nonblocking(true).unwrap();
            streams.push(stream);
        }
        let sender = *random.pick(&[honest, random.clone().next(), 0]);
        let key = if random.below(8) == 0 { random.next() } else { key };
        let (token, flags) = (random.next(), random.below(4) as u32);
        let hello = Greeting { sender, key, token, flags, ..Greeting::default() }.bytes();
        if !streams.is_empty() {
            let at = random.below(streams.len());
            let bytes =
                if random.below(3) == 0 { hello.to_vec() } else { anything(&mut random, &request, &hello) };
            let written = streams[at].write(&bytes);
            let is_over = matches!(&written, Err(error) if error.kind() != ErrorKind::WouldBlock);
            if random.below(3) == 0 {
                let _ = streams[at].read(&mut [0; 4096]);
            }
            if is_over || random.below(20) == 0 {
                streams.swap_remove(at);
            }
        }
        for _ in 0..random.below(4) {
            scene.progress();
        }
        if steps.is_multiple_of(16) {
            scene.honest_message();
        }
    }
    println!("{steps} steps");
    drop(streams);
    scene.serves_another();
    scene.report("anything", 32 * 4 * MIB, Duration::from_secs(2));
}

#[test]
fn an_echo_server_that_waits_for_room_in_its_handler_keeps_a_small_stack() {
    if !is_alone() {
        return;
    }
    let messages = 100_000 * factor() as u64;
    let (address, from_server) = std::sync::mpsc::channel();
    let server = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
        let server = Side::new(&[]);
        address.send(server.address()).unwrap();
        let (worker, count) = (server.worker.clone(), server.count.clone());
        let reply: Rc<OnceCell<Ep>> = Rc::default();
        let (client, _) = from_client(&server, &reply);
        server.iface.set_am_handler(ID, move |message| {
            count.set(count.get() + 1);
            let header = message.header().unwrap();
            worker.progress();
            let ep = reply.get().expect("an endpoint");
            worker.retry(LIMIT, || ep.am_short(ID, header, b"")).expect("an answer");
        });
        let _client = client;
        let (mut longest, end) = (Duration::ZERO, Instant::now() + 4 * LIMIT);
        while server.count.get() < messages {
            let start = Instant::now();
            server.worker.progress();
            longest = longest.max(start.elapsed());
            assert!(Instant::now() < end, "{} of {messages} messages", server.count.get());
        }
        // The answers leave.
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            server.worker.progress();
        }
        server.iface.clear_am_handlers();
        longest
    });
    let server = server.unwrap();
    let client = Side::new(&[]);
    EXCHANGE.lock().unwrap().replace(client.address());
    let (ep, failures) = client.connect(&from_server.recv_timeout(LIMIT).unwrap());
    let (mut sent, mut rounds) = (0, 0_u32);
    let (before, mut most, mut open) = (resident(), 0, 0);
    let logged = LOGGED.load(Ordering::Relaxed);
    let end = Instant::now() + 4 * LIMIT;
    while client.count.get() < messages {
        if rounds.is_multiple_of(256) {
            (most, open) = (most.max(resident()), open.max(descriptors()));
        }
        rounds = rounds.wrapping_add(1);
        while sent < messages && ep.am_short(ID, sent, b"").is_ok() {
            sent += 1;
        }
        client.worker.progress();
        assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());
        assert!(Instant::now() < end, "{} of {messages} answers", client.count.get());
    }
    assert_eq!(client.sum.get(), messages * (messages - 1) / 2);
    let longest = server.join().unwrap();
    let grown = most.saturating_sub(before);
    println!(
        "{messages} echoes: {} KiB of memory at most, {open} descriptors, longest progress {longest:?}, {} bytes of log",
        grown >> 10,
        LOGGED.load(Ordering::Relaxed) - logged
    );
    assert!(grown <= 8 * MIB, "{grown} bytes of memory");
}

/// The address of the client in the test above.
static EXCHANGE: std::sync::Mutex<Option<uct_core::IfaceAddress>> = std::sync::Mutex::new(None);

fn from_client(server: &Side, reply: &Rc<OnceCell<Ep>>) -> (Ep, Failures) {
    let end = Instant::now() + LIMIT;
    let address = loop {
        if let Some(address) = EXCHANGE.lock().unwrap().take() {
            break address;
        }
        assert!(Instant::now() < end);
        std::thread::yield_now();
    };
    let (ep, failures) = server.connect(&address);
    assert!(reply.set(ep.clone()).is_ok());
    (ep, failures)
}
