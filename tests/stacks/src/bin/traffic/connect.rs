//! Connections, one after the other: each carries some bytes there and back.

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::figures::{Figure, Phase, Times, figure};
use crate::sides::{self, Server};
use crate::way::Way;
use crate::{Options, Outcome};

pub fn serve(way: &Way, options: &Options) -> Outcome {
    way.run(accept(way, options))
}

async fn accept(way: &Way, options: &Options) -> Outcome {
    let (mut listener, address) = way.listen().await?;
    sides::announce(&address)?;
    let mut message = vec![0; options.size];
    loop {
        let mut stream = listener.accept().await?;
        stream.read_exact(&mut message).await?;
        stream.write_all(&message).await?;
        // The end of the client.
        while stream.read(&mut message).await.is_ok_and(|count| count > 0) {}
    }
}

/// From the call to the last byte of the reply. The end of the connection is not measured, and delays the next one.
pub fn call(way: &Way, server: &Server, options: &Options) -> Outcome<Vec<Figure>> {
    let mut times = way.run(async {
        let (message, mut reply) = (vec![1; options.size], vec![0; options.size]);
        let (mut times, phase) = (Times::default(), Phase::new(options));
        loop {
            let begun = Instant::now();
            if phase.is_over(begun) {
                return Ok(times);
            }
            let mut stream = way.connect(&server.address).await?;
            stream.write_all(&message).await?;
            stream.read_exact(&mut reply).await?;
            if phase.has_begun(begun) {
                times.add(begun.elapsed());
            }
        }
    })?;
    Ok(vec![figure("p50", times.quantile(0.5)?, "ns"), figure("p99", times.quantile(0.99)?, "ns")])
}
