//! Callers of `--calibrate --listen` and listeners of `--calibrate --peer` that are none, break off, lie, or say nothing. The program reports them in one
//! line, and goes on or ends.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::info;
use support::listening::Listening;
use support::process::run;

/// The longest wait for anything that has to come.
const LIMIT: Duration = Duration::from_secs(60);

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

fn send(mut stream: &TcpStream, message: &Value) {
    stream.write_all(&frame(message.to_string().as_bytes())).expect("it is read");
}

/// The next message; `None` if there is none.
fn receive(mut stream: &TcpStream) -> Option<Value> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

fn call(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream
}

/// A caller that is welcome.
fn welcome(port: u16) -> TcpStream {
    let stream = call(port);
    send(&stream, &json!({"Hello": {"version": 2}}));
    let offer = receive(&stream).expect("an offer");
    assert!(offer.get("Offer").is_some(), "{offer}");
    stream
}

/// As above, and the interface is open: its introduction.
fn opened(port: u16) -> (TcpStream, Value) {
    let stream = welcome(port);
    send(&stream, &json!({"Open": 0}));
    assert_eq!(receive(&stream), Some(json!("Opening")));
    let introduction = receive(&stream).expect("an introduction");
    assert!(introduction.get("Introduction").is_some(), "{introduction}");
    (stream, introduction)
}

/// What it says at last.
fn reason(stream: &TcpStream) -> String {
    loop {
        match receive(stream) {
            Some(message) if message.get("Failed").is_some() => return message["Failed"].to_string(),
            Some(_) => {}
            None => return String::new(),
        }
    }
}

#[test]
fn a_listener_outlives_every_caller() {
    let arguments = ["--calibrate", "memory", "-t", "posix", "--listen", "127.0.0.1:0"];
    let mut listening = Listening::start(&mut info(&arguments));
    let port = listening.port;
    let mut line = || listening.line();

    // Callers that are none.
    let garbage: [&[u8]; 6] = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 64],
        &[0xff; 64],
        &frame(b"\"Bye\""),
        &frame(b"{\"Hello\":{}}"),
    ];
    for bytes in garbage {
        let mut stream = call(port);
        stream.write_all(bytes).expect("it is read");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let _ = reason(&stream);
        let printed = line();
        assert!(
            printed.starts_with("127.0.0.1:") && printed.matches(char::is_control).count() == 1,
            "{printed:?}"
        );
    }
    let stream = call(port);
    send(&stream, &json!({"Hello": {"version": 9}}));
    assert!(reason(&stream).contains("version 9, expected 2"));
    assert!(line().contains("version 9"));

    // Callers that ask for what was not offered, or twice, or out of turn.
    let stream = welcome(port);
    send(&stream, &json!({"Open": 1_u64 << 40}));
    assert!(reason(&stream).contains("was not offered"));
    assert!(line().contains("was not offered"));
    let (stream, introduction) = opened(port);
    send(&stream, &json!("Done"));
    assert!(reason(&stream).contains("out of step"));
    assert!(line().contains("posix/memory: the other side is out of step"));
    send(&stream, &json!({"Open": 0}));
    assert_eq!(receive(&stream), Some(json!("Opening")), "it may measure that again");
    send(&stream, &json!({"Failed": "on this\nside"}));
    assert!(line().contains("posix/memory: the other side: on this side"));
    let long: u32 = (64 << 10) + 1;
    (&stream).write_all(&long.to_le_bytes()).expect("it is read");
    assert!(line().contains("announces a message of 65537 bytes"));

    // Introductions that lead nowhere.
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut introduction = introduction.clone();
        change(&mut introduction["Introduction"]);
        introduction
    };
    let (iface, key) = (json!([1, 3, 0, 0, 116, 99, 112]), json!(vec![0xff; 60]));
    for lie in [
        changed(&|it| it["iface"] = json!([])),
        changed(&|it| it["iface"] = iface.clone()),
        changed(&|it| it["key"] = json!([])),
        changed(&|it| it["key"] = key.clone()),
    ] {
        let (stream, _) = opened(port);
        send(&stream, &lie);
        assert_ne!(reason(&stream), "", "{lie}");
        assert!(line().contains("posix/memory: "));
        drop(stream);
        assert!(line().contains("the other side has ended"));
    }

    // Commands that nobody can carry out.
    for command in [
        json!({"Reply": ["am_short", 0]}),
        json!({"Reply": ["put_short", 4]}),
        json!({"Reply": ["put_zcopy", 1_u64 << 40]}),
        json!({"Reply": ["am_bcopy", u64::MAX]}),
    ] {
        let (stream, own) = opened(port);
        send(&stream, &own);
        send(&stream, &json!({"Command": command}));
        assert!(reason(&stream).contains("is not possible here"), "{command}");
        assert!(line().contains("is not possible here"));
        drop(stream);
        assert!(line().contains("the other side has ended"));
    }
    // One that begins, and goes.
    let (stream, own) = opened(port);
    send(&stream, &own);
    send(&stream, &json!({"Command": {"Reply": ["am_short", 8]}}));
    assert_eq!(receive(&stream), Some(json!("Done")));
    drop(stream);
    assert!(line().contains("posix/memory: the other side has ended"));
    let _ = line();

    // While one says nothing, an honest one waits its turn.
    let silent = call(port);
    let host = format!("127.0.0.1:{port}");
    let honest = ["--calibrate", "memory", "-t", "posix", "--peer", &host, "--set", "calibration=off"];
    run(&mut info(&honest)).success();
    assert!(line().contains("does not send what is expected in time"));
    assert!(line().contains(": posix/memory: "));
    drop(silent);
}

