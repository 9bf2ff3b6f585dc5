//! Where things are in this workspace, and how they are built.
//! Built on `cargo metadata`; used by every command that reads or builds a crate.

use crate::failure::{Context, Failure, Outcome};
use crate::process::{cargo, command, echo, line, set_profile, spawn, wait};
use cargo_metadata::{
    Artifact, DependencyKind, Message, Metadata, MetadataCommand, Node, Package, PackageId, Target,
    TargetKind,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long one build may take: on a slow machine, with others beside it. What hangs ends all the same.
pub const BUILD_LIMIT: Duration = Duration::from_secs(3600);

/// The package of the suite that every transport is put through.
pub const CONFORMANCE: &str = "uct-conformance";
/// The package of the provider for libfabric.
const PROVIDER: &str = "uct-fi";
/// The package of UCT's vocabulary for C.
const COMPAT: &str = "uct-compat";
/// The package of the library for programs in C.
const C_LIBRARY: &str = "uct-net-c";
/// The package with the programs that are measured, in release builds, and those of the plugins that one of them loads. All are named in
/// each build: the features of one crate are those that the chosen packages ask for together, so another choice would build it once more.
const MEASURED: [&str; 3] = ["uct-measured", "uct-rc-verbs-plugin", "uct-ud-verbs-plugin"];

/// Tests choose by the models, whatever was measured on this machine.
const CALIBRATION: &str = "UCT_CALIBRATION";

/// The workspace's manifest.
pub const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");

/// Runs the program of a package of this workspace, from wherever this program was started.
pub fn cargo_run(package: &str) -> Command {
    let mut run = cargo();
    run.args(["run", "--quiet", "--manifest-path", MANIFEST, "--package", package, "--"]);
    run
}

/// Builds all libraries, plugins, programs and tests in the profile of tests.
pub const EVERYTHING: &[&str] = &["build", "--workspace", "--all-targets"];

/// The workspace as cargo describes it.
pub struct Workspace {
    metadata: Metadata,
}

/// What a build left behind.
#[derive(Default)]
pub struct Built {
    /// Programs.
    pub programs: BTreeSet<PathBuf>,
    /// Shared libraries: the transport plugins.
    pub plugins: BTreeSet<PathBuf>,
    /// Archives of the workspace, from which a library is linked.
    pub archives: BTreeSet<PathBuf>,
    /// Shared libraries of tools.
    pub libraries: BTreeSet<PathBuf>,
    /// The provider for libfabric, a shared library.
    pub provider: Option<PathBuf>,
    /// The library of UCT's vocabulary for C, as cargo calls it.
    pub compat: Option<PathBuf>,
    /// The library for programs in C, as cargo calls it.
    pub c_library: Option<PathBuf>,
    /// Test programs, if tests were built.
    pub tests: Vec<TestProgram>,
}

/// A test program: one of a package's `tests/`, or the unit tests of a library or program.
pub struct TestProgram {
    /// As `cargo test --test NAME` takes it; that of the library or program, if these are its unit tests.
    pub name: String,
    /// The executable, which has a hash in its name.
    pub path: PathBuf,
    /// That of the package, where cargo runs its tests.
    directory: PathBuf,
}

impl TestProgram {
    fn of(artifact: &Artifact, path: PathBuf) -> Option<TestProgram> {
        let directory = artifact.manifest_path.parent()?.as_std_path().to_owned();
        artifact.profile.test.then(|| TestProgram { name: artifact.target.name.clone(), path, directory })
    }

    /// Whether it is one of this package.
    pub fn is_of(&self, package: &Package) -> bool {
        package.manifest_path.parent().is_some_and(|directory| self.directory == directory.as_std_path())
    }

    /// Runs it as `cargo test` does: in the directory of its package, with what .cargo/config.toml sets.
    pub fn command(&self) -> Command {
        let mut test = command(&self.path);
        test.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        set_profile(&mut test);
        if std::env::var_os(CALIBRATION).is_none() {
            test.env(CALIBRATION, "off");
        }
        test
    }
}

impl Built {
    /// The program of that name.
    pub fn program(&self, name: &str) -> Outcome<&Path> {
        let found = self.programs.iter().find(|path| path.file_name().is_some_and(|file| file == name));
        found.map(PathBuf::as_path).ok_or_else(|| Failure::new(format!("the build made no program `{name}`")))
    }

    /// The archive of that name.
    pub fn archive(&self, name: &str) -> Outcome<&Path> {
        let found = self.archives.iter().find(|path| path.file_name().is_some_and(|file| file == name));
        found.map(PathBuf::as_path).ok_or_else(|| Failure::new(format!("the build made no `{name}`")))
    }

    /// The test program of that name, of a package.
    pub fn test(&self, package: &Package, name: &str) -> Outcome<&TestProgram> {
        let found = self.tests.iter().find(|test| test.name == name && test.is_of(package));
        found.ok_or_else(|| Failure::new(format!("the build made no test `{name}` of {}", package.name)))
    }
}

impl Workspace {
    /// Asks cargo, with the dependencies of the whole graph.
    pub fn load() -> Outcome<Self> {
        let metadata =
            MetadataCommand::new().manifest_path(MANIFEST).exec().context(|| "cargo metadata".to_owned())?;
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

    /// The packages that people run: those in examples/ and tools/ that make a program.
    pub fn program_packages(&self) -> impl Iterator<Item = &Package> {
        self.members_making(&["examples", "tools"], TargetKind::Bin)
    }

    /// The names of these programs.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        let targets = self.program_packages().flat_map(|package| &package.targets);
        targets.filter(|target| target.is_bin()).map(|target| target.name.as_str())
    }

    /// The packages that make a transport plugin: those in transports/, not what tests make for themselves.
    pub fn plugin_packages(&self) -> impl Iterator<Item = &Package> {
        self.members_making(&["transports"], TargetKind::CDyLib)
    }

    /// The package of that name, if it is one of this workspace.
    fn package_named(&self, name: &str) -> impl Iterator<Item = &Package> {
        self.members().filter(move |package| package.name == name)
    }

    /// What people run and load, of a build that made more.
    pub fn for_people(&self, mut built: Built) -> Built {
        let names = |packages: &mut dyn Iterator<Item = &Package>| -> BTreeSet<String> {
            packages.flat_map(|package| &package.targets).map(|target| target.name.clone()).collect()
        };
        let programs = names(&mut self.program_packages());
        let plugins = names(&mut self.plugin_packages());
        let libraries = names(&mut self.members_making(&["tools"], TargetKind::CDyLib));
        let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        built.programs.retain(|path| programs.contains(&stem(path)));
        let is_of = |path: &PathBuf, names: &BTreeSet<String>| {
            stem(path).strip_prefix("lib").is_some_and(|name| names.contains(name))
        };
        built.libraries = built.plugins.iter().filter(|path| is_of(path, &libraries)).cloned().collect();
        let library = |package| {
            let names = names(&mut self.package_named(package));
            built.plugins.iter().find(|path| is_of(path, &names)).cloned()
        };
        (built.provider, built.compat, built.c_library) =
            (library(PROVIDER), library(COMPAT), library(C_LIBRARY));
        built.plugins.retain(|path| is_of(path, &plugins));
        built
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

    /// The version that all packages of this workspace have.
    pub fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// The crates from elsewhere that programs and plugins are made of, by name and version.
    pub fn linked_crates(&self) -> Vec<&Package> {
        let libraries = [PROVIDER, COMPAT, C_LIBRARY].into_iter().flat_map(|name| self.package_named(name));
        let roots = self.program_packages().chain(self.plugin_packages()).chain(libraries);
        let mut next: Vec<&PackageId> = roots.map(|package| &package.id).collect();
        let mut found = BTreeSet::new();
        let nodes = self.metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
        let nodes: BTreeMap<&PackageId, &Node> = nodes.map(|node| (&node.id, node)).collect();
        while let Some(id) = next.pop() {
            let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            let linked = dependencies
                .filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal))
                .map(|dep| &dep.pkg);
            next.extend(linked.filter(|id| found.insert(*id)));
        }
        let is_ours = |package: &&Package| self.metadata.workspace_members.contains(&package.id);
        let mut crates: Vec<&Package> =
            self.metadata.packages.iter().filter(|it| found.contains(&it.id) && !is_ours(it)).collect();
        crates.sort_by_key(|package| (&package.name, &package.version));
        crates
    }

    /// The package of that name.
    pub fn package(&self, name: &str) -> Outcome<&Package> {
        let found = self.members().find(|package| package.name == name);
        found.ok_or_else(|| Failure::new(format!("this workspace has no package `{name}`")))
    }

    /// The test programs of all packages, by name: those of several packages may have the same.
    pub fn tests(&self) -> impl Iterator<Item = (&Package, &str)> {
        self.members().flat_map(|package| tests_of(package).map(move |name| (package, name)))
    }

    /// Builds test programs, which `cargo test --test NAME` takes, and no others.
    pub fn build_tests<'a>(&self, names: impl Iterator<Item = &'a str>) -> Outcome<Built> {
        let mut arguments = vec!["test", "--workspace", "--no-run"];
        arguments.extend(names.flat_map(|name| ["--test", name]));
        self.build(&arguments)
    }

    /// Runs `cargo ARGUMENTS` with its messages read, and returns the programs and plugins it made.
    pub fn build(&self, arguments: &[&str]) -> Outcome<Built> {
        self.run_build(cargo().args(arguments))
    }

    /// Builds packages, by their names.
    pub fn build_packages<'a>(
        &self,
        profile: &str,
        packages: impl Iterator<Item = &'a str>,
    ) -> Outcome<Built> {
        let mut arguments = vec!["build", "--profile", profile];
        packages.for_each(|package| arguments.extend(["--package", package]));
        self.build(&arguments)
    }

    /// Builds one of the programs that are measured, with optimisation. Each takes nearly a minute of a processor.
    pub fn build_measured(&self, program: &str) -> Outcome<Built> {
        self.build(&measured(&["--bin", program]))
    }

    /// As [`Workspace::build_measured`], with the plugins that the program finds beside it.
    pub fn build_measured_with_plugins(&self, program: &str) -> Outcome<Built> {
        self.build(&measured(&["--lib", "--bin", program]))
    }

    /// As [`Workspace::build`], with a cargo that has more than arguments.
    pub fn run_build(&self, build: &mut Command) -> Outcome<Built> {
        echo(build.current_dir(self.root()));
        build.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
        let mut child = spawn(build)?;
        let Some(stdout) = child.stdout.take() else {
            return Err(Failure::new("cargo was started without a pipe"));
        };
        let reading = std::thread::spawn(move || read_artifacts(BufReader::new(stdout)));
        let status = wait(&mut child, BUILD_LIMIT, &line(build))?;
        let built =
            reading.join().map_err(|_| Failure::new("the thread that reads cargo's messages failed"))?;
        if !status.success() {
            return Err(Failure::new(format!("`{}` failed: {status}", line(build))));
        }
        built
    }
}

