//! Where values come from: files that are found, variables, the program; and which of them counts.

use std::{
    fs,
    os::unix::{ffi::OsStringExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use ucs::config::{
    Config, ConfigError, Field, FileSource, Kind, Loaded, Origin, Problem, Schema, Section, Sources,
    UnknownSections, Warning,
};

fn schema() -> Schema {
    let mut schema = Schema::new();
    let global = vec![
        Field::new("tls", Kind::NameList, "all", "Transports to use."),
        Field::new("net_devices", Kind::NameList, "all", "Devices to use."),
        Field::new("module_dir", Kind::Path, "/usr/lib/uct", "Where the plugins are."),
    ];
    schema.add_section(Section::new("", "", global)).unwrap();
    let tcp = vec![
        Field::new("tx_seg_size", Kind::MEM_SIZE, "8k", "Segment."),
        Field::new("max_poll", Kind::UINT, "16", "Polls."),
        Field::new("timeout", Kind::Time, "30s", "Patience."),
        Field::new("nodelay", Kind::Bool, "y", "No delay."),
    ];
    schema.add_section(Section::new("tcp", "Sockets.", tcp)).unwrap();
    schema
}

fn load(sources: &Sources) -> Loaded {
    Config::load(&schema(), sources).unwrap_or_else(|error| panic!("{error}"))
}

fn text(loaded: &Loaded, section: &str, key: &str) -> String {
    loaded.config.value(section, key).unwrap_or_else(|| panic!("{section}.{key}")).text.clone()
}

fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn without_sources_every_key_has_its_default() {
    let loaded = load(&Sources::default());
    assert_eq!(loaded.config.iter().count(), 7);
    assert!(loaded.config.iter().all(|(_, _, setting)| setting.origin == Origin::Default));
    assert_eq!(loaded.config.value("tcp", "tx_seg_size").unwrap().value.as_mem_size().unwrap().bytes(), 8192);
    assert_eq!((loaded.file, loaded.warnings), (None, vec![]));
    assert!(loaded.config.value("tcp", "tls").is_none());
}

#[test]
fn the_program_overrules_the_environment_which_overrules_the_file_which_overrules_the_default() {
    let home = TempDir::new().unwrap();
    let text_of_file = "tls = \"a\"\n[tcp]\nmax_poll = 1\ntx_seg_size = \"1k\"\n  timeout = 2.5\n";
    let path = write(home.path(), "mine.toml", text_of_file);
    let sources = Sources::default()
        .file(&path)
        .env([("UCT_TCP_TX_SEG_SIZE", "2k"), ("UCT_TCP_MAX_POLL", "2")])
        .set("tcp.max_poll", "3");
    let loaded = load(&sources);
    let setting = |section, key| loaded.config.value(section, key).unwrap();

    assert_eq!(setting("tcp", "nodelay").to_string(), "y  # default");
    assert_eq!(setting("", "tls").to_string(), format!("a  # {}:1", path.display()));
    assert_eq!(setting("tcp", "timeout").origin, Origin::File { path: path.clone(), line: 5, column: 13 });
    assert_eq!(setting("tcp", "timeout").value.as_time().unwrap().seconds(), 2.5);
    assert_eq!(setting("tcp", "tx_seg_size").to_string(), "2k  # environment UCT_TCP_TX_SEG_SIZE");
    assert_eq!(setting("tcp", "max_poll").to_string(), "3  # program");
    assert_eq!(loaded.file, Some(path));
}

#[test]
fn an_empty_variable_is_one_that_is_not_set() {
    let schema = schema();
    let name = |section: &str, key: &str| match section {
        "" => format!("UCT_{key}").to_uppercase(),
        _ => format!("UCT_{section}_{key}").to_uppercase(),
    };
    let names = schema.keys().map(|(section, field)| name(&section.name, &field.name));
    let empty = names.chain(["UCT_WHATEVER_ELSE".to_owned()]).map(|name| (name, ""));
    let loaded = load(&Sources::default().env(empty));
    assert_eq!(loaded.warnings, []);
    for (section, field) in schema.keys() {
        let setting = loaded.config.value(&section.name, &field.name).unwrap();
        assert_eq!(setting.origin, Origin::Default, "{}.{}", section.name, field.name);
    }
    // The last of a name counts, also if it is empty.
    let twice = load(&Sources::default().env([("UCT_TLS", "a"), ("UCT_TLS", "")]));
    assert_eq!(twice.config.value("", "tls").unwrap().origin, Origin::Default);
    // A program or a file that gives an empty value means it.
    assert!(Config::load(&schema, &Sources::default().set("tls", "")).is_err());
}

#[test]
fn of_a_variable_or_override_given_twice_the_last_counts() {
    let sources = Sources::default()
        .env([("UCT_TLS", "a"), ("UCT_TCP_MAX_POLL", "1"), ("UCT_TLS", "b")])
        .set("tcp.max_poll", "2")
        .set("tcp.max_poll", "3");
    let loaded = load(&sources);
    assert_eq!((text(&loaded, "", "tls"), text(&loaded, "tcp", "max_poll")), ("b".into(), "3".into()));
}

#[test]
fn a_file_may_use_natural_types() {
    let home = TempDir::new().unwrap();
    let document = "tls = [\"^tcp\", 'ud_*']\n[tcp]\ntx_seg_size = 0x2000\nmax_poll = 1_000\ntimeout = 3\n\
                    nodelay = false\n";
    let loaded = load(&Sources::default().file(write(home.path(), "a.toml", document)));
    assert_eq!(text(&loaded, "", "tls"), "^tcp,ud_*");
    assert_eq!(text(&loaded, "tcp", "tx_seg_size"), "8192");
    assert_eq!(text(&loaded, "tcp", "max_poll"), "1000");
    assert_eq!(loaded.config.value("tcp", "timeout").unwrap().value.as_time().unwrap().seconds(), 3.0);
    assert_eq!(loaded.config.value("tcp", "nodelay").unwrap().value.as_bool(), Some(false));
    let loaded = load(&Sources::default().file(write(home.path(), "b.toml", "tcp.timeout = inf\n")));
    assert!(loaded.config.value("tcp", "timeout").unwrap().value.as_time().unwrap().is_inf());
}

/// A machine: a current directory, a home, a system directory, and what the search finds on it.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Self {
        Machine { root: TempDir::new().unwrap() }
    }

    fn file(&self, name: &str, poll: u32) -> PathBuf {
        write(self.root.path(), name, &format!("[tcp]\nmax_poll = {poll}\n"))
    }

    fn sources(&self) -> Sources {
        let directory = self.root.path().join("here");
        let file = FileSource::Search { directory, system: self.root.path().join("etc") };
        Sources { file, ..Sources::default() }.env([("HOME", self.root.path().join("home"))])
    }

    fn found(&self, sources: &Sources) -> String {
        text(&load(sources), "tcp", "max_poll")
    }
}

