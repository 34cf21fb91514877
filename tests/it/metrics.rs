//! docs/metrics.md and contrib/prometheus: the script runs in a real redis_exporter with a real server, and exports
//! everything that the alert rules and the dashboard query. promtool reads the rules and runs their own tests.

mod exposition;
mod script;
mod situations;
mod tools;
mod written;

use crate::support::waiting::{hold, quiet, Waiter};
use crate::support::{free_port, in_sync, until, Client, Reply, Server};
use exposition::{selectors, Sample, Selector};
use std::fmt::Write;
use std::fs;
use tools::{promtool, root, tool, Exporter};
use written::{alerts, dashboard, list, queries, text, variables, Query, ALERTS, ALERTS_TEST};

const DOC: &str = include_str!("../../docs/metrics.md");
const WHAT_TO_DO: &str = include_str!("../../docs/alerts.md");

/// A server with locks of every type, its replica, and waiters.
struct World {
    primary: Server,
    replica: Server,
    _waiters: Vec<Waiter>,
}

/// Two mutexes, one reentrant lock, two read/write locks and a semaphore; three waiters, one of which waits twice.
fn world() -> World {
    let primary = quiet().config("maxmemory 1gb").config("maxmemory-policy allkeys-lru").start();
    let replica = Server::builder().replica_of(&primary).start();
    let mut client = primary.client();
    set_up_the_user(&mut client);
    set_up_the_user(&mut replica.client());
    hold(&mut client, "m1", "a");
    hold(&mut client, "m2", "b");
    let mut waiters = vec![
        Waiter::park(&primary, "LOCK.ACQUIRE m2 a BLOCK 0"),
        Waiter::park(&primary, "LOCK.ACQUIRE m2 c BLOCK 0"),
        Waiter::park(&primary, "LOCK.ACQUIRE m1 d BLOCK 0"),
    ];
    assert!(client.run("LOCK.ACQUIRE m1 b BLOCK 0").error().starts_with("DEADLOCK "));
    assert!(client.run("LOCK.ACQUIRE m1 e").is_nil());
    for line in
        ["RLOCK.ACQUIRE r a", "RWLOCK.ACQUIRE rw1 a READ", "RWLOCK.ACQUIRE rw2 a WRITE", "SEM.ACQUIRE s a LIMIT 9"]
    {
        client.run(line).fence();
    }
    // One hand-off, one renewal, one release that finds no holder.
    hold(&mut client, "m3", "x");
    let mut next = Waiter::park(&primary, "LOCK.ACQUIRE m3 y BLOCK 0");
    client.run("LOCK.RELEASE m3 x");
    next.granted("y");
    client.run("LOCK.RENEW m3 y");
    client.run("LOCK.RELEASE m3 y");
    waiters.push(next);
    in_sync(&primary, &replica);
    World { primary, replica, _waiters: waiters }
}

/// As in docs/metrics.md.
#[track_caller]
fn set_up_the_user(client: &mut Client) {
    let lines: Vec<&str> = DOC.lines().filter_map(|line| line.strip_prefix("127.0.0.1:6379> ")).collect();
    assert!(!lines.is_empty());
    for line in lines {
        assert_eq!(client.run(line), Reply::ok(), "{line}");
    }
}

/// The fenced blocks of shell commands in docs/metrics.md.
fn shell_blocks() -> Vec<&'static str> {
    DOC.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

/// The exporter, started with the command of docs/metrics.md; None if it is not installed.
fn exporter(server: &Server, arguments: &str) -> Option<Exporter> {
    let program = tool("exporter")?;
    let command = shell_blocks().into_iter().find(|block| block.contains("-script")).expect("a command");
    Some(Exporter::start(&program, command, server.port(), server.dir(), arguments))
}

/// The only sample of a metric, or of a value of the script.
#[track_caller]
fn value(samples: &[Sample], name: &str) -> f64 {
    let found: Vec<&Sample> = samples.iter().filter(|sample| is_called(sample, name)).collect();
    let [sample] = found.as_slice() else { panic!("{} samples of {name}", found.len()) };
    sample.value
}

