//! The client of the crate `redis`, multiplexed and pipelined, with a small server for RESP.

use std::collections::HashMap;

use redis::RedisConnectionInfo;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::roads::{Bytes, Road, pattern, same_over_every_road};

/// A line of a request: a kind and a number.
async fn number(stream: &mut BufReader<Box<dyn Bytes>>, kind: char) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.strip_prefix(kind)?.trim_end().parse().ok()
}

/// A request: an array of byte strings. `None` at the end.
async fn request(stream: &mut BufReader<Box<dyn Bytes>>) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    for _ in 0..number(stream, '*').await? {
        let length = number(stream, '$').await?;
        let mut word = vec![0; length + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(length);
        words.push(word);
    }
    Some(words)
}

async fn serve(stream: Box<dyn Bytes>) -> usize {
    let mut stream = BufReader::new(stream);
    let mut values: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut requests = 0;
    while let Some(words) = request(&mut stream).await {
        let command = String::from_utf8_lossy(&words[0]).to_uppercase();
        let reply = match (command.as_str(), &words[1..]) {
            ("SET", [key, value]) => {
                values.insert(key.clone(), value.clone());
                b"+OK\r\n".to_vec()
            }
            ("GET", [key]) => match values.get(key) {
                Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
                None => b"$-1\r\n".to_vec(),
            },
            ("INCR", [key]) => {
                let count =
                    values.get(key).map_or(0, |value| String::from_utf8_lossy(value).parse().unwrap_or(0));
                values.insert(key.clone(), (count + 1_u64).to_string().into_bytes());
                format!(":{}\r\n", count + 1).into_bytes()
            }
            // What the client says of itself.
            ("CLIENT", _) => b"+OK\r\n".to_vec(),
            _ => format!("-ERR unknown command {command}\r\n").into_bytes(),
        };
        requests += usize::from(command != "CLIENT");
        stream.write_all(&reply).await.expect("the client reads");
        stream.flush().await.expect("the client reads");
    }
    requests
}

async fn commands(road: Road) -> (Vec<u64>, Vec<Option<Vec<u8>>>, String, usize) {
    let mut server = road.listen().await;
    let address = server.address.clone();
    let serving = tokio::spawn(async move { serve(server.accept().await).await });
    let stream = road.connect(&address).await;
    let info = RedisConnectionInfo::default();
    let (mut client, driver) =
        MultiplexedConnection::new(&info, Box::pin(stream)).await.expect("a connection");
    let driver = tokio::spawn(driver);
    let mut values = Vec::new();
    for (number, length) in [0, 1, 1000, 300_000].into_iter().enumerate() {
        let (key, value) = (format!("key {number}"), pattern(length, number));
        redis::cmd("SET").arg(&key).arg(&value).exec_async(&mut client).await.expect("it is set");
        values.push(redis::cmd("GET").arg(&key).query_async(&mut client).await.expect("an answer"));
    }
    values.push(redis::cmd("GET").arg("nothing").query_async(&mut client).await.expect("an answer"));
    // Many tasks share the connection.
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move { redis::cmd("INCR").arg("count").query_async(&mut client).await })
        })
        .collect();
    let mut counts = Vec::new();
    for task in tasks {
        counts.push(task.await.expect("a task").expect("an answer"));
    }
    counts.sort_unstable();
    let mut pipeline = redis::pipe();
    for _ in 0..50 {
        pipeline.cmd("INCR").arg("count");
    }
    counts.extend(pipeline.query_async::<Vec<u64>>(&mut client).await.expect("answers"));
    assert!(counts.iter().copied().eq(1..=150));
    let refused = redis::cmd("FLY").exec_async(&mut client).await.expect_err("no such command").to_string();
    drop(client);
    let _ = driver.await;
    (counts, values, refused, serving.await.expect("the server's task"))
}

#[test]
fn redis_answers_the_same_over_every_transport() {
    same_over_every_road(commands);
}
