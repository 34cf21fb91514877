//! Two servers beside each other: the tested one and the builds of `scripts/servers`. The claims of `docs/upgrade.md`
//! on each pair are tried ([`pairs`]), and its steps are taken under load, under Sentinels ([`rolling`]). Where a
//! server is not built, its tests are skipped: `make servers` builds them all.

mod pairs;
mod rolling;

const UPGRADE: &str = include_str!("../../../../../docs/upgrade.md");

/// Whether docs/upgrade.md has `yes` where the row of the primary meets the column of the replica.
#[track_caller]
fn is_told_to_follow(primary: &str, replica: &str) -> bool {
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
