//! The name under which programs that were linked with the library look for it. It changes when the calls do.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libholdfast.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
