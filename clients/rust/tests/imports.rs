//! The imports between the files of src have no cycle.

use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn the_imports_of_the_client_have_no_cycle() {
    let mut imports: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in Path::new(env!("CARGO_MANIFEST_DIR")).join("../src").read_dir().expect("src is there") {
        let path = entry.expect("src can be listed").path();
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("src has only text");
        let imported = text.lines().filter_map(|line| line.strip_prefix("use crate::")?.split([':', ';']).next());
        let imported = imported.map(String::from).collect();
        imports.insert(name, imported);
    }
    assert!(imports.len() > 10, "{imports:?}");
    // Remove each file once all its imports are removed.
    loop {
        let open = imports.len();
        let known: Vec<String> = imports.keys().cloned().collect();
        imports.retain(|_, imported| imported.iter().any(|file| known.contains(file)));
        if imports.len() == open {
            break;
        }
    }
    assert!(imports.is_empty(), "these import one another in a circle: {imports:#?}");
}