/// What cargo is asked for these of the packages' targets.
fn measured<'a>(targets: &[&'a str]) -> Vec<&'a str> {
    let packages = MEASURED.iter().flat_map(|package| ["--package", package]);
    ["build", "--release"].into_iter().chain(packages).chain(targets.iter().copied()).collect()
}

/// The names of a package's test programs.
pub fn tests_of(package: &Package) -> impl Iterator<Item = &str> {
    let is_test = |target: &&Target| target.kind.contains(&TargetKind::Test);
    // What needs a feature has a step of its own.
    let is_built = |target: &&Target| target.required_features.is_empty();
    package.targets.iter().filter(is_test).filter(is_built).map(|target| target.name.as_str())
}

fn read_artifacts(messages: impl std::io::BufRead) -> Outcome<Built> {
    let mut built = Built::default();
    for message in Message::parse_stream(messages) {
        let message = message.context(|| "cannot read cargo's messages".to_owned())?;
        let Message::CompilerArtifact(artifact) = message else { continue };
        if let Some(program) = artifact.executable.clone() {
            let program = program.into_std_path_buf();
            match TestProgram::of(&artifact, program.clone()) {
                Some(test) => built.tests.push(test),
                None => drop(built.programs.insert(program)),
            }
        }
        if artifact.target.kind.contains(&TargetKind::StaticLib) {
            let archives = artifact.filenames.iter().filter(|file| file.extension() == Some("a"));
            built.archives.extend(archives.map(|file| file.as_std_path().to_owned()));
        }
        if artifact.target.kind.contains(&TargetKind::CDyLib) {
            let plugins = artifact.filenames.into_iter().filter(|file| file.extension() == Some("so"));
            built.plugins.extend(plugins.map(|file| file.into_std_path_buf()));
        }
    }
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    /// What cargo says of an executable.
    fn message(name: &str, kind: &str, is_test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/tools/{name}#0.1.0","manifest_path":"/w/tools/uct_info/Cargo.toml","target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"{name}","src_path":"/w/a.rs","edition":"2024","doc":false,"doctest":false,"test":true}},"profile":{{"opt_level":"0","debuginfo":0,"debug_assertions":true,"overflow_checks":true,"test":{is_test}}},"features":[],"filenames":["{executable}"],"executable":"{executable}","fresh":true}}"#
        ) + "\n"
    }

    #[test]
    fn programs_and_test_programs_are_told_apart_and_tests_run_in_the_directory_of_their_package() {
        let messages = [
            message("uct_info", "bin", false, "/t/debug/uct_info"),
            message("uct_info", "bin", true, "/t/debug/deps/uct_info-0123456789abcdef"),
            message("info", "test", true, "/t/debug/deps/info-0123456789abcdef"),
        ];
        let built = read_artifacts(messages.concat().as_bytes()).unwrap();
        assert_eq!(built.program("uct_info").unwrap(), Path::new("/t/debug/uct_info"));
        assert!(built.program("info").is_err());
        let names: Vec<&str> = built.tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["uct_info", "info"]);
        let test = built.tests[1].command();
        assert_eq!(test.get_current_dir(), Some(Path::new("/w/tools/uct_info")));
        assert_eq!(test.get_program(), "/t/debug/deps/info-0123456789abcdef");
        let other = Workspace::load().unwrap();
        let other = other.members().find(|package| package.name == "ucs").unwrap();
        let failure = built.test(other, "info").err().unwrap().to_string();
        assert_eq!(failure, "the build made no test `info` of ucs");
    }

    #[test]
    fn a_test_program_has_cargo_build_with_the_profile_of_all_else() {
        crate::process::build_for_once();
        let message = message("hello", "test", true, "/t/debug/deps/hello-0123456789abcdef");
        let test = read_artifacts(message.as_bytes()).unwrap().tests[0].command();
        let profile = |command: &Command| -> Vec<(OsString, OsString)> {
            let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
            let of_profile =
                variables.filter(|(name, _)| name.as_encoded_bytes().starts_with(b"CARGO_PROFILE_"));
            of_profile.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let of_others = profile(&cargo());
        let is_set_outside = std::env::var_os("CARGO_PROFILE_DEV_DEBUG").is_some();
        assert!(!of_others.is_empty() || is_set_outside);
        assert_eq!(profile(&test), of_others);
    }
}
