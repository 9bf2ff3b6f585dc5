//! Which files are answered for, and with what.

use std::ffi::{CStr, c_char, c_int};

/// The device's name, unless the variable says another.
const NAME: &[u8] = b"soft0";

/// What stands in for a file.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// A character device.
    Device,
    /// A file with this text.
    Text(Text),
}

/// A text that is read as a file.
#[derive(Debug, PartialEq)]
pub struct Text(&'static [u8]);

impl Text {
    /// A descriptor to read it.
    pub fn open(&self) -> c_int {
        // SAFETY: the name is a text.
        let file = unsafe { libc::memfd_create(c"softverbs".as_ptr(), libc::MFD_CLOEXEC) };
        if file >= 0 {
            // SAFETY: the text is valid, and the descriptor was just made.
            unsafe { libc::pwrite(file, self.0.as_ptr().cast(), self.0.len(), 0) };
        }
        file
    }

    /// What `stat` says of it.
    ///
    /// # Safety
    /// `place` is one for it.
    pub unsafe fn stat(&self, place: *mut libc::stat) -> c_int {
        let file = self.open();
        if file < 0 {
            return -1;
        }
        // SAFETY: the caller's promise.
        let outcome = unsafe { libc::fstat(file, place) };
        // SAFETY: the descriptor was made here and is known to nobody else.
        unsafe { libc::close(file) };
        outcome
    }
}

/// What stands in for a file, if it is one of the device's.
///
/// # Safety
/// The path is a text or null.
pub unsafe fn answer(path: *const c_char) -> Option<Answer> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let name = || {
        // SAFETY: the name is a text. Programs that change their environment have read it before.
        let value = unsafe { libc::getenv(c"SOFTVERBS_NAME".as_ptr()) };
        // SAFETY: as above.
        let name = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes());
        name.filter(|name| !name.is_empty()).unwrap_or(NAME)
    };
    of_path(path, name)
}

fn of_path<'a>(path: &[u8], name: impl FnOnce() -> &'a [u8]) -> Option<Answer> {
    if path == b"/dev/infiniband/uverbs0" {
        return Some(Answer::Device);
    }
    let below = path.strip_prefix(b"/sys/class/infiniband/")?.strip_prefix(name())?;
    let text: &'static [u8] = match below {
        b"/ports/1/gid_attrs/types/0" => b"RoCE v2\n",
        b"/ports/1/gid_attrs/ndevs/0" => b"lo\n",
        b"/ports/1/link_layer" => b"Ethernet\n",
        b"/node_type" => b"1: CA\n",
        _ => return None,
    };
    Some(Answer::Text(Text(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_device_are_answered_for_and_no_others() {
        let text = |path: &str, name: &'static [u8]| match of_path(path.as_bytes(), || name) {
            Some(Answer::Text(text)) => Some(text.0),
            _ => None,
        };
        let kind = "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0";
        assert_eq!(text(kind, b"mlx5_0"), Some(&b"RoCE v2\n"[..]));
        assert_eq!(text(kind, b"soft0"), None);
        assert_eq!(text(kind, b"mlx5"), None);
        assert_eq!(text("/sys/class/infiniband/soft0/ports/2/link_layer", b"soft0"), None);
        assert_eq!(of_path(b"/dev/infiniband/uverbs0", || NAME), Some(Answer::Device));
        assert_eq!(of_path(b"/dev/infiniband/uverbs01", || NAME), None);
        assert_eq!(of_path(b"/etc/passwd", || NAME), None);
    }

    #[test]
    fn a_text_is_read_as_a_file() {
        use std::io::Read;
        use std::os::fd::FromRawFd;
        let descriptor = Text(b"RoCE v2\n").open();
        // SAFETY: the descriptor was just made.
        let mut file = unsafe { std::fs::File::from_raw_fd(descriptor) };
        let mut text = String::new();
        file.read_to_string(&mut text).expect("a file in memory");
        assert_eq!(text, "RoCE v2\n");
    }
}
