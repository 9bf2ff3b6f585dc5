//! `cargo xtask hello`: two processes say hello on this machine, and what arrived is compared with what was sent.
//! Built on uct_hello_world and nothing but cargo and a C compiler; it is the first command of the README.

use crate::failure::{Context, Failure, Outcome};
use crate::net::{free_port, is_listening};
use crate::process::{command, echo, kill_tree, spawn, wait_until};
use crate::workspace::Workspace;
use clap::Args;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the server may take to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);
/// How long both may take in all.
const LIMIT: Duration = Duration::from_secs(120);
/// How long a server may go on after its client has failed.
const AFTERMATH: Duration = Duration::from_secs(3);
/// The size of the string where `-s` does not say.
const DEFAULT_SIZE: usize = 16;

/// What both processes get beside the server's address and the port.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// Options of uct_hello_world for both sides, for example -t tcp -b -s 8192; not -n and -p, which are set here
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,

    /// Variables for both sides.
    #[arg(skip)]
    variables: &'static [(&'static str, &'static str)],
}

impl Options {
    /// Over `rc_verbs` on the device in software, in each way to send; and over `ud_verbs`, where both processes share an address.
    pub fn over_soft_verbs() -> impl Iterator<Item = Self> {
        const DEVICE: &[(&str, &str)] = &[("UCT_IB_LIBRARY", "soft"), ("SOFTVERBS_NAME", "mlx5_0")];
        const SHARED: &[(&str, &str)] =
            &[("UCT_IB_LIBRARY", "soft"), ("SOFTVERBS_NAME", "mlx5_0"), ("SOFTVERBS_ADDRESS", "127.32.0.1")];
        let rc = ["-i", "-b", "-z"].map(|way| ("rc_verbs", way, DEVICE));
        rc.into_iter().chain([("ud_verbs", "-i", SHARED)]).map(|(transport, way, variables)| {
            let arguments = ["-d", "mlx5_0:1", "-t", transport, way].map(str::to_owned).to_vec();
            Options { arguments, variables }
        })
    }
}

/// Builds, runs a server and a client, and fails unless the server printed the string that the client sent.
pub fn run(workspace: &Workspace, options: &Options) -> Outcome {
    let mut build = vec!["build", "--package", "uct_hello_world"];
    build.extend(
        plugin_of(workspace, &options.arguments).into_iter().flat_map(|plugin| ["--package", plugin]),
    );
    run_with(workspace, options, &build)
}

/// As [`run`], with a build that makes the program and the plugin among others.
pub fn run_with(workspace: &Workspace, options: &Options, build: &[&str]) -> Outcome {
    let built = workspace.build(build)?;
    let program = built.program("uct_hello_world")?;

    let address = if options.arguments.iter().any(|argument| argument == "-6") { "::1" } else { "127.0.0.1" };
    let port = free_port();
    let deadline = Instant::now() + LIMIT;
    let mut server = Side::start("server", program, options, &["-p", &port.to_string()])?;
    if !server.listens(port)? {
        server.finish(deadline)?;
        return Err(Failure::new("the server ended before it listened"));
    }
    let arguments = ["-n", address, "-p", &port.to_string()];
    let client = Side::start("client", program, options, &arguments)?;
    let server = both(client, server, deadline)?;

    let expected = test_string(size(&options.arguments)?);
    let received = received(&server).ok_or_else(|| Failure::new("the server printed no received string"))?;
    if received != expected {
        return Err(Failure::new(format!("the server received {received:?}, the client sent {expected:?}")));
    }
    eprintln!("hello: the server received what the client sent ({} bytes)", size(&options.arguments)?);
    Ok(())
}

/// Waits for both, so that both outputs are complete, and returns the server's. A server whose client has
/// failed gets no more than a moment.
fn both(client: Side, server: Side, deadline: Instant) -> Outcome<Vec<String>> {
    let Err(client) = client.finish(deadline) else { return server.finish(deadline) };
    match server.finish(deadline.min(Instant::now() + AFTERMATH)) {
        Ok(_) => Err(client),
        Err(server) => Err(Failure::with_status(format!("{client}; {server}"), client.status())),
    }
}

