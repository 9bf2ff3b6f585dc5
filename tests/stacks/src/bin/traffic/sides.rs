//! The two processes: each on its processor, bounded in time, and what processor time they take.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::Outcome;

/// Both processes end by then, whatever they wait for.
const LIMIT: Duration = Duration::from_secs(60);

/// Keeps this process on a processor, and bounds its time.
pub fn begin(processor: usize) -> Outcome {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set)
        .map_err(|error| format!("processor {processor}: {error}; two processors are needed"))?;
    thread::spawn(|| {
        thread::sleep(LIMIT);
        eprintln!("traffic: not done after {} s", LIMIT.as_secs());
        std::process::exit(1);
    });
    Ok(())
}

/// Ends the server when the client does.
pub fn end_with_input() {
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// Sends the address of the server to the client.
pub fn announce(address: &str) -> Outcome {
    println!("{address}");
    Ok(std::io::stdout().flush()?)
}

/// The server's process, as the client sees it.
pub struct Server {
    process: Child,
    pub address: String,
}

impl Server {
    /// Starts this program once more, with the same arguments.
    pub fn start() -> Outcome<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).arg("--serve");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().ok_or("the server has no output")?;
        let mut address = String::new();
        BufReader::new(output).read_line(&mut address)?;
        let server = Server { process, address: address.trim_end().to_owned() };
        if server.address.is_empty() {
            return Err("the server ended before it listened".into());
        }
        Ok(server)
    }

    /// Processor time that both processes have taken so far. That of the server lacks up to one tick of the system's clock.
    pub fn cpu_of_both(&self) -> Outcome<Duration> {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let own = Duration::new(own.tv_sec.try_into()?, own.tv_nsec.try_into()?);
        let mut server = Duration::ZERO;
        for task in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            // A thread that has just ended has no file any more.
            let Ok(statistics) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
            let running = statistics.split_whitespace().next().ok_or("an empty schedstat")?;
            server += Duration::from_nanos(running.parse()?);
        }
        Ok(own + server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