#[test]
fn the_first_file_of_the_search_counts_alone() {
    let machine = Machine::new();
    assert_eq!(machine.found(&machine.sources()), "16", "no file is fine");
    machine.file("etc/uct.toml", 1);
    assert_eq!(machine.found(&machine.sources()), "1");
    machine.file("home/.config/uct/uct.toml", 2);
    assert_eq!(machine.found(&machine.sources()), "2");
    machine.file("xdg/uct/uct.toml", 3);
    let xdg = machine.sources().env([("XDG_CONFIG_HOME", machine.root.path().join("xdg"))]);
    assert_eq!(machine.found(&xdg), "3");
    let relative = machine.sources().env([("XDG_CONFIG_HOME", "xdg")]);
    assert_eq!(machine.found(&relative), "2", "a relative XDG_CONFIG_HOME is ignored");
    machine.file("here/uct.toml", 4);
    assert_eq!(machine.found(&xdg), "4");
    let named = machine.file("elsewhere.toml", 5);
    assert_eq!(machine.found(&xdg.clone().env([("UCT_CONFIG", &named)])), "5");
    assert_eq!(machine.found(&xdg.clone().env([("UCT_CONFIG", "")])), "4", "an empty UCT_CONFIG is none");
    let explicit = machine.file("explicit.toml", 6);
    assert_eq!(machine.found(&xdg.env([("UCT_CONFIG", &named)]).file(explicit)), "6");
}

#[test]
fn a_file_that_was_named_and_is_not_there_is_an_error() {
    let machine = Machine::new();
    machine.file("here/uct.toml", 4);
    let error = |sources: Sources| Config::load(&schema(), &sources).unwrap_err().to_string();
    let by_variable = error(machine.sources().env([("UCT_CONFIG", "/no/such.toml")]));
    assert!(by_variable.starts_with("/no/such.toml: cannot read"), "{by_variable}");
    assert!(
        by_variable.contains("named by UCT_CONFIG") && by_variable.contains("No such file"),
        "{by_variable}"
    );
    let by_program = error(machine.sources().file("/no/such.toml"));
    assert!(by_program.contains("named by the program"), "{by_program}");
}