/// The package that makes the plugin of a transport that is asked for by name. The program looks for plugins beside
/// itself, which is where it is built.
fn plugin_of<'a>(workspace: &'a Workspace, arguments: &[String]) -> Option<&'a str> {
    let library = format!("uct_{}", value_of(arguments, "-t")?);
    let package =
        workspace.plugin_packages().find(|package| package.targets.iter().any(|t| t.name == library));
    package.map(|package| package.name.as_str())
}

/// The value of a short option, given as `-t NAME` or `-tNAME`.
fn value_of<'a>(arguments: &'a [String], option: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument.starts_with(option))?;
    match arguments[at].strip_prefix(option) {
        Some("") => arguments.get(at + 1).map(String::as_str),
        joined => joined,
    }
}

fn size(arguments: &[String]) -> Outcome<usize> {
    let Some(size) = value_of(arguments, "-s") else { return Ok(DEFAULT_SIZE) };
    size.parse().context(|| format!("-s {size}: expected a number of bytes"))
}

/// The string that a client sends: letters from A on, over and over.
fn test_string(size: usize) -> String {
    ('A'..='Z').cycle().take(size).collect()
}

/// What follows `sent` in the server's line `[callback] OPERATION sent STRING`.
fn received(server: &[String]) -> Option<&str> {
    let line = server.iter().find_map(|line| line.strip_prefix("[callback] "))?;
    line.split_once(" sent ").map(|(_, string)| string)
}

/// One of the two processes, its output shown line by line behind its name.
struct Side {
    name: &'static str,
    child: Child,
    stdout: JoinHandle<Vec<String>>,
    stderr: JoinHandle<Vec<String>>,
}

impl Side {
    fn start(name: &'static str, program: &Path, options: &Options, own: &[&str]) -> Outcome<Self> {
        let mut side: Command = command(program);
        side.args(own).args(&options.arguments).envs(options.variables.iter().copied());
        echo(&side);
        let mut child = spawn(side.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let stdout = relay(name, child.stdout.take());
        let stderr = relay(name, child.stderr.take());
        Ok(Side { name, child, stdout, stderr })
    }

    /// Waits until the port is listened on, without connecting to it: a server would take that for its client.
    /// `false` if it ended instead.
    fn listens(&mut self, port: u16) -> Outcome<bool> {
        let deadline = Instant::now() + LISTEN_LIMIT;
        while !is_listening(port) && Instant::now() < deadline {
            if wait_until(&mut self.child, Instant::now() + Duration::from_millis(20))?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Its output, if it ended well and in time. It is killed if not.
    fn finish(mut self, deadline: Instant) -> Outcome<Vec<String>> {
        let status = wait_until(&mut self.child, deadline)?;
        if status.is_none() {
            kill_tree(&mut self.child);
        }
        let output = self.stdout.join().unwrap_or_default();
        let _ = self.stderr.join();
        match status {
            Some(status) if status.success() => Ok(output),
            Some(status) => {
                Err(Failure::new(format!("the {} failed: {status}; what it printed is above", self.name)))
            }
            None => Err(Failure::with_status(format!("the {} did not end and was killed", self.name), 124)),
        }
    }
}

fn relay(name: &'static str, pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<String>> {
    thread::spawn(move || {
        let mut lines = Vec::new();
        for line in pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n')).map_while(Result::ok)
        {
            let line = String::from_utf8_lossy(&line).into_owned();
            println!("[{name}] {line}");
            lines.push(line);
        }
        lines
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_expected_string_is_the_alphabet_over_and_over() {
        assert_eq!(test_string(3), "ABC");
        assert_eq!(test_string(0), "");
        assert!(test_string(29).ends_with("YZABC"));
    }

    #[test]
    fn the_size_is_read_from_the_arguments() {
        assert_eq!(size(&words("-t tcp -s 100")).unwrap(), 100);
        assert_eq!(size(&words("-s9")).unwrap(), 9);
        assert_eq!(size(&words("-b")).unwrap(), DEFAULT_SIZE);
        assert!(size(&words("-s many")).unwrap_err().to_string().contains("many"));
    }

    #[test]
    fn the_received_string_is_behind_sent() {
        let lines =
            ["----- UCT TEST SUCCESS ----".to_owned(), "[callback] uct_ep_am_short sent ABC".to_owned()];
        assert_eq!(received(&lines), Some("ABC"));
        assert_eq!(received(&lines[..1]), None);
        assert_eq!(received(&["[callback] uct_ep_am_zcopy sent ".to_owned()]), Some(""));
    }
}
