//! Integration tests: real servers with the module loaded, real connections, one binary.
//!
//! Each module covers one subject, and each test is named after the promise it checks. The promises are in README.md,
//! docs/ and the commands' own documentation; the tests do not depend on the module's internals.

mod adopt;
mod churn;
mod clock;
mod cluster;
mod deadlock;
mod disorder;
mod docs;
mod endings;
mod errors;
mod exec;
mod families;
mod fences;
mod gates;
mod grace;
mod hints;
mod hostile;
mod info;
mod inspecting;
mod leaving;
mod loading;
mod metrics;
mod migrate_slots;
mod model;
mod moving;
mod notify;
mod observing;
mod other_modules;
mod package;
mod pages;
mod permissions;
mod predecessors;
mod random;
mod readme;
mod reference;
mod removal;
mod replication;
mod reshard;
mod rewriting;
mod runbook;
mod safety;
mod sessions;
mod several;
mod sizing;
mod stable;
mod stalls;
mod stored;
mod support;
mod tls;
mod tokens;
mod turns;
mod undelivered;
mod waiting;
mod writing_a_client;
