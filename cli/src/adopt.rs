//! `redis-lock adopt`: whether the patterns of lock.adopt and lock.adopt-observe suit the way clients use their keys.

use std::collections::BTreeMap;
use std::fmt::Write;

use redis::cmd;
use serde::Serialize;

use crate::args::{AdoptArgs, ConnectionArgs};
use crate::condition::report_other_nodes;
use crate::error::Error;
use crate::message::say;
use crate::output::{columns, print, print_json, Format};
use crate::reply::Fields;
use crate::servers::Servers;
use crate::text::{wrapped, Text};

/// The fields of LOCK.ADOPTION REPORT, and the server that reported them.
#[derive(Serialize)]
struct Pattern {
    server: String,
    pattern: Text,
    mode: String,
    keys: BTreeMap<String, u64>,
    grant: u64,
    refuse: u64,
    renew: u64,
    takeover: u64,
    release: u64,
    release_without_token: u64,
    wait: u64,
    protected: u64,
    noperm: u64,
    wrongtype: BTreeMap<String, u64>,
    no_lease: u64,
    values_empty: u64,
    values_long: u64,
    values_time: u64,
    values_counter: u64,
    clients: u64,
    users: Vec<String>,
    nearest: Text,
    fits: String,
    reason: String,
}

pub async fn adopt(args: AdoptArgs, server: &ConnectionArgs) -> Result<(), Error> {
    let mut patterns = Vec::new();
    let mut servers = Servers::connect(server).await?;
    for (server, reply) in servers.query_all(cmd("LOCK.ADOPTION").arg("REPORT")).await? {
        for fields in Fields::all_of(reply)? {
            patterns.push(Pattern::decode(server.clone(), fields)?);
        }
    }
    match Format::new(args.json) {
        Format::Json => print_json(&patterns)?,
        Format::Text if patterns.is_empty() => {
            say(format_args!("no patterns are set: set lock.adopt-observe first to observe clients, then lock.adopt"));
        }
        Format::Text => {
            let has_multiple = servers.names().len() > 1;
            let advice: Vec<String> = patterns.iter().map(|pattern| pattern.advice(has_multiple)).collect();
            print(&advice.join("\n"))?;
        }
    }
    report_other_nodes(&servers).await;
    servers.complete()
}

impl Pattern {
    fn decode(server: String, mut fields: Fields) -> Result<Pattern, Error> {
        Ok(Pattern {
            server,
            pattern: fields.text("pattern")?,
            mode: fields.string("mode")?,
            keys: fields.counts("keys")?,
            grant: fields.count("grant")?,
            refuse: fields.count("refuse")?,
            renew: fields.count("renew")?,
            takeover: fields.count("takeover")?,
            release: fields.count("release")?,
            release_without_token: fields.count("release_without_token")?,
            wait: fields.count("wait")?,
            protected: fields.count("protected")?,
            noperm: fields.count("noperm")?,
            wrongtype: fields.counts("wrongtype")?,
            no_lease: fields.count("no_lease")?,
            values_empty: fields.count("values_empty")?,
            values_long: fields.count("values_long")?,
            values_time: fields.count("values_time")?,
            values_counter: fields.count("values_counter")?,
            clients: fields.count("clients")?,
            users: fields.strings("users")?,
            nearest: fields.text("nearest")?,
            fits: fields.string("fits")?,
            reason: fields.string("reason")?,
        })
    }

    /// The verdict on the pattern, its remarks and counters, as text.
    fn advice(&self, has_multiple: bool) -> String {
        let verdict = match self.fits.as_str() {
            "yes" => "fits",
            "remark" => "fits, with a remark",
            "no" => "does not fit",
            "no match" => "matches nothing",
            other => other,
        };
        let mode = match self.mode.as_str() {
            "observe" => "observed",
            "former" => "turned off",
            _ => "adopted",
        };
        let at = if has_multiple { format!(" at {}", self.server) } else { String::new() };
        let mut text = format!("{}  {verdict}  ({mode}{at})\n", self.pattern);
        let remarks = self.reason.split("; ").filter(|remark| !remark.is_empty()).map(str::to_string);
        let is_unmatched = self.fits == "no match" && !self.nearest.0.is_empty();
        let nearest = is_unmatched.then(|| format!("the nearest key is {}", self.nearest));
        for remark in remarks.chain(nearest).chain([self.counts()]) {
            let width = columns().unwrap_or(usize::MAX).saturating_sub(4).max(20);
            for line in wrapped(&remark, width) {
                // Writing into a string cannot fail.
                let _ = writeln!(text, "    {line}");
            }
        }
        text
    }

    fn counts(&self) -> String {
        let kinds = self.keys.iter().map(|(kind, count)| format!("{count} of type {kind}"));
        let keys = if self.keys.is_empty() { "no key".to_string() } else { kinds.collect::<Vec<_>>().join(", ") };
        let Pattern { grant, refuse, renew, takeover, release, clients, .. } = self;
        let acts = [
            (grant, "granted"),
            (refuse, "refused"),
            (renew, "renewed"),
            (takeover, "taken over"),
            (release, "released"),
            (clients, "clients"),
        ];
        // Redis 7.0 does not reveal which connection sent an observed command.
        let is_known = |(count, name): &&(&u64, &str)| **count > 0 || *name != "clients";
        let acts = acts.iter().filter(is_known).map(|(count, name)| format!("{count} {name}"));
        let acts = acts.collect::<Vec<_>>().join(", ");
        format!("now {keys}; {acts}")
    }
}
