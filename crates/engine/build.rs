//! Builds the library that preloaded interpreters load, for this crate to carry as a file. It is a program of its own for another process, so it
//! cannot be linked in.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let here = variable("CARGO_MANIFEST_DIR");
    let out = variable("OUT_DIR");
    for part in ["../zygote/src", "../zygote/Cargo.toml", "../jail/src", "../jail/Cargo.toml", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={part}");
    }
    let (host, target) = (variable("HOST"), variable("TARGET"));
    // A folder of its own: the one of the build that is going on is locked.
    let folder = out.join("zygote");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["build", "--release", "--locked", "--offline", "--quiet", "--manifest-path"]);
    cargo.arg(here.join("../zygote/Cargo.toml")).arg("--target-dir").arg(&folder);
    // What is checked by a linter outside is compiled here all the same.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER").env_remove("CARGO_MAKEFLAGS");
    let mut built = folder;
    if host != target {
        cargo.arg("--target").arg(&target);
        built.push(target);
    }
    let status = cargo.status().expect("cargo runs, being what runs this");
    assert!(status.success(), "the library for preloaded interpreters could not be built");
    let library = "libfumehood_zygote.so";
    std::fs::copy(built.join("release").join(library), out.join(library)).expect("it was just built");
}

fn variable(name: &str) -> PathBuf {
    env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}")).into()
}