fn is_called(sample: &Sample, name: &str) -> bool {
    sample.series.metric == name || (is_of_the_script(sample) && sample.series.label("key") == Some(name))
}

fn is_of_the_script(sample: &Sample) -> bool {
    sample.series.metric == "redis_script_values"
}

#[test]
fn exported_values_match_the_server() {
    let world = world();
    let Some(exporter) = exporter(&world.primary, "") else { return };
    let samples = exporter.scrape();
    assert_eq!(
        (value(&samples, "redis_up"), value(&samples, "redis_connected_slaves")),
        (1.0, 1.0),
        "{}",
        exporter.log()
    );
    let expected = [
        ("lock_held_mutex", 2.0),
        ("lock_held_reentrant", 1.0),
        ("lock_held_rw", 2.0),
        ("lock_held_semaphore", 1.0),
        ("lock_waiters", 3.0),
        ("lock_grants_immediate", 7.0),
        ("lock_grants_after_wait", 1.0),
        ("lock_not_granted", 1.0),
        ("lock_deadlocks", 1.0),
        ("lock_releases", 2.0),
        ("lock_renewals", 1.0),
        ("lock_eviction_risk", 1.0),
        ("lock_wait_timeouts", 0.0),
        ("lock_last_fence", world.primary.info("lock").number("lock_last_fence") as f64),
    ];
    for (name, expected) in expected {
        assert_eq!(value(&samples, name), expected, "{name}");
    }
    assert_eq!(value(&samples, "lock_top_waiters"), 2.0);
    assert!(value(&samples, "lock_top_longest_ms") > 0.0 && value(&samples, "lock_top_held_ms") > 0.0);
    assert_eq!((value(&samples, "lock_top_free_ms"), value(&samples, "lock_refused_oom")), (0.0, 0.0));
    // A replica stores the locks but has no waiters.
    let replica = self::exporter(&world.replica, "").expect("it was there before").scrape();
    assert_eq!((value(&replica, "redis_up"), value(&replica, "redis_master_link_up")), (1.0, 1.0));
    assert_eq!((value(&replica, "lock_held_rw"), value(&replica, "lock_waiters")), (2.0, 0.0));
}

#[test]
fn everything_that_alerts_and_dashboard_query_is_exported() {
    let world = world();
    let Some(exporter) = exporter(&world.primary, "") else { return };
    let samples = exporter.scrape();
    let dashboard = dashboard();
    let rules = alerts().into_iter().map(|alert| Query { panel: alert.name, expression: alert.expression });
    let mut asked: Vec<Selector> = Vec::new();
    for query in rules.chain(queries(&dashboard)).chain(variables(&dashboard)) {
        let found = selectors(&query.expression);
        assert!(!found.is_empty(), "{}: {}", query.panel, query.expression);
        for selector in found {
            assert_exported(&samples, &selector, &query.panel);
            asked.push(selector);
        }
    }
    // Conversely, everything that the script exports is used and documented.
    for name in samples.iter().filter(|sample| is_of_the_script(sample)).filter_map(|sample| sample.series.label("key"))
    {
        let is_queried =
            |selector: &Selector| selector.label("key").is_some_and(|key| key.split('|').any(|key| key == name));
        assert!(asked.iter().any(is_queried), "neither a panel nor an alert shows {name}");
        let field = name.trim_start_matches("lock_");
        let is_named = [name, field].iter().any(|name| DOC.contains(&format!("`{name}`")));
        assert!(is_named, "docs/metrics.md does not name {name}");
    }
    for name in DOC.split('`').filter(|word| word.starts_with("lock_") && !word.contains(['…', ' '])) {
        assert!(samples.iter().any(|sample| is_called(sample, name)), "docs/metrics.md names {name}");
    }
}

