//! The same traffic over sockets of tokio and over transports, and what it costs: a client and a server, each a process on a processor of
//! its own. It prints all figures, or one of them. `cargo xtask compare` runs it.

#![forbid(unsafe_code)]

mod connect;
mod figures;
mod grpc;
mod http;
mod messages;
mod sides;
mod streams;
mod way;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use figures::Figure;
use sides::Server;
use way::{Over, Way};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Processors of the two sides.
const SERVER_PROCESSOR: usize = 0;
const CLIENT_PROCESSOR: usize = 1;

/// What is sent, over what.
#[derive(Debug, Parser)]
pub struct Options {
    /// The traffic
    test: Test,

    /// `tcp-socket` and `unix-socket` are tokio's; anything else is the name of a transport
    over: Over,

    /// What drives the transport; sockets are driven by a current-thread runtime of tokio
    #[arg(long, default_value = "tokio")]
    by: By,

    /// How an idle thread waits, over a transport
    #[arg(long, default_value = "adaptive")]
    wait: Wait,

    /// Bytes of a message, a write or a body
    #[arg(long, default_value_t = 64)]
    size: usize,

    /// Requests at once: for `http` each over a connection of its own, for `grpc` over one connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    in_flight: u16,

    /// Time that is measured, in milliseconds; a fifth of it passes before, unmeasured
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=30_000))]
    milliseconds: u64,

    /// Print this figure alone
    #[arg(long)]
    figure: Option<String>,

    /// Be the server; the client starts it
    #[arg(long, hide = true)]
    serve: bool,
}

impl Options {
    fn measured(&self) -> Duration {
        Duration::from_millis(self.milliseconds)
    }

    fn warm_up(&self) -> Duration {
        self.measured() / 5
    }
}

/// The traffic.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Test {
    /// Messages there and back
    Messages,
    /// Bytes of a stream there and back
    PingPong,
    /// Writes to a stream, one way
    Flow,
    /// Connections one after the other, each with bytes there and back
    Connect,
    /// Requests of HTTP/1.1, by hyper on both sides
    Http,
    /// Unary calls of gRPC, by tonic on both sides
    Grpc,
}

/// What drives a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// `Worker::progress` alone, without uct-net; for `messages`
    Raw,
    /// `uct_net::local`, in `block_on`
    BlockOn,
    /// `uct_net::local`, in a current-thread runtime of tokio
    Tokio,
    /// `uct_net`, in `block_on`
    Send,
    /// `uct_net`, in a current-thread runtime of tokio
    SendInTokio,
}

/// How an idle thread waits.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wait {
    Spin,
    Adaptive,
    Sleep,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = if options.serve { serve(&options) } else { measure(&options) };
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("traffic: {error}");
    ExitCode::FAILURE
}

fn serve(options: &Options) -> Outcome {
    sides::begin(SERVER_PROCESSOR)?;
    sides::end_with_input();
    let way = Way::new(options)?;
    match options.test {
        Test::Messages => messages::serve(&way, options),
        Test::PingPong => streams::echo(&way, options),
        Test::Flow => streams::drain(&way),
        Test::Connect => connect::serve(&way, options),
        Test::Http => http::serve(&way, options),
        Test::Grpc => grpc::serve(&way),
    }
}

fn measure(options: &Options) -> Outcome {
    // Its processor is its own before threads of a net begin, which inherit it.
    sides::begin(CLIENT_PROCESSOR)?;
    let server = Server::start()?;
    let way = Way::new(options)?;
    let figures = match options.test {
        Test::Messages => messages::ask(&way, &server, options),
        Test::PingPong => streams::ask(&way, &server, options),
        Test::Flow => streams::pour(&way, &server, options),
        Test::Connect => connect::call(&way, &server, options),
        Test::Http => http::request(&way, &server, options),
        Test::Grpc => grpc::call(&way, &server, options),
    }?;
    show(&figures, options.figure.as_deref())
}

fn show(figures: &[Figure], only: Option<&str>) -> Outcome {
    let Some(only) = only else {
        for Figure { name, value, unit } in figures {
            println!("{name} {value:.1} {unit}");
        }
        return Ok(());
    };
    let Some(figure) = figures.iter().find(|figure| figure.name == only) else {
        let names: Vec<&str> = figures.iter().map(|figure| figure.name).collect();
        return Err(format!("--figure {only}: this traffic has {}", names.join(", ")).into());
    };
    println!("{:.3}", figure.value);
    Ok(())
}
