//! The attacks that ship in the binary are files: a new one is noticed here, for the macro that embeds them cannot.

fn main() {
    println!("cargo::rerun-if-changed=../../tests/attack");
}
