use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path};

use fumehood::fuzzing::Land;

use crate::Source;

const SECRET: &[u8] = b"not for anybody";

/// Names that a server tells of files: each is written below the destination, or not at all.
pub fn landing(data: &[u8]) {
    let mut source = Source::new(data);
    let place = tempfile::tempdir().expect("a folder");
    let (inside, outside) = (place.path().join("inside"), place.path().join("outside"));
    fs::create_dir(&outside).expect("a folder");
    fs::write(outside.join("secret"), SECRET).expect("a file");
    fs::create_dir(&inside).expect("a folder");
    // What may be there already.
    symlink(&outside, inside.join("way")).expect("a link");
    symlink(outside.join("secret"), inside.join("end")).expect("a link");
    symlink("missing", inside.join("dangling")).expect("a link");
    fs::create_dir(inside.join("folder")).expect("a folder");

    let land = Land::open(&inside).expect("it is there");
    let mut told = BTreeSet::new();
    for _ in 0..16 {
        if source.is_empty() {
            break;
        }
        let act = source.byte();
        let name = source.text();
        let content = name.as_bytes();
        told.extend(name.split('/').map(str::to_owned));
        match act % 4 {
            0 => {
                if land.make(&name).is_ok() {
                    assert!(plain(&name) && fs::symlink_metadata(inside.join(&name)).expect("it is there").is_dir());
                }
            }
            1 => drop(land.write(&name, content, false)),
            _ => match land.write(&name, content, true) {
                Ok(path) => {
                    assert!(plain(&name), "{name:?}");
                    assert_eq!(path.as_deref(), Some(&*inside.join(&name)));
                    let file = inside.join(&name);
                    assert!(fs::symlink_metadata(&file).expect("it is there").is_file());
                    assert_eq!(fs::read(&file).expect("it can be read"), content);
                }
                Err(why) => assert!(!why.chars().any(char::is_control), "{why:?}"),
            },
        }
    }

    let names = |folder: &Path| -> Vec<_> {
        let mut names: Vec<_> =
            fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(place.path()), ["inside", "outside"]);
    assert_eq!(names(&outside), ["secret"]);
    assert_eq!(fs::read(outside.join("secret")).expect("it is there"), SECRET);
    nothing_half(&inside, &told);
}

/// Every part a name, and nothing between them that is none.
fn plain(name: &str) -> bool {
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
        && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// No file that was only begun; a server may tell of one that has such a name.
fn nothing_half(folder: &Path, told: &BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("it is there") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        let half = name.starts_with(".fumehood-") && name.ends_with(".part") && name.len() == 31;
        assert!(!half || told.contains(&name), "{name}");
        if entry.file_type().expect("a kind").is_dir() {
            nothing_half(&entry.path(), told);
        }
    }
}
