//! What the components of the verbs transports have in common: the devices they list, how one is opened, what its memory
//! domain can do, and how a verb's refusal crosses the boundary.
//!
//! For the memory domains of `rc_verbs` and `ud_verbs`. Built on devices, and on the plugin kit.

use std::sync::Arc;

use ucs::units::Ternary;
use uct_plugin::abi::{UCT_MD_ADVISE, UCT_MD_ALLOC, UCT_MD_NEED_MEMH, UCT_MD_NEED_RKEY, UCT_MD_REG};
use uct_plugin::{Error, Failure, MdAttr, attr};

use crate::device::{self, IbDevice};
use crate::error::IbError;
use crate::verbs::fork::{self, ForkSupport};
use crate::verbs::{Pd, Verbs, VerbsTable};

impl From<&IbError> for Failure {
    fn from(error: &IbError) -> Failure {
        Failure::new(Error::from_status(error.status()), error.to_string())
    }
}

impl From<IbError> for Failure {
    fn from(error: IbError) -> Failure {
        Failure::from(&error)
    }
}

/// The names of the devices, each of which is a memory domain.
///
/// # Errors
/// Why there are none.
pub fn memory_domains(verbs: Verbs) -> Result<Vec<String>, Failure> {
    let devices = device::devices(verbs)?;
    Ok(devices.iter().map(|device| device.name()).collect())
}

/// Opens the device of this name, and a protection domain on it. Nothing may be registered before, so that forking can be
/// made safe.
///
/// # Errors
/// No such device, no permission; forking cannot be made safe though it is asked for.
pub fn open(verbs: Verbs, name: &str, fork_init: Ternary) -> Result<(IbDevice, Arc<Pd>), Failure> {
    prepare_fork(verbs.table(), fork_init)?;
    let device = device::open(verbs, name)?;
    let pd = Pd::new(&device.context)?;
    Ok((device, pd))
}

fn prepare_fork(table: &VerbsTable, wanted: Ternary) -> Result<(), Failure> {
    if wanted == Ternary::No {
        return Ok(());
    }
    match fork::enable(table) {
        ForkSupport::Failed(errno) if wanted == Ternary::Yes => Err(Failure::new(
            Error::UNSUPPORTED,
            format!(
                "forking cannot be made safe ({}): call before anything is registered, or set fork_init to no",
                std::io::Error::from_raw_os_error(errno)
            ),
        )),
        support => {
            ucs::log::debug!(?support, "fork support");
            Ok(())
        }
    }
}

/// What a memory domain on this device can do, with keys that pack to so many bytes.
pub fn md_attributes(device: &IbDevice, rkey_packed_size: usize) -> MdAttr {
    let largest = device.context.attr().max_mr_size;
    MdAttr {
        flags: UCT_MD_REG | UCT_MD_ALLOC | UCT_MD_NEED_MEMH | UCT_MD_NEED_RKEY | UCT_MD_ADVISE,
        rkey_packed_size,
        max_reg: largest,
        max_alloc: largest,
        // A system call and the pinning of pages.
        reg_cost: 16e-6,
        reg_growth: 60e-12,
        rkey_cost: 80e-9,
        ..attr::blank_md()
    }
}