/// Checks that there is such a sample; for alternative values, one for each.
#[track_caller]
fn assert_exported(samples: &[Sample], selector: &Selector, by: &str) {
    let of_the_metric: Vec<&Sample> = samples.iter().filter(|sample| sample.series.metric == selector.metric).collect();
    assert!(!of_the_metric.is_empty(), "{by} asks for {}, which is not exported", selector.metric);
    // Prometheus adds job and instance, and the dashboard's variables select by them.
    for label in selector.labels.iter().filter(|label| !["job", "instance"].contains(&label.name.as_str())) {
        assert!(["=", "=~"].contains(&label.operator.as_str()), "{by}: {selector:?}");
        for value in label.value.split('|') {
            let is_there = of_the_metric.iter().any(|sample| sample.series.label(&label.name) == Some(value));
            assert!(is_there, "{by} asks for {} with {}={value:?}", selector.metric, label.name);
        }
    }
}

/// Evaluated by Prometheus itself, over an hour in which the exporter repeats these samples.
#[test]
fn every_dashboard_query_returns_data() {
    let world = world();
    let (Some(promtool_path), Some(exporter)) = (tool("promtool"), exporter(&world.primary, "")) else { return };
    let mut test = String::from("evaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n");
    for sample in exporter.scrape().iter().filter(|sample| sample.series.metric.starts_with("redis_")) {
        // JSON strings are valid YAML.
        let series = serde_json::json!(series(&sample.series));
        writeln!(test, "      - {{series: {series}, values: {}+0x60}}", sample.value).expect("a string takes it");
    }
    test.push_str("    promql_expr_test:\n");
    let queries = queries(&dashboard());
    assert!(queries.len() > 30, "only {} queries were found", queries.len());
    for query in queries {
        let shows = serde_json::json!(format!("count({}) > bool 0", query.expression));
        writeln!(test, "      - {{expr: {shows}, eval_time: 60m, exp_samples: [{{value: 1}}]}}")
            .expect("a string takes it");
    }
    fs::write(world.primary.dir().join("dashboard_test.yml"), test).expect("the test is written");
    promtool(&promtool_path, world.primary.dir(), &["test", "rules", "dashboard_test.yml"]);
}

/// As Prometheus stores it.
fn series(selector: &Selector) -> String {
    let labels = selector.labels.iter().map(|label| format!(", {}={}", label.name, serde_json::json!(label.value)));
    format!("{}{{job=\"redis\", instance=\"a\"{}}}", selector.metric, labels.collect::<String>())
}

#[test]
fn the_rules_pass_promtool_and_their_tests() {
    let Some(program) = tool("promtool") else { return };
    let block = shell_blocks().into_iter().find(|block| block.contains("promtool")).expect("a command");
    for line in block.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], "promtool");
        promtool(&program, root(), &words[1..]);
    }
}

/// alerts_test.yml checks that each alert fires where it should and only there.
#[test]
fn every_alert_is_tested_and_says_what_to_do() {
    let alerts = alerts();
    assert_eq!(alerts.len(), ALERTS.matches("\n        expr: ").count(), "all are read");
    for alert in &alerts {
        let name = &alert.name;
        assert!(ALERTS_TEST.contains(&format!("alertname=\"{name}\"")), "{name} never fires in alerts_test.yml");
        assert!(["critical", "warning", "info"].contains(&alert.severity.as_str()), "{name}");
        let row = format!("\n| [{name}](#{}) | {} |", name.to_lowercase(), alert.severity);
        assert!(WHAT_TO_DO.contains(&row), "docs/alerts.md has no row for {name}");
        assert_eq!(alert.runbook, format!("docs/alerts.md#{}", name.to_lowercase()));
        assert!(WHAT_TO_DO.contains(&format!("# {name}\n")), "no heading says what to do about {name}");
    }
    assert_eq!(WHAT_TO_DO.matches("\n| [RedisLock").count(), alerts.len(), "docs/alerts.md has rows of other alerts");
}

#[test]
fn the_panels_of_the_dashboard_do_not_overlap() {
    let dashboard = dashboard();
    let panels = list(&dashboard["panels"]);
    let mut taken = Vec::new();
    for (index, panel) in panels.iter().enumerate() {
        let title = text(&panel["title"]);
        assert!(panels[..index].iter().all(|other| other["id"] != panel["id"]), "{title}: its id");
        assert!(panel["type"] == "row" || !text(&panel["description"]).is_empty(), "{title}");
        let position = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        assert!(position("x") + position("w") <= 24, "{title} is outside");
        for y in position("y")..position("y") + position("h") {
            for x in position("x")..position("x") + position("w") {
                assert!(!taken.contains(&(x, y)), "{title} lies on another panel");
                taken.push((x, y));
            }
        }
    }
}

