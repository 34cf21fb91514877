//! The project's documents as a whole: links, the summary of the book, the syntax of the commands.

use crate::support::skip::skip;
use crate::support::{Reply, Server};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const COLUMNS: usize = 120;

/// Each Markdown file of the project, by path.
pub fn documents() -> Vec<(PathBuf, String)> {
    let (mut documents, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder").map(|entry| entry.expect("an entry")) {
            let (path, name) = (folder.join(entry.file_name()), entry.file_name());
            let name = name.to_string_lossy();
            let is_generated = name.starts_with('.') || ["target", "node_modules"].contains(&&*name);
            if entry.file_type().expect("a type").is_dir() {
                folders.extend((!is_generated).then_some(path));
            } else if name.ends_with(".md") {
                let text = fs::read_to_string(root().join(&path)).expect("a document");
                documents.push((path, text));
            }
        }
    }
    assert!(documents.len() > 40, "only {} documents were found", documents.len());
    documents
}

/// `make book` checks the same links on the built pages.
#[test]
fn every_link_has_a_target() {
    let mut wrong = Vec::new();
    for (file, text) in documents() {
        // A page of benches/ is included at the beginning of one in results/.
        let home = if file.starts_with("benches") { Path::new("results/page.md") } else { &file };
        for target in links(&text) {
            let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
            if path.contains("://") {
                continue;
            }
            let folder = root().join(home.parent().expect("a file is in a folder"));
            let path = if path.is_empty() { root().join(&file) } else { folder.join(path) };
            let leads = match (fs::read_to_string(&path), anchor) {
                (Ok(document), Some(anchor)) => anchors(&document).contains(anchor),
                (Ok(_), None) => true,
                // A directory has no page in the book.
                (Err(_), _) => false,
            };
            wrong.extend((!leads).then(|| format!("{}: {target}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
}

/// One page for each reason to read on.
const WAYS: [&str; 6] = [
    "docs/choosing.md",
    "docs/migrate.md",
    "docs/runbook.md",
    "docs/operations.md",
    "clients/writing-a-client.md",
    "docs/testing.md",
];

/// What a maintainer looks for first: the engine, a transcript, the last run of the fault tests, the tests of one
/// client.
const CODE: [&str; 4] =
    ["src/lock/lib.rs", "tests/spec/mutex.txt", "results/faults.md", "CONTRIBUTING.md#the-tests-of-one-client"];

#[test]
fn readme_is_short_and_links_to_every_entry_page() {
    let readme = include_str!("../../README.md");
    let tables: usize = readme.lines().filter(|line| line.starts_with('|')).map(str::len).sum();
    assert!(readme.len() <= 10_000, "{} bytes", readme.len());
    assert!(3 * tables <= readme.len(), "{tables} of {} bytes are tables", readme.len());
    let targets: BTreeSet<&str> = links(readme).collect();
    let missing: Vec<_> = WAYS.iter().chain(&CODE).filter(|target| !targets.contains(**target)).collect();
    assert!(missing.is_empty(), "README does not link {missing:?}");
    let (first, _) = readme.split_once("\n## ").expect("a section");
    let below = WAYS.iter().filter(|way| !first.contains(&format!("]({way})"))).collect::<Vec<_>>();
    assert!(below.is_empty(), "these stand below the first section: {below:?}");
}

/// The pages about commands, whose promises tests/spec shows.
const CONTRACT: [&str; 8] = ["commands", "mutex", "read-write", "semaphore", "several", "exec", "waiting", "settings"];

/// The sections of other pages that belong to the contract.
const CONTRACT_SECTIONS: [&str; 2] =
    ["docs/safety.md#fencing-tokens", "docs/safety.md#what-survives-a-restart-or-failover"];

/// `## docs/mutex.md#reentrant-mutex` in a chapter of tests/spec names the section that the transcripts below it cover.
#[test]
fn every_section_of_the_contract_has_transcripts() {
    let mut named = BTreeSet::new();
    for entry in fs::read_dir(root().join("tests/spec")).expect("tests/spec can be listed") {
        let path = entry.expect("it can be read").path();
        if path.extension().is_some_and(|ending| ending == "txt") {
            let chapter = fs::read_to_string(path).expect("a chapter");
            named.extend(chapter.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned));
        }
    }
    let (mut there, mut expected) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in documents() {
        let page = path.display().to_string();
        let sections = anchors(&text).into_iter().map(|anchor| format!("{page}#{anchor}"));
        let page_and_sections: Vec<String> = [page.clone()].into_iter().chain(sections).collect();
        if CONTRACT.iter().any(|name| page == format!("docs/{name}.md")) {
            // A page that consists of sections need not be named itself.
            expected.extend(page_and_sections.iter().skip(usize::from(page_and_sections.len() > 1)).cloned());
        }
        let is_section = |section: &&String| CONTRACT_SECTIONS.contains(&section.as_str());
        expected.extend(page_and_sections.iter().filter(is_section).cloned());
        there.extend(page_and_sections);
    }
    let [wrong, missing] =
        [named.difference(&there), expected.difference(&named)].map(|names| names.collect::<Vec<_>>());
    assert!(wrong.is_empty() && missing.is_empty(), "no such sections: {wrong:?}; without transcripts: {missing:?}");
}

/// The targets of a document's links, except those inside code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let is_prose = |parts: &(usize, &str)| parts.0 % 2 == 0;
    let outside = text.split("```").enumerate().filter(is_prose).map(|(_, prose)| prose);
    let prose = outside.flat_map(move |prose| prose.split('`').enumerate().filter(is_prose).map(|(_, prose)| prose));
    // A link around code, such as [`make memcheck`](…), is split after its bracket.
    prose.flat_map(|prose| prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()))
}

#[test]
fn the_summary_of_the_book_has_every_page_of_docs() {
    let summary = include_str!("../../docs/SUMMARY.md");
    let pages: BTreeSet<&str> = links(summary).collect();
    let documents = documents();
    let of_docs = documents.iter().filter_map(|(path, _)| path.strip_prefix("docs").ok());
    let missing: Vec<&Path> = of_docs
        .filter(|path| *path != Path::new("SUMMARY.md") && !pages.contains(path.to_str().expect("a name in UTF-8")))
        .collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
    assert_eq!(pages.len(), summary.matches("](").count(), "a page is listed twice");
}

#[test]
fn the_results_index_has_day_and_commit_of_every_page() {
    let index = include_str!("../../results/README.md");
    let (mut pages, mut rows) = (BTreeSet::new(), BTreeSet::new());
    for (path, _) in documents() {
        let page = path.strip_prefix("results").ok().and_then(Path::to_str);
        pages.extend(page.filter(|page| *page != "README.md").map(str::to_owned));
    }
    for row in index.lines().filter(|line| line.starts_with("| [")) {
        rows.extend(links(row).map(str::to_owned));
        let [_, _, _, day, commit, _, _] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("not five cells: {row}")
        };
        let is_day = day.len() == 10 && day.split('-').all(|part| part.parse::<u16>().is_ok());
        let hash = commit.strip_suffix(" and changes").unwrap_or(commit);
        assert!(is_day && hash.len() == 8 && u32::from_str_radix(hash, 16).is_ok(), "{row}");
    }
    assert_eq!(rows, pages);
}

/// Runs if Python is installed.
#[test]
fn the_figures_of_the_pages_are_those_of_the_newest_results() {
    let Ok(check) = Command::new("python3").args(["scripts/result", "--check"]).current_dir(root()).output() else {
        return skip("there is no python3");
    };
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

/// The last line of docs/kubernetes.md with `cat` instead of kubectl.
#[test]
fn the_manifest_uses_the_image_that_the_page_names() {
    let page = include_str!("../../docs/kubernetes.md");
    let (_, line) = page.split_once("    sed ").expect("the line");
    let (line, _) = line.split_once("kubectl apply -f -").expect("its end");
    let registry = "registry.example/team";
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("sed {line} cat")]).current_dir(root()).env("REGISTRY", registry);
    let applied = String::from_utf8(shell.output().expect("a shell").stdout).expect("text");
    let manifest = include_str!("../../packaging/kubernetes/lock-server.yaml");
    let image = format!("image: redis-lock-module:{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(manifest.matches(&image).count(), 1, "{image}");
    assert_eq!(applied, manifest.replace(&image, &image.replace("redis-lock", &format!("{registry}/redis-lock"))));
}

/// Tables and headings cannot be wrapped.
#[test]
fn lines_end_at_column_120() {
    // A user's rules are one line of redis.conf, and JSON is printed on one line.
    let is_long = |line: &str| line.starts_with(['|', '#', '{']) || line.starts_with("user ");
    // These are printed by programs.
    let is_printed =
        |file: &Path| ["results/benchmarks", "benches/"].iter().any(|home| file.to_string_lossy().starts_with(home));
    let mut wrong = Vec::new();
    let conf = ("redis.conf.example".into(), include_str!("../../redis.conf.example").to_string());
    for (file, text) in documents().into_iter().chain([conf]).filter(|(file, _)| !is_printed(file)) {
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !is_long(line)) {
            wrong
                .extend((line.chars().count() > COLUMNS).then(|| format!("{}, line {number}: {line}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The pages with the commands. The first one defines `[lease]` and `[wait]`.
const COMMANDS: [&str; 8] = [
    include_str!("../../docs/commands.md"),
    include_str!("../../docs/mutex.md"),
    include_str!("../../docs/read-write.md"),
    include_str!("../../docs/semaphore.md"),
    include_str!("../../docs/several.md"),
    include_str!("../../docs/exec.md"),
    include_str!("../../docs/inspecting.md"),
    include_str!("../../docs/adopt.md"),
];

#[test]
fn the_pages_have_the_syntax_of_every_command_as_the_server_has_it() {
    let represents = |word: &str| {
        let line = COMMANDS[0].lines().find_map(|line| line.strip_prefix("    ")?.strip_prefix(word));
        line.unwrap_or_else(|| panic!("nothing says what {word} stands for")).trim()
    };
    let (lease, wait) = (format!("[{}]", represents("[lease]")), represents("[wait]"));
    let written: Vec<String> = COMMANDS
        .iter()
        .flat_map(|page| page.lines())
        .filter_map(|line| {
            let line =
                line.strip_prefix("    ")?.replace("[lease]", &lease).replace("[wait]", wait).replace('…', "...");
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ").replace(" | ", "|");
            let long = [("HOLDS n", "HOLDS holds"), ("PERMITS k", "PERMITS permits"), ("LIMIT n", "LIMIT limit")];
            let longer = [("COUNT n", "COUNT count"), ("GET [n]", "GET [count]"), ("[arg ...]", "[arg [arg ...]]")];
            Some(long.iter().chain(&longer).fold(line, |line, (short, long)| line.replace(short, long)))
        })
        .collect();
    let help = Server::start().client().run("LOCK.HELP");
    let listed = help.items().iter().filter_map(|line| match line {
        Reply::Status(line) if line.contains('.') && !line.starts_with("    ") => Some(line.as_str()),
        _ => None,
    });
    for syntax in listed.filter(|line| !line.starts_with("LOCK.APPLY ")) {
        // Some pages describe the command on the same line.
        let has =
            |line: &&String| line.strip_prefix(syntax).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        assert_eq!(written.iter().filter(has).count(), 1, "{syntax}: {written:#?}");
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The anchors of all headings below a document's title.
pub fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter_map(|line| line.strip_prefix("##"));
    headings.map(|title| anchor(title.trim_start_matches('#'))).collect()
}

/// GitHub's anchor of a heading: lower-case letters and digits, hyphens for spaces, nothing else.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().to_lowercase();
    let letters = letters.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    letters.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}
