//! A cache of keys and values for inference: prefill writes blocks to a pool and decode reads them, each request as one transfer.
//!
//!     kv_cache serve ADDRESS MEBIBYTES KIBIBYTES     the pool: its size, and that of a block
//!     kv_cache prefill ADDRESS REQUEST:BLOCKS ...    writes so many blocks of each request
//!     kv_cache decode ADDRESS REQUEST ...            reads the blocks of each request; then they are free
//!
//! The pool decides which blocks a request has. A notification tells it that all of them are written or read; it moves none itself. When
//! a client dies, blocks that it was writing are free, and blocks that it was reading are there for another one.

#![forbid(unsafe_code)]

use std::collections::hash_map::{Entry, HashMap};
use std::{cell::RefCell, convert::Infallible, pin::pin};

use futures_util::future::{Either, pending, select};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use uct_core::select::{Operation, Request};
use uct_core::{Context, Memory};
use uct_net::local::{Connection, Incoming, Net};
use uct_net::{Block, Blocks, NetOptions, Receipt};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result {
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address, pool, block] => net.block_on(serve(&net, address, pool.parse()?, block.parse()?)),
        ["prefill", address, requests @ ..] => net.block_on(work(&net, address, true, requests)),
        ["decode", address, requests @ ..] => net.block_on(work(&net, address, false, requests)),
        _ => Err("expected serve, prefill or decode, and an address".into()),
    }
}

struct Pool {
    block_length: u64,
    free: Vec<u64>,
    requests: HashMap<String, Held>,
}

/// The blocks of a request, and the client that writes or reads them.
struct Held {
    blocks: Vec<u64>,
    is_filled: bool,
    client: Option<usize>,
}

impl Pool {
    /// What a transfer needs: where the blocks are here, and at the client one behind the other. Nothing that a client says is trusted.
    fn ask(&mut self, client: usize, request: &str) -> Option<Vec<u8>> {
        let held = if let Some((name, count)) = request.split_once(':') {
            let left = self.free.len().checked_sub(count.parse().ok()?)?;
            let Entry::Vacant(place) = self.requests.entry(name.to_owned()) else { return None };
            place.insert(Held { blocks: self.free.split_off(left), is_filled: false, client: None })
        } else {
            self.requests.get_mut(request).filter(|held| held.is_filled && held.client.is_none())?
        };
        held.client = Some(client);
        let length = self.block_length;
        let block = |(at, &number)| Block { local: at * length, remote: number * length, length };
        Some(Blocks::from_iter((0..).zip(&held.blocks).map(block)).to_bytes())
    }

    /// The client has moved all blocks of a request.
    fn done(&mut self, client: usize, name: &str) -> Option<Vec<u8>> {
        let held = self.requests.get_mut(name).filter(|held| held.client == Some(client))?;
        held.client = None;
        if std::mem::replace(&mut held.is_filled, true) {
            self.free.append(&mut held.blocks);
            self.requests.remove(name);
        }
        Some(format!("{} blocks are free", self.free.len()).into())
    }

    fn forget(&mut self, client: usize) {
        self.requests.retain(|_, held| {
            if held.client.take_if(|holder| *holder == client).is_some() && !held.is_filled {
                self.free.append(&mut held.blocks);
            }
            !held.blocks.is_empty()
        });
    }
}

async fn serve(net: &Net, address: &str, mebibytes: usize, kibibytes: usize) -> Result {
    let (length, count) = (kibibytes << 10, (mebibytes << 10) / kibibytes);
    // Memory of the net is for connections over every transport.
    let memory = net.allocate(count * length)?;
    let mut free: Vec<u64> = (0..count as u64).collect();
    free.sort_by_key(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)); // as after hours of use
    let pool = RefCell::new(Pool { block_length: length as u64, free, requests: HashMap::new() });
    let mut listener = net.listen(address).await?;
    println!("{count} blocks of {kibibytes} KiB on {}", listener.address());
    let (mut clients, mut number) = (FuturesUnordered::from_iter([pending().boxed_local()]), 0);
    loop {
        // `accept` loses no caller when it is dropped.
        if let Either::Left((incoming, _)) = select(pin!(listener.accept()), clients.next()).await {
            clients.push(client(number, incoming?, &memory, &pool).boxed_local());
            number += 1;
        }
    }
}

/// Serves a client until its connection ends. Its failure is not the pool's.
async fn client(number: usize, incoming: Incoming, memory: &Memory, pool: &RefCell<Pool>) {
    let served = async {
        let connection = incoming.accept().await?;
        connection.share(memory).await?;
        loop {
            let reply = match select(pin!(connection.recv()), pin!(connection.notified())).await {
                Either::Left((request, _)) => pool.borrow_mut().ask(number, str::from_utf8(&request?)?),
                Either::Right((name, _)) => pool.borrow_mut().done(number, str::from_utf8(&name?)?),
            };
            connection.send(&reply.unwrap_or_default()).await?;
        }
    };
    let Err(why): Result<Infallible> = served.await;
    pool.borrow_mut().forget(number);
    println!("client {number}: {why}; {} blocks are free", pool.borrow().free.len());
}

/// Prefill and decode: asks the pool for the blocks of each request, and moves all of them at once.
async fn work(net: &Net, address: &str, is_prefill: bool, requests: &[&str]) -> Result {
    let operation = if is_prefill { Operation::PutZcopy } else { Operation::GetZcopy };
    let connection = net.connect(address).request(Request::new(operation, 32 << 10)).await?;
    let (pool, mut memory) = (connection.shared().await?, connection.allocate(1)?);
    for request in requests {
        connection.send(request.as_bytes()).await?;
        let reply = connection.recv().await?;
        let blocks = Blocks::from_bytes(&reply).map_err(|_| format!("{request}: refused"))?;
        if memory.len() < blocks.bytes() as usize {
            memory = connection.allocate(blocks.bytes() as usize)?;
        }
        let name = request.split(':').next().unwrap_or(request);
        let byte = |number: usize| name.bytes().fold(number as u8, |sum, byte| sum.rotate_left(3) ^ byte);
        let block = |(number, block): (usize, Block)| vec![byte(number); block.length as usize];
        let contents: Vec<u8> = blocks.iter().enumerate().flat_map(block).collect();
        if is_prefill {
            memory.write(0, &contents);
        }
        let transfer = if is_prefill { Connection::put_blocks } else { Connection::get_blocks };
        let transfer = transfer(&connection, &memory, &pool, &blocks).notify(name.as_bytes());
        let Receipt { over, blocks, bytes, elapsed, .. } = transfer.start()?.await?;
        let speed = bytes as f64 / elapsed.as_nanos() as f64;
        let free = String::from_utf8(connection.recv().await?.into_vec())?;
        println!("{name}: {blocks} blocks over {over} in {elapsed:?}, {speed:.1} GB/s; {free}");
        assert!(memory.slice(..contents.len()).to_vec() == contents, "{name}: other bytes");
    }
    Ok(connection.close().await?)
}
