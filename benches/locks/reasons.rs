//! The reasons for missed targets: written by hand in benches/locks/why.md, printed by each run that misses the target.
//!
//! The heading `## missed: NAME | NAME` starts the reason for targets whose names start with NAME; the longest match
//! wins. Text under any other heading is always printed. Text before the first heading is for editors of the file.

use std::fmt::Write as _;

#[derive(Default)]
pub struct Reasons {
    missed: Vec<Reason>,
    /// Sections that are printed in every report.
    always: String,
}

struct Reason {
    /// Prefixes of the targets' names.
    targets: Vec<String>,
    text: String,
}

/// A missed target, and the servers that missed it.
pub struct Missed<'a> {
    pub target: &'a str,
    pub servers: Vec<&'a str>,
}

impl Reasons {
    /// Reads the reasons of this source tree, independent of where the report is written.
    pub fn written() -> Reasons {
        Reasons::parse(include_str!("why.md"))
    }

    fn parse(text: &str) -> Reasons {
        let mut reasons = Reasons::default();
        let mut parts = text.split("\n## ");
        // The text before the first heading.
        parts.next();
        for part in parts {
            let (heading, body) = part.split_once('\n').unwrap_or((part, ""));
            match heading.strip_prefix("missed: ") {
                Some(targets) => reasons.missed.push(Reason {
                    targets: targets.split('|').map(|target| target.trim().to_owned()).collect(),
                    text: body.trim().to_owned(),
                }),
                None => {
                    let _ = write!(reasons.always, "\n### {heading}\n\n{}\n", body.trim());
                }
            }
        }
        reasons
    }

    /// Each reason under its targets, then the targets without a reason, then the text that is always printed.
    pub fn markdown(&self, missed: &[Missed]) -> String {
        let mut text = String::new();
        for (index, reason) in self.missed.iter().enumerate() {
            text.push_str(&paragraph(missed, |missed| self.reason_for(missed) == Some(index), &reason.text));
        }
        let is_unexplained = |missed: &Missed| self.reason_for(missed).is_none();
        text.push_str(&paragraph(missed, is_unexplained, "No reason is recorded."));
        if !text.is_empty() {
            text.insert_str(0, "\n### What was missed, and why\n");
        }
        text + &self.always
    }

    /// The index of the reason with the longest matching prefix.
    fn reason_for(&self, missed: &Missed) -> Option<usize> {
        let lengths = self.missed.iter().map(|reason| reason.known_of(missed.target)).enumerate();
        let known = lengths.filter_map(|(index, length)| Some((length?, index)));
        known.max().map(|(_, index)| index)
    }
}

/// The text below the targets that it explains; nothing if none of them was missed.
fn paragraph(missed: &[Missed], is_for: impl Fn(&Missed) -> bool, text: &str) -> String {
    let targets: String = missed.iter().filter(|missed| is_for(missed)).map(Missed::line).collect();
    if targets.is_empty() {
        return targets;
    }
    format!("\n{targets}\n{text}\n")
}

impl Reason {
    /// The length of the longest prefix that matches the target's name, if any.
    fn known_of(&self, target: &str) -> Option<usize> {
        let known = self.targets.iter().filter(|begin| target.starts_with(begin.as_str()));
        known.map(String::len).max()
    }
}

impl Missed<'_> {
    fn line(&self) -> String {
        format!("- **{}** on {}\n", self.target, self.servers.join(", "))
    }
}
