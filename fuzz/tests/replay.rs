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
