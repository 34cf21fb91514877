//! Compares the documents with the transcripts: each sentence of the sections that describe what clients may rely on is
//! in `../sentences.txt`, with the titles of the transcripts that show it or with the reason why there is none.

use std::collections::BTreeSet;
use std::path::Path;

use crate::transcript::promises;
use crate::CHAPTERS;

const PAGES: [&str; 9] = [
    include_str!("../../../docs/commands.md"),
    include_str!("../../../docs/mutex.md"),
    include_str!("../../../docs/read-write.md"),
    include_str!("../../../docs/semaphore.md"),
    include_str!("../../../docs/several.md"),
    include_str!("../../../docs/exec.md"),
    include_str!("../../../docs/waiting.md"),
    include_str!("../../../docs/fences.md"),
    include_str!("../../../docs/settings.md"),
];
const SENTENCES: &str = include_str!("../sentences.txt");

/// The sections of these pages that are compared.
const SECTIONS: [&str; 15] = [
    "Terms",
    "Mutex",
    "Once for all: single-flight",
    "Reentrant mutex",
    "Read/write lock",
    "Semaphore",
    "Several mutexes at once",
    "A command only while holding",
    "The queue",
    "Without blocking",
    "Sessions",
    "Deadlocks",
    "Fences",
    "What survives what",
    "Settings",
];

/// The sentences of these sections: of paragraphs, items and rows of tables. What ends in a colon leads to an example;
/// the text of a picture repeats the sentences around it.
fn sentences_of_pages() -> BTreeSet<String> {
    let lines: Vec<&str> = PAGES.iter().flat_map(|page| page.lines()).collect();
    let (mut sentences, mut section, mut is_example, mut text) = (BTreeSet::new(), "", false, String::new());
    for (number, line) in lines.iter().enumerate() {
        let begins_with = |beginnings: &[&str]| beginnings.iter().any(|beginning| line.starts_with(beginning));
        if line.trim().is_empty() || begins_with(&["#", "|", "- ", "```", "<!--", "    "]) {
            split_into(&mut sentences, &std::mem::take(&mut text));
        }
        if line.starts_with("```") {
            is_example = !is_example;
        } else if line.starts_with('#') {
            section = line.trim_start_matches('#').trim();
        }
        let is_head = lines.get(number + 1).is_some_and(|next| next.starts_with("| ---"));
        let is_other = is_head || begins_with(&["#", "```", "<!--", "    ", "| ---"]);
        if is_example || is_other || !SECTIONS.contains(&section) {
            continue;
        }
        text.push(' ');
        text.push_str(line.trim_start_matches("- ").trim_matches('|').trim());
    }
    split_into(&mut sentences, &text);
    sentences
}

fn split_into(sentences: &mut BTreeSet<String>, text: &str) {
    let mut rest = text.trim();
    if rest.starts_with("![") {
        return;
    }
    while !rest.is_empty() {
        let begins = |end: &usize| rest[end + 2..].starts_with(|c: char| c.is_ascii_uppercase() || "`*[".contains(c));
        let end = rest.match_indices(". ").map(|(end, _)| end).find(begins);
        let (sentence, behind) = end.map_or((rest, ""), |end| (&rest[..=end], &rest[end + 2..]));
        if !sentence.ends_with(':') {
            sentences.insert(sentence.to_string());
        }
        rest = behind;
    }
}

#[test]
fn the_documents_are_covered() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let titles: BTreeSet<String> =
        CHAPTERS.iter().flat_map(|(_, text)| promises(text)).map(|promise| promise.title).collect();
    let (mut listed, mut shown, mut wrong, mut last) = (BTreeSet::new(), BTreeSet::new(), Vec::new(), None);
    for line in SENTENCES.lines().filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with("##"))
    {
        match (line.strip_prefix("= "), line.strip_prefix("- ")) {
            (Some(title), _) => {
                last = None;
                shown.insert(title.to_string());
            }
            (_, Some(reason)) => {
                last = None;
                let named = reason.split_whitespace().map(|word| word.trim_end_matches(','));
                let missing = named.filter(|word| word.starts_with("tests/") && !root.join(word).exists());
                wrong.extend(missing.map(|path| format!("there is no {path}")));
            }
            _ => {
                wrong.extend(last.replace(line).map(|before| format!("has neither transcript nor reason: {before}")));
                listed.insert(line.to_string());
            }
        }
    }
    let pages = sentences_of_pages();
    wrong.extend(pages.difference(&listed).map(|sentence| format!("is in docs/ only: {sentence}")));
    wrong.extend(listed.difference(&pages).map(|sentence| format!("is not in docs/: {sentence}")));
    wrong.extend(shown.difference(&titles).map(|title| format!("there is no transcript: {title}")));
    assert!(wrong.is_empty(), "tests/spec/sentences.txt:\n{}", wrong.join("\n"));
}
