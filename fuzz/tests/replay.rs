//! Every promise holds for every seed.

use std::path::Path;

#[test]
fn every_promise_holds_for_every_seed() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for (name, target) in fumehood_fuzz::TARGETS {
        let folder = seeds.join(name);
        let files: Vec<_> =
            std::fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "{} has no seeds", folder.display());
        for file in files {
            // Shown only when the test fails: which seed it was.
            println!("{}", file.display());
            target(&std::fs::read(&file).unwrap());
        }
    }
}

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
