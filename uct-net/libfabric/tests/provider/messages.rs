//! Messages of an endpoint to itself: contents, entries, flags.

use std::ptr::{null, null_mut};

use uct_fi::abi::*;

use crate::session::{Options, Session, call, context};

const ANY: u64 = FI_ADDR_UNSPEC;

fn recv(session: &Session, bytes: &mut [u8], number: usize) {
    let (base, length) = (bytes.as_mut_ptr().cast(), bytes.len());
    assert_eq!(call!(session.ep, msg.recv(base, length, null_mut(), ANY, context(number))), 0);
}

fn trecv(session: &Session, bytes: &mut [u8], tag: u64, ignore: u64, number: usize) {
    let (base, length) = (bytes.as_mut_ptr().cast(), bytes.len());
    let got = call!(session.ep, tagged.recv(base, length, null_mut(), ANY, tag, ignore, context(number)));
    assert_eq!(got, 0);
}

fn tsend(session: &Session, bytes: &[u8], tag: u64, number: usize) {
    let (base, length) = (bytes.as_ptr().cast(), bytes.len());
    assert_eq!(
        call!(session.ep, tagged.send(base, length, null_mut(), session.own, tag, context(number))),
        0
    );
}

fn peek(session: &Session, tag: u64, number: usize, flags: u64) -> isize {
    let message = fi_msg_tagged {
        msg_iov: null(),
        desc: null_mut(),
        iov_count: 0,
        addr: ANY,
        tag,
        ignore: 0,
        context: context(number),
        data: 0,
    };
    call!(session.ep, tagged.recvmsg(&raw const message, flags))
}

#[test]
fn a_message_arrives_with_its_data_and_its_source() {
    let session = Session::new(Options::default());
    let mut bytes = [0_u8; 16];
    recv(&session, &mut bytes, 1);
    let sent =
        call!(session.ep, msg.senddata(b"hello".as_ptr().cast(), 5, null_mut(), 77, session.own, context(2)));
    assert_eq!(sent, 0);
    let mut sources = [0; 3];
    for _ in 0..2 {
        let (entry, source) = session.next().map_err(|error| error.err).expect("a success");
        sources[entry.op_context as usize] = source;
        if entry.op_context == context(1) {
            assert_eq!(entry.flags, FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA);
            assert_eq!((entry.len, entry.data), (5, 77));
        } else {
            assert_eq!(entry.flags, FI_MSG | FI_SEND);
        }
    }
    assert_eq!(sources[1], session.own);
    assert_eq!(&bytes[..6], b"hello\0");
}

#[test]
fn tags_choose_and_lists_of_buffers_are_gathered_and_scattered() {
    let session = Session::new(Options::default());
    let (mut first, mut second, mut other) = ([0_u8; 3], [0_u8; 8], [0_u8; 8]);
    let list = [
        iovec { iov_base: first.as_mut_ptr().cast(), iov_len: 3 },
        iovec { iov_base: second.as_mut_ptr().cast(), iov_len: 8 },
    ];
    trecv(&session, &mut other, 5, 0, 1);
    let got = call!(session.ep, tagged.recvv(list.as_ptr(), null_mut(), 2, ANY, 0x70, 0xf, context(2)));
    assert_eq!(got, 0);
    let words = [b"ab".as_slice(), b"cdef"];
    let list = words.map(|word| iovec { iov_base: word.as_ptr().cast_mut().cast(), iov_len: word.len() });
    let sent = call!(session.ep, tagged.sendv(list.as_ptr(), null_mut(), 2, session.own, 0x7a, context(3)));
    assert_eq!(sent, 0);
    let entries = session.entries(2);
    assert_eq!((entries[0].op_context, entries[0].len, entries[0].tag), (context(2), 6, 0x7a));
    assert_eq!((&first, &second[..4]), (b"abc", &b"def\0"[..]));
    tsend(&session, b"five", 5, 4);
    assert_eq!(session.entries(2)[0].op_context, context(1));
    assert_eq!(&other[..4], b"five");
}

