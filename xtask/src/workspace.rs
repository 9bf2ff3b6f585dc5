//! Where things are in this workspace, and how they are built.
//! Stands on `cargo metadata`; every command that looks at or builds a crate stands on it.

use crate::failure::{Context, Failure, Outcome};
use crate::process::{cargo, echo, line, spawn, wait};
use cargo_metadata::{Message, Metadata, MetadataCommand, Package, TargetKind};
use std::collections::BTreeSet;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// How long one build may take.
pub const BUILD_LIMIT: Duration = Duration::from_secs(900);

/// The workspace as cargo describes it.
pub struct Workspace {
    metadata: Metadata,
}

/// What a build left behind.
#[derive(Default)]
pub struct Built {
    /// Programs (and test programs, if tests were built).
    pub programs: BTreeSet<PathBuf>,
    /// Shared libraries: the transport plugins.
    pub plugins: BTreeSet<PathBuf>,
}

impl Built {
    /// The program of that name.
    pub fn program(&self, name: &str) -> Outcome<&Path> {
        let found = self.programs.iter().find(|path| path.file_name().is_some_and(|file| file == name));
        found.map(PathBuf::as_path).ok_or_else(|| Failure::new(format!("the build made no program `{name}`")))
    }
}

impl Workspace {
    /// Asks cargo, with the dependencies of the whole graph.
    pub fn load() -> Outcome<Self> {
        let metadata = MetadataCommand::new()
            .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
            .exec()
            .context(|| "cargo metadata".to_owned())?;
        Ok(Workspace { metadata })
    }

    /// The workspace's top directory.
    pub fn root(&self) -> &Path {
        self.metadata.workspace_root.as_std_path()
    }

    /// Where cargo builds.
    pub fn target(&self) -> &Path {
        self.metadata.target_directory.as_std_path()
    }

    /// All that cargo said.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The packages that people run: those in examples/ and tools/ that make a program.
    pub fn program_packages(&self) -> impl Iterator<Item = &Package> {
        self.members_making(&["examples", "tools"], TargetKind::Bin)
    }

    /// The packages that make a transport plugin: those in transports/, not what tests make for themselves.
    pub fn plugin_packages(&self) -> impl Iterator<Item = &Package> {
        self.members_making(&["transports"], TargetKind::CDyLib)
    }

    fn members_making<'a>(
        &'a self,
        directories: &'a [&str],
        kind: TargetKind,
    ) -> impl Iterator<Item = &'a Package> {
        self.members().filter(move |package| {
            let root = &self.metadata.workspace_root;
            directories.iter().any(|directory| package.manifest_path.starts_with(root.join(directory)))
                && package.targets.iter().any(|target| target.kind.contains(&kind))
        })
    }

    /// The packages of this workspace.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.metadata.packages.iter().filter(|package| self.metadata.workspace_members.contains(&package.id))
    }

    /// The names of a package's test programs, as `cargo test --test NAME` takes them.
    pub fn tests<'a>(&'a self, package: &'a str) -> impl Iterator<Item = &'a str> {
        let targets =
            self.members().filter(move |member| member.name == package).flat_map(|member| &member.targets);
        targets.filter(|target| target.kind.contains(&TargetKind::Test)).map(|target| target.name.as_str())
    }

    /// Runs `cargo ARGUMENTS` with its messages read, and answers with the programs and plugins it made.
    pub fn build(&self, arguments: &[&str]) -> Outcome<Built> {
        let mut build = cargo();
        build.args(arguments).current_dir(self.root());
        echo(&build);
        build.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
        let mut child = spawn(&mut build)?;
        let Some(stdout) = child.stdout.take() else {
            return Err(Failure::new("cargo was started without a pipe"));
        };
        let reading = std::thread::spawn(move || read_artifacts(BufReader::new(stdout)));
        let status = wait(&mut child, BUILD_LIMIT, &line(&build))?;
        let built =
            reading.join().map_err(|_| Failure::new("the thread that reads cargo's messages failed"))?;
        if !status.success() {
            return Err(Failure::new(format!("`{}` failed: {status}", line(&build))));
        }
        built
    }
}

fn read_artifacts(messages: impl std::io::BufRead) -> Outcome<Built> {
    let mut built = Built::default();
    for message in Message::parse_stream(messages) {
        let message = message.context(|| "cannot read cargo's messages".to_owned())?;
        let Message::CompilerArtifact(artifact) = message else { continue };
        if let Some(program) = artifact.executable {
            built.programs.insert(program.into_std_path_buf());
        }
        if artifact.target.kind.contains(&TargetKind::CDyLib) {
            let plugins = artifact.filenames.into_iter().filter(|file| file.extension() == Some("so"));
            built.plugins.extend(plugins.map(|file| file.into_std_path_buf()));
        }
    }
    Ok(built)
}
