//! A process of another user, which calls a listener on a Unix path.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use uct_net::local::Net;

use super::attackers::Attackers;
use super::beside::{HELD, HONEST, Proof, hold, serves};
use crate::support::child::{self, Running};
use crate::support::copy::copy_program;
use crate::support::{net, patient, skip, with};

/// The name of its program.
const PROGRAM: &str = "program";
/// What it does.
const ROLE: &str = "UCT_NET_TEST_ROLE";
/// A user that has no other process.
const USER: u32 = 61_236;

/// A directory that everybody may enter, with this program.
pub struct OtherUser(TempDir);

impl OtherUser {
    /// `None` if this user may not become another one.
    pub fn new() -> Option<OtherUser> {
        if !skip::is_root("become another user") {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("its owner's");
        let program = std::env::current_exe().expect("this program has a path");
        copy_program(program, directory.path().join(PROGRAM));
        Some(OtherUser(directory))
    }

    /// A new path in the directory, as an address.
    pub fn path(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        format!("unix:{}", self.0.path().join(number.to_string()).display())
    }

    /// Permits everybody to call a listener there.
    pub fn permit(&self, address: &str) {
        let path = address.strip_prefix("unix:").expect("a path");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).expect("its owner's");
    }

    /// Callers that stall.
    pub fn attacks(&self, address: &str, words: &[u8]) -> Running {
        let words: String = words.iter().map(|byte| format!("{byte:02x}")).collect();
        self.start(&format!("stall {address} {words}"))
    }

    /// As many honest callers as the test has, one after the other.
    pub fn calls(&self, address: &str, proof: Proof) {
        self.start(&format!("call {address} {proof:?}"));
    }

    /// One that holds all the connections that it can.
    pub fn holds(&self, address: &str, proof: Proof) -> Running {
        self.start(&format!("hold {address} {proof:?}"))
    }

    /// Returns when it has done what it is to do; it ends when that is dropped.
    fn start(&self, role: &str) -> Running {
        let mut command = Command::new(self.0.path().join(PROGRAM));
        command.args([child::name(super::another_user), "--exact", "--nocapture"]);
        command.env(ROLE, role).current_dir("/");
        command.uid(USER).gid(USER).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running(command.spawn().expect("it starts"));
        child::line(&mut running.0, "done");
        running
    }
}

/// Runs in the process of the other user.
pub fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let done = || {
        println!("\ndone");
        // It ends with its input, also if the parent is killed.
        let _ = std::io::stdin().read(&mut [0]);
    };
    // The others are for one process alone.
    let proof = |name: &str| if name == "Key" { Proof::Key } else { Proof::Nothing };
    let net_with = |name: &str| net(proof(name).options().1);
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["stall", address, words] => {
            let words = words.as_bytes().chunks(2);
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16);
            let words = words.map(|pair| byte(pair).expect("a byte")).collect();
            let _attackers = Attackers::that_stall(address, HELD, words);
            done();
        }
        ["call", address, name] => {
            let net = net_with(name);
            for _ in 0..HONEST {
                net.block_on(serves((&net, proof(name)), address, None, "tcp/lo"))
                    .expect("another user's caller is served");
            }
            done();
        }
        ["meet", address, peers] => {
            let net = net_of(peers);
            let connection = net.block_on(net.connect(address)).expect("a connection");
            println!("\ndone");
            net.block_on(connection.recv()).expect_err("the end");
        }
        ["listen", address, peers] => {
            let net = net_of(peers);
            let mut listener = net.block_on(net.listen(address).into_future()).expect("a listener");
            println!("\ndone");
            net.block_on(async {
                let connection = listener.accept().await?.accept().await?;
                connection.recv().await.map(|_| ())
            })
            .expect_err("the end");
        }
        ["hold", address, name] => {
            let net = net_with(name);
            let held = net.block_on(hold((&net, proof(name)), address, None));
            done();
            drop(held);
        }
        _ => panic!("{role}: no role"),
    }
}

/// A net, with a value of the key that permits peers of other users.
fn net_of(peers: &str) -> Net {
    Net::new(&with(&[("shm.peers", peers)]), patient()).expect("a net")
}

/// Connects root, as the caller or as the one that is called, and another user by a name that both reach. Returns root's explanation.
fn meet(user: &OtherUser, peers: &str, is_caller: bool) -> String {
    let place = format!("unix:@uct-net-users-{}", std::process::id());
    let net = net_of(peers);
    if is_caller {
        let _listener = user.start(&format!("listen {place} {peers}"));
        let connection = net.block_on(net.connect(&place)).expect("a connection");
        return connection.explanation().to_string();
    }
    let mut listener = net.block_on(net.listen(&place).into_future()).expect("a listener");
    thread::scope(|scope| {
        let caller = scope.spawn(|| user.start(&format!("meet {place} {peers}")));
        let connection =
            net.block_on(async { listener.accept().await?.accept().await }).expect("a connection");
        net.block_on(async {
            while !caller.is_finished() {
                net.sleep(Duration::from_millis(1)).await;
            }
        });
        connection.explanation().to_string()
    })
}

#[test]
fn two_users_share_no_memory_over_a_unix_path_unless_both_permit_that() {
    let Some(user) = OtherUser::new() else { return };
    for is_caller in [false, true] {
        let apart = meet(&user, "user", is_caller);
        let reason = format!("the peer runs as user {USER}, this process as user 0");
        assert!(apart.starts_with("connected over tcp/lo\n") && apart.contains(&reason), "{apart}");
        let shared = meet(&user, "any", is_caller);
        assert!(shared.starts_with("connected over posix/memory\n"), "{shared}");
    }
}
