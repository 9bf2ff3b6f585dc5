//! Options of a domain's net.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use uct_core::Context;
use uct_core::configuration::Origin;
use uct_net::NetOptions;

use super::Errno;
use super::not_opened::{NotOpened, not_opened};

/// Names a file with a key, which peers prove to each other that they know before anything else.
const KEY_FILE: &str = "UCT_NET_KEY_FILE";
/// Most bytes of such a file.
const MAX_KEY: u64 = 4096;
/// Others than the owner have no permission.
const PRIVATE: u32 = 0o077;

/// A setting whose usual value is not the best for messages that programs of libfabric send. One from a file or the environment counts.
const FRAMES: (&str, &str, &str) = ("tcp", "tx_seg_size", "257k");

/// The configuration of the process, with frames of tcp that take each message whole that is not asked for.
pub(super) fn context() -> Result<Context, NotOpened> {
    let (section, key, value) = FRAMES;
    let failed = |error: uct_core::ContextError| not_opened(Errno::INVALID, &error);
    let context = Context::builder().build().map_err(failed)?;
    match context.config().value(section, key) {
        Some(setting) if setting.origin == Origin::Default => {
            Context::builder().set(format!("{section}.{key}"), value).build().map_err(failed)
        }
        _ => Ok(context),
    }
}

/// The options that the environment asks for.
pub(super) fn options() -> Result<NetOptions, NotOpened> {
    let shared_key = match std::env::var_os(KEY_FILE).filter(|path| !path.is_empty()) {
        Some(path) => Some(read_key(Path::new(&path)).map_err(|reason| {
            not_opened(Errno::ACCESS, &format_args!("{KEY_FILE}={}: {reason}", path.display()))
        })?),
        None => None,
    };
    Ok(NetOptions { shared_key, ..NetOptions::default() })
}

fn read_key(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no plain file".to_owned());
    }
    if metadata.mode() & PRIVATE != 0 {
        return Err("other users have access to it; chmod go= removes that".to_owned());
    }
    let mut key = Vec::new();
    file.take(MAX_KEY + 1).read_to_end(&mut key).map_err(|error| error.to_string())?;
    if key.len() as u64 > MAX_KEY {
        return Err(format!("it has more than {MAX_KEY} bytes"));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_read_from_a_file_that_no_other_user_can_read() {
        let path = std::env::temp_dir().join(format!("uct-fi-key-{}", std::process::id()));
        fs::write(&path, [7; 32]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(read_key(&path).unwrap_err().contains("other users"));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_key(&path), Ok(vec![7; 32]));
        fs::write(&path, vec![7; MAX_KEY as usize + 1]).unwrap();
        assert!(read_key(&path).unwrap_err().contains("more than"));
        fs::remove_file(&path).unwrap();
        assert!(read_key(&path).is_err());
        assert!(read_key(Path::new("/dev/null")).unwrap_err().contains("plain"));
    }
}