#[test]
fn a_directory_that_may_not_be_looked_into_is_passed_over_and_a_file_that_may_not_be_read_is_an_error() {
    let machine = Machine::new();
    let hidden = machine.file("home/.config/uct/uct.toml", 1);
    let system = machine.file("etc/uct.toml", 2);
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let directory = hidden.parent().unwrap();
    // Whatever the umask is.
    for directory in ["", "home", "home/.config", "etc"] {
        mode(&machine.root.path().join(directory), 0o755);
    }
    mode(&system, 0o644);
    mode(directory, 0o000);
    // Root may look into everything, so another user's rights are taken, for this thread alone.
    let as_other = |work: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: it changes nothing but which files this thread may open.
                unsafe { libc::setfsuid(65_534) };
                work();
            });
            thread.join().unwrap();
        });
    };
    as_other(&|| assert_eq!(machine.found(&machine.sources()), "2"));
    mode(&system, 0o000);
    as_other(&|| {
        let error = Config::load(&schema(), &machine.sources()).unwrap_err().to_string();
        assert!(error.contains("etc/uct.toml: cannot read"), "{error}");
    });
    mode(directory, 0o755);
}

#[test]
fn a_file_without_end_or_text_is_refused_at_once() {
    let error = Config::load(&schema(), &Sources::default().file("/dev/zero")).unwrap_err().to_string();
    assert!(error.contains("larger than 1 MiB"), "{error}");
    let home = TempDir::new().unwrap();
    let path = home.path().join("latin.toml");
    fs::write(&path, b"# one\n# caf\xe9\n").unwrap();
    let error = Config::load(&schema(), &Sources::default().file(path)).unwrap_err().to_string();
    assert!(error.contains("line 2 is not UTF-8"), "{error}");
    assert!(Config::load(&schema(), &Sources::default().file("/dev/null")).is_ok());
}

#[test]
fn a_file_of_a_mebibyte_is_read_and_a_longer_one_is_refused() {
    let home = TempDir::new().unwrap();
    for (length, is_read) in [((1 << 20) - 1, true), (1 << 20, true), ((1 << 20) + 1, false)] {
        let sources = Sources::default().file(write(home.path(), "uct.toml", &"\n".repeat(length)));
        match Config::load(&schema(), &sources) {
            Ok(_) => assert!(is_read, "{length}"),
            Err(error) => assert!(!is_read && error.to_string().contains("larger than 1 MiB"), "{error}"),
        }
    }
}

#[test]
fn variables_of_other_libraries_are_not_looked_at() {
    let variables = [
        ("UCX_TLS", "tcp"),
        ("UCX_TCP_TX_SEG_SIZE", "nonsense"),
        ("uct_tls", "tcp"),
        ("UCTX_TLS", "tcp"),
        ("MY_UCT_TLS", "tcp"),
        ("UCT", "tcp"),
        ("TLS", "tcp"),
    ];
    let loaded = load(&Sources::default().env(variables));
    assert_eq!(loaded, load(&Sources::default()));
}

#[test]
fn an_unknown_variable_is_a_warning_with_the_nearest_name() {
    let variables =
        [("UCT_TCP_TX_SEG_SISE", "1k"), ("UCT_Tcp_Max_Poll", "1"), ("UCT_WHATEVER_ELSE", "x"), ("UCT_", "x")];
    let loaded = load(&Sources::default().env(variables));
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "environment UCT_: not a known setting, without effect",
            "environment UCT_TCP_TX_SEG_SISE: not a known setting, without effect; \
             did you mean UCT_TCP_TX_SEG_SIZE?",
            "environment UCT_Tcp_Max_Poll: not a known setting, without effect; did you mean UCT_TCP_MAX_POLL?",
            "environment UCT_WHATEVER_ELSE: not a known setting, without effect",
        ]
    );
    assert_eq!(text(&loaded, "tcp", "max_poll"), "16");
}

#[test]
fn variables_that_are_no_settings_can_be_allowed() {
    let variables = [("UCT_TEST_REQUIRE", "tcp"), ("UCT_CONFIG", "/no/such"), ("UCT_LOG", "debug")];
    let mut schema = schema();
    schema.add_foreign_variable("UCT_TEST_*");
    let loaded = Config::load(&schema, &Sources::default().env(variables)).unwrap();
    let nearest = None;
    assert_eq!(loaded.warnings, [Warning::UnknownVariable { name: "UCT_LOG".into(), nearest }]);
}

#[test]
fn a_variable_that_is_not_text_is_an_error_only_if_it_is_ours() {
    let bytes = || std::ffi::OsString::from_vec(b"\xff8k".to_vec());
    assert!(Config::load(&schema(), &Sources::default().env([("OTHER", bytes())])).is_ok());
    let name = std::ffi::OsString::from_vec(b"UCT_\xff".to_vec());
    assert!(Config::load(&schema(), &Sources::default().env([(name, "1")])).is_ok());
    let ours = Sources::default().env([("UCT_TCP_TX_SEG_SIZE", bytes())]);
    let error = Config::load(&schema(), &ours).unwrap_err().to_string();
    assert!(error.contains("UCT_TCP_TX_SEG_SIZE") && error.contains("not UTF-8"), "{error}");
}

