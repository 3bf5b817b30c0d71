//! The library's targets and the programs that libFuzzer runs are the same.

use std::path::Path;

#[test]
fn every_target_is_a_program_too() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(here.join("fuzz_targets"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    assert_eq!(files, fumehood_fuzz::TARGETS.map(|(name, _)| name));
}
