//! The Rust port of CloudWeGo's shmipc: messages of so many bytes there and back between two processes, over one stream.
//! `shmipc BYTES` prints half of a round trip in nanoseconds, the median.
//!
//! It wakes its peer through an eventfd, which its documentation recommends for low latency.

#![forbid(unsafe_code)]

#[path = "../../stacks/src/bin/traffic/sides.rs"]
#[expect(dead_code, reason = "its processor time is of no interest here")]
mod sides;

use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::shmipc::Listener;
use ::shmipc::buffer::BufferReader;
use ::shmipc::config::{Config, SizePercentPair};
use ::shmipc::consts::MemMapType;
use ::shmipc::session::{SessionManager, SessionManagerConfig};
use ::shmipc::transport::{DefaultUnixConnect, DefaultUnixListen};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const MEASURED: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(200);
/// Processors of the two sides, as those of `traffic`.
const SERVER_PROCESSOR: usize = 0;
const CLIENT_PROCESSOR: usize = 1;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (size, is_server) = match &arguments[..] {
        [size] => (size, false),
        [size, serve] if serve == "--serve" => (size, true),
        _ => {
            eprintln!("usage: shmipc BYTES");
            return ExitCode::FAILURE;
        }
    };
    let Err(error) = run(size, is_server) else { return ExitCode::SUCCESS };
    eprintln!("shmipc: {error}");
    ExitCode::FAILURE
}

fn run(size: &str, is_server: bool) -> Outcome {
    let size = size.parse()?;
    sides::begin(if is_server { SERVER_PROCESSOR } else { CLIENT_PROCESSOR })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if is_server {
        sides::end_with_input();
        return runtime.block_on(serve(size));
    }
    let server = sides::Server::start()?;
    let median = runtime.block_on(ask(size, &server.address));
    let _ = std::fs::remove_file(&server.address);
    println!("{:.1}", median?);
    Ok(())
}

/// Pieces of shared memory that a message fits into, as in the project's own benchmark.
fn config(size: usize) -> Outcome<Config> {
    let piece = u32::try_from(size)? + 256;
    Ok(Config {
        mem_map_type: MemMapType::MemMapTypeMemFd,
        share_memory_buffer_cap: 64 << 20,
        buffer_slice_sizes: vec![SizePercentPair { size: piece, percent: 100 }],
        ..Config::default().with_v4_eventfd()
    })
}

async fn serve(size: usize) -> Outcome {
    let path = std::env::temp_dir().join(format!("uct-peers-{}", std::process::id()));
    let address = SocketAddr::from_pathname(&path)?;
    let mut listener = Listener::new(DefaultUnixListen, address, config(size)?).await?;
    sides::announce(&path.to_string_lossy())?;
    let mut stream = listener.accept().await?;
    let message = vec![1; size];
    while stream.read_exact_bytes(size).await.is_ok() {
        stream.recv_buf().release_previous_read();
        stream.write_bytes(&message)?;
        stream.flush(false).await?;
    }
    Ok(())
}

async fn ask(size: usize, path: &str) -> Outcome<f64> {
    let settings = SessionManagerConfig::new().with_config(config(size)?).with_session_num(1);
    let address = SocketAddr::from_pathname(Path::new(path))?;
    let sessions = SessionManager::new(settings, DefaultUnixConnect, address).await?;
    let mut stream = sessions.get_stream()?;
    let message = vec![1; size];
    let mut nanoseconds = Vec::new();
    let measured_from = Instant::now() + WARM_UP;
    let mut begun = Instant::now();
    while begun < measured_from + MEASURED {
        stream.write_bytes(&message)?;
        stream.flush(false).await?;
        if stream.read_exact_bytes(size).await?.len() != size {
            return Err("a message of another length".into());
        }
        stream.release_read_and_reuse();
        let now = Instant::now();
        if begun >= measured_from {
            nanoseconds.push((now - begun).as_nanos() as f64 / 2.0);
        }
        begun = now;
    }
    sessions.close().await;
    nanoseconds.sort_by(f64::total_cmp);
    Ok(nanoseconds.get(nanoseconds.len() / 2).copied().ok_or("no message came back")?)
}