#[test]
fn injected_messages_are_copied_and_make_no_entry() {
    let session = Session::new(Options::default());
    let mut bytes = [[0_u8; 8]; 3];
    for (number, bytes) in bytes.iter_mut().enumerate() {
        trecv(&session, bytes, 0, u64::MAX, number);
    }
    let mut word = *b"one";
    assert_eq!(call!(session.ep, tagged.inject(word.as_ptr().cast(), 3, session.own, 1)), 0);
    word = *b"two";
    assert_eq!(call!(session.ep, tagged.injectdata(word.as_ptr().cast(), 3, 9, session.own, 2)), 0);
    word = *b"six";
    let list = [iovec { iov_base: word.as_mut_ptr().cast(), iov_len: 3 }];
    let message = fi_msg_tagged {
        msg_iov: list.as_ptr(),
        desc: null_mut(),
        iov_count: 1,
        addr: session.own,
        tag: 3,
        ignore: 0,
        context: context(7),
        data: 0,
    };
    assert_eq!(call!(session.ep, tagged.sendmsg(&raw const message, FI_INJECT)), 0);
    word = *b"???";
    let entries = session.entries(4);
    let seen: Vec<_> =
        entries.iter().map(|entry| (entry.op_context as usize, entry.tag, entry.data)).collect();
    assert_eq!(seen, [(0, 1, 0), (1, 2, 9), (2, 3, 0), (7, 0, 0)]);
    assert_eq!(bytes.map(|bytes| [bytes[0], bytes[2]]), [*b"oe", *b"to", *b"sx"]);
    assert_eq!(&word, b"???");
    let long = vec![0_u8; session.info.transmit().inject_size + 1];
    let refused = call!(session.ep, msg.inject(long.as_ptr().cast(), long.len(), session.own));
    assert_eq!(refused, -(EMSGSIZE as isize));
}

#[test]
fn with_selective_completion_only_flags_make_entries() {
    let session = Session::new(Options { bind: FI_SELECTIVE_COMPLETION, ..Options::default() });
    let mut bytes = [[0_u8; 8]; 2];
    for bytes in &mut bytes {
        trecv(&session, bytes, 0, u64::MAX, 1);
    }
    tsend(&session, b"quiet", 1, 2);
    let list = [iovec { iov_base: b"loud".as_ptr().cast_mut().cast(), iov_len: 4 }];
    let message = fi_msg_tagged {
        msg_iov: list.as_ptr(),
        desc: null_mut(),
        iov_count: 1,
        addr: session.own,
        tag: 2,
        ignore: 0,
        context: context(3),
        data: 0,
    };
    let flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
    assert_eq!(call!(session.ep, tagged.sendmsg(&raw const message, flags)), 0);
    assert_eq!(session.entries(1)[0].op_context, context(3));
    assert!(session.poll().is_none());
    assert_eq!(bytes.map(|bytes| bytes[0]), *b"ql");

    // An endpoint whose operations have the flag by default reports all of them.
    let transmit_flags = FI_COMPLETION;
    let bind = FI_SELECTIVE_COMPLETION;
    let session = Session::new(Options { bind, transmit_flags, ..Options::default() });
    tsend(&session, b"x", 1, 4);
    assert_eq!(session.entries(1)[0].op_context, context(4));
}

#[test]
fn one_buffer_takes_many_messages_and_is_given_back_with_the_last() {
    let session = Session::new(Options::default());
    let minimum = 16_usize;
    let value = (&raw const minimum).cast();
    let set = call!(session.ep, ops.setopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, value, 8));
    assert_eq!(set, 0);
    let mut buffer = [0_u8; 40];
    let list = [iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }];
    let message = fi_msg {
        msg_iov: list.as_ptr(),
        desc: null_mut(),
        iov_count: 1,
        addr: ANY,
        context: context(1),
        data: 0,
    };
    assert_eq!(call!(session.ep, msg.recvmsg(&raw const message, FI_MULTI_RECV)), 0);
    let mut flags = Vec::new();
    for word in [b"0123456789abcdef", b"ABCDEFGHIJKLMNOP"] {
        assert_eq!(call!(session.ep, msg.inject(word.as_ptr().cast(), 16, session.own)), 0);
        let entry = session.entries(1)[0];
        assert_eq!((entry.op_context, entry.len), (context(1), 16));
        let offset = entry.buf as usize - buffer.as_ptr() as usize;
        assert_eq!(&buffer[offset..offset + 16], word);
        flags.push(entry.flags & FI_MULTI_RECV != 0);
    }
    assert_eq!(flags, [false, true]);
    let tagged = peek(&session, 0, 2, FI_MULTI_RECV);
    assert_eq!(tagged, -(EBADFLAGS as isize));
}

