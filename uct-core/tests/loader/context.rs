//! A context with good and bad plugins from files: good plugins work to the last call, bad ones are reported.

use std::{cell::RefCell, fs, rc::Rc, time::Duration};

use crate::loader_support::Modules;
use uct_core::{
    AmId, Context, SendFlags, Worker,
    configuration::{FileSource, Sources},
    loader::{LoadStage, PluginOrigin},
};

const ID: AmId = AmId::new(7).unwrap();

fn context(modules: &Modules) -> Context {
    let directory = modules.directory.path().to_str().expect("a plain path");
    // Nothing of this machine's configuration, and nothing that happens to lie in the build directory.
    let sources = Sources::default().set("module_dir", directory).set("modules", "^tcp,shm");
    Context::builder().sources(sources).build().expect("a context")
}

#[test]
fn a_message_goes_through_a_transport_in_c_beside_plugins_that_are_bad() {
    let modules = Modules::new();
    modules.cself().bad("refuses", &["REFUSES"]).panicking("panics_init").panicking("panics_slot");
    fs::write(modules.path("text"), "text").expect("the directory is writable");
    let context = context(&modules);

    let failed: Vec<_> =
        context.load_failures().iter().map(|failed| (failed.name.as_str(), failed.stage())).collect();
    let expected =
        [("panics_init", LoadStage::Init), ("refuses", LoadStage::Init), ("text", LoadStage::Open)];
    assert_eq!(failed, expected);

    let worker = Worker::new(&context).expect("a worker");
    let iface = worker.open("cself", "memory").expect("an interface");
    let origin = &context.plugins().iter().find(|plugin| plugin.name == "cself").expect("the plugin").origin;
    assert!(matches!(origin, PluginOrigin::File(path) if path.ends_with("libuct_cself.so")), "{origin}");
    let received = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&received);
    iface.set_am_handler(ID, move |message| {
        seen.borrow_mut().push((message.header(), message.payload().to_vec()))
    });
    let ep = iface.connect(&iface.address().expect("an address")).expect("an endpoint");
    ep.am_short(ID, 42, b"short").expect("sent");
    let packed = ep.am_bcopy(ID, SendFlags::empty(), |buffer| {
        buffer[..16].copy_from_slice(b"12345678buffered");
        16
    });
    assert_eq!(packed.expect("sent"), 16);
    assert!(worker.progress_until(Duration::from_secs(10), || received.borrow().len() == 2));
    let header = u64::from_ne_bytes(*b"12345678");
    let expected = [(Some(42), b"short".to_vec()), (Some(header), b"buffered".to_vec())];
    assert_eq!(*received.borrow(), expected);
}

#[test]
fn a_plugin_that_panics_wherever_it_is_called_is_refused_with_its_words() {
    let modules = Modules::new();
    modules.cself().panicking("panics_slot");
    let context = context(&modules);
    assert!(context.load_failures().is_empty(), "{:?}", context.load_failures());
    let worker = Worker::new(&context).expect("a worker");
    let error = worker.open("panics", "memory").expect_err("it panics").to_string();
    assert!(error.contains("memory domain number 1"), "{error}");
    worker.open("cself", "memory").expect("the other one goes on");
    if cfg!(feature = "self") {
        worker.open("self", "memory").expect("and the built-in one");
    }
}

#[test]
fn a_plugin_whose_keys_clash_with_the_programs_own_is_left_out() {
    let modules = Modules::new();
    modules.cself().bad("clash", &["SECTION=\"tls\""]);
    let context = context(&modules);
    let [failure] = context.load_failures() else { panic!("{:?}", context.load_failures()) };
    assert!(failure.to_string().contains("global key"), "{failure}");
    let worker = Worker::new(&context).expect("a worker");
    worker.open("cself", "memory").expect("the other one goes on");
}

#[test]
fn a_file_found_in_the_working_directory_does_not_set_the_plugin_directory() {
    let modules = Modules::new();
    modules.cself();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let file = elsewhere.path().join("uct.toml");
    fs::write(&file, format!("module_dir = [{:?}]\nmodules = \"^tcp,shm\"\n", modules.directory.path()))
        .expect("the directory is writable");
    let found =
        FileSource::Search { directory: elsewhere.path().to_owned(), system: elsewhere.path().join("none") };
    let has_plugin = |sources: Sources| {
        let context = Context::builder().sources(sources).build().expect("a context");
        context.plugins().iter().any(|plugin| plugin.name == "cself")
    };
    assert!(!has_plugin(Sources { file: found.clone(), ..Sources::default() }));
    let named = Sources { file: found, ..Sources::default() }.env([("UCT_CONFIG", &file)]);
    assert!(has_plugin(named));
    assert!(has_plugin(Sources::default().file(&file)));
}

#[test]
fn directories_of_plugins_are_separated_by_commas_or_colons() {
    let three = [Modules::new(), Modules::new(), Modules::new()];
    let [first, second, third] = three.each_ref().map(|modules| modules.directory.path());
    let directories = format!("{}:{},{}", first.display(), second.display(), third.display());
    let sources = Sources::default().set("module_dir", &directories);
    let context = Context::builder().sources(sources).build().expect("a context");
    let searched = context.searched().iter().take(3).map(|searched| searched.directory.clone());
    let wanted = [first, second, third].map(|directory| fs::canonicalize(directory).expect("it is there"));
    assert_eq!(searched.collect::<Vec<_>>(), wanted);
    assert_eq!(context.load_failures().len(), 0);
}
