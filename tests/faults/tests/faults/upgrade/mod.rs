//! Pairs of servers: the one under test and the builds of `scripts/servers`. The claims of `docs/upgrade.md` are tested
//! on each pair ([`pairs`]), and its steps under load, with Sentinels ([`rolling`]). If a server has not been built,
//! its tests are skipped: `make servers` builds them all.

mod pairs;
mod rolling;

const UPGRADE: &str = include_str!("../../../../../docs/upgrade.md");

/// Whether docs/upgrade.md has `yes` in the row of the primary and the column of the replica.
#[track_caller]
fn should_follow(primary: &str, replica: &str) -> bool {
    let mut column = None;
    for line in UPGRADE.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells[..] {
            [_, "primary", ..] => column = cells.iter().position(|cell| *cell == replica),
            [_, name, ..] if name == primary && column.is_some() => {
                return cells[column.expect("it was looked at")] == "yes";
            }
            _ => {}
        }
    }
    panic!("docs/upgrade.md does not say whether {replica} follows {primary}");
}
