//! What the linker must know.

fn main() {
    napi_build::setup();
}