/// What a listener does with its caller.
type Act = fn(&TcpStream);

#[test]
fn a_caller_reports_every_listener_that_is_none_and_stores_nothing() {
    let acts: [(&str, Act); 7] = [
        ("the other side has ended", |_| {}),
        ("announces a message of", |mut stream| {
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").expect("it is read")
        }),
        ("cannot be parsed", |mut stream| stream.write_all(&frame(b"[[[[")).expect("it is read")),
        ("out of step", |stream| send(stream, &json!("Done"))),
        ("busy with  all", |stream| send(stream, &json!({"Failed": "busy with\n\u{1b}all"}))),
        ("not a list of addresses", |stream| send(stream, &json!({"Offer": [1, 2, 3]}))),
        ("no transport reaches 127.0.0.1", |stream| {
            send(stream, &json!({"Offer": b"UCTA\x01\x00\x00".to_vec()}));
            let _ = receive(stream);
        }),
    ];
    let directory = tempfile::tempdir().expect("a directory");
    for (words, act) in acts {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let listens = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("it calls");
            stream.set_read_timeout(Some(LIMIT)).expect("a limit");
            let _ = receive(&stream);
            act(&stream);
        });
        let host = format!("127.0.0.1:{port}");
        let mut caller = info(&["--calibrate", "-t", "posix", "--peer", &host]);
        let failure = run(caller.env("XDG_CACHE_HOME", directory.path())).failure();
        assert!(failure.contains(words) && !failure.contains(char::is_control), "{words}: {failure:?}");
        listens.join().expect("no panic");
    }
    // Nobody listens.
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let call =
        |peer: &str| run(&mut info(&["--calibrate", "--peer", peer, "--set", "calibration=off"])).failure();
    let failure = call(&closed.to_string());
    assert!(failure.contains(&format!("uct_info --calibrate --listen {}", closed.port())), "{failure}");
    let failure = call("no-such-host.invalid");
    assert!(failure.contains("--peer no-such-host.invalid"), "{failure}");
}

#[test]
fn a_listener_that_lies_about_its_device_is_not_stored_as_that_device() {
    // It passes on the offer of an honest one, and introduces another device.
    let arguments = ["--calibrate", "memory", "-t", "posix", "--listen", "127.0.0.1:0"];
    let honest = Listening::start(&mut info(&arguments));
    let behind = honest.port;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let listens = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("it calls");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        let to = call(behind);
        loop {
            let Some(request) = receive(&stream) else { return };
            send(&to, &request);
            if request.get("Hello").is_some() {
                send(&stream, &receive(&to).expect("an offer"));
            } else if request.get("Open").is_some() {
                send(&stream, &receive(&to).expect("it begins"));
                let mut introduction = receive(&to).expect("an introduction");
                let iface = introduction["Introduction"]["iface"].as_array_mut().expect("an address");
                // A byte of the machine's identity, behind the header and the name.
                iface[4 + "posix".len() + 10] = json!(7);
                iface[4 + "posix".len() + 11] = json!(8);
                send(&stream, &introduction);
            }
        }
    });
    let directory = tempfile::tempdir().expect("a directory");
    let host = format!("127.0.0.1:{port}");
    let mut caller = info(&["--calibrate", "memory", "-t", "posix", "--peer", &host]);
    let ended = run(caller.env("XDG_CACHE_HOME", directory.path()));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("another device than it has offered"), "{}", ended.stderr);
    let stored =
        std::fs::read_to_string(directory.path().join("uct/calibration.toml")).expect("it is written");
    assert!(!stored.contains("[[peers]]"), "{stored}");
    listens.join().expect("no panic");
}
