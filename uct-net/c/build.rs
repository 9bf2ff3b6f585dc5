//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The name that programs are linked to. It is not that of UCX's library, which may be in the same process.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libuct-net.so.0");
    // Threads and thread-locals of the library would outlive it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