#[test]
fn messages_are_looked_at_claimed_and_thrown_away() {
    let session = Session::new(Options::default());
    assert_eq!(peek(&session, 4, 1, FI_PEEK), 0);
    let nothing = session.next().expect_err("nothing is there");
    assert_eq!((nothing.err, nothing.op_context), (ENOMSG, context(1)));
    for (tag, word) in [(4, b"four"), (5, b"five")] {
        assert_eq!(call!(session.ep, tagged.inject(word.as_ptr().cast(), 4, session.own, tag)), 0);
    }
    assert_eq!(peek(&session, 4, 2, FI_PEEK), 0);
    let found = session.entries(1)[0];
    assert_eq!((found.op_context, found.len, found.tag), (context(2), 4, 4));
    assert_eq!(peek(&session, 5, 3, FI_PEEK | FI_CLAIM), 0);
    assert_eq!(session.entries(1)[0].op_context, context(3));
    assert_eq!(peek(&session, 4, 4, FI_PEEK | FI_DISCARD), 0);
    assert_eq!(session.entries(1)[0].op_context, context(4));
    assert_eq!(peek(&session, 4, 5, FI_PEEK), 0);
    assert_eq!(session.next().expect_err("it is gone").err, ENOMSG);

    let mut bytes = [0_u8; 8];
    let list = [iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 8 }];
    let claim = fi_msg_tagged {
        msg_iov: list.as_ptr(),
        desc: null_mut(),
        iov_count: 1,
        addr: ANY,
        tag: 5,
        ignore: 0,
        context: context(3),
        data: 0,
    };
    assert_eq!(call!(session.ep, tagged.recvmsg(&raw const claim, FI_CLAIM)), 0);
    assert_eq!(session.entries(1)[0].op_context, context(3));
    assert_eq!(&bytes[..4], b"five");
}

#[test]
fn a_receive_is_canceled_or_too_short() {
    let session = Session::new(Options::default());
    let mut bytes = [0_u8; 4];
    recv(&session, &mut bytes, 1);
    assert_eq!(session.cancel(context(1)), 0);
    let canceled = session.next().expect_err("an error entry");
    assert_eq!((canceled.err, canceled.op_context), (ECANCELED, context(1)));

    recv(&session, &mut bytes, 2);
    assert_eq!(call!(session.ep, msg.inject(b"longer".as_ptr().cast(), 6, session.own)), 0);
    let short = session.next().expect_err("an error entry");
    assert_eq!((short.err, short.op_context, short.olen), (ETRUNC, context(2), 2));
    let text = call!(session.queue, ops.strerror(short.prov_errno, null(), null_mut(), 0));
    assert!(!text.is_null());
    let mut copy = [0x7f_i8; 4];
    call!(session.queue, ops.strerror(short.prov_errno, null(), copy.as_mut_ptr(), 4));
    assert_eq!(copy[3], 0);
}

#[test]
fn a_source_counts_only_with_directed_receives() {
    let other = [2, 0, 0, 9, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    for caps in [FI_MSG, FI_MSG | FI_DIRECTED_RECV] {
        let session = Session::new(Options { caps, ..Options::default() });
        let stranger = session.insert(&other);
        let (mut first, mut second) = ([0_u8; 4], [0_u8; 4]);
        for (bytes, from, number) in [(&mut first, stranger, 1), (&mut second, session.own, 2)] {
            let base = bytes.as_mut_ptr().cast();
            assert_eq!(call!(session.ep, msg.recv(base, 4, null_mut(), from, context(number))), 0);
        }
        assert_eq!(call!(session.ep, msg.inject(b"x".as_ptr().cast(), 1, session.own)), 0);
        let expected = if caps == FI_MSG { 1 } else { 2 };
        assert_eq!(session.entries(1)[0].op_context, context(expected));
    }
}
