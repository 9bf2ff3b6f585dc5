//! Put and get: a program writes to and reads from memory that another one registered.
//!
//!     put_get                 the owner of the memory; it prints how to start the other side
//!     put_get HOST:PORT       the initiator
//!
//! The owner shares memory: the initiator receives its address and the key to it. From then on the initiator works alone. Where
//! the transport has no hardware for put and get, the owner's progress carries them out, and its code is not involved either.

#![forbid(unsafe_code)]

use uct_core::Context;
use uct_core::select::{Operation, Request};
use uct_net::{NetOptions, local::Net};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const LENGTH: usize = 64;

fn main() -> Result {
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    match std::env::args().nth(1) {
        None => net.block_on(owner(&net)),
        Some(address) => net.block_on(initiator(&net, &address)),
    }
}

async fn owner(net: &Net) -> Result {
    let mut listener = net.listen("[::]:0").await?;
    println!("now start: put_get localhost:{}", listener.port().unwrap_or_default());
    let connection = listener.accept().await?.accept().await?;

    let memory = connection.allocate(LENGTH)?;
    memory.write(0, b"what the owner wrote");
    connection.share(&memory).await?;

    connection.recv().await?;
    println!("the memory now begins with {:?}", text(&memory.to_vec()));
    connection.closed().await;
    Ok(())
}

async fn initiator(net: &Net, address: &str) -> Result {
    // The transport has to have both. It is chosen for puts of this size.
    let get = Operation::GetZcopy.capability();
    let request = Request { capabilities: get, ..Request::new(Operation::PutZcopy, LENGTH) };
    let connection = net.connect(address).request(request).await?;
    println!("over {}", connection.explanation().chosen);
    let remote = connection.shared().await?;

    // The local memory belongs to the transport until the operation has ended.
    let local = connection.allocate(LENGTH)?;
    connection.get(local.slice(..LENGTH), &remote, 0).await?;
    println!("the memory begins with {:?}", text(&local.to_vec()));

    let new = b"what the initiator put";
    local.write(0, new);
    connection.put(local.slice(..new.len()), &remote, 0).await?;
    // The bytes have arrived when a flush is done, and a message would arrive after them in any case.
    connection.flush().await?;
    connection.send(b"done").await?;
    Ok(connection.close().await?)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
