//! Why targets were missed: written by hand in docs/benchmarks/why.md, printed by every run where it applies.
//!
//! Figures come from the run; reasons outlive it. `## missed: NAME | NAME` opens the reason for the targets whose names
//! begin so; what stands under any other heading is printed always. What stands before the first heading is for whoever
//! edits the file.

use std::fmt::Write as _;

#[derive(Default)]
pub struct Reasons {
    missed: Vec<Reason>,
    /// Sections that are printed whatever was measured.
    always: String,
}

struct Reason {
    /// How the targets' names begin.
    targets: Vec<String>,
    text: String,
}

/// A target that was missed, and where.
pub struct Missed<'a> {
    pub target: &'a str,
    pub servers: Vec<&'a str>,
}

impl Reasons {
    pub fn parse(text: &str) -> Reasons {
        let mut reasons = Reasons::default();
        let mut parts = text.split("\n## ");
        // The first part has no heading.
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

    /// Each reason under the targets that it is for, then the targets that have none, then what is printed always.
    pub fn markdown(&self, missed: &[Missed]) -> String {
        let mut text = String::new();
        let mut explained = Vec::new();
        for reason in &self.missed {
            let own: Vec<&Missed> = missed.iter().filter(|missed| reason.explains(missed.target)).collect();
            if own.is_empty() {
                continue;
            }
            text.push('\n');
            own.iter().for_each(|missed| text.push_str(&missed.line()));
            let _ = write!(text, "\n{}\n", reason.text);
            explained.extend(own.iter().map(|missed| missed.target));
        }
        let others: Vec<&Missed> = missed.iter().filter(|missed| !explained.contains(&missed.target)).collect();
        if !others.is_empty() {
            text.push('\n');
            others.iter().for_each(|missed| text.push_str(&missed.line()));
            text.push_str("\nNobody has written down why.\n");
        }
        if !text.is_empty() {
            text.insert_str(0, "\n### What was missed, and why\n");
        }
        text + &self.always
    }
}

impl Reason {
    fn explains(&self, target: &str) -> bool {
        self.targets.iter().any(|begin| target.starts_with(begin.as_str()))
    }
}

impl Missed<'_> {
    fn line(&self) -> String {
        format!("- **{}** on {}\n", self.target, self.servers.join(", "))
    }
}
