//! The schema of everything in this workspace. Built on `uct-core`; used by the tests beside it.

use uct_core::Context;
use uct_core::configuration::{Schema, Sources};
use uct_core::loader::described;

/// What is built in, and the plugins of this workspace, whether or not they can run here.
pub fn schema() -> Schema {
    let sources = Sources::default().set("modules", "self,tcp,shm").set("module_dir", "");
    let context = Context::builder().sources(sources).build().unwrap();
    let mut schema = context.schema().clone();
    for plugin in [uct_rc_verbs::plugin(), uct_rdmacm::plugin(), uct_ud_verbs::plugin()] {
        for section in described(plugin).unwrap() {
            schema.add_section(section).unwrap();
        }
    }
    schema
}