#[test]
fn a_schema_that_is_not_complete_reads_the_keys_it_has_and_passes_over_other_sections() {
    let home = TempDir::new().unwrap();
    let document = "module_dir = \"/opt/uct\"\n[rc_verbs]\nretries = true\n[tcp]\nmax_poll = 4\n";
    let sources = Sources::default()
        .file(write(home.path(), "uct.toml", document))
        .env([("UCT_RC_VERBS_RETRIES", "7"), ("UCT_TLS", "tcp")])
        .set("rc_verbs.retries", "6");

    let mut early = schema();
    early.set_unknown_sections(UnknownSections::Ignore);
    let loaded = Config::load(&early, &sources).unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(text(&loaded, "", "module_dir"), "/opt/uct");
    assert_eq!((text(&loaded, "", "tls"), text(&loaded, "tcp", "max_poll")), ("tcp".into(), "4".into()));

    let mut complete = schema();
    let retries = Field::new("retries", Kind::UINT, "7", "Retries.");
    complete.add_section(Section::new("rc_verbs", "", vec![retries])).unwrap();
    let error = Config::load(&complete, &sources).unwrap_err().to_string();
    assert!(error.contains(":3:11: rc_verbs.retries = true: expected a whole number"), "{error}");

    let error = Config::load(&schema(), &sources).unwrap_err().to_string();
    assert!(error.contains("unknown section \"rc_verbs\""), "{error}");
}

#[test]
fn a_schema_that_is_not_complete_still_refuses_an_unknown_key() {
    let home = TempDir::new().unwrap();
    let mut early = schema();
    early.set_unknown_sections(UnknownSections::Ignore);
    for document in ["modul_dir = 'x'", "[tcp]\nmax_pol = 1", "[tls]\na = 1", "tcp = 1"] {
        let sources = Sources::default().file(write(home.path(), "uct.toml", document));
        assert_eq!(problems(Config::load(&early, &sources)), 1, "{document}");
    }
    for key in ["tlss", "tcp.max_pol"] {
        assert_eq!(problems(Config::load(&early, &Sources::default().set(key, "1"))), 1, "{key}");
    }
}

fn problems(loaded: Result<Loaded, ConfigError>) -> usize {
    loaded.unwrap_err().problems().len()
}

#[test]
fn an_unknown_section_may_be_a_warning() {
    let home = TempDir::new().unwrap();
    let sources = Sources::default().file(write(home.path(), "uct.toml", "[tpc]\nmax_poll = 1\n"));
    let mut lenient = schema();
    lenient.set_unknown_sections(UnknownSections::Warn);
    let loaded = Config::load(&lenient, &sources).unwrap();
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].ends_with("uct.toml:1:2: unknown section \"tpc\", without effect; did you mean [tcp]?"),
        "{warnings:?}"
    );
    assert!(matches!(
        Config::load(&schema(), &sources).unwrap_err().problems(),
        [Problem::UnknownSection { section, .. }] if section == "tpc"
    ));
}

#[test]
fn a_file_warns_of_a_hundred_unknown_sections_at_most() {
    let mut lenient = schema();
    lenient.set_unknown_sections(UnknownSections::Warn);
    for (sections, warnings) in [(99, 99), (100, 100), (101, 100), (150, 100)] {
        let home = TempDir::new().unwrap();
        let text: String = (0..sections).map(|at| format!("[nobody{at}]\nx = 1\n")).collect();
        let sources = Sources::default().file(write(home.path(), "uct.toml", &text));
        assert_eq!(Config::load(&lenient, &sources).unwrap().warnings.len(), warnings, "{sections}");
    }
}

#[test]
fn an_unknown_section_without_keys_sets_nothing_and_passes() {
    let home = TempDir::new().unwrap();
    let sources = Sources::default().file(write(home.path(), "uct.toml", "[rc_verbs]\n#retries = 7\n"));
    assert_eq!(load(&sources).warnings, []);
}

#[test]
fn the_sources_of_the_process_search_a_file_and_hold_the_environment() {
    let sources = Sources::from_process();
    assert!(matches!(sources.file, FileSource::Search { .. }));
    assert_eq!(sources.env.len(), std::env::vars_os().count());
    assert!(sources.env.iter().any(|(name, _)| name == "PATH"));
}
