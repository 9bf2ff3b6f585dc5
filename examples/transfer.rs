//! A transfer: blocks that lie anywhere in another program's memory come as one operation, with one notification.
//!
//!     transfer                 the owner of the memory; it prints how to start the other side
//!     transfer HOST:PORT       the initiator

#![forbid(unsafe_code)]

use uct_core::Context;
use uct_core::select::{Operation, Request};
use uct_net::{Block, Blocks, NetOptions, Receipt, local::Net};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const BLOCK: usize = 32 << 10;
const SHARED: usize = 512;
const WANTED: usize = 256;

fn main() -> Result {
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    match std::env::args().nth(1) {
        None => net.block_on(owner(&net)),
        Some(address) => net.block_on(initiator(&net, &address)),
    }
}

async fn owner(net: &Net) -> Result {
    let mut listener = net.listen("[::]:0").await?;
    println!("now start: transfer localhost:{}", listener.port().unwrap_or_default());
    let connection = listener.accept().await?.accept().await?;
    let memory = net.allocate(SHARED * BLOCK)?;
    (0..SHARED).for_each(|number| memory.fill(number * BLOCK, BLOCK, number as u8));
    connection.share(&memory).await?;
    // It comes once, when every block has moved: from then on the memory may be used for something else.
    let notification = connection.notified().await?;
    println!("notified: {}", String::from_utf8_lossy(&notification));
    connection.closed().await;
    Ok(())
}

async fn initiator(net: &Net, address: &str) -> Result {
    let request = Request::new(Operation::GetZcopy, BLOCK);
    let connection = net.connect(address).request(request).await?;
    println!("over {}", connection.explanation().chosen);
    let remote = connection.shared().await?;

    // Where each block is at the owner, and where it goes: one behind the other.
    let from = |number| number * 37 % SHARED;
    let blocks = (0..WANTED).map(|number| (number * BLOCK, from(number) * BLOCK));
    let block = |(local, remote)| Block { local: local as u64, remote: remote as u64, length: BLOCK as u64 };
    let blocks: Blocks = blocks.map(block).collect();
    let local = net.allocate(WANTED * BLOCK)?;
    let transfer = connection.get_blocks(&local, &remote, &blocks).notify(b"all are read").start()?;
    let Receipt { over, blocks, bytes, elapsed, .. } = transfer.await?;
    println!("{blocks} blocks, {bytes} bytes over {over} in {elapsed:?}");

    for (number, block) in local.to_vec().chunks(BLOCK).take(WANTED).enumerate() {
        assert!(block.iter().all(|&byte| byte == from(number) as u8), "block {number}");
    }
    Ok(connection.close().await?)
}
