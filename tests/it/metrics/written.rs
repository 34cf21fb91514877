//! Parses the queries in contrib/prometheus, the alert rules and the dashboard, as far as the tests need them.

use serde_json::Value as Json;

pub const ALERTS: &str = include_str!("../../../contrib/prometheus/alerts.yml");
pub const ALERTS_TEST: &str = include_str!("../../../contrib/prometheus/alerts_test.yml");
pub const DASHBOARD: &str = include_str!("../../../contrib/prometheus/dashboard.json");

pub struct Alert {
    pub name: String,
    pub expression: String,
    pub severity: String,
    pub runbook: String,
}

/// The rules, in the only form that alerts.yml uses. promtool parses the YAML properly.
pub fn alerts() -> Vec<Alert> {
    ALERTS.split("- alert: ").skip(1).map(alert).collect()
}

fn alert(text: &str) -> Alert {
    let field = |name: &str| {
        let name = format!(" {name}: ");
        let value = text.lines().find_map(|line| Some(line.split_once(&name)?.1));
        value.unwrap_or_else(|| panic!("no {name}in {text}")).to_string()
    };
    let mut expression = field("expr");
    if expression == "|" {
        let lines = text.lines().skip_while(|line| !line.ends_with("expr: |")).skip(1);
        let lines = lines.take_while(|line| line.starts_with("          "));
        expression = lines.collect::<Vec<_>>().join("\n");
    }
    let name = text.lines().next().unwrap_or_default().to_string();
    assert!(!field("summary").is_empty() && text.contains(" description: >-\n"), "{name}");
    Alert { name, expression, severity: field("severity"), runbook: field("runbook") }
}

/// A query of the dashboard, with its variables filled in.
pub struct Query {
    pub panel: String,
    pub expression: String,
}

pub fn dashboard() -> Json {
    serde_json::from_str(DASHBOARD).expect("the dashboard is JSON")
}

pub fn queries(dashboard: &Json) -> Vec<Query> {
    let panels = list(&dashboard["panels"]);
    let of = |panel: &Json| -> Vec<Query> {
        let title = text(&panel["title"]);
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(|target| Query { panel: title.clone(), expression: filled(&text(&target["expr"])) }).collect()
    };
    panels.iter().flat_map(of).collect()
}

/// The queries that fill the dashboard's variables: the inside of `label_values(…, label)`.
pub fn variables(dashboard: &Json) -> Vec<Query> {
    let variables = list(&dashboard["templating"]["list"]);
    let queried = variables.iter().filter(|variable| variable["type"] == "query");
    let query = |variable: &Json| {
        let query = text(&variable["query"]["query"]);
        let inside = query.strip_prefix("label_values(").and_then(|query| Some(query.rsplit_once(", ")?.0));
        let inside = inside.unwrap_or_else(|| panic!("{query}"));
        Query { panel: text(&variable["name"]), expression: filled(inside) }
    };
    queried.map(query).collect()
}

/// Replaces variables as Grafana does if everything is selected.
fn filled(expression: &str) -> String {
    expression.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")
}

pub fn list(value: &Json) -> &[Json] {
    value.as_array().expect("a list")
}

pub fn text(value: &Json) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_string()
}
