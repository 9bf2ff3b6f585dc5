//! What is tested: every transport on every device that is found, linked statically and loaded from a file.
//!
//! For the runner and the other process of a case. Built on the discovery of `uct-host`.

use std::fmt;
use std::str::FromStr;

use uct_host::loader::PluginOrigin;
use uct_host::{
    Capabilities, Context, ContextError, DeviceKind, IfaceOptions, OpenError, Resource, Worker, configuration,
};

use crate::case::Able;
use crate::config::Config;

/// How a transport came into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// It is linked into the program.
    Static,
    /// It was loaded from a plugin's file.
    Plugin,
}

/// A transport on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The transport.
    pub transport: String,
    /// The device.
    pub device: String,
    /// How it came into the program.
    pub linkage: Linkage,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let linkage = match self.linkage {
            Linkage::Static => "static",
            Linkage::Plugin => "plugin",
        };
        write!(f, "{}/{}[{linkage}]", self.transport, self.device)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(words: &str) -> Result<Target, String> {
        let parts = || {
            let (transport, rest) = words.split_once('/')?;
            let (device, linkage) = rest.strip_suffix(']')?.rsplit_once('[')?;
            let linkage = match linkage {
                "static" => Linkage::Static,
                "plugin" => Linkage::Plugin,
                _ => return None,
            };
            Some(Target { transport: transport.to_owned(), device: device.to_owned(), linkage })
        };
        parts().ok_or_else(|| format!("{words:?} is no transport, expected such as tcp/lo[plugin]"))
    }
}

impl Target {
    /// A context in which the target is there as it should be, with settings of the caller's (keys as `tcp.port`).
    ///
    /// # Errors
    /// That of the configuration.
    pub fn context(
        linkage: Linkage,
        config: &Config,
        settings: &[(String, String)],
    ) -> Result<Context, ContextError> {
        let mut builder = Context::builder().set("module_dir", module_dirs(config));
        let replace = match linkage {
            Linkage::Static => "^all",
            Linkage::Plugin => "all",
        };
        builder = builder.set("module_replace", replace).set("fallback", "allow");
        for (key, value) in settings {
            builder = builder.set(key, value);
        }
        builder.build()
    }

    /// Its resource in a context; `None` if it is not there.
    pub(crate) fn resource(&self, context: &Context) -> Option<Resource> {
        let found = context.resources().iter().find(|resource| {
            resource.transport == self.transport
                && resource.device == self.device
                && linkage(resource) == self.linkage
        });
        found.cloned()
    }
}

fn linkage(resource: &Resource) -> Linkage {
    match resource.origin {
        PluginOrigin::BuiltIn => Linkage::Static,
        PluginOrigin::File(_) => Linkage::Plugin,
    }
}

/// Where plugins are, as the value of a list: those of the caller, and those of the environment or else beside the test,
/// where cargo puts them.
fn module_dirs(config: &Config) -> String {
    let mut dirs: Vec<String> = config.module_dirs.iter().map(|dir| dir.display().to_string()).collect();
    let named = std::env::var("UCT_MODULE_DIR").ok().filter(|value| !value.is_empty());
    let beside = || Some(std::env::current_exe().ok()?.parent()?.display().to_string());
    dirs.extend(named.or_else(beside));
    dirs.join(",")
}

/// What an enumeration found.
#[derive(Default)]
pub(crate) struct Found {
    /// What can be tested.
    pub(crate) targets: Vec<(Target, Able)>,
    /// What was found and cannot be tested, and why.
    pub(crate) left_out: Vec<(String, String)>,
    /// Names of plugins and transports that are there, by linkage.
    pub(crate) names: Vec<(Linkage, String)>,
}

/// Finds everything that the configuration of the run is about.
pub(crate) fn enumerate(config: &Config) -> Result<Found, String> {
    let mut found = Found::default();
    for linkage in [Linkage::Static, Linkage::Plugin] {
        if linkage == Linkage::Plugin || config.built_in {
            of_linkage(config, linkage, &mut found)?;
        }
    }
    Ok(found)
}

fn of_linkage(config: &Config, wanted: Linkage, found: &mut Found) -> Result<(), String> {
    let context = Target::context(wanted, config, &[]).map_err(|error| error.to_string())?;
    for failure in context.load_failures() {
        found.left_out.push((failure.name.clone(), failure.to_string()));
    }
    for absent in &context.discovery().absent {
        for transport in absent.transports.iter().filter(|name| config.transports.contains(name)) {
            found.left_out.push((transport.clone(), absent.refused.to_string()));
        }
    }
    for resource in context.resources().iter().filter(|resource| linkage(resource) == wanted) {
        let target = Target {
            transport: resource.transport.clone(),
            device: resource.device.clone(),
            linkage: wanted,
        };
        if !config.transports.contains(&resource.transport) {
            continue;
        }
        if resource.kind == DeviceKind::Network && !config.devices.contains(&resource.device) {
            let reason = "a network device that UCT_TEST_DEVICES does not name".to_owned();
            found.left_out.push((target.to_string(), reason));
            continue;
        }
        found.names.push((wanted, resource.transport.clone()));
        let plugin = context
            .plugins()
            .iter()
            .find(|plugin| plugin.components.iter().any(|component| component.name == resource.component));
        found.names.extend(plugin.map(|plugin| (wanted, plugin.name.clone())));
        match able(&context, resource) {
            Ok(able) => found.targets.push((target, able)),
            Err(error) => found.left_out.push((target.to_string(), error)),
        }
    }
    Ok(())
}

/// Opens a resource to see what it is able to do.
fn able(context: &Context, resource: &Resource) -> Result<Able, String> {
    let open = || -> Result<Able, OpenError> {
        let worker = Worker::new(context)?;
        let first = worker.open_resource(resource, IfaceOptions::default())?;
        let second = worker.open_resource(resource, IfaceOptions::default())?;
        let by_iface = first.capabilities().contains(Capabilities::CONNECT_TO_IFACE);
        let address = second.address().map_err(|error| OpenError::System {
            what: "read the address of an interface",
            error: error.to_string(),
        })?;
        let own_iface_only = by_iface && first.is_reachable(&address).is_err();
        let own_process_only = own_iface_only || resource.kind == DeviceKind::Myself;
        Ok(Able { attributes: *first.attributes(), own_process_only, own_iface_only })
    };
    open().map_err(|error| error.to_string())
}

/// The keys of the plugin of a resource that have this name, in full.
pub(crate) fn keys(context: &Context, resource: &Resource, name: &str) -> Vec<String> {
    let plugin = context
        .plugins()
        .iter()
        .find(|plugin| plugin.components.iter().any(|component| component.name == resource.component));
    let sections = plugin.iter().flat_map(|plugin| &plugin.config);
    let with = sections.filter(|section| section.fields.iter().any(|field| field.name == name));
    with.map(|section| configuration::key_name(&section.name, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_back_from_its_name() {
        for linkage in [Linkage::Static, Linkage::Plugin] {
            let target = Target { transport: "rc_verbs".to_owned(), device: "mlx5_0:1".to_owned(), linkage };
            assert_eq!(target.to_string().parse(), Ok(target));
        }
        assert!("tcp".parse::<Target>().is_err());
        assert!("tcp/lo[shared]".parse::<Target>().is_err());
    }
}
