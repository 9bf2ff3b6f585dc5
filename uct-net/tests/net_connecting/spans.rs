//! The spans of connections, as a subscriber sees them.

use std::sync::{Arc, Mutex};

use crate::support::spans::{Spans, names};
use crate::support::{self, LIMIT, pair, pair_of};
use tracing::level_filters::LevelFilter;

#[test]
fn a_connection_is_a_span_on_each_side_with_its_stages_and_the_reason_of_its_end() {
    let (server, client) = (Spans::default(), Spans::default());
    let seen = server.clone();
    let called = Arc::new(Mutex::new(String::new()));
    let address = Arc::clone(&called);
    let _guard = client.see(LevelFilter::DEBUG);
    // A connection may outlive what the application does meanwhile, so it is no part of that.
    let _outer = tracing::info_span!("outer").entered();
    pair_of(
        &support::with(&[("net_devices", "lo")]),
        support::patient(),
        async move |_net, mut listener| {
            seen.see_always(LevelFilter::DEBUG);
            let connection = listener.accept().await?.accept().await?;
            assert_eq!(&connection.recv().within(LIMIT).await?[..], b"seen");
            assert!(connection.recv().within(LIMIT).await.expect_err("the end").is_closed_by_peer());
            Ok(())
        },
        async |net, address| {
            called.lock().expect("no panic").clone_from(&address);
            let connection = net.connect(&address).require("tcp/lo").await?;
            connection.send(b"seen").await?;
            connection.close().within(LIMIT).await
        },
    );
    for (spans, side, expected, reason) in [
        (&client, "connect", &["resolve", "dial", "handshake", "established"][..], "closed by this side"),
        (&server, "accept", &["hello", "handshake", "established"][..], "closed by the peer"),
    ] {
        let (connection, stages) = spans.connection();
        let field = |name| connection.fields.get(name).map_or("", String::as_str);
        let fields = [field("side"), field("lane"), field("transport"), field("device"), field("reason")];
        assert_eq!(fields, [side, "tcp/lo", "tcp", "lo", reason]);
        assert!(field("peer").starts_with("127.0.0.1:"), "{connection:?}");
        assert_eq!(names(&stages), expected);
    }
    let (connection, stages) = client.connection();
    let address = address.lock().expect("no panic");
    assert_eq!((&connection.fields["peer"], &stages[1].fields["place"]), (&*address, &*address));
}

#[test]
fn a_failure_is_the_reason_and_ends_the_span_while_the_handle_is_kept() {
    let (server, client) = (Spans::default(), Spans::default());
    let seen = server.clone();
    pair(
        support::patient(),
        async move |_net, mut listener| {
            seen.see_always(LevelFilter::DEBUG);
            listener.accept().await?.reject("not on a Sunday").await?;
            let (_, stages) = seen.connection();
            assert_eq!(names(&stages), ["hello"]);
            let connection = listener.accept().await?.accept().await?;
            connection.recv().within(LIMIT).await.expect_err("it is aborted");
            let spans = seen.0.lock().expect("no panic").0.clone();
            let open = spans.iter().filter(|span| span.closed.is_none()).count();
            assert_eq!(open, 0, "the handle keeps spans open: {spans:?}");
            Ok(())
        },
        async |net, address| {
            let guard = client.see(LevelFilter::DEBUG);
            net.connect(&address).await.expect_err("rejected");
            drop(guard);
            let _guard = Spans::default().see(LevelFilter::DEBUG);
            net.connect(&address).require("tcp/lo").await?.abort("enough");
            Ok(())
        },
    );
    let (connection, stages) = client.connection();
    assert_eq!(names(&stages), ["resolve", "dial", "handshake"]);
    assert!(connection.fields["reason"].contains("not on a Sunday"), "{connection:?}");
    assert!(!connection.fields.contains_key("transport"));
    let spans = server.0.lock().expect("no panic").0.clone();
    let reasons: Vec<&str> =
        spans.iter().filter(|span| span.name == "connection").map(|span| &*span.fields["reason"]).collect();
    assert!(
        matches!(reasons[..], [rejected, aborted] if rejected.contains("Sunday") && aborted.contains("enough")),
        "{reasons:?}"
    );
}

#[test]
fn a_subscriber_of_level_info_sees_no_spans() {
    let (spans, seen) = (Spans::default(), Spans::default());
    let server = seen.clone();
    pair(
        support::patient(),
        async move |_net, mut listener| {
            let _guard = server.see(LevelFilter::INFO);
            listener.accept().await?.accept().await?.recv().within(LIMIT).await?;
            Ok(())
        },
        async |net, address| {
            let _guard = spans.see(LevelFilter::INFO);
            net.connect(&address).await?.send(b"unseen").await
        },
    );
    assert!(spans.0.lock().expect("no panic").0.is_empty() && seen.0.lock().expect("no panic").0.is_empty());
}
