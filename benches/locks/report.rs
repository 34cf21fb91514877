//! The output of the benchmark: a table on the terminal after each workload, and at the end results/benchmarks.md with
//! its plots. Ratios come first, and missed targets are shown like met ones.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::plots;
use crate::reasons::{Missed, Reasons};
use crate::rivals;
use crate::scale::Scale;
use crate::section::{Section, Verdict};

/// The results of one server.
pub struct Chapter {
    pub version: String,
    pub sections: Vec<Section>,
}

impl Chapter {
    fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.sections.iter().flat_map(|section| &section.verdicts)
    }

    fn verdict(&self, what: &str) -> Option<&Verdict> {
        self.verdicts().find(|verdict| verdict.what == what)
    }
}

pub fn print(section: &Section) {
    print!("{}", section.terminal());
}

/// Writes benchmarks.md and the data of its charts into `directory`.
pub fn write(directory: &Path, chapters: &[Chapter], machine: &str, scale: Scale, command: &str) -> io::Result<()> {
    let plots_directory = directory.join("benchmarks");
    std::fs::create_dir_all(&plots_directory)?;
    let mut text = String::from("# Benchmarks\n\n");
    let versions: Vec<&str> = chapters.iter().map(|chapter| chapter.version.as_str()).collect();
    let size = scale.pick("the full run", "a quick run with small workloads, so the figures are less precise");
    let _ = write!(
        text,
        "Written by `{command}` ({size}), not by hand. Ratios come first, because they carry over to other machines, \
         and absolute times do not.\n\
         A comparison in which the module loses is shown like any other.\n\n\
         Machine: {machine}. Servers: {}, started for this run, on the loopback interface, with the stock \
         configuration\n(stock save points, no AOF) unless a section says otherwise.\n\
         \"12 (11 to 13)\" means a median of 12 with quartiles of 11 and 13.\n\n",
        versions.join(", ")
    );
    targets(&mut text, chapters);
    text.push_str(&Reasons::written().markdown(&missed(chapters)));

    text.push_str("\n## The implementations\n\n| implementation | what its users send |\n| --- | --- |\n");
    for rival in rivals::ALL {
        let _ = writeln!(text, "| {} | {} |", rival.name, rival.how);
    }
    text.push_str(
        "\nLeases are 30 s, scripts are called by EVALSHA, and an implementation that polls sleeps for the \
         time in its name.\n",
    );

    let Some(first) = chapters.first() else {
        return std::fs::write(directory.join("benchmarks.md"), text);
    };
    for (number, section) in first.sections.iter().enumerate() {
        let _ = write!(text, "\n## {}\n\n{}\n", section.title, section.method);
        for chapter in chapters {
            let Some(section) = chapter.sections.get(number) else { continue };
            let _ = write!(text, "\n### {}\n\n{}", chapter.version, section.markdown());
            if let Some(plot) = &section.plot {
                let name = plot.name(&chapter.version);
                let _ = write!(text, "\n![{} on {}](benchmarks/{name})\n", section.title, chapter.version);
            }
        }
    }
    for chapter in chapters {
        let plots = chapter.sections.iter().filter_map(|section| section.plot.as_ref());
        plots::write(&plots_directory, &chapter.version, plots)?;
    }
    std::fs::write(directory.join("benchmarks.md"), text)
}

/// Every target with its measured ratios, one column for each server.
fn targets(text: &mut String, chapters: &[Chapter]) {
    text.push_str("## Targets\n\n");
    for chapter in chapters {
        let measured = chapter.verdicts().filter(|verdict| verdict.is_there()).count();
        let reached = chapter.verdicts().filter(|verdict| verdict.is_there() && !verdict.is_missed()).count();
        let _ = writeln!(text, "- {}: {reached} of {measured} reached", chapter.version);
    }
    text.push_str("\n| what | target |");
    for chapter in chapters {
        let _ = write!(text, " {} |", chapter.version);
    }
    text.push_str("\n| --- | --- |");
    text.push_str(&" --- |".repeat(chapters.len()));
    text.push('\n');
    let sections = chapters.first().map_or(&[][..], |chapter| &chapter.sections);
    for (number, section) in sections.iter().enumerate() {
        let rows = target_rows(chapters, number);
        if !rows.is_empty() {
            let _ = write!(text, "| **{}** | |{}\n{rows}", section.title, " |".repeat(chapters.len()));
        }
    }
}

/// The targets of one section.
fn target_rows(chapters: &[Chapter], number: usize) -> String {
    let mut text = String::new();
    let mut seen = Vec::new();
    let sections = chapters.iter().filter_map(|chapter| chapter.sections.get(number));
    for verdict in sections.flat_map(|section| &section.verdicts) {
        if seen.contains(&&verdict.what) {
            continue;
        }
        seen.push(&verdict.what);
        let own = chapters.iter().map(|chapter| chapter.verdict(&verdict.what));
        let is_common = own.clone().flatten().all(|other| other.target() == verdict.target());
        let target = if is_common { verdict.target() } else { "each its own".to_owned() };
        let _ = write!(text, "| {} | {target} |", verdict.what);
        for verdict in own {
            let cell = verdict.map(|verdict| {
                if is_common {
                    verdict.cell()
                } else {
                    format!("{}; {}", verdict.cell(), verdict.target())
                }
            });
            let _ = write!(text, " {} |", cell.unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

/// The targets missed on at least one server, in table order.
fn missed(chapters: &[Chapter]) -> Vec<Missed<'_>> {
    let mut all: Vec<Missed> = Vec::new();
    for chapter in chapters {
        for verdict in chapter.verdicts().filter(|verdict| verdict.is_missed()) {
            match all.iter_mut().find(|missed| missed.target == verdict.what) {
                Some(missed) => missed.servers.push(&chapter.version),
                None => all.push(Missed { target: &verdict.what, servers: vec![&chapter.version] }),
            }
        }
    }
    all
}
