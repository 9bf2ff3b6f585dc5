//! What a case is given: the transport to test, and means to open it.
//!
//! For the cases. Built on `target`. Nothing is shared between cases: each has a context of its own.

use std::cell::RefCell;
use std::panic::panic_any;
use std::time::Duration;

use uct_host::{Context, Iface, IfaceOptions, Resource, Worker};

use crate::beside::Beside;
use crate::case::Case;
use crate::config::Config;
use crate::pair::Side;
use crate::random::Random;
use crate::target::{Target, keys};

/// The transport to test.
pub struct Setup {
    /// Which it is.
    pub target: Target,
    /// The seed of the case; it is printed with a failure.
    pub seed: u64,
    pub(crate) config: Config,
    pub(crate) case: &'static Case,
    context: RefCell<Context>,
    settings: RefCell<Vec<(String, String)>>,
}

/// A case found out that it does not concern the transport: why.
pub(crate) struct Skipped(pub(crate) String);

impl Setup {
    pub(crate) fn new(target: Target, case: &'static Case, config: Config) -> Setup {
        let context = Target::context(target.linkage, &config, &[])
            .unwrap_or_else(|error| panic!("no context: {error}"));
        let name =
            case.name.bytes().fold(config.seed, |seed, byte| Random::new(seed ^ u64::from(byte)).next());
        Setup {
            target,
            seed: name,
            config,
            case,
            context: RefCell::new(context),
            settings: RefCell::default(),
        }
    }

    /// Random numbers of the case.
    pub fn random(&self) -> Random {
        Random::new(self.seed)
    }

    /// How long a soak takes.
    pub fn soak(&self) -> Duration {
        self.config.soak
    }

    /// Leaves the case, which does not concern the transport.
    pub fn skip(&self, reason: impl Into<String>) -> ! {
        panic_any(Skipped(reason.into()))
    }

    /// Sets a key of the transport, such as `max_kept`, if it has one of that name; returns whether it has. It
    /// concerns what is opened afterwards.
    pub fn configure(&self, key: &str, value: &str) -> bool {
        let full = keys(&self.context(), &self.resource(), key);
        if full.is_empty() {
            return false;
        }
        self.settings.borrow_mut().extend(full.into_iter().map(|key| (key, value.to_owned())));
        let context = Target::context(self.target.linkage, &self.config, &self.settings.borrow());
        self.context.replace(context.unwrap_or_else(|error| panic!("{key} = {value}: {error}")));
        true
    }

    /// The context.
    pub fn context(&self) -> Context {
        self.context.borrow().clone()
    }

    /// The resource.
    pub fn resource(&self) -> Resource {
        let context = self.context();
        self.target.resource(&context).unwrap_or_else(|| panic!("{} is no longer there", self.target))
    }

    /// The target of far ends: on the device that the run names for them, if the transport has it, else the same.
    pub fn far_target(&self) -> Target {
        let named = self.config.far_device.clone().map(|device| Target { device, ..self.target.clone() });
        named
            .filter(|target| target.resource(&self.context()).is_some())
            .unwrap_or_else(|| self.target.clone())
    }

    /// Opens the far end's device on a new worker.
    pub fn open_far(&self, options: IfaceOptions) -> Side {
        let resource = self.far_target().resource(&self.context()).expect("it was there a moment ago");
        self.open_resource(&resource, options)
    }

    /// Opens it on a new worker.
    pub fn open(&self, options: IfaceOptions) -> Side {
        self.open_resource(&self.resource(), options)
    }

    /// Opens it on a worker.
    pub fn open_on(&self, worker: &Worker, options: IfaceOptions) -> Side {
        let iface = open(worker, &self.resource(), options);
        Side { worker: worker.clone(), iface, beside: Beside::default() }
    }

    /// Opens a resource on a new worker, and all others beside it if the run asks for that.
    fn open_resource(&self, resource: &Resource, options: IfaceOptions) -> Side {
        let worker = Worker::new(&self.context()).unwrap_or_else(|error| panic!("no worker: {error}"));
        let iface = open(&worker, resource, options);
        let beside = if self.config.open_all {
            Beside::open_all(&worker, &iface, &self.config)
        } else {
            Beside::default()
        };
        Side { worker, iface, beside }
    }
}

fn open(worker: &Worker, resource: &Resource, options: IfaceOptions) -> Iface {
    worker.open_resource(resource, options).unwrap_or_else(|error| panic!("no interface: {error}"))
}
