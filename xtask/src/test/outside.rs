//! The step that uses the library as applications elsewhere do: two crates outside of this workspace, with different features, in one
//! target folder, which is that of this workspace, so that what both need of other crates is built once.
//! Built on cargo, without a network; used by `test`.

use crate::failure::{Context, Failure, Outcome};
use crate::process::{cargo, command, output};
use crate::workspace::{Built, Workspace};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How long one of the programs may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Sends a message to itself, and lists what is linked into it, whether or not this machine has what it needs.
const PROGRAM: &str = r#"use std::cell::Cell;
use std::rc::Rc;
use uct_core::{AmId, Context, Worker, loader::PluginOrigin};

const HELLO: AmId = AmId::new(0).unwrap();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::builder().build()?;
    let loaded = context.plugins().iter().filter(|plugin| plugin.origin == PluginOrigin::BuiltIn).map(|plugin| &plugin.name);
    let failed = context.load_failures().iter().filter(|failure| failure.path.is_none()).map(|failure| &failure.name);
    let mut linked: Vec<&str> = loaded.chain(failed).map(String::as_str).collect();
    linked.sort();
    println!("linked: {}", linked.join(" "));

    let worker = Worker::new(&context)?;
    let iface = worker.open("self", "memory")?;
    let received = Rc::new(Cell::new(0));
    let length = Rc::clone(&received);
    iface.set_am_handler(HELLO, move |message| length.set(message.payload().len()));
    iface.connect(&iface.address()?)?.am_short(HELLO, 0, b"hello")?;
    println!("received: {} bytes", received.get());
    Ok(())
}
"#;

/// An application: its name, the features of uct-core, and another dependency.
struct Application {
    name: &'static str,
    features: &'static [&'static str],
    other: &'static str,
}

const SMALL: Application = Application { name: "uct_outside_small", features: &["self"], other: "" };

/// It asks for more of a crate that ucs and the transports use, so that cargo builds them once more, with other hashes.
const LARGE: Application = Application {
    name: "uct_outside_large",
    features: &["rc_verbs", "rdmacm", "self", "shm", "tcp", "ud_verbs"],
    other: "bitflags = { version = \"2\", features = [\"std\"] }\n",
};

/// Builds and runs both, and then the first one again.
pub fn run(workspace: &Workspace) -> Outcome {
    let place = tempfile::tempdir().context(|| "cannot make a temporary directory".to_owned())?;
    for application in [&SMALL, &LARGE] {
        application.write(workspace, place.path())?;
        application.build_and_run(workspace, place.path())?;
    }
    // The second one has built its own of all that the first one links.
    let source = place.path().join(SMALL.name).join("src/main.rs");
    write(&source, &format!("//! Changed.\n{PROGRAM}"))?;
    SMALL.build_and_run(workspace, place.path())
}

impl Application {
    fn write(&self, workspace: &Workspace, place: &Path) -> Outcome {
        let root = place.join(self.name);
        fs::create_dir_all(root.join("src")).context(|| format!("cannot make {}", root.display()))?;
        write(&root.join("Cargo.toml"), &self.manifest(workspace))?;
        write(&root.join("src/main.rs"), PROGRAM)?;
        // The versions that this workspace uses are there; nothing is fetched.
        let lock = workspace.root().join("Cargo.lock");
        let copied = fs::copy(&lock, root.join("Cargo.lock"));
        copied.map(drop).context(|| format!("cannot copy {}", lock.display()))
    }

    /// The profile is that of other people's crates in this workspace.
    fn manifest(&self, workspace: &Workspace) -> String {
        format!(
            "[package]\nname = \"{}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [dependencies]\nuct-core = {{ path = {:?}, default-features = false, features = {:?} }}\n{}\n\
             [profile.dev]\ndebug = false\nincremental = false\n",
            self.name,
            workspace.root().join("uct-core"),
            self.features,
            self.other,
        )
    }

    fn build_and_run(&self, workspace: &Workspace, place: &Path) -> Outcome {
        let mut build = cargo();
        build.args(["build", "--offline", "--manifest-path"]).arg(place.join(self.name).join("Cargo.toml"));
        build.arg("--target-dir").arg(workspace.target());
        let built = workspace.run_build(&mut build)?;
        self.check(&built)?;
        let mut program = command(built.program(self.name)?);
        let seen = output(program.env("UCT_LOG_LEVEL", "error"), LIMIT)?;
        let expected = format!("linked: {}\nreceived: 5 bytes\n", self.features.join(" "));
        if seen != expected {
            return Err(Failure::new(format!("{}: expected\n{expected}it printed\n{seen}", self.name)));
        }
        Ok(())
    }

    /// An application links transports, and builds no plugin.
    fn check(&self, built: &Built) -> Outcome {
        match built.plugins.first() {
            None => Ok(()),
            Some(plugin) => Err(Failure::new(format!("{} built {}", self.name, plugin.display()))),
        }
    }
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).context(|| format!("cannot write {}", path.display()))
}