/// With the permissions of docs/metrics.md nothing is refused except CONFIG GET.
#[test]
fn the_user_of_the_docs_may_do_what_the_exporter_does() {
    let world = world();
    let Some(exporter) = exporter(&world.primary, "") else { return };
    assert_eq!(value(&exporter.scrape(), "redis_up"), 1.0);
    assert_eq!(refused(&mut world.primary.client()), ["config|get"]);
}

/// The same with the user `dashboard` of docs/acl.md, which may also inspect locks.
#[test]
fn the_dashboard_user_may_do_what_the_exporter_does() {
    let server = quiet().start();
    let mut client = server.client();
    let line = crate::permissions::user_of_the_document(&mut client, "dashboard");
    let rules: Vec<&str> = line.split(' ').skip(1).collect();
    assert_eq!(client.cmd(&[&["ACL", "SETUSER"], &rules[..]].concat()), Reply::ok());
    let Some(program) = tool("exporter") else { return };
    let command = "prometheus-redis-exporter -redis.addr redis://127.0.0.1:6379 \
        -script contrib/prometheus/redis-lock.lua -web.listen-address 127.0.0.1:9121";
    let command = format!("export REDIS_USER=dashboard REDIS_PASSWORD=dashboard-secret; {command}");
    let exporter = Exporter::start(&program, &command, server.port(), server.dir(), "");
    let samples = exporter.scrape();
    assert_eq!((value(&samples, "redis_up"), value(&samples, "lock_top_waiters")), (1.0, 0.0), "{}", exporter.log());
    assert_eq!(refused(&mut client), ["config|get"]);
}

/// As described in docs/tls.md.
#[test]
fn the_exporter_reads_a_server_over_tls() {
    let Some(certificates) = crate::tls::certificates() else { return };
    let port = free_port();
    let Some(server) = crate::tls::start(quiet(), &certificates, port) else { return };
    set_up_the_user(&mut server.client());
    let page = include_str!("../../docs/tls.md");
    let options = "`-redis.addr rediss://locks.example:6379` and\n  `-tls-ca-cert-file /etc/redis/tls/ca.crt`";
    assert!(page.contains(options), "the page has other options");
    let folder = certificates.path().display();
    let options = format!("-redis.addr rediss://127.0.0.1:{port} -tls-ca-cert-file {folder}/ca.crt");
    let Some(exporter) = exporter(&server, &options) else { return };
    let samples = exporter.scrape();
    assert_eq!((value(&samples, "redis_up"), value(&samples, "lock_waiters")), (1.0, 0.0), "{}", exporter.log());
}

/// The refusals in ACL LOG.
fn refused(client: &mut Client) -> Vec<String> {
    let log = client.run("ACL LOG");
    log.items().iter().map(|entry| entry.get("object").text().to_string()).collect()
}

/// The server refuses scripts during that time, and the exporter reports it as down; afterwards everything is normal.
#[test]
fn a_loading_server_is_down_until_it_has_loaded() {
    let world = world();
    let Some(exporter) = exporter(&world.primary, "") else { return };
    let mut loader = world.primary.client();
    // 10 ms for each key; the server processes events after each KB.
    loader.run("DEBUG POPULATE 1000 key 100");
    for setting in ["loading-process-events-interval-bytes 1024", "key-load-delay 10000"] {
        assert_eq!(loader.run(&format!("CONFIG SET {setting}")), Reply::ok());
    }
    loader.send_line("DEBUG RELOAD");
    until("it loads", || world.primary.info("persistence").number("loading") == 1);
    let samples = exporter.scrape();
    assert_eq!((value(&samples, "redis_up"), value(&samples, "redis_loading_dump_file")), (0.0, 1.0));
    assert_eq!(world.primary.client().run("CONFIG SET key-load-delay 0"), Reply::ok());
    assert_eq!(loader.read(), Reply::ok());
    assert_eq!(value(&exporter.scrape(), "redis_up"), 1.0);
}
