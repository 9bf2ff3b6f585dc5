//! The name that programs are linked to. The library is never unloaded, since threads may have run its destructors of
//! thread-local values.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in ["-Wl,-soname,libuct-compat.so.0", "-Wl,-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
